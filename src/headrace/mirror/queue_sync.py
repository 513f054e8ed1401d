"""The state of mirrored queues: which messages were deleted or received at the source, copied ahead of a takeover.

The broker that leads the mirror of a queue asks the source what changed in the queue's state, and stores it here as the
state of the mirror. It is not used before the mirror is taken over; then the queue goes on from it, and only what
happened since the last copy happens again.

- What is copied is about messages that are committed here, and no others (invariant 96). A source that has lost
  committed records has others at the same offsets: so a state of a leader epoch is stored only after the log here was
  compared with that of the source in this epoch.
- Messages that were moved to another queue are acked here only when the mirror of that queue has everything that the
  other queue had then: a dead letter is in its queue, or in the dead-letter queue (invariant 97). If that queue is
  not mirrored, the state is not copied.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple, Protocol
from uuid import UUID

from headrace.cluster.metadata import Metadata
from headrace.mirror.figures import Copying, Figures
from headrace.mirror.progress import StateProgress
from headrace.mirror.source import SourceCluster
from headrace.mirror.source_queues import SourceQueueState, ends_of
from headrace.mirror.sources import Sources
from headrace.model.errors import HeadraceError, MirrorNotReady, SourceUnavailable
from headrace.model.image import ClusterImage
from headrace.model.links import Link, Mirror, is_fetching
from headrace.model.queue_state import MOVED_TO, OWN_KEYS
from headrace.replication.mirrored import has_source_history
from headrace.replication.partition import Partition
from headrace.replication.partitions import PartitionTable
from headrace.runtime.clock import Clock

log = logging.getLogger(__name__)

_AT_LEAST_EVERY_S = 1.0
"""How often the state of a queue is copied that changes; others at each refresh of the link."""
_AT_ONCE = 8
"""Queues of a link that are asked for at the same time."""
_MOVED_WAIT_MS = 2_000
"""How long a round waits for the copies of messages that were moved; the state waits on in the next rounds."""
_MOVED_POLL_S = 0.1
_DEAD_LETTER = "queue.dead.letter"


class StateCopy(Protocol):
    """The stored state of a mirror partition that this broker leads."""

    async def save(self, entries: Mapping[bytes, bytes], end: int, is_current: Callable[[], bool]) -> None:
        """Store the entries of the source, as far as they are about messages below `end`. Raises an error if another
        broker leads, or not `is_current`."""
        ...


class TargetQueues(Protocol):
    """The queues of this cluster."""

    def state_copy(self, partition: Partition) -> StateCopy: ...

    def check(self, key: bytes, value: bytes) -> None:
        """Raise an error if an entry cannot be read here."""
        ...


class _PendingState(NamedTuple):
    """A state that waits to be stored."""

    asked_ms: float
    ends: Mapping[UUID, int]
    """By mirror topic here: how much of it must be here first."""


@dataclass(slots=True)
class _Copy:
    """The copy of the state of one queue."""

    partition: Partition
    source: SourceCluster
    state: SourceQueueState
    target: StateCopy
    pending: _PendingState | None = None
    is_saved: bool = False
    """Whether what was read last is stored."""
    copied_ms: float | None = None
    copied_end: int | None = None
    """What is stored is the state at `copied_ms`, of messages below this offset."""
    error: str = ""
    due_ms: float = 0.0


class QueueSync:
    def __init__(
        self,
        metadata: Metadata,
        partitions: PartitionTable,
        sources: Sources,
        copying: Copying,
        figures: Figures,
        queues: TargetQueues,
        clock: Clock,
    ) -> None:
        self._metadata = metadata
        self._partitions = partitions
        self._sources = sources
        self._copying = copying
        self._figures = figures
        self._queues = queues
        self._clock = clock
        self._copies: dict[UUID, _Copy] = {}
        """By mirror topic here."""
        self._at_once: dict[str, asyncio.Semaphore] = {}
        """By link: one whose source does not answer holds up no other."""
        self._running: dict[UUID, asyncio.Task[None]] = {}

    def progress(self, topic_id: UUID) -> StateProgress | None:
        """How far the state of a mirror is that this broker leads; None if it copies none."""
        found = self._copies.get(topic_id)
        return None if found is None else StateProgress(found.copied_ms, found.error, found.copied_end)

    async def run(self) -> None:
        try:
            while True:
                self._begin()
                refresh_s = self._metadata.settings.link_refresh_interval_ms / 1000
                await asyncio.sleep(min(refresh_s, _AT_LEAST_EVERY_S))
        finally:
            running = tuple(self._running.values())
            for task in running:
                task.cancel()
            await asyncio.gather(*running, return_exceptions=True)

    async def step(self) -> None:
        """Copy once the state of all queues for which it is time."""
        self._begin()
        if self._running:
            await asyncio.wait(tuple(self._running.values()))

    def _begin(self) -> None:
        led = dict(self._led())
        self._copies = {topic_id: copy for topic_id, copy in self._copies.items() if topic_id in led}
        now_ms = self._clock.monotonic_ms()
        for topic_id, (link, mirror, partition) in led.items():
            copy = self._copies.get(topic_id)
            if topic_id not in self._running and (copy is None or copy.due_ms <= now_ms):
                task = asyncio.get_running_loop().create_task(self._sync_or_note(link, mirror, partition))
                self._running[topic_id] = task
                task.add_done_callback(lambda _, ended=topic_id: self._running.pop(ended, None))  # type: ignore[misc]

    def _led(self) -> "list[tuple[UUID, tuple[Link, Mirror, Partition]]]":
        """The mirrors of queues that this broker leads, whose state is to be copied."""
        image = self._metadata.image
        found = []
        for topic_id, mirror in image.mirrors.items():
            link, name = image.links.get(mirror.link), image.topic_names.get(topic_id)
            if link is None or name is None or not mirror.queue or not link.sync.queues:
                continue
            for partition in self._partitions.of_topic(name):
                if partition.index == 0 and partition.topic_id == topic_id and _is_copied(image, partition):
                    found.append((topic_id, (link, mirror, partition)))
        return found

    async def _sync_or_note(self, link: Link, mirror: Mirror, partition: Partition) -> None:
        source = self._sources.of(link)
        copy = self._copies.get(mirror.topic_id)
        if copy is None or copy.partition is not partition or copy.source is not source:
            before, copy = copy, _Copy(partition, source, SourceQueueState(), self._queues.state_copy(partition))
            if before is not None:
                copy.copied_ms, copy.copied_end = before.copied_ms, before.copied_end
            self._copies[mirror.topic_id] = copy
        error = ""
        try:
            async with self._at_once.setdefault(link.name, asyncio.Semaphore(_AT_ONCE)):
                await self._sync(copy, mirror)
        except (HeadraceError, TimeoutError) as problem:
            error = str(problem) or "no answer in time"
            copy.due_ms = self._clock.monotonic_ms() + self._metadata.settings.link_refresh_interval_ms
        except Exception as problem:
            log.exception("the state of the mirror %s could not be copied", partition)
            error = f"an unexpected error, see the broker's log: {problem}"
        if error and not copy.error:
            log.warning("the state of the queue %s is not copied for now: %s", partition.topic, error)
        elif copy.error and not error:
            log.info("the state of the queue %s is copied again", partition.topic)
        copy.error = error

    async def _sync(self, copy: _Copy, mirror: Mirror) -> None:
        partition = copy.partition
        if not has_source_history(mirror, partition.index, partition.log):
            return  # A former source that has not dropped yet what its new source never had.
        if copy.pending is None:
            asked_ms = self._clock.wall_ms()
            is_changed = await self._read(copy, mirror)
            if not is_changed and copy.is_saved and copy.copied_end == partition.high_watermark:
                copy.copied_ms = asked_ms
                copy.due_ms = self._clock.monotonic_ms() + self._metadata.settings.link_refresh_interval_ms
                return
            copy.is_saved = False
            copy.pending = _PendingState(asked_ms, await self._needed(copy, mirror))
        await self._wait_for_moved(copy.pending)
        self._check_history(copy)
        end = partition.high_watermark
        await copy.target.save(copy.state.entries, end, lambda: self._is_current(partition))
        copy.copied_ms, copy.copied_end, copy.is_saved = copy.pending.asked_ms, end, True
        copy.pending, copy.due_ms = None, 0.0

    def _check_history(self, copy: _Copy) -> None:
        """Raise `MirrorNotReady` unless the log here is the source's, in the leader epoch that the state is of."""
        progress = self._copying.progress(copy.partition.topic_id, copy.partition.index)
        if progress is None or progress.is_faulted:
            raise MirrorNotReady("nothing is copied into the mirror")
        if progress.checked_epoch < copy.state.epoch:
            raise MirrorNotReady(
                f"the log was not compared yet with that of the source in its leader epoch {copy.state.epoch}"
            )

    def _is_current(self, partition: Partition) -> bool:
        image = self._metadata.image
        mirror = image.mirrors.get(partition.topic_id)
        is_copied = mirror is not None and _is_copied(image, partition)
        return mirror is not None and is_copied and has_source_history(mirror, partition.index, partition.log)

    async def _read(self, copy: _Copy, mirror: Mirror) -> bool:
        if not copy.source.cluster_id:
            await copy.source.refresh()
        topic = copy.source.topics.get(mirror.source_topic)
        if topic is None or topic.topic_id != mirror.source_topic_id:
            raise SourceUnavailable(f"the source has no queue {mirror.source_topic} any more, or another one")
        return await copy.state.read(copy.source, topic, self._queues.check)

    async def _needed(self, copy: _Copy, mirror: Mirror) -> dict[UUID, int]:
        """How much of other mirrors must be here before the state is stored, by their topics. The source is asked after
        the state was read: what was acked there because it was moved is below these ends."""
        image = self._metadata.image
        link = image.links[mirror.link]
        moved_to = [key.removeprefix(OWN_KEYS + MOVED_TO).decode() for key in copy.state.entries if _names_queue(key)]
        mirrors = {
            each.source_topic: topic_id
            for topic_id, each in image.mirrors.items()
            if each.source_cluster_id == mirror.source_cluster_id and is_fetching(image.links.get(each.link), each)
        }
        if dead_letter := mirror.queue.get(_DEAD_LETTER, "").removeprefix(link.prefix):
            # Older brokers do not note where messages were moved.
            moved_to += [dead_letter] if dead_letter in mirrors and dead_letter not in moved_to else []
        if not moved_to:
            return {}
        ends = await ends_of(copy.source, moved_to)
        for name in ends:
            if name not in mirrors:
                raise MirrorNotReady(
                    f"messages of {mirror.source_topic} were moved to {name}, of which nothing is copied here: mirror "
                    f"it as well, with headrace link alter {mirror.link} --topics"
                )
        return {mirrors[name]: end for name, end in ends.items()}

    async def _wait_for_moved(self, pending: _PendingState) -> None:
        until_ms = self._clock.monotonic_ms() + _MOVED_WAIT_MS
        while True:
            try:
                return await self._check_moved(pending)
            except MirrorNotReady:
                if self._clock.monotonic_ms() >= until_ms:
                    raise
            await asyncio.sleep(_MOVED_POLL_S)

    async def _check_moved(self, pending: _PendingState) -> None:
        """Raise `MirrorNotReady` unless the messages that were moved are here, where they were moved to."""
        if not pending.ends:
            return
        image = self._metadata.image
        figures = await self._figures.of(pending.ends.keys())
        for topic_id, end in pending.ends.items():
            row, mirror = figures.get((topic_id, 0)), image.mirrors.get(topic_id)
            name = image.topic_names.get(topic_id, "a deleted queue")
            # One that was taken over gets no more of what is moved at the source, but messages of its own.
            if mirror is None or not mirror.is_read_only:
                raise MirrorNotReady(f"messages were moved to {name}, which is no mirror any more")
            if row is None or row.local_end < end:
                raise MirrorNotReady(f"messages were moved to {name}, which waits for them to be copied")


def _is_copied(image: ClusterImage, partition: Partition) -> bool:
    mirror = image.mirrors.get(partition.topic_id)
    return (
        mirror is not None
        and partition.is_leader
        and partition.is_mirror
        and is_fetching(image.links.get(mirror.link), mirror)
    )


def _names_queue(key: bytes) -> bool:
    return key.startswith(OWN_KEYS + MOVED_TO)
