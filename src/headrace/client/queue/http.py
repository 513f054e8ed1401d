"""A persistent HTTP/1.1 connection for the calls of queues: one request at a time (ADR 17).

`http.client` parses the head of each response with the parser for e-mails, which takes longer than the rest of a call.
"""

import socket
import ssl
from collections.abc import Mapping
from io import BufferedReader
from urllib.parse import urlsplit

from headrace.client.errors import ClientError
from headrace.config.address import is_loopback

_CONNECT_TIMEOUT_S = 5.0
_MOST_LINE_BYTES = 64 * 1024
_MOST_HEADERS = 100
_MOST_BODY_BYTES = 256 * 1024 * 1024
_PORTS = {"http": 80, "https": 443}


class InvalidResponse(OSError):
    """The peer sent bytes that are not an HTTP response."""


class HttpClientConnection:
    """Connects with the first request. After an error it has to be closed. `tls` is the context for https; by default
    servers are verified with the authorities of the system."""

    def __init__(self, url: str, tls: ssl.SSLContext | None = None) -> None:
        parts = urlsplit(url if "//" in url else f"http://{url}")
        if parts.scheme not in _PORTS or not parts.hostname:
            raise ClientError(f"{url} is not an address for queues: write http://HOST:PORT")
        self._is_secure = parts.scheme == "https"
        self._tls = tls
        self._address = (parts.hostname, parts.port or _PORTS[parts.scheme])
        host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
        self.host = f"{host}:{self._address[1]}"
        self._socket: socket.socket | None = None
        self._answers: BufferedReader | None = None

    @property
    def is_private(self) -> bool:
        """Whether others on the network cannot read what is sent: over TLS, or within this machine."""
        return self._is_secure or is_loopback(self._address[0])

    @property
    def is_open(self) -> bool:
        return self._socket is not None

    def close(self) -> None:
        for each in (self._answers, self._socket):
            if each is not None:
                each.close()
        self._socket = self._answers = None

    def post(self, headers: Mapping[str, str], body: bytes, timeout_s: float) -> tuple[int, bytes]:
        """Send a request and return the status and the body of its response. Raises `OSError`."""
        if self._socket is None or self._answers is None:
            self._socket = self._connected()
            self._answers = self._socket.makefile("rb")
        self._socket.settimeout(timeout_s)
        lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
        head = f"POST / HTTP/1.1\r\n{lines}Content-Length: {len(body)}\r\n\r\n"
        self._socket.sendall(head.encode("latin-1") + body)
        return self._answer(self._answers)

    def _connected(self) -> socket.socket:
        connected = socket.create_connection(self._address, _CONNECT_TIMEOUT_S)
        try:
            connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if self._is_secure:
                context = self._tls or ssl.create_default_context()
                return context.wrap_socket(connected, server_hostname=self._address[0])
        except BaseException:
            connected.close()
            raise
        return connected

    def _answer(self, answers: BufferedReader) -> tuple[int, bytes]:
        try:
            version, status = self._status(answers)
            headers = _headers(answers)
            while status == 100:
                version, status = self._status(answers)
                headers = _headers(answers)
            if b"chunked" in headers.get(b"transfer-encoding", b""):
                body = _chunks(answers)
            else:
                body = _read(answers, int(headers[b"content-length"]), _MOST_BODY_BYTES)
        except (KeyError, ValueError) as error:
            raise InvalidResponse(f"an invalid response over http: {error!r}") from None
        if version == b"HTTP/1.0" or headers.get(b"connection", b"").lower() == b"close":
            self.close()
        return status, body

    @staticmethod
    def _status(answers: BufferedReader) -> tuple[bytes, int]:
        line = answers.readline(_MOST_LINE_BYTES)
        if not line:
            raise ConnectionResetError("the connection was closed without a response")
        version, status = line.split(None, 2)[:2]
        if not version.startswith(b"HTTP/1."):
            raise ValueError(version)
        return version, int(status)


def _headers(answers: BufferedReader) -> dict[bytes, bytes]:
    found: dict[bytes, bytes] = {}
    for _ in range(_MOST_HEADERS):
        line = answers.readline(_MOST_LINE_BYTES)
        if line in (b"\r\n", b"\n"):
            return found
        if not line.endswith(b"\n"):
            raise ConnectionResetError("the connection was closed in the middle of a response")
        name, _, value = line.partition(b":")
        found[name.lower()] = value.strip()
    raise ValueError("too many headers")


def _chunks(answers: BufferedReader) -> bytes:
    """A chunked body, as a proxy may send it."""
    pieces = []
    left_bytes = _MOST_BODY_BYTES
    while length := int(answers.readline(_MOST_LINE_BYTES).partition(b";")[0], 16):
        pieces.append(_read(answers, length, left_bytes))
        left_bytes -= length
        answers.readline(_MOST_LINE_BYTES)
    _headers(answers)
    return b"".join(pieces)


def _read(answers: BufferedReader, length: int, most_bytes: int) -> bytes:
    if not 0 <= length <= most_bytes:
        raise ValueError(f"a body of {length} bytes")
    body = answers.read(length)
    if len(body) < length:
        raise ConnectionResetError("the connection was closed in the middle of a response")
    return body
