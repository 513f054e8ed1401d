"""ShareGroupDescribe (77), version 1: state, epochs and members of share groups (KIP-932).

A group that does not exist, or is of another kind, is GROUP_ID_NOT_FOUND.
"""

from typing import Any

from kio.schema.errors import ErrorCode

from headrace.groups.consumer_records import StoredPlaces
from headrace.groups.share import ASSIGNOR, ShareGroup
from headrace.kafka import authorized
from headrace.kafka.dispatch import Answer, Context, handles
from headrace.kafka.errors import error_code, error_message
from headrace.model.errors import HeadraceError
from headrace.model.ids import TopicId
from headrace.protocol.codec import make
from headrace.protocol.units import NO_THROTTLE

KEY = 77


@handles(KEY, 1, 1)
def share_group_describe(ctx: Context, request: Any) -> Answer:
    groups = []
    for group_id in request.group_ids:
        try:
            fields = _described(ctx, ctx.services.groups.share(group_id))
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
    return make(ctx.schema.ShareGroupDescribeResponse, throttle_time=NO_THROTTLE, groups=tuple(groups))


def _described(ctx: Context, group: ShareGroup) -> dict[str, Any]:
    return {
        "error_code": ErrorCode.none,
        "error_message": None,
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
                assignment=_assignment(ctx, member.assigned),
            )
            for member_id, member in group.members.items()
        ),
    }


def _assignment(ctx: Context, places: StoredPlaces) -> Any:
    schema, names = ctx.schema, ctx.services.metadata.image.topic_names
    return make(
        schema.Assignment,
        topic_partitions=tuple(
            make(schema.TopicPartitions, topic_id=topic_id, topic_name=names[TopicId(topic_id)], partitions=partitions)
            for topic_id, partitions in places
            if TopicId(topic_id) in names
        ),
    )
