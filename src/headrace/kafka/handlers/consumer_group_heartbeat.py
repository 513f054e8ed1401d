"""ConsumerGroupHeartbeat (68), versions 0-1: members of consumer groups (KIP-848) join, live and leave.

- Member epoch 0 joins, -1 leaves, -2 leaves for now (static members). From v1 on members make their ids themselves, in
  v0 one without an id gets one; v1 also brings subscriptions by pattern.
- Answered when what follows from it is committed: an epoch or a partition that a member was told of outlasts a crash.
- A group of the classic protocol becomes a consumer group when a member joins it this way, and its members go on in it
  (KIP-848, "online migration"). If it has members and `group.consumer.migration.policy` forbids that, or they are not
  consumers, the member is refused with GROUP_ID_NOT_FOUND.
"""

from datetime import timedelta
from typing import Any

from kio.schema.errors import ErrorCode

from headrace.coordinator.shard import Result
from headrace.groups.assignors import Assignment
from headrace.groups.consumer import Beat, Heartbeat
from headrace.groups.consumer_records import restored, stored
from headrace.groups.consumer_roster import JOIN
from headrace.kafka.dispatch import Answer, Context, handles
from headrace.kafka.errors import error_code, error_message
from headrace.kafka.later import answer_with
from headrace.protocol.codec import make
from headrace.protocol.units import NO_THROTTLE, to_ms
from headrace.runtime.deferred import Deferred

KEY = 68


@handles(KEY, 0, 1)
def consumer_group_heartbeat(ctx: Context, request: Any) -> Answer | Deferred[Answer]:
    if "consumer" not in ctx.services.settings.group_coordinator_rebalance_protocols:
        return _answer(ctx, ErrorCode.unsupported_version, "group.coordinator.rebalance.protocols has no consumer")
    member_id = request.member_id
    if not member_id and ctx.version == 0 and request.member_epoch == JOIN:
        member_id = ctx.services.groups.new_member_id("consumer")
    beat = Heartbeat(
        member_id=member_id,
        epoch=request.member_epoch,
        instance_id=request.instance_id,
        rack_id=request.rack_id,
        rebalance_timeout_ms=to_ms(request.rebalance_timeout),
        topics=request.subscribed_topic_names,
        pattern=getattr(request, "subscribed_topic_regex", None),
        assignor=request.server_assignor,
        owned=_owned(request.topic_partitions),
        client_id=ctx.header.client_id or "",
        client_host=ctx.peer.host,
    )

    def told(result: Result[Beat]) -> Answer:
        if result.error is not None:
            return _answer(ctx, error_code(result.error), error_message(result.error))
        settings = ctx.services.metadata.group_settings(request.group_id)
        return _answer(ctx, ErrorCode.none, None, result.get(), settings.consumer_heartbeat_interval_ms)

    return answer_with(ctx.services.groups.consumer_heartbeat(request.group_id, beat), told)


def _owned(topics: Any) -> Assignment | None:
    if topics is None:
        return None
    return restored((topic.topic_id, topic.partitions) for topic in topics if topic.topic_id is not None)


def _answer(
    ctx: Context, error: ErrorCode, message: str | None, beat: Beat | None = None, heartbeat_interval_ms: int = 0
) -> Answer:
    schema = ctx.schema
    assignment = None
    if beat is not None and beat.assignment is not None:
        assignment = make(
            schema.Assignment,
            topic_partitions=tuple(
                make(schema.TopicPartitions, topic_id=topic_id, partitions=partitions)
                for topic_id, partitions in stored(beat.assignment)
            ),
        )
    return make(
        schema.ConsumerGroupHeartbeatResponse,
        throttle_time=NO_THROTTLE,
        error_code=error,
        error_message=message,
        member_id=None if beat is None else beat.member_id,
        member_epoch=0 if beat is None else beat.epoch,
        heartbeat_interval=timedelta(milliseconds=heartbeat_interval_ms),
        assignment=assignment,
    )
