"""DescribeGroups (15), versions 0-6: state, protocol and members of classic groups.

- Member metadata and the protocol are set only while the group is stable; during a rebalance they are undefined.
- A group that does not exist is Dead; from v6 on with GROUP_ID_NOT_FOUND and a message (KIP-1043). So is one of the
  consumer protocol, which ConsumerGroupDescribe shows.
- Permission: DESCRIBE on each group; one without it is GROUP_AUTHORIZATION_FAILED, whether or not it exists.
"""

from typing import TYPE_CHECKING

from kio.schema.errors import ErrorCode

from headrace.groups.classic import ClassicGroup
from headrace.groups.generation import GroupState
from headrace.kafka import authorized_operations
from headrace.kafka.dispatch import Context, handles
from headrace.kafka.errors import error_code, error_message
from headrace.kafka.permissions import DESCRIBE_GROUP
from headrace.model.errors import GroupNotFound, HeadraceError
from headrace.protocol.codec import make
from headrace.protocol.units import NO_THROTTLE

if TYPE_CHECKING:
    from kio.schema.describe_groups.v6.request import DescribeGroupsRequest
    from kio.schema.describe_groups.v6.response import DescribedGroup, DescribeGroupsResponse

KEY = 15
_NOT_FOUND_FROM = 6


@handles(KEY, 0, 6, needs=(DESCRIBE_GROUP,))
def describe_groups(ctx: Context, request: "DescribeGroupsRequest") -> "DescribeGroupsResponse":
    asked = getattr(request, "include_authorized_operations", False)
    groups: list[DescribedGroup] = []
    for group_id in request.groups:
        try:
            ctx.require(DESCRIBE_GROUP, group_id)
            fields = _described(ctx, ctx.services.groups.classic(group_id))
        except HeadraceError as error:
            fields = _failed(ctx, error)
        groups.append(
            make(
                ctx.schema.DescribedGroup,
                group_id=group_id,
                authorized_operations=_operations(ctx, group_id, fields, asked=asked),
                **fields,
            )
        )
    return make(ctx.schema.DescribeGroupsResponse, throttle_time=NO_THROTTLE, groups=tuple(groups))


def _operations(ctx: Context, group_id: str, fields: dict[str, object], *, asked: bool) -> int:
    is_denied = fields["error_code"] is ErrorCode.group_authorization_failed
    return authorized_operations.on_group(ctx, group_id, asked and not is_denied)


def _described(ctx: Context, group: ClassicGroup) -> dict[str, object]:
    protocol = group.protocol if group.state is GroupState.STABLE else None
    return {
        "error_code": ErrorCode.none,
        "error_message": None,
        "group_state": group.state_name,
        "protocol_type": group.protocol_type,
        "protocol_data": protocol or "",
        "members": tuple(
            make(
                ctx.schema.DescribedGroupMember,
                member_id=member.member_id,
                group_instance_id=member.instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                member_metadata=member.subscription(protocol),
                member_assignment=member.assignment,
            )
            for member in group.members.values()
        ),
    }


def _failed(ctx: Context, error: HeadraceError) -> dict[str, object]:
    is_dead = isinstance(error, GroupNotFound)
    code = ErrorCode.none if is_dead and ctx.version < _NOT_FOUND_FROM else error_code(error)
    return {
        "error_code": code,
        "error_message": None if code is ErrorCode.none else error_message(error),
        "group_state": "Dead" if is_dead else "",
        "protocol_type": "",
        "protocol_data": "",
        "members": (),
    }
