"""OffsetForLeaderEpoch (23), versions 2-4: the end offset of a leader epoch, for clients that detect log truncation.

The current epoch ends at the end of the log, also while it has no records. For an epoch that is not in this log, the
answer has the largest one below it, or (-1, -1) if there is none. Only the leader answers.

Permissions: CLUSTER_ACTION on the cluster, or DESCRIBE on each topic, else TOPIC_AUTHORIZATION_FAILED.
"""

from typing import TYPE_CHECKING

from kio.schema.errors import ErrorCode

from headrace.kafka.dispatch import Context, handles
from headrace.kafka.errors import error_code
from headrace.kafka.permissions import CLUSTER_ACTION, DESCRIBE_TOPIC, not_authorized
from headrace.model.errors import HeadraceError
from headrace.protocol.codec import make
from headrace.protocol.units import NO_THROTTLE

if TYPE_CHECKING:
    from kio.schema.offset_for_leader_epoch.v4.request import OffsetForLeaderEpochRequest
    from kio.schema.offset_for_leader_epoch.v4.response import (
        EpochEndOffset,
        OffsetForLeaderEpochResponse,
        OffsetForLeaderTopicResult,
    )

KEY = 23


@handles(KEY, 2, 4, needs=(CLUSTER_ACTION, DESCRIBE_TOPIC))
def offset_for_leader_epoch(ctx: Context, request: "OffsetForLeaderEpochRequest") -> "OffsetForLeaderEpochResponse":
    schema = ctx.schema
    is_replica = ctx.shows(CLUSTER_ACTION)
    topics: list[OffsetForLeaderTopicResult] = []
    for topic in request.topics:
        parts: list[EpochEndOffset] = []
        may_describe = is_replica or ctx.allows(DESCRIBE_TOPIC, topic.topic)
        for wanted in topic.partitions:
            error, epoch, end_offset = ErrorCode.none, -1, -1
            try:
                if not may_describe:
                    raise not_authorized(DESCRIBE_TOPIC, topic.topic)
                partition = ctx.services.partitions.get(topic.topic, wanted.partition)
                partition.check_leading()
                partition.check_epoch(wanted.current_leader_epoch)
                epoch, end_offset = partition.replica.end_of_epoch(wanted.leader_epoch)
            except HeadraceError as failure:
                error = error_code(failure)
            parts.append(
                make(
                    schema.EpochEndOffset,
                    error_code=error,
                    partition=wanted.partition,
                    leader_epoch=epoch,
                    end_offset=end_offset,
                )
            )
        topics.append(make(schema.OffsetForLeaderTopicResult, topic=topic.topic, partitions=tuple(parts)))
    return make(schema.OffsetForLeaderEpochResponse, throttle_time=NO_THROTTLE, topics=tuple(topics))
