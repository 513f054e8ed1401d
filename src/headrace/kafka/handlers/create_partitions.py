"""CreatePartitions (37), versions 0-3: add partitions to a topic.

`count` is the new total and must be an increase. An assignment, if any, has the replicas of each new partition, as many
as the topic's replication factor. A topic named twice in a request is INVALID_REQUEST. The new partitions are usable
when the answer is sent; the request's timeout is ignored.

New partitions count towards the quota controller_mutation_rate: from v3 on a topic beyond it is
THROTTLING_QUOTA_EXCEEDED, before that the client is delayed.

Permissions: ALTER on each topic, else TOPIC_AUTHORIZATION_FAILED whether it exists or not.
"""

from collections import Counter
from typing import TYPE_CHECKING

from kio.schema.errors import ErrorCode

from headrace.kafka.dispatch import Context, handles
from headrace.kafka.errors import error_code, error_message
from headrace.kafka.mutation_quota import MutationQuota
from headrace.kafka.permissions import ALTER_TOPIC
from headrace.model.errors import HeadraceError, MirrorIsReadOnly, ProtocolError
from headrace.model.ids import TopicName
from headrace.protocol.codec import make
from headrace.protocol.units import NO_THROTTLE

if TYPE_CHECKING:
    from kio.schema.create_partitions.v3.request import CreatePartitionsRequest
    from kio.schema.create_partitions.v3.response import CreatePartitionsResponse, CreatePartitionsTopicResult

KEY = 37
_STRICT_QUOTA_FROM = 3


@handles(KEY, 0, 3, needs=(ALTER_TOPIC,))
async def create_partitions(ctx: Context, request: "CreatePartitionsRequest") -> "CreatePartitionsResponse":
    schema = ctx.schema
    counts = Counter(topic.name for topic in request.topics)
    quota = MutationQuota(ctx, strict_from=_STRICT_QUOTA_FROM)
    results: list[CreatePartitionsTopicResult] = []
    for wanted in {topic.name: topic for topic in request.topics}.values():
        error, message = ErrorCode.none, None
        try:
            if counts[wanted.name] > 1:
                raise ProtocolError(f"the topic {wanted.name} appears more than once in the request")
            ctx.require(ALTER_TOPIC, wanted.name)
            metadata = ctx.services.metadata
            if (mirror := metadata.image.read_only_mirror(wanted.name)) is not None:
                raise MirrorIsReadOnly(
                    f"{wanted.name} is a mirror topic of the link {mirror.link}: it gets the partitions of its source"
                )
            assignment = None if wanted.assignments is None else [entry.broker_ids for entry in wanted.assignments]
            if quota.applies:
                await metadata.add_partitions(wanted.name, wanted.count, assignment, validate_only=True)
                quota.take(wanted.count - len(metadata.image.topics[TopicName(wanted.name)].partitions))
            await metadata.add_partitions(wanted.name, wanted.count, assignment, validate_only=request.validate_only)
        except HeadraceError as failure:
            error, message = error_code(failure), error_message(failure)
        results.append(
            make(schema.CreatePartitionsTopicResult, name=wanted.name, error_code=error, error_message=message)
        )
    return make(schema.CreatePartitionsResponse, throttle_time=NO_THROTTLE, results=tuple(results))
