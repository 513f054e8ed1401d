"""Requests of the commands to the HTTP API of a broker, with every error in words."""

import json
import ssl
from base64 import b64encode
from collections.abc import Mapping
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from typing import Any
from urllib.parse import urlsplit

from headrace.cli.cluster.view import connected
from headrace.cli.errors import BadArgument, CommandFailed
from headrace.cli.reach import check_http_reachable
from headrace.client.queue.discovery import LISTENERS, urls
from headrace.config.address import is_loopback
from headrace.config.client_connection import resolve_credentials
from headrace.config.credentials import Credentials
from headrace.security.tls.client_context import credentials_context
from headrace.wire import ConfigResource, Refused

_PREFIX = "/api/v1"
_TIMEOUT_S = 30.0
_MAX_ANSWER_BYTES = 16 * 1024 * 1024


class HttpApi:
    """The HTTP API of a cluster, at `http` or at the address that a broker says. Connects for each request."""

    def __init__(self, bootstrap: str, http: str) -> None:
        if http:
            check_http_reachable(http)
        self._url = http.split(",")[0].strip() or _found(bootstrap)

    def get(self, path: str) -> Any:
        return self._call("GET", path)

    def post(self, path: str, value: Mapping[str, Any]) -> Any:
        return self._call("POST", path, json.dumps(value).encode())

    def delete(self, path: str) -> None:
        self._call("DELETE", path)

    def _call(self, method: str, path: str, body: bytes | None = None) -> Any:
        credentials = resolve_credentials()
        headers, connection = _headers(self._url, credentials), _connection(self._url, credentials)
        try:
            connection.request(method, _PREFIX + path, body, headers)
            answer = connection.getresponse()
            content = answer.read(_MAX_ANSWER_BYTES)
        except ssl.SSLError as error:
            raise CommandFailed(
                f"TLS to {self._url} failed: {error.reason or error}; `headrace doctor` tells more"
            ) from None
        except (OSError, HTTPException) as error:
            raise CommandFailed(f"{self._url} does not answer: {error or type(error).__name__}") from None
        finally:
            connection.close()
        value = _decoded(content)
        if answer.status < 300:
            return value
        if not isinstance(value, dict) or "message" not in value:
            raise CommandFailed(f"{self._url} has no API for users: it answers with the status {answer.status}")
        hint = _LOGIN if answer.status == 401 and not credentials.password else ""
        raise CommandFailed(f"{value['message']}{hint}")


_LOGIN = "; set HEADRACE_USER and HEADRACE_PASSWORD, or give --profile"


def _decoded(content: bytes) -> Any:
    try:
        return json.loads(content) if content else None
    except ValueError:
        return None


def _found(bootstrap: str) -> str:
    """The address over HTTP of the first broker that says one."""
    with connected(bootstrap) as cluster:
        try:
            for number, node in cluster.describe().brokers.items():
                if node.is_fenced:
                    continue
                settings = {each.name: each.value for each in cluster.settings_of(ConfigResource.BROKER, str(number))}
                for url in urls(settings.get(LISTENERS) or "", node.endpoint.host):
                    return url
        except Refused as error:
            raise CommandFailed(f"brokers do not say their HTTP address: {error}; give it with --http URL") from None
    raise CommandFailed(f"no broker at {bootstrap} serves HTTP: start one with http.listen, or give --http URL")


def _connection(url: str, credentials: Credentials) -> HTTPConnection:
    parts = urlsplit(url if "//" in url else f"http://{url}")
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise BadArgument(f"{url} is not an address over HTTP: write http://HOST:PORT")
    if parts.scheme == "http":
        return HTTPConnection(parts.hostname, parts.port, timeout=_TIMEOUT_S)
    context = credentials_context(credentials)
    return HTTPSConnection(parts.hostname, parts.port, timeout=_TIMEOUT_S, context=context)


def _headers(url: str, credentials: Credentials) -> dict[str, str]:
    """The headers of a request; a password is sent over TLS or to this machine only."""
    headers = {"Content-Type": "application/json", "Accept": "application/json"}
    user, password = credentials.user, credentials.password
    if user and password:
        parts = urlsplit(url if "//" in url else f"http://{url}")
        if parts.scheme != "https" and not is_loopback(parts.hostname or ""):
            raise CommandFailed(f"{url} is not encrypted: the password of {user} is sent over https only")
        headers["Authorization"] = "Basic " + b64encode(f"{user}:{password}".encode()).decode()
    return headers
