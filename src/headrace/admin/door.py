"""The ASGI application of the HTTP API: finds the route, authenticates, checks the permission, and answers in JSON.

- With authorization on, a request needs credentials, and the permission of its route by the ACLs.
- With authorization off, everything is allowed from this machine, and nothing from elsewhere unless the broker is
  `insecure`.
- Requests with a body have the content type application/json, which a page of another site cannot send. Changes are
  refused to pages of other sites, and with a session they need its CSRF token.

Errors are `{"error": CODE, "message": SENTENCE}`.
"""

import logging
from collections.abc import Awaitable, Callable

import msgspec
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route

from headrace.admin.audit import recorded
from headrace.admin.errors import AdminError, admin_error, forbidden
from headrace.admin.login import Identity, authenticate, check_origin, is_trusted, own_port
from headrace.admin.permissions import check_permission
from headrace.admin.resources import ALL_ROUTES
from headrace.admin.routes import PREFIX, READS, Access, AdminReply, AdminRequest, AdminRoute
from headrace.admin.services import AdminServices
from headrace.admin.streams import ByteStream, StreamResponse
from headrace.model.errors import HeadraceError

log = logging.getLogger(__name__)

_JSON = "application/json"
_HEADERS = {"cache-control": "no-store", "x-content-type-options": "nosniff"}
_WITH_BODY = frozenset({"POST", "PUT", "PATCH"})
_CHALLENGE = "www-authenticate"


def admin_door(services: AdminServices) -> Starlette:
    """Return the application for all paths under `PREFIX`."""
    app = Starlette(
        routes=[Route(PREFIX + each.path, _endpoint(services, each), methods=[each.method]) for each in ALL_ROUTES],
        exception_handlers={HTTPException: _unknown},
    )
    app.router.redirect_slashes = False
    return app


def _endpoint(services: AdminServices, route: AdminRoute) -> Callable[[Request], Awaitable[Response]]:
    async def endpoint(request: Request) -> Response:
        try:
            reply = await _answer(services, route, request)
        except AdminError as error:
            return _refusal(error, request)
        except HeadraceError as error:
            refusal = admin_error(error)
            if refusal.status == 500:
                log.error("a request to %s has failed: %s", request.url.path, error, exc_info=error)
            return _refusal(refusal, request)
        except ClientDisconnect:
            return Response(status_code=400)
        except Exception as error:
            log.exception("a request to %s has failed: %s", request.url.path, error)
            internal = AdminError(500, "internal_error", "the broker could not do this; its log says why")
            return _refusal(internal, request)
        return _response(reply)

    return endpoint


async def _answer(services: AdminServices, route: AdminRoute, request: Request) -> AdminReply:
    identity = await authenticate(services, request)
    _check(services, route, request, identity)
    if route.method != READS:
        check_origin(request, identity)
        if services.metadata.settings.dashboard_read_only and not route.is_read:
            raise AdminError(403, "read_only", "this broker only shows things over HTTP (dashboard.read.only)")
    content_type = request.headers.get("content-type", "").partition(";")[0].strip()
    if route.method in _WITH_BODY and content_type != _JSON:
        raise AdminError(415, "unsupported_media_type", f"the body must have the content type {_JSON}")
    body = await _body(request, route.max_body_bytes)
    asked = AdminRequest(
        services,
        identity.subject,
        request.path_params,
        body,
        request.query_params,
        identity.session,
        request.headers,
        own_port=own_port(request),
    )
    return await recorded(route, asked)


def _check(services: AdminServices, route: AdminRoute, request: Request, identity: Identity) -> None:
    """Raise the refusal if this request may not use the route."""
    is_guarded = route.needs.access is not Access.OPEN
    if is_guarded and services.security.authorizer is None and not is_trusted(services, request):
        raise forbidden("without authorization (authorization.enable) this is allowed from the broker's machine only")
    check_permission(services, route, identity.subject, request.path_params)


async def _body(request: Request, most_bytes: int) -> bytes:
    pieces, size = [], 0
    async for piece in request.stream():
        size += len(piece)
        if size > most_bytes:
            # The rest of the body is not read: the connection ends with the answer.
            raise AdminError(413, "too_large", f"a body may have {most_bytes} bytes", {"connection": "close"})
        pieces.append(piece)
    return b"".join(pieces)


async def _unknown(request: Request, error: Exception) -> Response:
    """The answer for a path without a route, or a method that it does not have."""
    status = error.status_code if isinstance(error, HTTPException) else 500
    if status == 405:
        refusal = AdminError(405, "method_not_allowed", "this path has other methods", getattr(error, "headers", {}))
    else:
        refusal = AdminError(404, "unknown_path", f"there is nothing here: {PREFIX}/openapi.json lists the API")
    return _refusal(refusal, request)


def _refusal(error: AdminError, request: Request) -> Response:
    answer = _response(AdminReply({"error": error.code, "message": str(error)}, error.status, error.headers))
    if request.headers.get("sec-fetch-mode", "navigate") != "navigate" and _CHALLENGE in answer.headers:
        # A script of a page: the browser would open its own dialog for the password.
        del answer.headers[_CHALLENGE]
    return answer


def _response(reply: AdminReply) -> Response:
    headers = {**_HEADERS, **reply.headers}
    if isinstance(reply.value, ByteStream):
        return StreamResponse(reply.value, headers)
    if reply.value is None:
        return Response(status_code=204, headers=headers)
    return Response(msgspec.json.encode(reply.value), reply.status, headers, media_type=_JSON)
