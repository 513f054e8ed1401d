"""ConsumerGroupDescribe (69), versions 0-1: state, epochs and members of consumer groups (KIP-848).

A group that does not exist, or is of the classic protocol, is GROUP_ID_NOT_FOUND; DescribeGroups shows the latter.
From v1 on the answer says which protocol each member speaks: a consumer group may have some of the classic one.
"""

from typing import Any

from kio.schema.errors import ErrorCode

from headrace.groups.assignors import Assignment
from headrace.groups.consumer import ConsumerGroup
from headrace.groups.consumer_records import stored
from headrace.kafka import authorized
from headrace.kafka.dispatch import Answer, Context, handles
from headrace.kafka.errors import error_code, error_message
from headrace.model.errors import HeadraceError
from headrace.protocol.codec import make
from headrace.protocol.units import NO_THROTTLE

KEY = 69
_CLASSIC_MEMBER, _CONSUMER_MEMBER = 0, 1


@handles(KEY, 0, 1)
def consumer_group_describe(ctx: Context, request: Any) -> Answer:
    groups = []
    for group_id in request.group_ids:
        try:
            fields = _described(ctx, ctx.services.groups.consumer(group_id))
        except HeadraceError as error:
            fields = {
                "error_code": error_code(error),
                "error_message": error_message(error),
                "group_state": "",
                "group_epoch": 0,
                "assignment_epoch": 0,
                "assignor_name": "",
                "members": (),
            }
        operations = authorized.on_group(request.include_authorized_operations)
        groups.append(make(ctx.schema.DescribedGroup, group_id=group_id, authorized_operations=operations, **fields))
    return make(ctx.schema.ConsumerGroupDescribeResponse, throttle_time=NO_THROTTLE, groups=tuple(groups))


def _described(ctx: Context, group: ConsumerGroup) -> dict[str, Any]:
    return {
        "error_code": ErrorCode.none,
        "error_message": None,
        "group_state": group.state_name,
        "group_epoch": group.epoch,
        "assignment_epoch": group.target_epoch,
        "assignor_name": group.assignor,
        "members": tuple(
            make(
                ctx.schema.Member,
                member_id=member.member_id,
                instance_id=member.wants.instance_id,
                rack_id=member.wants.rack_id,
                member_epoch=member.epoch,
                client_id=member.wants.client_id,
                client_host=member.wants.client_host,
                subscribed_topic_names=member.wants.topics,
                subscribed_topic_regex=member.wants.pattern,
                assignment=_assignment(ctx, member.assigned),
                target_assignment=_assignment(ctx, group.target_of(member.member_id)),
                member_type=_CLASSIC_MEMBER if member.is_classic else _CONSUMER_MEMBER,
            )
            for member in group.members
        ),
    }


def _assignment(ctx: Context, places: Assignment) -> Any:
    schema, names = ctx.schema, ctx.services.metadata.image.topic_names
    return make(
        schema.Assignment,
        topic_partitions=tuple(
            make(schema.TopicPartitions, topic_id=topic_id, topic_name=names[topic_id], partitions=partitions)
            for topic_id, partitions in stored(places)
            if topic_id in names
        ),
    )
