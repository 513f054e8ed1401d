"""ConsumerGroupDescribe (69), versions 0-1: state, epochs and members of consumer groups (KIP-848).

A group that does not exist, or is of the classic protocol, is GROUP_ID_NOT_FOUND; DescribeGroups shows the latter.
From v1 on the answer has each member's protocol: a consumer group may have members of the classic one.

Permissions: DESCRIBE on each group, and on each topic that its members have or are to have; else the group is
GROUP_AUTHORIZATION_FAILED or TOPIC_AUTHORIZATION_FAILED, and nothing of it is described.
"""

from typing import TYPE_CHECKING

from headrace.groups.consumer_records import stored
from headrace.kafka.dispatch import Context, handles
from headrace.kafka.group_answers import check_assignments, describe_groups, described_assignment
from headrace.kafka.permissions import DESCRIBE_GROUP, DESCRIBE_TOPIC
from headrace.protocol.codec import make

if TYPE_CHECKING:
    from kio.schema.consumer_group_describe.v1.request import ConsumerGroupDescribeRequest
    from kio.schema.consumer_group_describe.v1.response import ConsumerGroupDescribeResponse

KEY = 69
_CLASSIC_MEMBER, _CONSUMER_MEMBER = 0, 1


@handles(KEY, 0, 1, needs=(DESCRIBE_GROUP, DESCRIBE_TOPIC))
def consumer_group_describe(ctx: Context, request: "ConsumerGroupDescribeRequest") -> "ConsumerGroupDescribeResponse":
    response: type[ConsumerGroupDescribeResponse] = ctx.schema.ConsumerGroupDescribeResponse
    return describe_groups(ctx, response, request, lambda group_id: _described(ctx, group_id))


def _described(ctx: Context, group_id: str) -> dict[str, object]:
    group = ctx.services.groups.consumer(group_id)
    check_assignments(
        ctx,
        (
            stored(assignment)
            for member in group.members
            for assignment in (member.assigned, group.target_of(member.member_id))
        ),
    )
    return {
        "group_state": group.state_name,
        "group_epoch": group.epoch,
        "assignment_epoch": group.target_epoch,
        "assignor_name": group.assignor,
        "members": tuple(
            make(
                ctx.schema.Member,
                member_id=member.member_id,
                instance_id=member.about.instance_id,
                rack_id=member.about.rack_id,
                member_epoch=member.epoch,
                client_id=member.about.client_id,
                client_host=member.about.client_host,
                subscribed_topic_names=member.about.topics,
                subscribed_topic_regex=member.about.pattern,
                assignment=described_assignment(ctx, stored(member.assigned)),
                target_assignment=described_assignment(ctx, stored(group.target_of(member.member_id))),
                member_type=_CLASSIC_MEMBER if member.is_classic else _CONSUMER_MEMBER,
            )
            for member in group.members
        ),
    }
