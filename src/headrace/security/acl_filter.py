"""Filters that select ACLs, as Kafka's admin APIs use them. Pure."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import IntEnum

from headrace.model.acls import Acl, AclOperation, PatternType, Permission, ResourceType


class PatternFilter(IntEnum):
    ANY = 1
    """Patterns of each type that have this very name."""
    MATCH = 2
    """Patterns of each type that match a resource of this name: literal, prefixed, or the wildcard."""
    LITERAL = 3
    PREFIXED = 4


@dataclass(frozen=True, slots=True)
class AclFilter:
    """Selects the ACLs that equal it in each field; None stands for any value."""

    resource_type: ResourceType | None = None
    pattern: PatternFilter = PatternFilter.ANY
    resource_name: str | None = None
    principal: str | None = None
    host: str | None = None
    operation: AclOperation | None = None
    permission: Permission | None = None

    def matches(self, acl: Acl) -> bool:
        return (
            self.resource_type in (None, acl.resource_type)
            and self.principal in (None, acl.principal)
            and self.host in (None, acl.host)
            and self.operation in (None, acl.operation)
            and self.permission in (None, acl.permission)
            and self._matches_pattern(acl)
        )

    def _matches_pattern(self, acl: Acl) -> bool:
        if self.pattern is PatternFilter.LITERAL and acl.pattern_type is not PatternType.LITERAL:
            return False
        if self.pattern is PatternFilter.PREFIXED and acl.pattern_type is not PatternType.PREFIXED:
            return False
        if self.resource_name is None:
            return True
        if self.pattern is PatternFilter.MATCH:
            return acl.matches_name(self.resource_name)
        return acl.resource_name == self.resource_name

    def select(self, acls: Iterable[Acl]) -> Iterator[Acl]:
        return (acl for acl in acls if self.matches(acl))
