"""The audit log of the HTTP API: each request that changes something, with its outcome and without its body."""

from typing import Any

from headrace.admin.errors import AdminError, admin_error
from headrace.admin.routes import PREFIX, AdminReply, AdminRequest, AdminRoute
from headrace.model.errors import HeadraceError
from headrace.security.audit.event import AuditClass, clip

_INTERNAL_ERROR = "internal_error"


async def recorded(route: AdminRoute, request: AdminRequest) -> AdminReply:
    """Carry out a request, and record it if it changes something. A request that switches the log on is recorded."""
    if route.is_read or not route.is_audited:
        return await route.handler(request)
    audit, principal = request.services.security.audit, request.subject.principal
    was_wanted = audit.wants(AuditClass.ADMIN, principal)
    if was_wanted:
        await audit.room()
    code, value = "", None
    try:
        reply = await route.handler(request)
        value = reply.value
        return reply
    except AdminError as error:
        code = error.code
        raise
    except HeadraceError as error:
        code = admin_error(error).code
        raise
    except Exception:
        code = _INTERNAL_ERROR
        raise
    finally:
        if was_wanted or audit.wants(AuditClass.ADMIN, principal):
            _record(route, request, code, value)


def _record(route: AdminRoute, request: AdminRequest, code: str, value: Any) -> None:
    user = request.parameters.get("name")
    key_id = request.parameters.get("id") or getattr(value, "id", None)
    resource = route.needs.resource(request.parameters)
    kind, name = resource.resource_type.name, resource.name
    if user is not None:
        kind, name = "USER", user
    elif route.needs.is_of_subject:
        kind, name = "SUBJECT", clip(request.parameters["subject"])
    elif link := request.parameters.get("link") or _created_link(route, value):
        kind, name = "LINK", link
    elif route.path.startswith("/mirrors/"):
        kind, name = "TOPIC", request.parameters["topic"]
    request.services.security.audit.changed(
        request.subject,
        "",
        f"{route.method} {PREFIX}{route.plain_path}",
        resource_type=kind,
        resource_name=name,
        operation=route.needs.operation.name,
        error=code,
        details={"key": clip(str(key_id))} if key_id else None,
    )


def _created_link(route: AdminRoute, value: Any) -> str:
    """The name of the link that was created, which is in the body of the request; empty if none was."""
    return str(getattr(value, "name", "")) if route.path == "/links" else ""
