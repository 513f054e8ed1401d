"""ShareGroupHeartbeat (76), version 1: members of share groups (KIP-932) join, send heartbeats and leave.

- Member epoch 0 joins, -1 leaves. Members generate their own ids.
- Answered when the resulting changes are committed: an epoch or an assignment that a member has received survives a
  crash.
- A group of another kind is not converted: the member is refused with GROUP_ID_NOT_FOUND.
- Permissions: READ on the group; DESCRIBE on each topic of a subscription, else TOPIC_AUTHORIZATION_FAILED, whether or
  not it exists, and the subscription does not change.
"""

from typing import TYPE_CHECKING

from kio.schema.errors import ErrorCode

from headrace.coordinator.result import Result
from headrace.groups.group import Beat
from headrace.groups.share import ShareHeartbeat
from headrace.kafka.deferred_answers import answer_with
from headrace.kafka.dispatch import Context, handles
from headrace.kafka.errors import error_code, error_message
from headrace.kafka.group_answers import check_member, heartbeat_answer, heartbeat_refused
from headrace.kafka.permissions import DESCRIBE_TOPIC, READ_GROUP
from headrace.model.errors import NotAuthorized
from headrace.runtime.deferred import Deferred

if TYPE_CHECKING:
    from kio.schema.share_group_heartbeat.v1.request import ShareGroupHeartbeatRequest
    from kio.schema.share_group_heartbeat.v1.response import ShareGroupHeartbeatResponse

KEY = 76


@handles(KEY, 1, 1, needs=(READ_GROUP, DESCRIBE_TOPIC))
def share_group_heartbeat(
    ctx: Context, request: "ShareGroupHeartbeatRequest"
) -> "ShareGroupHeartbeatResponse | Deferred[ShareGroupHeartbeatResponse]":
    response: type[ShareGroupHeartbeatResponse] = ctx.schema.ShareGroupHeartbeatResponse
    if "share" not in ctx.services.settings.group_coordinator_rebalance_protocols:
        return heartbeat_refused(
            response, ErrorCode.unsupported_version, "group.coordinator.rebalance.protocols has no share"
        )
    try:
        check_member(ctx, request.group_id, request.subscribed_topic_names)
    except NotAuthorized as error:
        return heartbeat_refused(response, error_code(error), error_message(error))
    beat = ShareHeartbeat(
        member_id=request.member_id,
        epoch=request.member_epoch,
        rack_id=request.rack_id,
        topics=request.subscribed_topic_names,
        client_id=ctx.header.client_id or "",
        client_host=ctx.peer.host,
    )

    def to_response(result: Result[Beat]) -> "ShareGroupHeartbeatResponse":
        settings = ctx.services.metadata.group_settings(request.group_id)
        return heartbeat_answer(ctx, response, result, settings.share_heartbeat_interval_ms)

    return answer_with(ctx.services.groups.share_heartbeat(request.group_id, beat), to_response)
