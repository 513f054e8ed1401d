"""Access control lists as Kafka defines them: resources, patterns, operations, permissions. Pure."""

from dataclasses import dataclass
from enum import IntEnum

WILDCARD = "*"
"""As the name of a literal pattern, every resource of the type; as a host, every host."""
EVERYONE = "User:*"
CLUSTER_NAME = "kafka-cluster"
"""The one name that a resource of type CLUSTER has."""


class ResourceType(IntEnum):
    __hash__ = int.__hash__  # that of an enum is a Python function, and each check hashes one
    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7


class PatternType(IntEnum):
    LITERAL = 3
    PREFIXED = 4


class Permission(IntEnum):
    DENY = 2
    ALLOW = 3


class AclOperation(IntEnum):
    """By the numbers of the protocol; they are also the bits of `authorized_operations` (KIP-430)."""

    __hash__ = int.__hash__

    ALL = 2
    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12
    CREATE_TOKENS = 13
    DESCRIBE_TOKENS = 14
    TWO_PHASE_COMMIT = 15


IMPLIED_BY: dict[AclOperation, frozenset[AclOperation]] = {
    AclOperation.DESCRIBE: frozenset({AclOperation.READ, AclOperation.WRITE, AclOperation.DELETE, AclOperation.ALTER}),
    AclOperation.DESCRIBE_CONFIGS: frozenset({AclOperation.ALTER_CONFIGS}),
}
"""Operations whose ALLOW grants another one, too. A DENY implies nothing."""


@dataclass(frozen=True, slots=True)
class Resource:
    """One thing that a request is about, by its exact name."""

    resource_type: ResourceType
    name: str

    def __str__(self) -> str:
        return f"{self.resource_type.name.lower()} {self.name}"


CLUSTER = Resource(ResourceType.CLUSTER, CLUSTER_NAME)


@dataclass(frozen=True, slots=True, order=True)
class Acl:
    """One rule: a principal, from a host, may or may not do an operation on the resources that a pattern matches."""

    resource_type: ResourceType
    pattern_type: PatternType
    resource_name: str
    principal: str
    """`User:alice`, or `User:*` for everyone."""
    host: str
    """An IP address, a network as 10.0.0.0/8, or `*`."""
    operation: AclOperation
    permission: Permission

    def matches_name(self, name: str) -> bool:
        if self.pattern_type is PatternType.PREFIXED:
            return name.startswith(self.resource_name)
        return self.resource_name in (name, WILDCARD)

    def __str__(self) -> str:
        pattern = f"{self.resource_name}*" if self.pattern_type is PatternType.PREFIXED else self.resource_name
        where = "" if self.host == WILDCARD else f" from {self.host}"
        verb = self.permission.name.lower()
        operation = self.operation.name.lower()
        return f"{verb} {self.principal} {operation} on {self.resource_type.name.lower()} {pattern}{where}"
