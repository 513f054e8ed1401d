"""TLS and SASL of the wire client.

A wrong password, an untrusted certificate, or a port that expects something else are no reasons to retry: they are
errors at once. Where a broker only closes the connection, it is asked a second time in the other ways, to tell a broker
that is going down from one that expects TLS or a user.
"""

import socket
import ssl
import time
from typing import TYPE_CHECKING, Any

from headrace.config.client_connection import resolve_credentials
from headrace.config.credentials import Credentials
from headrace.model.errors import LoginFailed, SettingsError
from headrace.model.image import Endpoint
from headrace.protocol.sasl_login import (
    authenticate_request,
    check_authenticate,
    check_handshake,
    handshake_request,
    session_lifetime_s,
)
from headrace.wire.errors import AuthenticationFailed, TlsFailed

if TYPE_CHECKING:
    from headrace.wire.connection import Build, WireConnection

_HANDSHAKE, _AUTHENTICATE = 17, 36
_API_VERSIONS = b"\x00\x00\x00\x0a\x00\x12\x00\x00\x00\x00\x00\x07\xff\xff"
"""Its size, API 18, version 0, correlation id 7, no client id: any broker answers it, without authentication."""
_CORRELATION_ID = b"\x00\x00\x00\x07"
_RENEWED_AFTER = 0.8
"""The part of a session's lifetime after which a new connection is opened (KIP-368)."""
NO_LIMIT_S = float("inf")


class WireSecurity:
    """The credentials of the connections of one client. Without any, those of the environment and its profile.

    It can be pickled; credentials of the environment are not part of that, but resolved where they are used.
    """

    def __init__(self, credentials: Credentials | None = None) -> None:
        self._given = credentials
        self._forget()

    def _forget(self) -> None:
        self._resolved: Credentials | None = None
        self._context: ssl.SSLContext | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {"_given": self._given}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._forget()

    @property
    def credentials(self) -> Credentials:
        if self._resolved is None:
            try:
                self._resolved = self._given if self._given is not None else resolve_credentials()
            except SettingsError as error:
                raise AuthenticationFailed(str(error)) from None
        return self._resolved

    def wrap(self, connection: socket.socket, address: Endpoint, timeout_s: float) -> socket.socket:
        """The connection after the TLS handshake, or as it is if there is none. Raises `TlsFailed` and `OSError`."""
        if not self.credentials.uses_tls:
            return connection
        try:
            return self._tls_context().wrap_socket(connection, server_hostname=address.host)
        except ssl.SSLCertVerificationError as error:
            raise TlsFailed(f"the certificate of the broker at {address} is not trusted: {_words(error)}") from None
        except ssl.SSLError as error:
            if speaks_plain_kafka(address, timeout_s):
                raise TlsFailed(f"the broker at {address} expects no TLS on this port") from None
            if not isinstance(error, ssl.SSLEOFError):
                raise TlsFailed(f"the TLS handshake with {address} failed: {_words(error)}") from None
            raise
        except ConnectionError:
            if speaks_plain_kafka(address, timeout_s):
                raise TlsFailed(f"the broker at {address} expects no TLS on this port") from None
            raise

    def _tls_context(self) -> ssl.SSLContext:
        if self._context is None:
            from headrace.security.tls.client_context import credentials_context

            try:
                self._context = credentials_context(self.credentials)
            except SettingsError as error:
                raise TlsFailed(f"TLS cannot be used: {error}") from None
        return self._context

    def authenticate(self, connection: "WireConnection") -> float:
        """Log in on a connection. Returns when it has to be replaced by another, on the monotonic clock."""
        from headrace.security.sasl.client import SaslClientError, client_exchange

        found = self.credentials
        where = f"the broker at {connection.address}"
        lifetime_s: float | None = None
        try:
            exchange = client_exchange(found.mechanism, user=found.user, password=found.password, token=found.token)
            check_handshake(found.mechanism, handshake(connection, found.mechanism))
            token: bytes | None = exchange.first()
            while token is not None:
                answer = connection.call(_AUTHENTICATE, 2, _token_request(token), lowest=2)
                lifetime_s = session_lifetime_s(answer)
                token = exchange.next(check_authenticate(answer))
        except (SaslClientError, SettingsError, LoginFailed, ValueError) as error:
            who = f"the user {found.user}" if found.user else "a token"
            raise AuthenticationFailed(f"{where} does not let in {who} ({found.mechanism}): {error}") from None
        return time.monotonic() + lifetime_s * _RENEWED_AFTER if lifetime_s else NO_LIMIT_S


def handshake(connection: "WireConnection", mechanism: str) -> Any:
    """Choose a SASL mechanism; the answer has an error code, and the mechanisms that the broker offers."""
    return connection.call(_HANDSHAKE, 1, lambda _: handshake_request(mechanism), lowest=1)


def speaks_plain_kafka(address: Endpoint, timeout_s: float) -> bool:
    """Whether a broker answers without TLS."""
    return _answer_to_plain(address, timeout_s)[4:] == _CORRELATION_ID


def _answer_to_plain(address: Endpoint, timeout_s: float) -> bytes:
    answer = b""
    try:
        with socket.create_connection((address.host, address.port), timeout_s) as connection:
            connection.settimeout(timeout_s)
            connection.sendall(_API_VERSIONS)
            while len(answer) < 8 and (piece := connection.recv(8 - len(answer))):
                answer += piece
    except OSError:
        pass
    return answer


def _token_request(token: bytes) -> "Build":
    return lambda _: authenticate_request(token)


def _words(error: ssl.SSLError) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        return error.verify_message
    return (error.reason or str(error)).replace("_", " ").lower()
