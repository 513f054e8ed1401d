"""Identifies the server behind a port that does not speak Kafka."""

import socket
import ssl
from typing import Literal

from headrace.model.image import Endpoint

Kind = Literal["TLS", "HTTP", "silence", "unknown"]

_TLS_ALERT = b"\x15\x03"


def who_is_there(where: Endpoint, sample: bytes, timeout_s: float) -> Kind:
    """`sample` is how the answer to a Kafka request began; if that tells nothing, ask in the other languages."""
    if sample.startswith(_TLS_ALERT):
        return "TLS"
    if sample.startswith(b"HTTP"):
        return "HTTP"
    if _speaks_tls(where, timeout_s):
        return "TLS"
    answer = _ask_http(where, timeout_s)
    if answer.startswith(b"HTTP"):
        return "HTTP"
    return "unknown" if sample or answer else "silence"


def _speaks_tls(where: Endpoint, timeout_s: float) -> bool:
    """Whether a TLS handshake gets anywhere. Nothing is sent inside it, so whose certificate it is does not matter."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    try:
        with (
            socket.create_connection((where.host, where.port), timeout_s) as raw,
            context.wrap_socket(raw, server_hostname=where.host),
        ):
            return True
    except ssl.SSLError as error:
        # A server that answers with an alert (it wants a client certificate, say) speaks TLS; garbage does not.
        return "ALERT" in (error.reason or "")
    except OSError:
        return False


def _ask_http(where: Endpoint, timeout_s: float) -> bytes:
    try:
        with socket.create_connection((where.host, where.port), timeout_s) as connection:
            connection.sendall(b"GET / HTTP/1.0\r\n\r\n")
            return connection.recv(16)
    except OSError:
        return b""
