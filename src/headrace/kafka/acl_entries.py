"""ACLs and their filters in the requests of DescribeAcls, CreateAcls and DeleteAcls."""

from enum import IntEnum
from typing import Any, TypeVar

from headrace.model.acls import Acl, AclOperation, PatternType, Permission, ResourceType
from headrace.model.errors import ProtocolError
from headrace.security.acl_filter import AclFilter, PatternFilter
from headrace.security.authorizer import problem_with

_ANY = 1

E = TypeVar("E", bound=IntEnum)


def acl_of(creation: Any) -> Acl:
    """Return the ACL that a request describes; `ProtocolError` if it is not valid."""
    acl = Acl(
        _value(ResourceType, creation.resource_type),
        _value(PatternType, creation.resource_pattern_type),
        creation.resource_name,
        creation.principal,
        creation.host,
        _value(AclOperation, creation.operation),
        _value(Permission, creation.permission_type),
    )
    if (problem := problem_with(acl)) is not None:
        raise ProtocolError(problem)
    return acl


def filter_of(wanted: Any) -> AclFilter:
    """Return the filter that a request describes; `ProtocolError` for a number that stands for nothing."""
    return AclFilter(
        resource_type=_value_or_any(ResourceType, wanted.resource_type_filter),
        pattern=_value(PatternFilter, wanted.pattern_type_filter),
        resource_name=wanted.resource_name_filter,
        principal=wanted.principal_filter,
        host=wanted.host_filter,
        operation=_value_or_any(AclOperation, wanted.operation),
        permission=_value_or_any(Permission, wanted.permission_type),
    )


def _value_or_any(kind: type[E], number: int) -> E | None:
    return None if number == _ANY else _value(kind, number)


def _value(kind: type[E], number: int) -> E:
    try:
        return kind(number)
    except ValueError:
        raise ProtocolError(f"there is no {_NAMES[kind]} {number}") from None


_NAMES: dict[type[IntEnum], str] = {
    ResourceType: "resource type",
    PatternType: "pattern type",
    PatternFilter: "pattern type",
    AclOperation: "operation",
    Permission: "permission type",
}
