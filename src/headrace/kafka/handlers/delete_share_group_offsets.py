"""DeleteShareGroupOffsets (92), version 0: delete a share group's offsets in topics.

The group must have no members (NON_EMPTY_GROUP). When it reads a topic again, it starts by `share.auto.offset.reset`. A
topic in which it has no offsets is UNKNOWN_TOPIC_OR_PARTITION.

Permissions: DELETE on the group, READ on each topic; one without it is TOPIC_AUTHORIZATION_FAILED, whether or not it
exists.
"""

from typing import TYPE_CHECKING

from kio.schema.errors import ErrorCode

from headrace.groups.share import ShareGroup
from headrace.kafka.dispatch import Context, handles
from headrace.kafka.errors import error_code, error_message
from headrace.kafka.permissions import DELETE_GROUP, READ_TOPIC
from headrace.kafka.share_offsets import forget, settled, topic_named, without_members
from headrace.model.errors import HeadraceError, UnknownTopic
from headrace.protocol.codec import make
from headrace.protocol.units import NO_THROTTLE

if TYPE_CHECKING:
    from kio.schema.delete_share_group_offsets.v0.request import DeleteShareGroupOffsetsRequest
    from kio.schema.delete_share_group_offsets.v0.response import (
        DeleteShareGroupOffsetsResponse,
        DeleteShareGroupOffsetsResponseTopic,
    )

KEY = 92


@handles(KEY, 0, 0, needs=(DELETE_GROUP, READ_TOPIC))
async def delete_share_group_offsets(
    ctx: Context, request: "DeleteShareGroupOffsetsRequest"
) -> "DeleteShareGroupOffsetsResponse":
    try:
        ctx.require(DELETE_GROUP, request.group_id)
        group = without_members(ctx, request.group_id)
    except HeadraceError as error:
        return _answer(ctx, (), error)
    return _answer(ctx, tuple([await _topic(ctx, group, asked.topic_name) for asked in request.topics]), None)


async def _topic(ctx: Context, group: ShareGroup, name: str) -> "DeleteShareGroupOffsetsResponseTopic":
    topic = None
    problem: HeadraceError | None = None
    try:
        ctx.require(READ_TOPIC, name)
        topic = topic_named(ctx, name)
        if topic.topic_id not in group.about.begun:
            raise UnknownTopic(f"the share group {group.group_id} has no offsets in {name}")
        await forget(ctx, group, [topic.topic_id])
        await settled(ctx.services.groups.forget_share(group.group_id, [topic.topic_id]))
    except HeadraceError as error:
        problem = error
    return make(
        ctx.schema.DeleteShareGroupOffsetsResponseTopic,
        topic_name=name,
        topic_id=None if topic is None else topic.topic_id,
        error_code=ErrorCode.none if problem is None else error_code(problem),
        error_message=None if problem is None else error_message(problem),
    )


def _answer(
    ctx: Context, topics: "tuple[DeleteShareGroupOffsetsResponseTopic, ...]", error: HeadraceError | None
) -> "DeleteShareGroupOffsetsResponse":
    return make(
        ctx.schema.DeleteShareGroupOffsetsResponse,
        throttle_time=NO_THROTTLE,
        error_code=ErrorCode.none if error is None else error_code(error),
        error_message=None if error is None else error_message(error),
        responses=topics,
    )
