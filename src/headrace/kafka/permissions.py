"""The permissions that Kafka's APIs need: `@handles(…, needs=(READ_TOPIC,))` declares them beside the handler.

A handler asks `ctx.allows(READ_TOPIC, name)` with the same constant for each topic, group or transactional id of its
request, or lets `ctx.require` raise the error. The tests generate a matrix of requests from these declarations, and
compare the table in `docs/security.md` with them.
"""

from typing import NamedTuple

from headrace.model.acls import CLUSTER_NAME, AclOperation, ResourceType
from headrace.model.errors import (
    ClusterNotAuthorized,
    GroupNotAuthorized,
    NotAuthorized,
    TopicNotAuthorized,
    TransactionalIdNotAuthorized,
)


class Need(NamedTuple):
    """An operation on resources of a type."""

    operation: AclOperation
    kind: ResourceType

    def __str__(self) -> str:
        return f"{self.operation.name} on {self.kind.name}"


_ERRORS: dict[ResourceType, type[NotAuthorized]] = {
    ResourceType.TOPIC: TopicNotAuthorized,
    ResourceType.GROUP: GroupNotAuthorized,
    ResourceType.CLUSTER: ClusterNotAuthorized,
    ResourceType.TRANSACTIONAL_ID: TransactionalIdNotAuthorized,
}


def not_authorized(need: Need, name: str = CLUSTER_NAME) -> NotAuthorized:
    """Return the error for a client that lacks a permission. It does not tell whether the resource exists."""
    where = (
        "the cluster" if need.kind is ResourceType.CLUSTER else f"the {need.kind.name.lower().replace('_', ' ')} {name}"
    )
    return _ERRORS[need.kind](f"this needs the permission {need.operation.name} on {where}")


NOTHING: tuple[Need, ...] = ()
"""For APIs that everyone may call, authenticated or not, and for those without an effect."""

READ_TOPIC = Need(AclOperation.READ, ResourceType.TOPIC)
WRITE_TOPIC = Need(AclOperation.WRITE, ResourceType.TOPIC)
CREATE_TOPIC = Need(AclOperation.CREATE, ResourceType.TOPIC)
DELETE_TOPIC = Need(AclOperation.DELETE, ResourceType.TOPIC)
ALTER_TOPIC = Need(AclOperation.ALTER, ResourceType.TOPIC)
DESCRIBE_TOPIC = Need(AclOperation.DESCRIBE, ResourceType.TOPIC)
DESCRIBE_TOPIC_CONFIGS = Need(AclOperation.DESCRIBE_CONFIGS, ResourceType.TOPIC)
ALTER_TOPIC_CONFIGS = Need(AclOperation.ALTER_CONFIGS, ResourceType.TOPIC)

READ_GROUP = Need(AclOperation.READ, ResourceType.GROUP)
DELETE_GROUP = Need(AclOperation.DELETE, ResourceType.GROUP)
DESCRIBE_GROUP = Need(AclOperation.DESCRIBE, ResourceType.GROUP)
DESCRIBE_GROUP_CONFIGS = Need(AclOperation.DESCRIBE_CONFIGS, ResourceType.GROUP)
ALTER_GROUP_CONFIGS = Need(AclOperation.ALTER_CONFIGS, ResourceType.GROUP)

WRITE_TRANSACTIONAL_ID = Need(AclOperation.WRITE, ResourceType.TRANSACTIONAL_ID)
TWO_PHASE_COMMIT = Need(AclOperation.TWO_PHASE_COMMIT, ResourceType.TRANSACTIONAL_ID)
DESCRIBE_TRANSACTIONAL_ID = Need(AclOperation.DESCRIBE, ResourceType.TRANSACTIONAL_ID)

CREATE_CLUSTER = Need(AclOperation.CREATE, ResourceType.CLUSTER)
ALTER_CLUSTER = Need(AclOperation.ALTER, ResourceType.CLUSTER)
DESCRIBE_CLUSTER = Need(AclOperation.DESCRIBE, ResourceType.CLUSTER)
CLUSTER_ACTION = Need(AclOperation.CLUSTER_ACTION, ResourceType.CLUSTER)
DESCRIBE_CLUSTER_CONFIGS = Need(AclOperation.DESCRIBE_CONFIGS, ResourceType.CLUSTER)
ALTER_CLUSTER_CONFIGS = Need(AclOperation.ALTER_CONFIGS, ResourceType.CLUSTER)
IDEMPOTENT_WRITE = Need(AclOperation.IDEMPOTENT_WRITE, ResourceType.CLUSTER)
