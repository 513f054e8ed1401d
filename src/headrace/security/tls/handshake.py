"""Handshakes that tell the client why they failed.

asyncio and uvloop close a connection as soon as a handshake fails, with OpenSSL's alert unsent: clients would see the
end of the connection in place of `certificate required` or `protocol version`. If there is an alert, the handshake asks
the event loop for more input instead of failing, and the loop sends the pending alert. A client that reads it closes
the connection; one that does not is disconnected by the listener (`listener.py`), after a few more reads, or by the
loop's handshake timeout.
"""

import ssl
from collections.abc import Callable
from contextvars import ContextVar
from typing import Any

_READS_AFTER_FAILURE = 4
"""Bounds the input that is buffered for a failed handshake."""

FailureCallback = Callable[[str], None]

CONNECTION_FAILED: ContextVar[FailureCallback | None] = ContextVar("CONNECTION_FAILED", default=None)
"""Called with the reason if the handshake fails that is begun in this context. Event loops begin the handshake of an
accepted socket in the context of their caller, and give no other way to know one handshake from another."""


class ServerContext(ssl.SSLContext):
    """A context whose handshakes send alerts; `on_failure` is called with the reason of each that fails."""

    on_failure: FailureCallback | None = None

    def wrap_bio(self, incoming: ssl.MemoryBIO, outgoing: ssl.MemoryBIO, *args: Any, **kwargs: Any) -> ssl.SSLObject:
        made = super().wrap_bio(incoming, outgoing, *args, **kwargs)
        if isinstance(made, _AlertingHandshake):
            made.outgoing = outgoing
            made.connection_failed = CONNECTION_FAILED.get()
        return made


class _AlertingHandshake(ssl.SSLObject):
    outgoing: ssl.MemoryBIO
    connection_failed: FailureCallback | None = None
    _failure: ssl.SSLError | None = None
    _reads_left = _READS_AFTER_FAILURE

    def do_handshake(self) -> None:
        if self._failure is None:
            try:
                super().do_handshake()
                return
            except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
                raise
            except ssl.SSLError as error:
                self._failure = error
                self._report(error)
                if not self.outgoing.pending:
                    raise
        self._reads_left -= 1
        if self._reads_left < 0:
            raise self._failure
        raise ssl.SSLWantReadError

    def _report(self, error: ssl.SSLError) -> None:
        context, reason = self.context, handshake_reason(error)
        if isinstance(context, ServerContext) and context.on_failure is not None:
            context.on_failure(reason)
        if self.connection_failed is not None:
            self.connection_failed(reason)


ServerContext.sslobject_class = _AlertingHandshake


def handshake_reason(error: OSError) -> str:
    """Why a handshake failed: `certificate verify failed: certificate has expired`, `no shared cipher`."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"certificate verify failed: {error.verify_message}"
    if isinstance(error, ssl.SSLError) and error.reason:
        return str(error.reason).lower().replace("_", " ")
    return str(error) or "the connection was closed"
