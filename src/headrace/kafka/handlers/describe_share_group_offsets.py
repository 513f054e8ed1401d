"""DescribeShareGroupOffsets (90), versions 0-1: the start offsets of share groups in their partitions.

- Answered by the group's coordinator, which asks the partitions' leaders.
- A partition that the group has not started, or that does not exist, has the start offset -1. v1 has the lag: the
  number of offsets from there on that the group has not finished.
- Permissions: DESCRIBE on each group, else it is GROUP_AUTHORIZATION_FAILED; DESCRIBE on each topic, else its
  partitions are TOPIC_AUTHORIZATION_FAILED, whether or not it exists. Of all topics (null), those without it are left
  out.
"""

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING

from kio.schema.errors import ErrorCode

from headrace.groups.share import ShareGroup
from headrace.kafka.dispatch import Context, handles
from headrace.kafka.errors import error_code, error_message
from headrace.kafka.forbidden_topics import forbidden_topics
from headrace.kafka.permissions import DESCRIBE_GROUP, DESCRIBE_TOPIC, not_authorized
from headrace.kafka.share_offsets import position
from headrace.model.errors import HeadraceError
from headrace.model.ids import TopicId, TopicName
from headrace.protocol.codec import make
from headrace.protocol.units import NO_THROTTLE
from headrace.queues.share.partition import SharePosition

if TYPE_CHECKING:
    from kio.schema.describe_share_group_offsets.v1.request import (
        DescribeShareGroupOffsetsRequest,
        DescribeShareGroupOffsetsRequestGroup,
    )
    from kio.schema.describe_share_group_offsets.v1.response import (
        DescribeShareGroupOffsetsResponse,
        DescribeShareGroupOffsetsResponseGroup,
        DescribeShareGroupOffsetsResponsePartition,
        DescribeShareGroupOffsetsResponseTopic,
    )

KEY = 90


@handles(KEY, 0, 1, needs=(DESCRIBE_GROUP, DESCRIBE_TOPIC))
async def describe_share_group_offsets(
    ctx: Context, request: "DescribeShareGroupOffsetsRequest"
) -> "DescribeShareGroupOffsetsResponse":
    groups = await asyncio.gather(*(_group(ctx, asked) for asked in request.groups))
    return make(ctx.schema.DescribeShareGroupOffsetsResponse, throttle_time=NO_THROTTLE, groups=tuple(groups))


async def _group(
    ctx: Context, asked: "DescribeShareGroupOffsetsRequestGroup"
) -> "DescribeShareGroupOffsetsResponseGroup":
    topics: tuple[DescribeShareGroupOffsetsResponseTopic, ...] = ()
    problem: HeadraceError | None = None
    try:
        ctx.require(DESCRIBE_GROUP, asked.group_id)
        group = ctx.services.groups.share(asked.group_id)
        forbidden = forbidden_topics(ctx, DESCRIBE_TOPIC, (each.topic_name for each in asked.topics or ()))
        wanted = (
            _begun(ctx, group)
            if asked.topics is None
            else [(each.topic_name, each.partitions) for each in asked.topics]
        )
        topics = tuple(
            await asyncio.gather(*(_topic(ctx, group, name, partitions, forbidden) for name, partitions in wanted))
        )
    except HeadraceError as error:
        problem = error
    return make(
        ctx.schema.DescribeShareGroupOffsetsResponseGroup,
        group_id=asked.group_id,
        topics=topics,
        error_code=ErrorCode.none if problem is None else error_code(problem),
        error_message=None if problem is None else error_message(problem),
    )


def _begun(ctx: Context, group: ShareGroup) -> list[tuple[str, Sequence[int]]]:
    image = ctx.services.metadata.image
    topics = (image.topic_by_id(TopicId(topic_id)) for topic_id in group.about.begun)
    return [
        (topic.name, range(len(topic.partitions)))
        for topic in topics
        if topic is not None and ctx.shows(DESCRIBE_TOPIC, topic.name)
    ]


async def _topic(
    ctx: Context, group: ShareGroup, name: str, partitions: Sequence[int], forbidden: frozenset[str]
) -> "DescribeShareGroupOffsetsResponseTopic":
    if name in forbidden:
        error = not_authorized(DESCRIBE_TOPIC, name)
        return make(
            ctx.schema.DescribeShareGroupOffsetsResponseTopic,
            topic_name=name,
            topic_id=None,
            partitions=tuple(_partition(ctx, index, error) for index in partitions),
        )
    topic = ctx.services.metadata.image.topics.get(TopicName(name))
    found = await asyncio.gather(*(position(ctx, group, topic, index) for index in partitions))
    return make(
        ctx.schema.DescribeShareGroupOffsetsResponseTopic,
        topic_name=name,
        topic_id=None if topic is None else topic.topic_id,
        partitions=tuple(_partition(ctx, index, each) for index, each in zip(partitions, found, strict=True)),
    )


def _partition(
    ctx: Context, index: int, found: SharePosition | HeadraceError
) -> "DescribeShareGroupOffsetsResponsePartition":
    problem = found if isinstance(found, HeadraceError) else None
    start_offset, leader_epoch, lag = (-1, -1, -1) if isinstance(found, HeadraceError) else found
    return make(
        ctx.schema.DescribeShareGroupOffsetsResponsePartition,
        partition_index=index,
        start_offset=start_offset,
        leader_epoch=leader_epoch,
        lag=lag,
        error_code=ErrorCode.none if problem is None else error_code(problem),
        error_message=None if problem is None else error_message(problem),
    )
