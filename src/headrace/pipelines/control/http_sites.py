"""The HTTP addresses of a pipeline's brokers, for its reports and for the schema registry."""

from typing import Any

from headrace.client.errors import ClientError
from headrace.config.client_connection import resolve_connection
from headrace.config.credentials import Credentials
from headrace.pipelines.connection_options import ConnectionOptions
from headrace.wire import Cluster, Refused, Timeouts
from headrace.wire.http_addresses import http_addresses

_FIND = Timeouts(connect_s=2.0, request_s=5.0, patience_s=0.0)


def http_sites(bootstrap: str, connection: ConnectionOptions) -> tuple[list[str], Credentials]:
    """The addresses that `HEADRACE_HTTP` or the profile names, else those that brokers say; and the credentials.

    Raises a `HeadraceError` if there are none.
    """
    given: dict[str, Any] = dict(connection)
    resolved = resolve_connection(**given)
    found = [each.strip() for each in resolved.http.split(",") if each.strip()]
    if found:
        return found, resolved.credentials
    with Cluster(bootstrap, client_id="headrace-pipeline", timeouts=_FIND, credentials=resolved.credentials) as cluster:
        try:
            found = http_addresses(cluster)
        except Refused as error:
            raise ClientError(f"{error}; export HEADRACE_HTTP=http://HOST:PORT") from None
    if not found:
        raise ClientError(f"no broker at {bootstrap} serves HTTP")
    return found, resolved.credentials
