"""Whether a person may use a route, by the ACLs and the policies of queues."""

from collections.abc import Mapping

from headrace.admin.errors import forbidden, unauthorized
from headrace.admin.routes import PREFIX, Access, AdminRoute
from headrace.admin.services import AdminServices
from headrace.model.acls import ResourceType
from headrace.model.users import ANONYMOUS, principal_of
from headrace.security.subject import Subject


def check_permission(
    services: AdminServices, route: AdminRoute, subject: Subject, parameters: Mapping[str, str]
) -> None:
    """Raise the refusal if this subject may not use the route. Without authorization everything is allowed."""
    needs, security = route.needs, services.security
    if needs.access is Access.OPEN or security.authorizer is None:
        return
    if subject.principal == ANONYMOUS:
        raise unauthorized("this needs the name and password of a user: HTTP Basic, or POST /session")
    if needs.access is not Access.CHECKED:
        return
    if route.owner and subject.principal == principal_of(parameters[route.owner]):
        return
    if needs.actions:
        services.queue_access.check(subject, needs.operation, parameters[needs.parameter], needs.actions)
        return
    operation, resource = needs.operation, needs.resource(parameters)
    kind, name = resource.resource_type, resource.name
    if not security.authorizer.allows(subject.principal, subject.host, operation, kind, name):
        security.denied(subject, "", f"{route.method} {PREFIX}{route.plain_path}", operation, kind, name)
        where = "the cluster" if kind is ResourceType.CLUSTER else f"the {str(resource).replace('_', ' ', 1)}"
        raise forbidden(f"{subject.principal} lacks the permission {operation.name.lower()} on {where}")
    security.permitted[operation, kind] += 1
