"""`GET /metrics`: the metrics of this broker, in Prometheus' text format or as OpenMetrics.

Who may scrape: everyone with `metrics.allow.anonymous`; else with authorization on a user with DESCRIBE on the cluster,
and with authorization off this machine, or any if the broker is `insecure`.
"""

from collections.abc import AsyncIterator
from contextlib import aclosing

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from headrace.admin.errors import AdminError, forbidden, unauthorized
from headrace.admin.login import authenticate, is_local
from headrace.admin.routes import DESCRIBE_CLUSTER
from headrace.admin.services import AdminServices
from headrace.model.acls import CLUSTER_NAME
from headrace.model.users import ANONYMOUS
from headrace.monitor.scrape import Scraper, TooManyScrapes
from headrace.observe.exposition import negotiated

PATH = "/metrics"
_METHODS = ("GET", "HEAD")


class MetricsDoor:
    """An ASGI application for `PATH`."""

    def __init__(self, services: AdminServices, scraper: Scraper) -> None:
        self._services = services
        self._scraper = scraper

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        try:
            await self._check(request)
            await self._serve(request, send)
        except AdminError as error:
            refusal = Response(f"{error}\n", error.status, dict(error.headers), media_type="text/plain")
            await refusal(scope, receive, send)

    async def _check(self, request: Request) -> None:
        if request.url.path != PATH:
            raise AdminError(404, "unknown_path", f"there is nothing here: the metrics are at {PATH}")
        if request.method not in _METHODS:
            raise AdminError(405, "method_not_allowed", "metrics are read by GET", {"allow": ", ".join(_METHODS)})
        settings, security = self._services.metadata.settings, self._services.security
        if settings.metrics_allow_anonymous:
            return
        if security.authorizer is None:
            if not (settings.insecure or is_local(request)):
                raise forbidden(
                    "without authorization (authorization.enable) metrics are for the broker's machine only, "
                    "unless metrics.allow.anonymous is set"
                )
            return
        subject = (await authenticate(self._services, request)).subject
        if subject.principal == ANONYMOUS:
            raise unauthorized("metrics need the name and password of a user with describe on the cluster (HTTP Basic)")
        operation, kind, name = DESCRIBE_CLUSTER.operation, DESCRIBE_CLUSTER.kind, CLUSTER_NAME
        if not security.authorizer.allows(subject.principal, subject.host, operation, kind, name):
            security.denied(subject, "", f"GET {PATH}", operation, kind, name)
            raise forbidden(f"{subject.principal} lacks the permission describe on the cluster")
        security.permitted[operation, kind] += 1

    async def _serve(self, request: Request, send: Send) -> None:
        text_format = negotiated(request.headers.get("accept", ""))
        async with aclosing(self._scraper.text(text_format)) as pieces:
            first = await _first(pieces)
            headers = [(b"content-type", text_format.value.encode()), (b"cache-control", b"no-store")]
            await send({"type": "http.response.start", "status": 200, "headers": headers})
            await send({"type": "http.response.body", "body": first, "more_body": True})
            async for piece in pieces:
                await send({"type": "http.response.body", "body": piece, "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})


async def _first(pieces: AsyncIterator[bytes]) -> bytes:
    try:
        return await anext(pieces)
    except TooManyScrapes as error:
        raise AdminError(503, "busy", str(error), {"retry-after": "1"}) from None
