"""The TLS contexts of a process, rebuilt when their files change.

asyncio keeps the context that a server or a connection was made with. `load_cert_chain` on that context is not enough:
OpenSSL holds one certificate for each type of key, so the old one stays beside a new one of another type, and
`load_verify_locations` only adds authorities. `_CurrentContext` therefore stands for a context and passes each new
handshake to the latest: chain, authorities and ticket keys all change at once. Open connections go on as they are.

Files are compared by modification time, size and inode, through symbolic links, so a rename over the file and a swap of
a folder's link (Kubernetes, certbot) are seen. A new file that cannot be used leaves everything as it is; the reason is
logged once, and the files are tried again at every check until they fit together.
"""

import asyncio
import logging
import os
import ssl
from collections import Counter
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Self

from headrace.model.client_auth import ClientAuth
from headrace.model.errors import SettingsError
from headrace.security.tls.certificates import CertificateDetails, details_of_file
from headrace.security.tls.context import TlsFiles, client_context, server_context

log = logging.getLogger(__name__)

WARN_BEFORE_DAYS = 30
_CHECK_EVERY_S = 5.0
_WARN_EVERY = timedelta(days=1)

_Fingerprint = tuple[tuple[int, int, int, int] | None, ...]
_Build = Callable[[TlsFiles], ssl.SSLContext]


class _CurrentContext(ssl.SSLContext):
    """A context that passes every new handshake to the latest one.

    It has no certificate of its own. Event loops and `wrap_socket` callers use only the methods below.
    """

    latest: ssl.SSLContext

    @classmethod
    def of(cls, context: ssl.SSLContext) -> Self:
        made = cls(context.protocol)
        made.latest = context
        return made

    def wrap_bio(self, *args: Any, **kwargs: Any) -> ssl.SSLObject:
        return self.latest.wrap_bio(*args, **kwargs)

    def wrap_socket(self, *args: Any, **kwargs: Any) -> ssl.SSLSocket:
        return self.latest.wrap_socket(*args, **kwargs)


class ReloadingTls:
    """The contexts made from one set of files. Call `watch` in a task; without it nothing is reloaded."""

    def __init__(self, files: TlsFiles, *, now: Callable[[], datetime] = lambda: datetime.now(UTC)) -> None:
        """Raise `SettingsError` if there is a certificate file that has no certificate."""
        self.files = files
        self.reloads = 0
        self.failed_reloads = 0
        self.last_error: str | None = None
        """Why the files as they are now are not in use; None if they are."""
        self.failed_handshakes: Counter[str] = Counter()
        """How many handshakes of clients failed, by reason."""
        self._now = now
        self._contexts: list[tuple[_CurrentContext, _Build]] = []
        self._seen = self._fingerprint()
        self._warned_at: datetime | None = None
        self.certificate: CertificateDetails | None = self._read_certificate()
        """Our certificate as it is in use."""

    def server_context(self, client_auth: ClientAuth = ClientAuth.NONE, alpn: Sequence[str] = ()) -> ssl.SSLContext:
        """A context for `create_server`; see `context.server_context`."""
        return self._reloaded(lambda files: server_context(files, client_auth, alpn, self._note_handshake_failure))

    def client_context(self, *, verifies: bool = True, verifies_host: bool = True) -> ssl.SSLContext:
        """A context for `create_connection`; see `context.client_context`."""
        return self._reloaded(
            lambda files: client_context(files, verifies=verifies, verifies_host=verifies_host),
        )

    @property
    def expires_in_days(self) -> float | None:
        """Days until our certificate expires; None without one."""
        return None if self.certificate is None else self.certificate.expires_in_days(self._now())

    async def watch(self, every_s: float = _CHECK_EVERY_S) -> None:
        """Check the files until cancelled, off the event loop."""
        while True:
            await asyncio.to_thread(self.check)
            await asyncio.sleep(every_s)

    def check(self) -> bool:
        """Reload if a file has changed, warn if the certificate expires soon. True if new files are in use."""
        reloaded = self._reload()
        self._warn_of_expiry()
        return reloaded

    def _reload(self) -> bool:
        # Before reading: a change while reading is then seen by the next check.
        fingerprint = self._fingerprint()
        if fingerprint == self._seen and self.last_error is None:
            return False
        try:
            certificate = self._read_certificate()
            made = [(current, build(self.files)) for current, build in tuple(self._contexts)]
        except SettingsError as error:
            self._note_failure(str(error))
            return False
        for current, latest in made:
            current.latest = latest
        self._seen = fingerprint
        self.certificate = certificate
        self.last_error = None
        self.reloads += 1
        self._warned_at = None
        log.info("reloaded the TLS files %s", self._description())
        return True

    def _note_failure(self, reason: str) -> None:
        if reason != self.last_error:
            self.failed_reloads += 1
            log.error("TLS files have changed and cannot be used, the previous ones stay in use: %s", reason)
        self.last_error = reason

    def _note_handshake_failure(self, reason: str) -> None:
        self.failed_handshakes[reason] += 1
        log.debug("a TLS handshake failed: %s", reason)

    def _warn_of_expiry(self) -> None:
        certificate, now = self.certificate, self._now()
        if certificate is None or certificate.expires_in_days(now) > WARN_BEFORE_DAYS:
            return
        if self._warned_at is not None and now - self._warned_at < _WARN_EVERY:
            return
        self._warned_at = now
        days = certificate.expires_in_days(now)
        until = f"{certificate.not_after:%Y-%m-%d %H:%M} UTC"
        if days < 0:
            log.error("the TLS certificate in %s expired at %s: clients refuse it", self.files.cert_file, until)
        else:
            log.warning(
                "the TLS certificate in %s expires in %d days, at %s: replace the file, no restart is needed",
                self.files.cert_file,
                days,
                until,
            )

    def _reloaded(self, build: _Build) -> ssl.SSLContext:
        current = _CurrentContext.of(build(self.files))
        self._contexts.append((current, build))
        return current

    def _read_certificate(self) -> CertificateDetails | None:
        return None if self.files.cert_file is None else details_of_file(self.files.cert_file)

    def _fingerprint(self) -> _Fingerprint:
        return tuple(_stat(path) for path in self.files.paths)

    def _description(self) -> str:
        text = ", ".join(map(str, self.files.paths))
        if self.certificate is None:
            return text
        return f"{text}: {self.certificate.subject}, valid until {self.certificate.not_after:%Y-%m-%d %H:%M} UTC"


def _stat(path: os.PathLike[str]) -> tuple[int, int, int, int] | None:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino, found.st_dev
