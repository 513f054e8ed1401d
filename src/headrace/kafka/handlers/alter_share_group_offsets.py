"""AlterShareGroupOffsets (91), version 0: set a share group's start offsets.

- The group must have no members (NON_EMPTY_GROUP). Afterwards all records from the offset on are available, and all
  below it count as acknowledged.
- A group that does not exist is created, unless none of the topics exists: offsets may be set before the first member
  joins. A group of another kind is GROUP_ID_NOT_FOUND.
- An offset outside the log is OFFSET_OUT_OF_RANGE; the end of the log is allowed.
- Permissions: READ on the group, else nothing is done; READ on each topic, else its partitions are
  TOPIC_AUTHORIZATION_FAILED, whether or not it exists.
"""

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING

from kio.schema.errors import ErrorCode

from headrace.kafka.dispatch import Context, handles
from headrace.kafka.errors import error_code, error_message
from headrace.kafka.forbidden_topics import forbidden_topics
from headrace.kafka.permissions import READ_GROUP, READ_TOPIC, not_authorized
from headrace.kafka.share_offsets import reset, settled, topic_named, without_members
from headrace.model.errors import HeadraceError
from headrace.model.ids import TopicName
from headrace.model.image import TopicImage
from headrace.protocol.codec import make
from headrace.protocol.units import NO_THROTTLE

if TYPE_CHECKING:
    from kio.schema.alter_share_group_offsets.v0.request import (
        AlterShareGroupOffsetsRequest,
        AlterShareGroupOffsetsRequestTopic,
    )
    from kio.schema.alter_share_group_offsets.v0.response import (
        AlterShareGroupOffsetsResponse,
        AlterShareGroupOffsetsResponseTopic,
    )

KEY = 91


@handles(KEY, 0, 0, needs=(READ_GROUP, READ_TOPIC))
async def alter_share_group_offsets(
    ctx: Context, request: "AlterShareGroupOffsetsRequest"
) -> "AlterShareGroupOffsetsResponse":
    group_id, groups, image = request.group_id, ctx.services.groups, ctx.services.metadata.image
    if not ctx.allows(READ_GROUP, group_id):
        return _answer(ctx, (), not_authorized(READ_GROUP, group_id))
    forbidden = forbidden_topics(ctx, READ_TOPIC, (asked.topic_name for asked in request.topics))
    if forbidden and all(asked.topic_name in forbidden for asked in request.topics):
        return _answer(ctx, tuple(_denied(ctx, asked) for asked in request.topics), None)
    known = [
        topic.topic_id
        for asked in request.topics
        if asked.topic_name not in forbidden and (topic := image.topics.get(TopicName(asked.topic_name))) is not None
    ]
    try:
        if groups.is_share(group_id):
            without_members(ctx, group_id)
        await settled(groups.begin_share(group_id, known))
    except HeadraceError as error:
        return _answer(ctx, (), error)
    topics = await asyncio.gather(*(_topic(ctx, group_id, asked, forbidden) for asked in request.topics))
    return _answer(ctx, tuple(topics), None)


async def _topic(
    ctx: Context, group_id: str, asked: "AlterShareGroupOffsetsRequestTopic", forbidden: frozenset[str]
) -> "AlterShareGroupOffsetsResponseTopic":
    if asked.topic_name in forbidden:
        return _denied(ctx, asked)
    topic = None
    problems: list[HeadraceError | None]
    try:
        topic = topic_named(ctx, asked.topic_name)
        problems = list(
            await asyncio.gather(
                *(reset(ctx, group_id, topic, each.partition_index, each.start_offset) for each in asked.partitions)
            )
        )
    except HeadraceError as error:
        problems = [error for _ in asked.partitions]
    return _answered(ctx, asked, topic, problems)


def _denied(ctx: Context, asked: "AlterShareGroupOffsetsRequestTopic") -> "AlterShareGroupOffsetsResponseTopic":
    error = not_authorized(READ_TOPIC, asked.topic_name)
    return _answered(ctx, asked, None, [error for _ in asked.partitions])


def _answered(
    ctx: Context,
    asked: "AlterShareGroupOffsetsRequestTopic",
    topic: TopicImage | None,
    problems: Sequence[HeadraceError | None],
) -> "AlterShareGroupOffsetsResponseTopic":
    return make(
        ctx.schema.AlterShareGroupOffsetsResponseTopic,
        topic_name=asked.topic_name,
        topic_id=None if topic is None else topic.topic_id,
        partitions=tuple(
            make(
                ctx.schema.AlterShareGroupOffsetsResponsePartition,
                partition_index=each.partition_index,
                error_code=ErrorCode.none if problem is None else error_code(problem),
                error_message=None if problem is None else error_message(problem),
            )
            for each, problem in zip(asked.partitions, problems, strict=True)
        ),
    )


def _answer(
    ctx: Context, topics: "tuple[AlterShareGroupOffsetsResponseTopic, ...]", error: HeadraceError | None
) -> "AlterShareGroupOffsetsResponse":
    return make(
        ctx.schema.AlterShareGroupOffsetsResponse,
        throttle_time=NO_THROTTLE,
        error_code=ErrorCode.none if error is None else error_code(error),
        error_message=None if error is None else error_message(error),
        responses=topics,
    )
