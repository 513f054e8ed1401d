"""Start offsets of share groups: read, reset and deleted through the group's coordinator."""

import asyncio
from collections.abc import Iterable
from uuid import UUID

from headrace.coordinator.result import Result
from headrace.groups.share import ShareGroup
from headrace.kafka.dispatch import Context
from headrace.model.errors import GroupNotEmpty, HeadraceError, UnknownPartition, UnknownTopic
from headrace.model.ids import TopicName
from headrace.model.image import TopicImage
from headrace.queues.share.partition import SharePosition
from headrace.queues.share.service import SharePartitionId
from headrace.runtime.deferred import Deferred

_NOWHERE = SharePosition(-1, -1, -1)


def topic_named(ctx: Context, name: str) -> TopicImage:
    topic = ctx.services.metadata.image.topics.get(TopicName(name))
    if topic is None:
        raise UnknownTopic(f"the topic {name} does not exist")
    return topic


def without_members(ctx: Context, group_id: str) -> ShareGroup:
    """Return the share group; raises `GroupNotEmpty` if it has members."""
    group = ctx.services.groups.share(group_id)
    if not group.is_empty:
        raise GroupNotEmpty(f"the share group {group_id} has members: stop them first")
    return group


async def position(
    ctx: Context, group: ShareGroup, topic: TopicImage | None, partition: int
) -> SharePosition | HeadraceError:
    if topic is None or not 0 <= partition < len(topic.partitions) or topic.topic_id not in group.about.begun:
        return _NOWHERE
    try:
        return await ctx.services.shares.describe(SharePartitionId(topic.topic_id, partition, group.group_id))
    except HeadraceError as error:
        return error


async def reset(
    ctx: Context, group_id: str, topic: TopicImage, partition: int, start_offset: int
) -> HeadraceError | None:
    if not 0 <= partition < len(topic.partitions):
        return UnknownPartition(f"the topic {topic.name} has no partition {partition}")
    try:
        await ctx.services.shares.reset(SharePartitionId(topic.topic_id, partition, group_id), start_offset)
    except HeadraceError as error:
        return error
    return None


async def forget(ctx: Context, group: ShareGroup, topic_ids: Iterable[UUID]) -> None:
    """Delete the group's state in these topics."""
    image = ctx.services.metadata.image
    topics = [topic for topic_id in topic_ids if (topic := image.topic_by_id(topic_id)) is not None]
    for topic in topics:
        for partition in range(len(topic.partitions)):
            await ctx.services.shares.forget(SharePartitionId(topic.topic_id, partition, group.group_id))


async def settled(waited: Deferred[Result[None]]) -> None:
    """Await a coordinator's deferred result; raises its error."""
    future: asyncio.Future[Result[None]] = asyncio.get_running_loop().create_future()

    def settle(result: Result[None]) -> None:
        if not future.done():
            future.set_result(result)

    waited.then(settle)
    (await future).get()
