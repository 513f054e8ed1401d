"""LeaveGroup (13), versions 0-5: members leave a group, and their partitions are reassigned at once.

From v3 on several may leave together, each named by its member id or, if static, by its instance id alone (which is how
an operator removes it); each has its own result. Before v3 there is one member, whose result is that of the request.
Permission: READ on the group, else the error is that of the request.
"""

import logging
from typing import TYPE_CHECKING, cast

from kio.schema.errors import ErrorCode

from headrace.coordinator.result import Result
from headrace.kafka.deferred_answers import answer_with
from headrace.kafka.dispatch import Context, handles
from headrace.kafka.errors import error_code
from headrace.kafka.permissions import READ_GROUP, not_authorized
from headrace.model.errors import HeadraceError, UnknownMember
from headrace.protocol.codec import make
from headrace.protocol.units import NO_THROTTLE
from headrace.runtime.deferred import Deferred

if TYPE_CHECKING:
    from kio.schema.leave_group.v2.request import LeaveGroupRequest as EarlyLeaveGroupRequest
    from kio.schema.leave_group.v5.request import LeaveGroupRequest
    from kio.schema.leave_group.v5.response import LeaveGroupResponse

KEY = 13
_REASON_MAX = 255

log = logging.getLogger(__name__)


@handles(KEY, 0, 5, needs=(READ_GROUP,))
def leave_group(ctx: Context, request: "LeaveGroupRequest") -> "LeaveGroupResponse | Deferred[LeaveGroupResponse]":
    if not ctx.allows(READ_GROUP, request.group_id):
        return _answer(ctx, [], Result(error=not_authorized(READ_GROUP, request.group_id)))
    members = getattr(request, "members", None)
    if members is None:
        leaving: list[tuple[str, str | None]] = [(cast("EarlyLeaveGroupRequest", request).member_id, None)]
    else:
        leaving = [(member.member_id, member.group_instance_id) for member in members]
        for member in members:
            if getattr(member, "reason", None):
                log.debug("%s leaves %s: %s", member.member_id, request.group_id, member.reason[:_REASON_MAX])
    return answer_with(
        ctx.services.groups.leave(request.group_id, leaving), lambda result: _answer(ctx, leaving, result)
    )


def _answer(
    ctx: Context, leaving: list[tuple[str, str | None]], result: Result[list[HeadraceError | None]]
) -> "LeaveGroupResponse":
    schema = ctx.schema
    has_results = hasattr(schema, "MemberResponse")
    error: HeadraceError | None = None
    outcomes: list[HeadraceError | None] = []
    if isinstance(result.error, UnknownMember):
        outcomes = [result.error] * len(leaving)
    elif result.error is not None:
        error = result.error
    else:
        outcomes = result.get()
    if not has_results and outcomes:
        error = outcomes[0]
    return make(
        schema.LeaveGroupResponse,
        throttle_time=NO_THROTTLE,
        error_code=_code(error),
        members=tuple(
            schema.MemberResponse(member_id=member_id, group_instance_id=instance_id, error_code=_code(outcome))
            for (member_id, instance_id), outcome in zip(leaving, outcomes, strict=False)
            if has_results
        ),
    )


def _code(error: HeadraceError | None) -> ErrorCode:
    return ErrorCode.none if error is None else error_code(error)
