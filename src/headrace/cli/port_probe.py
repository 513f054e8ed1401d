"""Identifies the server behind a port that does not speak Kafka."""

import socket
from typing import Literal

from headrace.model.image import Endpoint
from headrace.security.tls.probe import speaks_tls

Kind = Literal["TLS", "HTTP", "silence", "unknown"]

_TLS_ALERT = b"\x15\x03"


def who_is_there(where: Endpoint, sample: bytes, timeout_s: float) -> Kind:
    """`sample` is how the answer to a Kafka request began; if that tells nothing, ask in the other languages."""
    if sample.startswith(_TLS_ALERT):
        return "TLS"
    if sample.startswith(b"HTTP"):
        return "HTTP"
    if speaks_tls(where.host, where.port, timeout_s):
        return "TLS"
    answer = _ask_http(where, timeout_s)
    if answer.startswith(b"HTTP"):
        return "HTTP"
    return "unknown" if sample or answer else "silence"


def _ask_http(where: Endpoint, timeout_s: float) -> bytes:
    try:
        with socket.create_connection((where.host, where.port), timeout_s) as connection:
            connection.sendall(b"GET / HTTP/1.0\r\n\r\n")
            return connection.recv(16)
    except OSError:
        return b""
