"""JoinGroup (11), versions 0-9: become a member of a group's next generation.

- The answer waits until that generation begins: all members have rejoined, or the rebalance timeout has passed; a group
  that was empty waits `group.initial.rebalance.delay.ms` for more members.
- From v4 on a member without an id is refused with a new one (MEMBER_ID_REQUIRED) and joins again with it (KIP-394), so
  that abandoned joins leave no members behind.
- From v5 on a member may be static (`group.instance.id`, KIP-345): it keeps its assignment over a restart. A new member
  with the same instance id replaces it, and the old one is fenced. In a stable group that causes no rebalance; a leader
  that restarts gets `skip_assignment` (v9), or before v9 is not named as leader.
- The group's protocol is the one that most members prefer among those that all support.
- In a group of the consumer protocol (`groups/classic_members.py`) the answer does not wait, the generation is the
  member's epoch and no member leads: the broker assigns.
- v0 has no rebalance timeout: the session timeout is used. The reason (v8) is logged.
- Permission: READ on the group.
"""

import logging
from typing import TYPE_CHECKING

from kio.schema.errors import ErrorCode

from headrace.coordinator.result import Result
from headrace.groups.classic_protocol import Joined, JoinRequest
from headrace.kafka.deferred_answers import answer_with
from headrace.kafka.dispatch import Context, handles
from headrace.kafka.errors import error_code
from headrace.kafka.permissions import READ_GROUP, not_authorized
from headrace.model.errors import GroupFull, MemberIdRequired
from headrace.protocol.codec import make
from headrace.protocol.units import NO_THROTTLE, to_ms
from headrace.runtime.deferred import Deferred

if TYPE_CHECKING:
    from kio.schema.join_group.v9.request import JoinGroupRequest
    from kio.schema.join_group.v9.response import JoinGroupResponse

KEY = 11
_IDS_REQUIRED_FROM, _SKIPPING_FROM, _NULL_PROTOCOL_FROM = 4, 9, 7
_REASON_MAX = 255

log = logging.getLogger(__name__)


@handles(KEY, 0, 9, needs=(READ_GROUP,))
def join_group(ctx: Context, request: "JoinGroupRequest") -> "JoinGroupResponse | Deferred[JoinGroupResponse]":
    groups = ctx.services.groups
    if not ctx.allows(READ_GROUP, request.group_id):
        return _answer(ctx, "", Result(error=not_authorized(READ_GROUP, request.group_id)))
    instance_id = getattr(request, "group_instance_id", None)
    session_timeout_ms = to_ms(request.session_timeout)
    rebalance_timeout = getattr(request, "rebalance_timeout", None)
    client_id = ctx.header.client_id or ""
    reason = getattr(request, "reason", None)
    if reason:
        log.debug("%s joins %s: %s", request.member_id or client_id, request.group_id, reason[:_REASON_MAX])
    wants = JoinRequest(
        member_id=request.member_id,
        instance_id=instance_id,
        client_id=client_id,
        client_host=ctx.peer.host,
        session_timeout_ms=session_timeout_ms,
        rebalance_timeout_ms=session_timeout_ms if rebalance_timeout is None else max(0, to_ms(rebalance_timeout)),
        protocol_type=request.protocol_type,
        protocols=tuple((protocol.name, protocol.metadata) for protocol in request.protocols),
        new_member_id=groups.new_member_id(instance_id or client_id),
        needs_known_id=ctx.version >= _IDS_REQUIRED_FROM,
        can_skip_assignment=ctx.version >= _SKIPPING_FROM,
    )
    return answer_with(groups.join(request.group_id, wants), lambda result: _answer(ctx, request.member_id, result))


def _answer(ctx: Context, member_id: str, result: Result[Joined]) -> "JoinGroupResponse":
    schema, error = ctx.schema, result.error
    if error is not None:
        if isinstance(error, MemberIdRequired):
            member_id = error.member_id
        elif isinstance(error, GroupFull):
            member_id = ""
        return make(
            schema.JoinGroupResponse,
            throttle_time=NO_THROTTLE,
            error_code=error_code(error),
            generation_id=-1,
            protocol_type=None,
            protocol_name=None if ctx.version >= _NULL_PROTOCOL_FROM else "",
            leader="",
            skip_assignment=False,
            member_id=member_id,
            members=(),
        )
    joined = result.get()
    return make(
        schema.JoinGroupResponse,
        throttle_time=NO_THROTTLE,
        error_code=ErrorCode.none,
        generation_id=joined.generation,
        protocol_type=joined.protocol_type,
        protocol_name=joined.protocol or "",
        leader=joined.leader,
        skip_assignment=joined.skip_assignment,
        member_id=joined.member_id,
        members=tuple(
            make(
                schema.JoinGroupResponseMember,
                member_id=member.member_id,
                group_instance_id=member.instance_id,
                metadata=member.subscription,
            )
            for member in joined.members
        ),
    )
