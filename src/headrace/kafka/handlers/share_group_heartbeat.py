"""ShareGroupHeartbeat (76), version 1: members of share groups (KIP-932) join, live and leave.

- Member epoch 0 joins, -1 leaves. Members make their ids themselves.
- Answered when what follows from it is committed: an epoch or a partition that a member was told of outlasts a crash.
- A group of another kind stays what it is: the member is refused with GROUP_ID_NOT_FOUND.
"""

from datetime import timedelta
from typing import Any

from kio.schema.errors import ErrorCode

from headrace.coordinator.shard import Result
from headrace.groups.consumer_records import stored
from headrace.groups.share import ShareBeat, ShareHeartbeat
from headrace.kafka.dispatch import Answer, Context, handles
from headrace.kafka.errors import error_code, error_message
from headrace.kafka.later import answer_with
from headrace.protocol.codec import make
from headrace.protocol.units import NO_THROTTLE
from headrace.runtime.deferred import Deferred

KEY = 76


@handles(KEY, 1, 1)
def share_group_heartbeat(ctx: Context, request: Any) -> Answer | Deferred[Answer]:
    if "share" not in ctx.services.settings.group_coordinator_rebalance_protocols:
        return _answer(ctx, ErrorCode.unsupported_version, "group.coordinator.rebalance.protocols has no share")
    beat = ShareHeartbeat(
        member_id=request.member_id,
        epoch=request.member_epoch,
        rack_id=request.rack_id,
        topics=request.subscribed_topic_names,
        client_id=ctx.header.client_id or "",
        client_host=ctx.peer.host,
    )

    def told(result: Result[ShareBeat]) -> Answer:
        if result.error is not None:
            return _answer(ctx, error_code(result.error), error_message(result.error))
        settings = ctx.services.metadata.group_settings(request.group_id)
        return _answer(ctx, ErrorCode.none, None, result.get(), settings.share_heartbeat_interval_ms)

    return answer_with(ctx.services.groups.share_heartbeat(request.group_id, beat), told)


def _answer(
    ctx: Context, error: ErrorCode, message: str | None, beat: ShareBeat | None = None, heartbeat_interval_ms: int = 0
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
        schema.ShareGroupHeartbeatResponse,
        throttle_time=NO_THROTTLE,
        error_code=error,
        error_message=message,
        member_id=None if beat is None else beat.member_id,
        member_epoch=0 if beat is None else beat.epoch,
        heartbeat_interval=timedelta(milliseconds=heartbeat_interval_ms),
        assignment=assignment,
    )
