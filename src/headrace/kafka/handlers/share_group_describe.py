"""ShareGroupDescribe (77), version 1: state, epochs and members of share groups (KIP-932).

A group that does not exist, or is of another kind, is GROUP_ID_NOT_FOUND. Permissions: DESCRIBE on each group, and on
each topic that its members have; else the group is GROUP_AUTHORIZATION_FAILED or TOPIC_AUTHORIZATION_FAILED, and
nothing of it is described.
"""

from typing import TYPE_CHECKING

from headrace.groups.share import ASSIGNOR
from headrace.kafka.dispatch import Context, handles
from headrace.kafka.group_answers import check_assignments, describe_groups, described_assignment
from headrace.kafka.permissions import DESCRIBE_GROUP, DESCRIBE_TOPIC
from headrace.protocol.codec import make

if TYPE_CHECKING:
    from kio.schema.share_group_describe.v1.request import ShareGroupDescribeRequest
    from kio.schema.share_group_describe.v1.response import ShareGroupDescribeResponse

KEY = 77


@handles(KEY, 1, 1, needs=(DESCRIBE_GROUP, DESCRIBE_TOPIC))
def share_group_describe(ctx: Context, request: "ShareGroupDescribeRequest") -> "ShareGroupDescribeResponse":
    response: type[ShareGroupDescribeResponse] = ctx.schema.ShareGroupDescribeResponse
    return describe_groups(ctx, response, request, lambda group_id: _described(ctx, group_id))


def _described(ctx: Context, group_id: str) -> dict[str, object]:
    group = ctx.services.groups.share(group_id)
    check_assignments(ctx, (member.assigned for member in group.members.values()))
    return {
        "group_state": group.state_name,
        "group_epoch": group.about.epoch,
        "assignment_epoch": group.about.target_epoch,
        "assignor_name": ASSIGNOR,
        "members": tuple(
            make(
                ctx.schema.Member,
                member_id=member_id,
                rack_id=member.rack_id,
                member_epoch=member.epoch,
                client_id=member.client_id,
                client_host=member.client_host,
                subscribed_topic_names=member.topics,
                assignment=described_assignment(ctx, member.assigned),
            )
            for member_id, member in group.members.items()
        ),
    }
