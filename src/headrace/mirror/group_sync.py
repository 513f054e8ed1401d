"""Committed offsets of the source's consumer groups, for mirrored topics: so that groups go on here after a failover.

Offsets are those of the source, since the logs are. One past the end of the mirror is committed as that end, and again
when more is copied. A group that has members here is left alone, and so are topics that were promoted.

Offsets here only rise, as with MirrorMaker: a group that has moved here, before its topics are promoted or by commits
without members, is never set back to where it was at the source.

Every broker does this for the groups that it coordinates: a commit needs no call to another broker.
"""

import asyncio
import logging
from collections.abc import Mapping
from typing import Protocol
from uuid import UUID

from headrace.cluster.metadata import Metadata
from headrace.mirror.figures import Figures
from headrace.mirror.reports import PartitionFigures
from headrace.mirror.source import GroupOffsets, SourceOffset
from headrace.mirror.sources import Sources
from headrace.model.errors import HeadraceError
from headrace.model.ids import TopicName
from headrace.model.image import ClusterImage
from headrace.model.links import Link, Mirror, MirrorState

log = logging.getLogger(__name__)

_REFRESH_EVERY = 6
"""The brokers of the source are asked for at each sixth round: groups move with them."""
_NO_EPOCH = -1
_SYNCED = (MirrorState.MIRRORING, MirrorState.PAUSED)


class TargetGroups(Protocol):
    """The groups of this cluster."""

    async def prepare(self) -> None:
        """Create the topic of offsets if it does not exist."""
        ...

    def is_here(self, group: str) -> bool:
        """True if this broker coordinates a group of this name."""
        ...

    async def offsets(self, group: str) -> Mapping[tuple[str, int], int]:
        """Its committed offsets, by topic and partition."""
        ...

    async def commit(self, group: str, offsets: GroupOffsets) -> None:
        """Commit offsets for a group without members; raises an error if it has any."""
        ...


class GroupSync:
    def __init__(self, metadata: Metadata, sources: Sources, figures: Figures, groups: TargetGroups) -> None:
        self._metadata = metadata
        self._sources = sources
        self._figures = figures
        self._groups = groups
        self._rounds = 0
        self.committed = 0
        """Offsets committed by this broker."""
        self._problems: dict[str, str] = {}
        """By link: why its last round failed. It is logged once."""

    async def run(self) -> None:
        """Begin a round at each interval, until cancelled. A link whose round still runs has none: its source may not
        answer, and the other links do not wait for it."""
        running: dict[str, asyncio.Task[None]] = {}
        try:
            while True:
                await asyncio.sleep(self._metadata.settings.link_refresh_interval_ms / 1000)
                links = {
                    link.name: link
                    for link in self._metadata.image.links.values()
                    if link.sync.groups and not link.is_paused
                }
                running = {name: task for name, task in running.items() if not task.done()}
                for name in links.keys() - running.keys():
                    running[name] = asyncio.get_running_loop().create_task(self._sync_or_log(links[name]))
                self._problems = {name: words for name, words in self._problems.items() if name in links}
                self._rounds += 1
        finally:
            for task in running.values():
                task.cancel()
            await asyncio.gather(*running.values(), return_exceptions=True)

    async def _sync_or_log(self, link: Link) -> None:
        try:
            await self.sync(link)
            self._note(link.name, "")
        except HeadraceError as error:
            self._note(link.name, str(error))
        except Exception:
            log.exception("offsets of groups could not be copied over the link %s", link.name)

    def _note(self, link: str, problem: str) -> None:
        before = self._problems.pop(link, "")
        if problem:
            self._problems[link] = problem
            if problem != before:
                log.warning("offsets of groups are not copied over the link %s for now: %s", link, problem)
        elif before:
            log.info("offsets of groups are copied over the link %s again", link)

    async def sync(self, link: Link) -> None:
        """Copy the offsets of all groups that this broker coordinates."""
        topics = _mirrored(self._metadata.image, link)
        if not topics:
            return
        source = self._sources.of(link)
        if not source.cluster_id or self._rounds % _REFRESH_EVERY == 0:
            await source.refresh()
        coordinators = await source.group_names()
        if not coordinators:
            return
        await self._groups.prepare()
        here = {group: broker_id for group, broker_id in coordinators.items() if self._groups.is_here(group)}
        found = await source.group_offsets(here)
        if not found:
            return
        named = {topics[topic][0] for offsets in found.values() for topic, _ in offsets if topic in topics}
        figures = await self._figures.of(named)
        mirrors = self._metadata.image.mirrors
        ends = {key: copied_end(mirrors.get(key[0]), row) for key, row in figures.items()}
        for group, offsets in found.items():
            wanted = _local_offsets(offsets, topics, ends)
            if wanted:
                await self._commit(link, group, wanted)

    async def _commit(self, link: Link, group: str, wanted: GroupOffsets) -> None:
        try:
            before = await self._groups.offsets(group)
            image = self._metadata.image  # A topic may have been promoted since `wanted` was asked for.
            higher = {
                place: offset
                for place, offset in wanted.items()
                if before.get(place, -1) < offset.offset and _is_synced(image, link, place[0])
            }
            if higher:
                await self._groups.commit(group, higher)
                self.committed += len(higher)
        except (HeadraceError, TimeoutError) as error:
            log.debug("the offsets of the group %s are left alone: %s", group, error)


def copied_end(mirror: Mirror | None, row: PartitionFigures) -> int:
    """The end of what a mirror partition has of its source. One that was reversed may still have its own records past
    the parting: a group that is committed there would miss what its source has at these offsets."""
    parting = None if mirror is None else mirror.parting(row.partition)
    if mirror is None or parting is None or row.log_epoch >= mirror.source_promoted_epoch:
        return row.local_end
    return min(row.local_end, parting.offset)


def _is_synced(image: ClusterImage, link: Link, topic: str) -> bool:
    """True for a local topic that is a mirror of this link, and not promoted."""
    found = image.topics.get(TopicName(topic))
    mirror = None if found is None else image.mirrors.get(found.topic_id)
    return mirror is not None and mirror.link == link.name and mirror.state in _SYNCED


def _mirrored(image: ClusterImage, link: Link) -> dict[str, tuple[UUID, str]]:
    """The id and name of the mirror topic of each source topic whose groups are followed."""
    return {
        mirror.source_topic: (topic_id, image.topic_names[topic_id])
        for topic_id, mirror in image.mirrors.items()
        if mirror.link == link.name and mirror.state in _SYNCED and topic_id in image.topic_names
    }


def _local_offsets(
    offsets: GroupOffsets, topics: Mapping[str, tuple[UUID, str]], ends: Mapping[tuple[UUID, int], int]
) -> dict[tuple[str, int], SourceOffset]:
    """Offsets of the source as they are committed here, by local topic; none for a partition whose end is not known."""
    found: dict[tuple[str, int], SourceOffset] = {}
    for (topic, partition), offset in offsets.items():
        if topic not in topics:
            continue
        topic_id, name = topics[topic]
        end = ends.get((topic_id, partition))
        if end is not None:
            is_past = offset.offset > end
            found[name, partition] = SourceOffset(end, _NO_EPOCH, offset.metadata) if is_past else offset
    return found
