"""Connections of the load generator over TLS, and with a login by SCRAM."""

import argparse
import ssl
from dataclasses import dataclass
from pathlib import Path
from socket import socket
from struct import Struct
from typing import Any

from harness import wire
from headrace.security.sasl.client import client_exchange

MECHANISM = "SCRAM-SHA-512"
_SASL_HANDSHAKE, _SASL_AUTHENTICATE = 17, 36
_I16, _I32 = Struct(">h"), Struct(">i")


class TlsSocket(ssl.SSLSocket):
    """One that answers as a plain socket does: `BlockingIOError` if it has to wait, all that has arrived at once."""

    def send(self, data: Any, flags: int = 0) -> int:
        try:
            return super().send(data, flags)
        except (ssl.SSLWantWriteError, ssl.SSLWantReadError):
            raise BlockingIOError from None

    def recv_into(self, buffer: Any, nbytes: int | None = None, flags: int = 0) -> int:
        view = memoryview(buffer)
        size = 0
        while size < len(view):
            try:
                count = super().recv_into(view[size:], None, flags)
            except (ssl.SSLWantWriteError, ssl.SSLWantReadError):
                if size:
                    break
                raise BlockingIOError from None
            if not count:
                break
            size += count
            if self.gettimeout() is not None and self.gettimeout() != 0:
                break
        return size


@dataclass(frozen=True)
class Security:
    """How to connect: over TLS if there is a CA, with a login if there is a user."""

    ca: Path | None = None
    user: str = ""
    password: str = ""


class Connector:
    def __init__(self, security: Security) -> None:
        self._security = security
        self._context: ssl.SSLContext | None = None
        if security.ca is not None:
            self._context = ssl.create_default_context(cafile=str(security.ca))
            self._context.sslsocket_class = TlsSocket

    @property
    def uses_tls(self) -> bool:
        return self._context is not None

    def connect(self, port: int) -> socket:
        sock = wire.connect(port)
        if self._context is not None:
            sock = self._context.wrap_socket(sock, server_hostname="127.0.0.1")
        if self._security.user:
            _log_in(sock, self._security.user, self._security.password)
        return sock


def add_security(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--tls-ca", type=Path, help="connect over TLS and trust this CA")
    parser.add_argument("--user", default="", help="log in as this user")
    parser.add_argument("--password", default="")


def connector_of(args: argparse.Namespace) -> Connector:
    return Connector(Security(args.tls_ca, args.user, args.password))


def _log_in(sock: socket, user: str, password: str) -> None:
    exchange = client_exchange(MECHANISM, user=user, password=password)
    _ask(sock, _SASL_HANDSHAKE, 1, _I16.pack(len(MECHANISM)) + MECHANISM.encode())
    token: bytes | None = exchange.first()
    while token is not None:
        answer = _ask(sock, _SASL_AUTHENTICATE, 0, _I32.pack(len(token)) + token)
        (text_bytes,) = _I16.unpack_from(answer, 2)
        at = 4 + max(0, text_bytes)
        (size,) = _I32.unpack_from(answer, at)
        token = exchange.next(answer[at + 4 : at + 4 + size])


def _ask(sock: socket, key: int, version: int, body: bytes) -> bytes:
    """The body of the answer, which begins with an error code of 0."""
    sock.sendall(wire.request(key, version, 1, body, flexible=False))
    answer = wire.receive_frame(sock)[8:]
    (error,) = _I16.unpack_from(answer)
    if error:
        raise RuntimeError(f"the login was refused with error {error}: {answer!r}")
    return answer
