"""Requests to the HTTP API of brokers (`/api/v1`) in JSON, for the command line and for pipelines."""

import json
import ssl
from base64 import b64encode
from collections.abc import Mapping
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from typing import Any
from urllib.parse import urlsplit

from headrace.client.errors import ClientError
from headrace.config.address import is_loopback
from headrace.config.credentials import Credentials

PREFIX = "/api/v1"
_MAX_ANSWER_BYTES = 16 * 1024 * 1024


class InvalidApiAddress(ClientError):
    """No address of a broker over HTTP."""


class ApiUnreachable(ClientError):
    """No broker answers at an address over HTTP."""


class ApiRefused(ClientError):
    """A broker refused a request; the message is that of the broker."""

    def __init__(self, message: str, status: int, code: int = 0) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        """The code of the schema registry for the error; 0 if there is none."""


class JsonApi:
    """The HTTP API at one address. Connects for each request."""

    def __init__(self, url: str, credentials: Credentials, timeout_s: float = 30.0, prefix: str = PREFIX) -> None:
        """Raises `InvalidApiAddress`, or `ClientError` if a password would be sent over the network unencrypted."""
        self.url = url
        self._parts = urlsplit(url if "//" in url else f"http://{url}")
        if self._parts.scheme not in ("http", "https") or not self._parts.hostname:
            raise InvalidApiAddress(f"{url} is not an address over HTTP: write http://HOST:PORT")
        self._credentials = credentials
        self._timeout_s = timeout_s
        self._prefix = prefix
        self._headers = self._request_headers()

    def call(self, method: str, path: str, value: Mapping[str, Any] | bytes | None = None) -> Any:
        """The answer, decoded; None if it has no content. `value` is the body, which may be encoded already.

        Raises `ApiUnreachable` or `ApiRefused`.
        """
        body = value if isinstance(value, bytes) or value is None else json.dumps(value).encode()
        connection = self._connection()
        try:
            connection.request(method, self._prefix + path, body, self._headers)
            answer = connection.getresponse()
            content = answer.read(_MAX_ANSWER_BYTES)
        except ssl.SSLError as error:
            raise ApiUnreachable(
                f"TLS to {self.url} failed: {error.reason or error}; `headrace doctor` tells more"
            ) from None
        except (OSError, HTTPException) as error:
            raise ApiUnreachable(f"{self.url} does not answer: {error or type(error).__name__}") from None
        finally:
            connection.close()
        found = _decoded(content)
        if answer.status < 300:
            return found
        if not isinstance(found, dict) or "message" not in found:
            raise ApiRefused(f"{self.url} has no such API: it answers with the status {answer.status}", answer.status)
        code = found.get("error_code")
        raise ApiRefused(str(found["message"]), answer.status, code if isinstance(code, int) else 0)

    def _connection(self) -> HTTPConnection:
        host, port = self._parts.hostname or "", self._parts.port
        if self._parts.scheme == "http":
            return HTTPConnection(host, port, timeout=self._timeout_s)
        # Only here, for it loads a library for certificates.
        from headrace.security.tls.client_context import credentials_context

        return HTTPSConnection(host, port, timeout=self._timeout_s, context=credentials_context(self._credentials))

    def _request_headers(self) -> dict[str, str]:
        headers = {"Content-Type": "application/json", "Accept": "application/json"}
        user, password = self._credentials.user, self._credentials.password
        if user and password:
            if self._parts.scheme != "https" and not is_loopback(self._parts.hostname or ""):
                raise ClientError(f"{self.url} is not encrypted: the password of {user} is sent over https only")
            headers["Authorization"] = "Basic " + b64encode(f"{user}:{password}".encode()).decode()
        return headers


def _decoded(content: bytes) -> Any:
    try:
        return json.loads(content) if content else None
    except ValueError:
        return None
