"""Authorized operations (KIP-430): what a client may do with a resource, as a bit field.

Each operation is a bit at the position of Kafka's operation code. While authorization is off, all operations of the
resource type are set.
"""

from headrace.kafka.dispatch import Context
from headrace.kafka.permissions import DESCRIBE_CLUSTER
from headrace.model.acls import CLUSTER, Resource, ResourceType
from headrace.security.authorizer import OPERATIONS

NOT_ASKED = -(2**31)
"""The value of the field when the client did not ask for authorized operations."""


def on_topic(ctx: Context, name: str, asked: bool) -> int:
    return _operations(ctx, Resource(ResourceType.TOPIC, name)) if asked else NOT_ASKED


def on_cluster(ctx: Context, asked: bool) -> int:
    """Return no operations to a client that may not describe the cluster, as Kafka does."""
    if not asked:
        return NOT_ASKED
    return _operations(ctx, CLUSTER) if ctx.allows(DESCRIBE_CLUSTER) else 0


def on_group(ctx: Context, group_id: str, asked: bool) -> int:
    return _operations(ctx, Resource(ResourceType.GROUP, group_id)) if asked else NOT_ASKED


def _operations(ctx: Context, resource: Resource) -> int:
    authorizer, subject = ctx.services.security.authorizer, ctx.peer.subject
    if authorizer is None:
        operations = OPERATIONS[resource.resource_type]
    else:
        operations = authorizer.operations_on(subject.principal, subject.host, resource)
    return sum(1 << operation for operation in operations)
