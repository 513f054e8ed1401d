"""Acknowledgements of share groups, from ShareFetch and ShareAcknowledge: decoded, checked and applied."""

import asyncio
import logging
from collections.abc import Iterable, Mapping
from typing import Any

from headrace.kafka.dispatch import Context
from headrace.kafka.forbidden_topics import forbidden_topics
from headrace.kafka.permissions import READ_TOPIC, not_authorized
from headrace.kafka.share_sessions import SharePlace, ShareSession
from headrace.model.errors import HeadraceError, ProtocolError, UnknownTopicId
from headrace.queues.share.acks import AckBatch, AckType
from headrace.queues.share.service import SharePartitionId

log = logging.getLogger(__name__)

Outcomes = dict[SharePlace, HeadraceError | None]
"""The result for each acknowledged partition: None, or the error."""


def places_of(topics: Iterable[Any]) -> list[SharePlace]:
    """Return the partitions that a request names, except of topics without an id."""
    return [
        SharePlace(topic.topic_id, partition if isinstance(partition, int) else partition.partition_index)
        for topic in topics
        if topic.topic_id is not None
        for partition in topic.partitions
    ]


def acknowledgements(request: Any) -> dict[SharePlace, list[AckBatch]]:
    """Return a request's acknowledgements by partition."""
    return {
        SharePlace(topic.topic_id, partition.partition_index): [
            AckBatch(batch.first_offset, batch.last_offset, batch.acknowledge_types)
            for batch in partition.acknowledgement_batches
        ]
        for topic in request.topics
        if topic.topic_id is not None
        for partition in topic.partitions
        if partition.acknowledgement_batches
    }


async def acknowledge(
    ctx: Context, session: ShareSession, batches_by_place: Mapping[SharePlace, list[AckBatch]], *, may_renew: bool
) -> Outcomes:
    """Apply all acknowledgements, the partitions concurrently."""
    places, names = list(batches_by_place), ctx.services.metadata.image.topic_names
    forbidden = forbidden_topics(ctx, READ_TOPIC, (names.get(place.topic_id) for place in places))
    results = await asyncio.gather(
        *(
            _acknowledge(ctx, session, place, batches_by_place[place], forbidden, may_renew=may_renew)
            for place in places
        )
    )
    return dict(zip(places, results, strict=True))


async def _acknowledge(
    ctx: Context,
    session: ShareSession,
    place: SharePlace,
    batches: list[AckBatch],
    forbidden: frozenset[str],
    *,
    may_renew: bool,
) -> HeadraceError | None:
    try:
        check(batches, may_renew=may_renew)
        topic = ctx.services.metadata.image.topic_by_id(place.topic_id)
        if topic is None:
            raise UnknownTopicId(f"there is no topic with id {place.topic_id}")
        if topic.name in forbidden:
            raise not_authorized(READ_TOPIC, topic.name)
        opened = await ctx.services.shares.open(SharePartitionId(*place, session.group_id))
        await opened.acknowledge(batches, session.member_id)
    except HeadraceError as error:
        return error
    return None


async def release(ctx: Context, session: ShareSession, *, is_excused: bool) -> None:
    """Release the records that the member of an ended session has acquired; if that fails, their locks expire.
    `is_excused` if the member did not fail: the delivery then does not count towards the limit."""
    for place in tuple(session.places):
        opened = ctx.services.shares.current(SharePartitionId(*place, session.group_id))
        if opened is not None:
            try:
                await opened.release(session.member_id, is_excused=is_excused)
            except HeadraceError as error:
                log.info("the records of %s in %s stay locked: %s", session.member_id, opened.partition, error)


def check(batches: Iterable[AckBatch], *, may_renew: bool) -> None:
    """Refuse malformed acknowledgements, regardless of who has acquired the records."""
    end = 0
    highest = AckType.RENEW if may_renew else AckType.REJECT
    for first, last, types in batches:
        if first < end or last < first:
            raise ProtocolError(f"acknowledged offsets must rise: {first} to {last} comes after {end - 1}")
        if len(types) not in (1, last - first + 1):
            raise ProtocolError(f"{len(types)} acknowledge types for the offsets {first} to {last}: one, or one each")
        if not all(AckType.GAP <= kind <= highest for kind in types):
            raise ProtocolError(f"acknowledge types are from {AckType.GAP} to {highest:d}")
        end = last + 1
