"""Filters of ACLs: any value, exact values, and patterns that match a resource."""

import pytest

from headrace.model.acls import Acl, AclOperation, PatternType, Permission, ResourceType
from headrace.security.acl_filter import AclFilter, PatternFilter


def acl(name: str, pattern: PatternType = PatternType.LITERAL, principal: str = "User:a", host: str = "*") -> Acl:
    return Acl(ResourceType.TOPIC, pattern, name, principal, host, AclOperation.READ, Permission.ALLOW)


EXACT, PREFIX, WILDCARD, OTHER = acl("orders"), acl("ord", PatternType.PREFIXED), acl("*"), acl("bills")
ALL = (EXACT, PREFIX, WILDCARD, OTHER)


@pytest.mark.parametrize(
    ("wanted", "selected"),
    [
        (AclFilter(), ALL),
        (AclFilter(pattern=PatternFilter.LITERAL), (EXACT, WILDCARD, OTHER)),
        (AclFilter(pattern=PatternFilter.PREFIXED), (PREFIX,)),
        (AclFilter(resource_name="orders"), (EXACT,)),
        (AclFilter(resource_name="ord"), (PREFIX,)),
        (AclFilter(resource_name="orders", pattern=PatternFilter.LITERAL), (EXACT,)),
        (AclFilter(resource_name="ord", pattern=PatternFilter.LITERAL), ()),
        (AclFilter(resource_name="orders", pattern=PatternFilter.PREFIXED), ()),
        (AclFilter(resource_name="orders", pattern=PatternFilter.MATCH), (EXACT, PREFIX, WILDCARD)),
        (AclFilter(resource_name="order", pattern=PatternFilter.MATCH), (PREFIX, WILDCARD)),
        (AclFilter(pattern=PatternFilter.MATCH), ALL),
        (AclFilter(resource_type=ResourceType.GROUP), ()),
        (AclFilter(resource_type=ResourceType.TOPIC, operation=AclOperation.READ), ALL),
        (AclFilter(operation=AclOperation.WRITE), ()),
        (AclFilter(permission=Permission.DENY), ()),
        (AclFilter(principal="User:b"), ()),
        (AclFilter(host="10.0.0.1"), ()),
        (AclFilter(host="*", principal="User:a", permission=Permission.ALLOW), ALL),
    ],
)
def test_a_filter_selects(wanted: AclFilter, selected: tuple[Acl, ...]) -> None:
    assert tuple(wanted.select(ALL)) == selected
