"""AlterPartitionReassignments (45), versions 0-1: with one broker, a partition can only be told to stay where it is.

- The replicas a partition has already: nothing to do. Any others name a broker there is not, one twice or none:
  INVALID_REPLICA_ASSIGNMENT.
- Null replicas cancel a move, and nothing moves: NO_REASSIGNMENT_IN_PROGRESS.
"""

from typing import Any

from kio.schema.errors import ErrorCode

from headrace.kafka.dispatch import Answer, Context, handles
from headrace.model.image import TopicImage
from headrace.protocol.codec import make
from headrace.protocol.units import NO_THROTTLE

KEY = 45


@handles(KEY, 0, 1)
def alter_partition_reassignments(ctx: Context, request: Any) -> Answer:
    schema, image = ctx.schema, ctx.services.metadata.image
    responses = []
    for topic in request.topics:
        found = image.topics.get(topic.name)
        parts = tuple(_result(schema, topic.name, found, wanted) for wanted in topic.partitions)
        responses.append(make(schema.ReassignableTopicResponse, name=topic.name, partitions=parts))
    return make(
        schema.AlterPartitionReassignmentsResponse,
        throttle_time=NO_THROTTLE,
        allow_replication_factor_change=getattr(request, "allow_replication_factor_change", True),
        error_code=ErrorCode.none,
        error_message=None,
        responses=tuple(responses),
    )


def _result(schema: Any, name: str, topic: TopicImage | None, wanted: Any) -> Any:
    index = wanted.partition_index
    error, message = ErrorCode.none, None
    if topic is None or not 0 <= index < len(topic.partitions):
        error, message = ErrorCode.unknown_topic_or_partition, f"there is no partition {name}-{index}"
    elif wanted.replicas is None:
        error, message = ErrorCode.no_reassignment_in_progress, f"{name}-{index} does not move"
    elif tuple(wanted.replicas) != topic.partitions[index].replicas:
        error = ErrorCode.invalid_replica_assignment
        message = f"{name}-{index} cannot be on {list(wanted.replicas)}: there is one broker, and it is there already"
    return make(schema.ReassignablePartitionResponse, partition_index=index, error_code=error, error_message=message)
