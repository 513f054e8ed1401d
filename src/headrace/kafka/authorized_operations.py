"""Authorized operations (KIP-430). A broker without access control reports every operation of the resource type.

Each operation is a bit in a bit field, at the position of Kafka's operation code.
"""

from headrace.model.acls import AclOperation

NOT_ASKED = -(2**31)
"""The value of the field when the client did not ask for authorized operations."""


def _bits(*operations: AclOperation) -> int:
    return sum(1 << operation for operation in operations)


_ON_BOTH = _bits(
    AclOperation.CREATE,
    AclOperation.ALTER,
    AclOperation.DESCRIBE,
    AclOperation.DESCRIBE_CONFIGS,
    AclOperation.ALTER_CONFIGS,
)
_TOPIC = _ON_BOTH | _bits(AclOperation.READ, AclOperation.WRITE, AclOperation.DELETE)
_CLUSTER = _ON_BOTH | _bits(AclOperation.CLUSTER_ACTION, AclOperation.IDEMPOTENT_WRITE)
_GROUP = _bits(
    AclOperation.READ,
    AclOperation.DELETE,
    AclOperation.DESCRIBE,
    AclOperation.DESCRIBE_CONFIGS,
    AclOperation.ALTER_CONFIGS,
)


def on_topic(asked: bool) -> int:
    return _TOPIC if asked else NOT_ASKED


def on_cluster(asked: bool) -> int:
    return _CLUSTER if asked else NOT_ASKED


def on_group(asked: bool) -> int:
    return _GROUP if asked else NOT_ASKED
