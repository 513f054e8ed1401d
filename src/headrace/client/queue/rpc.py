"""Calls to queues (`headrace.model.queue_wire`) over HTTP, with persistent connections that threads share.

A call is retried while no broker answers: one may be restarting, or another taking over. Every call is idempotent
except those in `_ONCE`.
"""

import ssl
import threading
import time
from base64 import b64encode
from collections import deque
from collections.abc import Callable, Sequence
from http import HTTPStatus
from typing import Any, TypeVar

import msgspec

from headrace.client.errors import ClientError, LeaseLost, NoSuchQueue, NotAuthenticated, QueueFailed, Unreachable
from headrace.client.kafka.librdkafka import log
from headrace.client.queue.http import HttpClientConnection
from headrace.model import queue_wire as wire
from headrace.model.backoff import ExponentialDelay, RetryDelays

_ANSWER_TIMEOUT_S = 30.0
_IDLE_S = 3.0
"""Connections that were idle for longer are not reused: the broker or a proxy may be closing them."""
_RETRY_DELAY_S = ExponentialDelay(0.05, 1.0)
_REGION = "us-east-1"
"""Signatures contain a region; brokers accept any."""
_ONCE = (wire.StartMove,)
"""Calls that are not idempotent."""
_TRANSIENT = frozenset({"QueueUnavailable", "StaleQueueLeader", "PeerUnavailable", "NoBrokerReady"})
"""Transient errors: a queue is being loaded, or has no leader at the moment."""
_KINDS: dict[str, type[QueueFailed]] = {
    "UnknownQueue": NoSuchQueue,
    "QueueElsewhere": NoSuchQueue,
    "NotInFlight": LeaseLost,
}

_encode = msgspec.msgpack.Encoder().encode
_answers: dict[type[msgspec.Struct], msgspec.msgpack.Decoder[Any]] = {
    call: msgspec.msgpack.Decoder(answer) for call, answer in wire.ANSWERS.items()
}
_problem = msgspec.msgpack.Decoder(wire.Problem)

T = TypeVar("T")

PATIENCE_S = 60.0
"""How long a call is retried when no broker answers: as long as the delivery of a message."""


class _NoResponse(Exception):
    """No valid response. `was_sent`: the broker may have received the call."""

    def __init__(self, text: str, *, was_sent: bool) -> None:
        super().__init__(text)
        self.was_sent = was_sent


class QueueRpc:
    """Calls to the first broker that answers. `find` returns the addresses, in order of preference, and is called again
    when all of them failed. `reach` raises `Unreachable` if no broker has ever answered: then a call does not wait."""

    def __init__(
        self,
        find: Callable[[], Sequence[str]],
        access_key: str = "",
        patience_s: float = PATIENCE_S,
        reach: Callable[[], None] = lambda: None,
        tls: ssl.SSLContext | None = None,
        login: tuple[str, str] | None = None,
    ) -> None:
        """Without an `access_key`, `login` is a user's name and password, sent over TLS or on this machine only."""
        self._login = login
        self._find = find
        self._reach = reach
        self._access_key = access_key
        self._tls = tls
        self._patience_s = patience_s
        self._lock = threading.Lock()
        self._urls: deque[str] = deque()
        self._idle: list[tuple[float, str, HttpClientConnection]] = []
        self._is_closed = False

    def call(
        self,
        request: msgspec.Struct,
        answer: type[T],
        *,
        longer_s: float = 0.0,
        patience_s: float | None = None,
        is_over: Callable[[], bool] = lambda: False,
    ) -> T:
        """Make a call; `longer_s` is added to the response timeout. Raises `QueueFailed` when it is refused, and
        `Unreachable` when no broker answers for `patience_s` (by default that of the client), or until
        `is_over`."""
        assert wire.ANSWERS[type(request)] is answer
        self._reach()
        give_up_at_s = time.monotonic() + (self._patience_s if patience_s is None else patience_s)
        delays = RetryDelays(_RETRY_DELAY_S)
        while True:
            wait_s = delays.next()
            try:
                return self._try(request, _ANSWER_TIMEOUT_S + longer_s)  # type: ignore[no-any-return]
            except _NoResponse as failure:
                if self._is_closed:
                    raise ClientError("the client is closed") from None
                if failure.was_sent and isinstance(request, _ONCE):
                    raise Unreachable(f"{failure}; it may have been executed") from None
                if is_over() or time.monotonic() + wait_s > give_up_at_s:
                    raise Unreachable(str(failure)) from None
                log.debug("retrying a call: %s", failure)
            except QueueFailed as failure:
                if failure.code not in _TRANSIENT or is_over() or time.monotonic() + wait_s > give_up_at_s:
                    raise
            time.sleep(wait_s)

    def close(self) -> None:
        self._is_closed = True
        with self._lock:
            idle, self._idle = self._idle, []
        for _, _, connection in idle:
            connection.close()

    def _try(self, request: msgspec.Struct, timeout_s: float) -> Any:
        url, connection = self._connection()
        is_new = not connection.is_open
        try:
            status, data = self._ask(connection, request, timeout_s)
        except ssl.SSLCertVerificationError as error:
            connection.close()
            raise NotAuthenticated(f"the certificate of {url} is not trusted: {error.verify_message}") from None
        except OSError as error:
            connection.close()
            if is_new:
                self._forget(url)
            was_sent = not isinstance(error, ConnectionRefusedError)
            raise _NoResponse(f"no broker answers at {url}: {_words(error)}", was_sent=was_sent) from None
        except BaseException:
            connection.close()
            raise
        self._keep(url, connection)
        try:
            if status == HTTPStatus.OK:
                return _answers[type(request)].decode(data)
            problem = _problem.decode(data)
        except msgspec.MsgspecError:
            text = data[:200].decode(errors="replace")
            raise ClientError(f"{url} is not a Headrace broker's address for queues: {status} {text}") from None
        raise failed(problem)

    def _ask(self, connection: HttpClientConnection, request: msgspec.Struct, timeout_s: float) -> tuple[int, bytes]:
        headers = {
            "Host": connection.host,
            "Content-Type": wire.MSGPACK,
            "X-Amz-Target": wire.TARGET_PREFIX + type(request).__name__,
        }
        body = _encode(request)
        if self._access_key:
            headers = _signed(headers, body, self._access_key)
        elif self._login is not None and connection.is_private:
            headers["Authorization"] = _basic(*self._login)
        return connection.post(headers, body, timeout_s)

    def _connection(self) -> tuple[str, HttpClientConnection]:
        now_s = time.monotonic()
        with self._lock:
            while self._idle:
                since_s, url, connection = self._idle.pop()
                if now_s - since_s < _IDLE_S and url in self._urls:
                    return url, connection
                connection.close()
            urls = list(self._urls)
        if not urls:
            try:
                urls = list(self._find())
            except Unreachable as error:
                raise _NoResponse(str(error), was_sent=False) from None
            with self._lock:
                self._urls = deque(urls)
        return urls[0], HttpClientConnection(urls[0], self._tls)

    def _keep(self, url: str, connection: HttpClientConnection) -> None:
        with self._lock:
            if not self._is_closed and connection.is_open:
                self._idle.append((time.monotonic(), url, connection))
                return
        connection.close()

    def _forget(self, url: str) -> None:
        """Let the next call use the next address; after the last one the addresses are discovered again. Only for a new
        connection: the broker may have closed an existing one because it was idle."""
        with self._lock:
            if url in self._urls:
                self._urls.remove(url)


def failed(problem: wire.Problem) -> QueueFailed:
    return _KINDS.get(problem.error, QueueFailed)(problem.message, code=problem.error)


def _basic(user: str, password: str) -> str:
    return f"Basic {b64encode(f'{user}:{password}'.encode()).decode()}"


def _signed(headers: dict[str, str], body: bytes, access_key: str) -> dict[str, str]:
    # Only here, for it is not needed on loopback.
    from headrace.model.sigv4 import sign

    key_id, _, secret = access_key.partition(":")
    when = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
    return headers | sign("POST", "/", headers, body, key_id=key_id, secret=secret, region=_REGION, when=when)


def _words(error: BaseException) -> str:
    return (str(error) or type(error).__name__).lower()
