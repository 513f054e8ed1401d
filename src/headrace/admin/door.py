"""The ASGI application of the HTTP API: finds the route, authenticates, checks the permission, and answers in JSON.

- With authorization on, a request needs credentials, and the permission of its route by the ACLs.
- With authorization off, everything is allowed from this machine, and nothing from elsewhere.
- Requests that change something have the content type application/json, which a page of another site cannot send.

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

from headrace.admin import secure, users  # noqa: F401  They register their routes.
from headrace.admin.audit import recorded
from headrace.admin.errors import AdminError, admin_error, forbidden, unauthorized
from headrace.admin.login import authenticate, is_local
from headrace.admin.routes import PREFIX, ROUTES, AdminReply, AdminRequest, AdminRoute
from headrace.admin.services import AdminServices
from headrace.model.errors import HeadraceError
from headrace.model.users import ANONYMOUS, principal_of
from headrace.security.authorizer import Authorizer
from headrace.security.subject import Subject

log = logging.getLogger(__name__)

MAX_BODY_BYTES = 64 * 1024
_JSON = "application/json"


def admin_door(services: AdminServices) -> Starlette:
    """Return the application for all paths under `PREFIX`."""
    app = Starlette(
        routes=[Route(PREFIX + each.path, _endpoint(services, each), methods=[each.method]) for each in ROUTES],
        exception_handlers={HTTPException: _unknown},
    )
    app.router.redirect_slashes = False
    return app


def _endpoint(services: AdminServices, route: AdminRoute) -> Callable[[Request], Awaitable[Response]]:
    async def endpoint(request: Request) -> Response:
        try:
            reply = await _answer(services, route, request)
        except AdminError as error:
            return _refusal(error)
        except HeadraceError as error:
            refusal = admin_error(error)
            if refusal.status == 500:
                log.error("a request to %s has failed: %s", request.url.path, error, exc_info=error)
            return _refusal(refusal)
        except ClientDisconnect:
            return Response(status_code=400)
        except Exception as error:
            log.exception("a request to %s has failed: %s", request.url.path, error)
            return _refusal(AdminError(500, "internal_error", "the broker could not do this; its log says why"))
        return _response(reply.status, reply.value)

    return endpoint


async def _answer(services: AdminServices, route: AdminRoute, request: Request) -> AdminReply:
    subject = await authenticate(services, request)
    _check(services, route, request, subject)
    if route.method == "POST" and request.headers.get("content-type", "").partition(";")[0].strip() != _JSON:
        raise AdminError(415, "unsupported_media_type", f"the body must have the content type {_JSON}")
    body = await _body(request)
    return await recorded(route, AdminRequest(services, subject, request.path_params, body))


def _check(services: AdminServices, route: AdminRoute, request: Request, subject: Subject) -> None:
    """Raise the refusal if this subject may not use the route."""
    security = services.security
    if route.is_open_without_users:
        if not services.has_users and is_local(request):
            return
        authorizer = security.authorizer or _authorizer(services)
    elif security.authorizer is None:
        if is_local(request):
            return
        raise forbidden("without authorization (authorization.enable) this is allowed from the broker's machine only")
    else:
        authorizer = security.authorizer
    if subject.principal == ANONYMOUS:
        raise unauthorized("this needs the name and password of a user (HTTP Basic)")
    if route.owner and subject.principal == principal_of(request.path_params[route.owner]):
        return
    operation, resource = route.needs
    kind, name = resource.resource_type, resource.name
    if not authorizer.allows(subject.principal, subject.host, operation, kind, name):
        security.denied(subject, "", f"{route.method} {PREFIX}{route.path}", operation, kind, name)
        raise forbidden(f"{subject.principal} lacks the permission {operation.name.lower()} on the cluster")


def _authorizer(services: AdminServices) -> Authorizer:
    """The decisions that there will be once authorization is on."""
    settings = services.metadata.settings
    return Authorizer(
        services.security.image.acls,
        super_users=settings.super_user_principals,
        allow_everyone=settings.allow_everyone_if_no_acl_found,
    )


async def _body(request: Request) -> bytes:
    pieces, size = [], 0
    async for piece in request.stream():
        size += len(piece)
        if size > MAX_BODY_BYTES:
            # The rest of the body is not read: the connection ends with the answer.
            raise AdminError(413, "too_large", f"a body may have {MAX_BODY_BYTES} bytes", {"connection": "close"})
        pieces.append(piece)
    return b"".join(pieces)


async def _unknown(_: Request, error: Exception) -> Response:
    """The answer for a path without a route, or a method that it does not have."""
    status = error.status_code if isinstance(error, HTTPException) else 500
    if status == 405:
        refusal = AdminError(405, "method_not_allowed", "this path has other methods", getattr(error, "headers", {}))
    else:
        refusal = AdminError(404, "unknown_path", f"there is nothing here: the API is under {PREFIX}")
    return _refusal(refusal)


def _refusal(error: AdminError) -> Response:
    answer = _response(error.status, {"error": error.code, "message": str(error)})
    answer.headers.update(error.headers)
    return answer


def _response(status: int, value: object) -> Response:
    if value is None:
        return Response(status_code=204)
    headers = {"cache-control": "no-store", "x-content-type-options": "nosniff"}
    return Response(msgspec.json.encode(value), status, headers, media_type=_JSON)
