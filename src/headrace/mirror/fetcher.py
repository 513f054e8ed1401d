"""Copies records into the mirror partitions that this broker leads, for all links.

A link is one more kind of follower: the leader of a mirror partition fetches from the leader of the source partition as
a local follower fetches from it, and local followers replicate from it as ever. Which partitions are copied follows
from the image (links and mirror records) and from the roles of this broker.
"""

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from random import Random
from uuid import UUID

from headrace.cluster.layout_links import mirror_key
from headrace.cluster.metadata import Metadata
from headrace.mirror.append_budget import AppendBudget
from headrace.mirror.last_known import LastKnown
from headrace.mirror.link_fetchers import LinkFetchers
from headrace.mirror.mirror_partition import MirrorPartition
from headrace.mirror.progress import MirrorProgress
from headrace.mirror.source import SourceCluster
from headrace.model.errors import HeadraceError
from headrace.model.ids import LeaderEpoch
from headrace.model.image import ClusterImage
from headrace.model.links import EPOCH_ROOM, Link, MirrorState, is_fetching
from headrace.replication.partition import Partition
from headrace.replication.partitions import PartitionTable
from headrace.runtime.clock import Clock

_log = logging.getLogger(__name__)

CopyKey = tuple[UUID, int]
"""Local topic id and partition index."""


class MirrorFetchers:
    """See the module."""

    def __init__(
        self,
        partitions: PartitionTable,
        metadata: Metadata,
        source_of: Callable[[Link], SourceCluster],
        *,
        clock: Clock,
        random: Random,
        known: LastKnown | None = None,
    ) -> None:
        """`source_of` returns the client for a link: another one after a change of how the source is reached. It closes
        the former one. `known` is what earlier leaders have heard of the sources."""
        self._partitions = partitions
        self._metadata = metadata
        self._source_of = source_of
        self._clock = clock
        self._random = random
        self._known = known or LastKnown()
        self._budget = AppendBudget(lambda refill: asyncio.get_running_loop().call_soon(refill))
        self._links: dict[str, LinkFetchers] = {}
        self._copies: dict[CopyKey, tuple[MirrorPartition, LinkFetchers]] = {}
        self._before: dict[CopyKey, MirrorProgress] = {}
        """Of partitions that are not copied now."""
        self._raises: dict[Partition, int] = {}
        self._raising: asyncio.Task[None] | None = None
        self._retired: set[asyncio.Task[None]] = set()
        """Fetchers that are being closed."""
        self._is_closed = False
        partitions.on_leading.append(self._update)
        partitions.on_not_leading.append(self._stop)
        partitions.on_removed.append(self._removed)
        for partition in partitions.all():
            self._update(partition)

    def progress(self, topic_id: UUID, index: int) -> MirrorProgress | None:
        """The progress of a mirror partition, as it was if nothing is copied now, here or by another leader; None if
        nothing is known."""
        found = self._copies.get((topic_id, index))
        if found is None:
            progress = self._before.get((topic_id, index)) or self._known.progress((topic_id, index))
        else:
            copy, fetchers = found
            fetchers.note_contact(copy)
            progress = copy.progress
        if progress is not None:
            progress.looked_ms = self._clock.wall_ms()
        return progress

    async def image_changed(self, old: ClusterImage, new: ClusterImage) -> None:
        """The listener on `Metadata`, after the one that hosts partitions."""
        if old.links is new.links and old.mirrors is new.mirrors:
            return
        for topic_id in {*old.mirrors, *new.mirrors}:
            if old.links is not new.links or old.mirrors.get(topic_id) is not new.mirrors.get(topic_id):
                name = new.topic_names.get(topic_id)
                for partition in () if name is None else self._partitions.of_topic(name):
                    self._update(partition)
        await self._drop_unused(new)

    async def close(self) -> None:
        self._is_closed = True
        if self._raising is not None:
            self._raising.cancel()
            with suppress(asyncio.CancelledError):
                await self._raising
        self._copies.clear()
        fetchers, self._links = tuple(self._links.values()), {}
        for each in fetchers:
            await each.close()
        await asyncio.gather(*self._retired)

    # -- partitions

    def _update(self, partition: Partition) -> None:
        """Begin, go on or stop to copy into a partition."""
        image, mirror = self._metadata.image, self._metadata.image.mirrors.get(partition.topic_id)
        link = None if mirror is None else image.links.get(mirror.link)
        if mirror is None or link is None or not partition.is_leader or not is_fetching(link, mirror):
            self._stop(partition)
            if mirror is not None and mirror.state in (MirrorState.STOPPED, MirrorState.REVERSING):
                # If it is mirrored again, it is another history.
                self._before.pop((partition.topic_id, partition.index), None)
            return
        fetchers = self._fetchers(link)
        key = partition.topic_id, partition.index
        found = self._copies.get(key)
        if found is not None:
            copy, current = found
            if copy.partition is partition and current is fetchers and copy.topic_id == mirror.source_topic_id:
                copy.mirror = mirror
                return
            self._stop(partition)
        if not self._is_closed:
            copy = MirrorPartition(
                partition,
                mirror,
                self._progress_of(partition),
                self._clock,
                budget=self._budget,
                raise_epoch=self._raise_epoch,
                on_lost=fetchers.locate,
                on_faulted=fetchers.fault,
            )
            self._copies[key] = copy, fetchers
            fetchers.add(copy)

    def _stop(self, partition: Partition) -> None:
        found = self._copies.pop((partition.topic_id, partition.index), None)
        if found is not None:
            copy, fetchers = found
            fetchers.remove(copy)
            self._before[partition.topic_id, partition.index] = copy.progress

    def _removed(self, partition: Partition) -> None:
        self._stop(partition)
        self._before.pop((partition.topic_id, partition.index), None)

    def _progress_of(self, partition: Partition) -> MirrorProgress:
        """The progress so far, if the partition was copied before, here or by another leader, without its error."""
        key = partition.topic_id, partition.index
        before, known = self._before.pop(key, None), self._known.progress(key)
        if before is not None and (known is None or (before.contact_ms or 0.0) >= (known.contact_ms or 0.0)):
            return replace(before, error="", is_faulted=False)
        return replace(known or MirrorProgress(), since_ms=self._clock.wall_ms())

    def _fetchers(self, link: Link) -> LinkFetchers:
        source, found = self._source_of(link), self._links.get(link.name)
        if found is None or found.source is not source:
            if found is not None:
                self._retire(found)
            found = self._links[link.name] = LinkFetchers(
                link, source, self._metadata, clock=self._clock, random=self._random
            )
        found.link = link
        return found

    def _retire(self, fetchers: LinkFetchers) -> None:
        """Stop the fetchers of a link that is reached in another way; its partitions get others one by one."""
        for key, (copy, current) in tuple(self._copies.items()):
            if current is fetchers:
                del self._copies[key]
                fetchers.remove(copy)
        task = asyncio.get_running_loop().create_task(fetchers.close())
        self._retired.add(task)
        task.add_done_callback(self._retired.discard)

    async def _drop_unused(self, image: ClusterImage) -> None:
        for name, fetchers in tuple(self._links.items()):
            if name not in image.links or not len(fetchers):
                del self._links[name]
                await fetchers.close()

    # -- leader epochs

    def _raise_epoch(self, partition: Partition, epoch: int) -> None:
        """Raise the leader epoch of a mirror partition to that of its source, soon."""
        self._raises[partition] = epoch
        if self._raising is None or self._raising.done():
            self._raising = asyncio.get_running_loop().create_task(self._raise_epochs())

    async def _raise_epochs(self) -> None:
        while self._raises:
            raises, self._raises = self._raises, {}
            for partition, epoch in raises.items():
                try:
                    await self._raise(partition, epoch)
                except HeadraceError as error:
                    _log.info("the leader epoch of %s is not raised to %d yet: %s", partition, epoch, error)

    async def _raise(self, partition: Partition, epoch: int) -> None:
        """One transaction that compares the mirror record: a promotion is above every epoch that it allows."""
        image = self._metadata.image
        mirror, topic = image.mirrors.get(partition.topic_id), image.topic_by_id(partition.topic_id)
        if mirror is None or topic is None or mirror.state is not MirrorState.MIRRORING:
            return
        state = topic.partitions[partition.index]
        if state.leader != self._metadata.broker_id or state.leader_epoch >= epoch:
            return
        if epoch >= mirror.source_epoch + EPOCH_ROOM:
            _log.info("%s waits until its mirror record has the leader epoch %d of its source", partition, epoch)
            return
        raised = replace(state, leader_epoch=LeaderEpoch(epoch), partition_epoch=state.partition_epoch + 1)
        await self._metadata.change_partitions(
            {(partition.topic_id, partition.index): raised},
            others=[self._metadata.unchanged(mirror_key(partition.topic_id))],
        )
