"""Fetches a small document over https, for a thread: bounded in size and time, and from the configured host only.

Only https, or http on loopback: other schemes would let a setting read files or reach services of the host
(CVE-2025-27817). A redirect is followed only within the same scheme, host and port.
"""

import http.client
import ssl
import time
from ipaddress import ip_address
from typing import IO
from urllib.error import HTTPError, URLError
from urllib.parse import SplitResult, urlsplit
from urllib.request import (
    HTTPDefaultErrorHandler,
    HTTPErrorProcessor,
    HTTPHandler,
    HTTPRedirectHandler,
    HTTPSHandler,
    OpenerDirector,
    ProxyHandler,
    Request,
)

MAX_BYTES = 1 << 20
TIMEOUT_S = 10.0
_CHUNK_BYTES = 65536


class FetchError(Exception):
    """The document could not be fetched; one sentence."""


def problem_with_url(url: str) -> str | None:
    """Why a URL is not fetched, in one sentence; None if it is."""
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError:
        return f"{url!r} is no URL"
    if not parts.hostname or "@" in parts.netloc:
        return f"{url!r} must name a host, and no user"
    if parts.scheme == "https" or (parts.scheme == "http" and _is_loopback(parts.hostname)):
        return None
    return f"{url!r} must start with https:// (http:// only for localhost)"


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


class _SameOriginRedirects(HTTPRedirectHandler):
    max_redirections = 3

    def redirect_request(
        self, req: Request, fp: IO[bytes], code: int, msg: str, headers: http.client.HTTPMessage, newurl: str
    ) -> Request | None:
        if _origin(urlsplit(newurl)) != _origin(urlsplit(req.full_url)):
            fp.close()
            raise FetchError("the server redirects to another host")
        return super().redirect_request(req, fp, code, msg, headers, newurl)


def _origin(parts: SplitResult) -> tuple[str, str | None, int | None]:
    return parts.scheme, parts.hostname, parts.port


class JsonUrl:
    """A document at a URL; calling it fetches it."""

    def __init__(
        self,
        url: str,
        *,
        timeout_s: float = TIMEOUT_S,
        max_bytes: int = MAX_BYTES,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        """Raises ValueError for a URL that is not allowed."""
        problem = problem_with_url(url)
        if problem is not None:
            raise ValueError(problem)
        self._url = url
        self._timeout_s = timeout_s
        self._max_bytes = max_bytes
        self._opener = _opener(tls or ssl.create_default_context() if url.startswith("https:") else None)

    def __call__(self) -> bytes:
        """The document. Raises FetchError."""
        deadline = time.monotonic() + self._timeout_s
        request = Request(self._url, headers={"Accept": "application/json"})
        try:
            with self._opener.open(request, timeout=self._timeout_s) as response:
                return self._read(response, deadline)
        except HTTPError as error:
            with error:
                raise FetchError(f"HTTP status {error.code}") from None
        except (URLError, OSError, http.client.HTTPException, ValueError) as error:
            raise FetchError(str(error) or type(error).__name__) from error

    def _read(self, response: http.client.HTTPResponse, deadline: float) -> bytes:
        content = bytearray()
        while chunk := response.read1(_CHUNK_BYTES):
            content += chunk
            if len(content) > self._max_bytes:
                raise FetchError(f"the answer has more than {self._max_bytes} bytes")
            if time.monotonic() > deadline:
                raise FetchError(f"the answer took more than {self._timeout_s:g} s")
        return bytes(content)


def _opener(tls: ssl.SSLContext | None) -> OpenerDirector:
    """Handlers for https, or for http without a proxy; urllib's own set would also open files and FTP."""
    opener = OpenerDirector()
    transports = (HTTPHandler(),) if tls is None else (HTTPSHandler(context=tls), ProxyHandler())
    for handler in (*transports, _SameOriginRedirects(), HTTPErrorProcessor(), HTTPDefaultErrorHandler()):
        opener.add_handler(handler)
    return opener
