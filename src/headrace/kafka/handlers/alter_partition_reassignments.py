"""AlterPartitionReassignments (45), versions 0-1: move partitions to other brokers (KIP-455).

- A reassignment begins at once and completes when every new replica is in sync; ListPartitionReassignments shows it.
  Another request for the same partition changes its target. The first replica is the preferred leader, and so on.
- Null replicas cancel the reassignment: NO_REASSIGNMENT_IN_PROGRESS if there is none, INVALID_REPLICA_ASSIGNMENT if
  none of the former replicas is in sync any more.
- INVALID_REPLICA_ASSIGNMENT: no replica, a broker named twice, or one that is not in the cluster. One that is down is
  allowed, as in Kafka: the reassignment completes when it is back.
- v1 may forbid a change of the replication factor: INVALID_REPLICATION_FACTOR.

Permissions: ALTER on the cluster, else CLUSTER_AUTHORIZATION_FAILED for the request.

Any broker answers. Difference from Kafka: a reassignment never completes with fewer replicas in sync than before it,
unless a lower replication factor is requested.
"""

from types import ModuleType
from typing import TYPE_CHECKING

from kio.schema.errors import ErrorCode

from headrace.cluster import partition_requests
from headrace.cluster.partition_requests import Outcomes
from headrace.kafka.dispatch import Context, handles
from headrace.kafka.errors import error_code, error_message
from headrace.kafka.permissions import ALTER_CLUSTER
from headrace.model.errors import HeadraceError
from headrace.model.ids import PartitionIndex, TopicName, TopicPartition
from headrace.protocol.codec import make
from headrace.protocol.units import NO_THROTTLE

if TYPE_CHECKING:
    from kio.schema.alter_partition_reassignments.v1.request import (
        AlterPartitionReassignmentsRequest,
        ReassignablePartition,
        ReassignableTopic,
    )
    from kio.schema.alter_partition_reassignments.v1.response import (
        AlterPartitionReassignmentsResponse,
        ReassignablePartitionResponse,
    )

KEY = 45


@handles(KEY, 0, 1, needs=(ALTER_CLUSTER,))
async def alter_partition_reassignments(
    ctx: Context, request: "AlterPartitionReassignmentsRequest"
) -> "AlterPartitionReassignmentsResponse":
    may_change_factor = getattr(request, "allow_replication_factor_change", True)
    wanted = {_place(topic, part): part.replicas for topic in request.topics for part in topic.partitions}
    outcomes: Outcomes = {}
    error, message = ErrorCode.none, None
    try:
        ctx.require(ALTER_CLUSTER)
        outcomes = await partition_requests.reassign(ctx.services.metadata, wanted, may_change_factor=may_change_factor)
    except HeadraceError as failure:
        error, message = error_code(failure), error_message(failure)
    schema = ctx.schema
    return make(
        schema.AlterPartitionReassignmentsResponse,
        throttle_time=NO_THROTTLE,
        allow_replication_factor_change=may_change_factor,
        error_code=error,
        error_message=message,
        responses=tuple(
            make(
                schema.ReassignableTopicResponse,
                name=topic.name,
                partitions=tuple(
                    _result(schema, part.partition_index, outcomes[_place(topic, part)]) for part in topic.partitions
                ),
            )
            for topic in request.topics
            if error is ErrorCode.none
        ),
    )


def _place(topic: "ReassignableTopic", part: "ReassignablePartition") -> TopicPartition:
    return TopicPartition(TopicName(topic.name), PartitionIndex(part.partition_index))


def _result(schema: ModuleType, index: int, failure: HeadraceError | None) -> "ReassignablePartitionResponse":
    return make(
        schema.ReassignablePartitionResponse,
        partition_index=index,
        error_code=ErrorCode.none if failure is None else error_code(failure),
        error_message=None if failure is None else error_message(failure),
    )
