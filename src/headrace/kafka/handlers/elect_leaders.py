"""ElectLeaders (43), versions 0-2: on one node every partition has its preferred and only leader.

So each partition that is asked for is ELECTION_NOT_NEEDED, for either type of election, or UNKNOWN_TOPIC_OR_PARTITION;
null stands for all that need an election, which is none. A type there is not is INVALID_REQUEST.
"""

from typing import Any

from kio.schema.errors import ErrorCode

from headrace.kafka.dispatch import Answer, Context, handles
from headrace.model.image import TopicImage
from headrace.protocol.codec import make
from headrace.protocol.units import NO_THROTTLE

KEY = 43
PREFERRED, UNCLEAN = 0, 1


@handles(KEY, 0, 2)
def elect_leaders(ctx: Context, request: Any) -> Answer:
    schema, image = ctx.schema, ctx.services.metadata.image
    if getattr(request, "election_type", PREFERRED) not in (PREFERRED, UNCLEAN):
        return make(
            schema.ElectLeadersResponse,
            throttle_time=NO_THROTTLE,
            error_code=ErrorCode.invalid_request,
            replica_election_results=(),
        )
    results = []
    for wanted in request.topic_partitions or ():
        topic = image.topics.get(wanted.topic)
        parts = tuple(_result(schema, wanted.topic, topic, index) for index in wanted.partitions)
        results.append(make(schema.ReplicaElectionResult, topic=wanted.topic, partition_result=parts))
    return make(
        schema.ElectLeadersResponse,
        throttle_time=NO_THROTTLE,
        error_code=ErrorCode.none,
        replica_election_results=tuple(results),
    )


def _result(schema: Any, name: str, topic: TopicImage | None, index: int) -> Any:
    if topic is None:
        error, message = ErrorCode.unknown_topic_or_partition, f"there is no topic {name}"
    elif not 0 <= index < len(topic.partitions):
        error, message = ErrorCode.unknown_topic_or_partition, f"there is no partition {name}-{index}"
    else:
        error, message = ErrorCode.election_not_needed, f"{name}-{index} has its only replica for a leader"
    return make(schema.PartitionResult, partition_id=index, error_code=error, error_message=message)
