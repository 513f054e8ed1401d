"""SyncGroup (14), versions 0-5: a member gets its assignment; the group's leader sends those of all members.

- The other members wait for the leader. All are answered when the assignment is committed: a restart cannot revoke an
  assignment that a member has received.
- In a group of the consumer protocol no member waits: the broker assigns.
- From v5 on the request has the group's protocol; a different one is INCONSISTENT_GROUP_PROTOCOL.
- Permission: READ on the group.
"""

from typing import TYPE_CHECKING

from kio.schema.errors import ErrorCode

from headrace.coordinator.result import Result
from headrace.groups.classic_protocol import Synced
from headrace.groups.offsets import Committer
from headrace.kafka.deferred_answers import answer_with
from headrace.kafka.dispatch import Context, handles
from headrace.kafka.errors import error_code
from headrace.kafka.permissions import READ_GROUP, not_authorized
from headrace.protocol.codec import make
from headrace.protocol.units import NO_THROTTLE
from headrace.runtime.deferred import Deferred

if TYPE_CHECKING:
    from kio.schema.sync_group.v5.request import SyncGroupRequest
    from kio.schema.sync_group.v5.response import SyncGroupResponse

KEY = 14


@handles(KEY, 0, 5, needs=(READ_GROUP,))
def sync_group(ctx: Context, request: "SyncGroupRequest") -> "SyncGroupResponse | Deferred[SyncGroupResponse]":
    if not ctx.allows(READ_GROUP, request.group_id):
        return _answer(ctx, Result(error=not_authorized(READ_GROUP, request.group_id)))
    by = Committer(request.member_id, getattr(request, "group_instance_id", None), request.generation_id)
    protocol = (getattr(request, "protocol_type", None), getattr(request, "protocol_name", None))
    assignments = {one.member_id: one.assignment for one in request.assignments}
    synced = ctx.services.groups.sync(request.group_id, by, protocol, assignments)
    return answer_with(synced, lambda result: _answer(ctx, result))


def _answer(ctx: Context, result: Result[Synced]) -> "SyncGroupResponse":
    error = result.error
    synced = Synced("", None, b"") if error is not None else result.get()
    return make(
        ctx.schema.SyncGroupResponse,
        throttle_time=NO_THROTTLE,
        error_code=ErrorCode.none if error is None else error_code(error),
        protocol_type=synced.protocol_type or None,
        protocol_name=synced.protocol,
        assignment=synced.assignment,
    )
