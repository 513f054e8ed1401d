"""ACLs: listed, created and deleted."""

from collections.abc import Collection
from types import ModuleType
from typing import Any

from headrace.model.acls import Acl, AclOperation, PatternType, Permission, ResourceType
from headrace.protocol.codec import make
from headrace.security.acl_filter import AclFilter, PatternFilter
from headrace.wire.errors import WireError, check
from headrace.wire.router import LeaderRouter

_DESCRIBE, _CREATE, _DELETE = 29, 30, 31
_VERSION, _LOWEST = 3, 1
_ANY = 1
EVERY_ACL = AclFilter()


def list_acls(router: LeaderRouter, wanted: AclFilter) -> list[Acl]:
    """The ACLs that a filter selects, in order."""

    def build(schema: ModuleType) -> Any:
        return make(schema.DescribeAclsRequest, **_fields(wanted))

    def attempt() -> list[Acl]:
        answer = router.any_broker(lambda connection: connection.call(_DESCRIBE, _VERSION, build, lowest=_LOWEST))
        check("listing the ACLs", answer.error_code, answer.error_message)
        return sorted(_acl(resource, each) for resource in answer.resources for each in resource.acls)

    return router.patiently(attempt)


def create_acls(router: LeaderRouter, acls: Collection[Acl]) -> None:
    """Create ACLs; one that exists already is left as it is."""
    ordered = sorted(acls)

    def build(schema: ModuleType) -> Any:
        creations: tuple[Any, ...] = tuple(
            make(
                schema.AclCreation,
                resource_type=int(acl.resource_type),
                resource_name=acl.resource_name,
                resource_pattern_type=int(acl.pattern_type),
                principal=acl.principal,
                host=acl.host,
                operation=int(acl.operation),
                permission_type=int(acl.permission),
            )
            for acl in ordered
        )
        return make(schema.CreateAclsRequest, creations=creations)

    def attempt() -> None:
        with router.using(router.controller()) as connection:
            answer = connection.call(_CREATE, _VERSION, build, lowest=_LOWEST)
        for acl, result in zip(ordered, answer.results, strict=True):
            check(f"adding the rule `{acl}`", result.error_code, result.error_message)

    router.patiently(attempt)


def delete_acls(router: LeaderRouter, acls: Collection[Acl]) -> list[Acl]:
    """Delete exactly these ACLs. Returns those that existed."""
    ordered = sorted(acls)

    def build(schema: ModuleType) -> Any:
        filters: tuple[Any, ...] = tuple(make(schema.DeleteAclsFilter, **_fields(_exactly(acl))) for acl in ordered)
        return make(schema.DeleteAclsRequest, filters=filters)

    def attempt() -> list[Acl]:
        with router.using(router.controller()) as connection:
            answer = connection.call(_DELETE, _VERSION, build, lowest=_LOWEST)
        deleted: list[Acl] = []
        for acl, result in zip(ordered, answer.filter_results, strict=True):
            check(f"removing the rule `{acl}`", result.error_code, result.error_message)
            for each in result.matching_acls:
                check(f"removing the rule `{acl}`", each.error_code, each.error_message)
                deleted.append(_acl(each, each))
        return sorted(deleted)

    return router.patiently(attempt)


def _exactly(acl: Acl) -> AclFilter:
    return AclFilter(
        acl.resource_type,
        PatternFilter(acl.pattern_type),
        acl.resource_name,
        acl.principal,
        acl.host,
        acl.operation,
        acl.permission,
    )


def _fields(wanted: AclFilter) -> dict[str, Any]:
    return {
        "resource_type_filter": int(wanted.resource_type or _ANY),
        "resource_name_filter": wanted.resource_name,
        "pattern_type_filter": int(wanted.pattern),
        "principal_filter": wanted.principal,
        "host_filter": wanted.host,
        "operation": int(wanted.operation or _ANY),
        "permission_type": int(wanted.permission or _ANY),
    }


def _acl(resource: Any, entry: Any) -> Acl:
    try:
        return Acl(
            ResourceType(resource.resource_type),
            PatternType(resource.pattern_type),
            str(resource.resource_name),
            str(entry.principal),
            str(entry.host),
            AclOperation(entry.operation),
            Permission(entry.permission_type),
        )
    except ValueError as error:
        raise WireError(f"the broker has an ACL that this version does not know: {error}") from None
