"""The access log (`http.access.log`): a line for each request over HTTP, when its response is complete or given up.

    GET /api/v1/users 200 512 bytes 3.2 ms from 127.0.0.1

The query is not logged: a presigned URL has its signature there.
"""

import logging

from headrace.app.http.exchange import HttpExchange

log = logging.getLogger(__name__)

_MAX_PATH = 512


def log_access(exchange: HttpExchange, took_s: float) -> None:
    """Write the line of an exchange that has ended; status 499 if the client disconnected before the end of it."""
    scope = exchange.scope
    method, path = scope["method"], ascii(scope["path"][:_MAX_PATH])[1:-1]
    status = exchange.status if exchange.is_complete else 499
    address = scope["client"][0] if scope["client"] else "unknown"
    took_ms = round(took_s * 1000, 1)
    fields = {"method": method, "path": path, "status": status, "bytes": exchange.sent_bytes, "took_ms": took_ms}
    log.info(
        "%s %s %d %d bytes %.1f ms from %s",
        method, path, status, exchange.sent_bytes, took_ms, address,
        extra={"fields": fields, "request": exchange},
    )  # fmt: skip
