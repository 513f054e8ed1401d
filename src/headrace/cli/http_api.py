"""Requests of the commands to the HTTP API of a broker, with every error in words."""

from collections.abc import Mapping
from typing import Any

from headrace.cli.cluster.view import connected
from headrace.cli.errors import BadArgument, CommandFailed
from headrace.cli.reach import check_http_reachable
from headrace.client.errors import ClientError
from headrace.client.json_api import PREFIX, ApiRefused, ApiUnreachable, InvalidApiAddress, JsonApi
from headrace.config.client_connection import resolve_credentials
from headrace.wire import Refused
from headrace.wire.http_addresses import http_addresses

_LOGIN = "; set HEADRACE_USER and HEADRACE_PASSWORD, or give --profile"


class HttpApi:
    """The HTTP API of a cluster, at `http` or at the address that a broker says."""

    def __init__(self, bootstrap: str, http: str, prefix: str = PREFIX, timeout_s: float = 30.0) -> None:
        """`timeout_s` is how long an answer may take."""
        if http:
            check_http_reachable(http)
        url = http.split(",")[0].strip() or discovered_url(bootstrap)
        self._credentials = resolve_credentials()
        try:
            self._api = JsonApi(url, self._credentials, timeout_s, prefix)
        except InvalidApiAddress as error:
            raise BadArgument(str(error)) from None
        except ClientError as error:
            raise CommandFailed(str(error)) from None

    @property
    def url(self) -> str:
        return self._api.url

    def get(self, path: str) -> Any:
        return self._call("GET", path)

    def post(self, path: str, value: Mapping[str, Any]) -> Any:
        return self._call("POST", path, value)

    def put(self, path: str, value: Mapping[str, Any]) -> Any:
        return self._call("PUT", path, value)

    def patch(self, path: str, value: Mapping[str, Any]) -> Any:
        return self._call("PATCH", path, value)

    def delete(self, path: str) -> None:
        self._call("DELETE", path)

    def _call(self, method: str, path: str, value: Mapping[str, Any] | None = None) -> Any:
        try:
            return self._api.call(method, path, value)
        except ApiRefused as error:
            hint = _LOGIN if error.status == 401 and not self._credentials.password else ""
            raise CommandFailed(f"{error}{hint}") from None
        except ApiUnreachable as error:
            raise CommandFailed(str(error)) from None


def discovered_url(bootstrap: str) -> str:
    """The address over HTTP of the first broker that says one."""
    with connected(bootstrap) as cluster:
        try:
            found = http_addresses(cluster)
        except Refused as error:
            raise CommandFailed(f"brokers do not say their HTTP address: {error}; give it with --http URL") from None
    if not found:
        raise CommandFailed(f"no broker at {bootstrap} serves HTTP: start one with http.listen, or give --http URL")
    return found[0]
