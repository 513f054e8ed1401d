"""Reversals: a former source becomes the mirror of the topic that was promoted from its own mirror.

The record of the topic is REVERSING: producers are refused, and transactions get a short time to end. Each leader then
finds where its partitions part from the new source, and copies what that never had into `<topic>.divergent`. The
progress is in the record, so any leader goes on after a failure: a message is set aside at least once, and a few may be
twice. When all is set aside and committed, and groups are set back, the record is MIRRORING, and only then fetchers
truncate (invariant 95).
"""

import asyncio
import logging
from collections.abc import Callable, Iterable
from concurrent.futures import Executor
from contextlib import suppress
from dataclasses import replace
from typing import Protocol
from uuid import UUID

from headrace.cluster import layout
from headrace.cluster.link_changes import LinkChanges
from headrace.cluster.metadata import Metadata
from headrace.mirror.divergence import (
    DivergentChunk,
    DivergentTransactions,
    TransactionRange,
    batches_of,
    divergent_chunk,
)
from headrace.mirror.divergent_topic import DivergentTopics
from headrace.mirror.group_setback import GroupSetback
from headrace.mirror.reports import AskPartings, PartingFigures, count_of
from headrace.mirror.source_history import SourceHistory
from headrace.mirror.sources import Sources
from headrace.model.errors import HeadraceError, InvalidLink, MirrorNotReady, OffsetOutOfRange, UnknownLink
from headrace.model.image import ClusterImage, TopicImage
from headrace.model.links import Mirror, MirrorState, Parting
from headrace.records.builder import build_batch
from headrace.replication.partition import Partition
from headrace.replication.partitions import PartitionTable
from headrace.runtime.clock import Clock
from headrace.storage.slice import Slice

_log = logging.getLogger(__name__)

TRANSACTIONS_S = 30.0
"""How long open transactions may take to end; later ones are reported as undecided."""
_POLL_S = 0.5
_AT_ONCE = 4
"""Partitions that this broker works on at the same time."""
_READ_BYTES = 1024 * 1024
_BATCH_BYTES = 512 * 1024
_SAVE_EVERY_BYTES = 2 * 1024 * 1024
"""Of records set aside, between two notes of the progress: what may be there twice after a failure."""
_COMMIT_S = 30.0


class ReversedQueues(Protocol):
    """The queues of this cluster."""

    async def cut(self, partition: Partition, end: int) -> None:
        """Drop the state of the messages of a queue from an offset on: others take their place (invariant 96)."""
        ...


class Reversals:
    """The part of this broker in all reversals: the partitions that it leads."""

    def __init__(
        self,
        metadata: Metadata,
        partitions: PartitionTable,
        sources: Sources,
        topics: DivergentTopics,
        groups: GroupSetback,
        clock: Clock,
        workers: Executor,
        queues: ReversedQueues,
    ) -> None:
        self.topics = topics
        self._queues = queues
        self.groups = groups
        self._metadata = metadata
        self._changes = LinkChanges(metadata)
        self._partitions = partitions
        self._sources = sources
        self._clock = clock
        self._workers = workers
        self._at_once = asyncio.Semaphore(_AT_ONCE)
        self._changed = asyncio.Event()
        self._running: dict[UUID, asyncio.Task[None]] = {}
        """By topic, so that one that waits for its source holds up no other."""
        self._unsaved: dict[tuple[UUID, int], tuple[int, Parting]] = {}
        """By partition: the time of the reversal, and how far this broker is, where that is not in the record yet."""

    async def run(self) -> None:
        """Carry on with reversals until cancelled."""
        self._metadata.subscribe(self._image_changed)
        try:
            while True:
                self._changed.clear()
                reversing = [each for each in self._metadata.image.mirrors.values() if _is_reversing(each)]
                for each in reversing:
                    if each.topic_id not in self._running:
                        self._start(each)
                if not reversing:
                    self._unsaved.clear()
                with suppress(TimeoutError):
                    async with asyncio.timeout(_POLL_S if reversing else None):
                        await self._changed.wait()
        finally:
            tasks = tuple(self._running.values())
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    def _start(self, mirror: Mirror) -> None:
        task = asyncio.get_running_loop().create_task(self._advance(mirror), name=f"reversal {mirror.topic_id}")
        self._running[mirror.topic_id] = task
        task.add_done_callback(lambda _: self._running.pop(mirror.topic_id, None))

    def _image_changed(self, old: ClusterImage, new: ClusterImage) -> None:
        if old.mirrors is not new.mirrors:
            self._changed.set()

    async def _advance(self, mirror: Mirror) -> None:
        """Do what this broker can do for one topic; errors are noted in its record, and tried again."""
        try:
            topic = self._metadata.image.topic_by_id(mirror.topic_id)
            if topic is None:
                return
            is_queue = self._metadata.topic_settings(topic).queue.is_queue
            if is_queue or any(state.leader_epoch < mirror.reverse_epoch for state in topic.partitions):
                await self._changes.reverse(mirror.topic_id, mirror)
            led = [each for each in self._partitions.of_topic(topic.name) if each.is_leader]
            for problem in await asyncio.gather(*(self._bounded(topic, each) for each in led)):
                if problem is not None:
                    raise problem
            await self._complete(mirror.topic_id)
        except HeadraceError as error:
            await self._note(mirror.topic_id, str(error))
        except Exception as error:
            _log.exception("the reversal of the topic with id %s failed, and is tried again", mirror.topic_id)
            await self._note(mirror.topic_id, f"failed: {error}")

    async def _bounded(self, topic: TopicImage, partition: Partition) -> HeadraceError | None:
        """Set a partition aside; returns what went wrong, so that the others go on."""
        async with self._at_once:
            try:
                await self._set_aside(topic, partition)
            except HeadraceError as error:
                return error
            except TimeoutError:
                return MirrorNotReady(f"{partition} could not be replicated in time")
            except OSError as error:
                # Its log may have been removed meanwhile: the partition has moved to other brokers.
                return MirrorNotReady(f"{partition} could not be read: {error}")
        return None

    async def _complete(self, topic_id: UUID) -> None:
        """Let the topic be mirrored, if everything of it is set aside."""
        image = self._metadata.image
        topic, mirror = image.topic_by_id(topic_id), image.mirrors.get(topic_id)
        if topic is None or mirror is None or not _is_reversing(mirror):
            return
        if not mirror.is_set_aside(len(topic.partitions)):
            return
        await self.groups.everywhere(mirror)

        def edit(before: Mirror) -> Mirror:
            if before.reversed_ms != mirror.reversed_ms or not _is_reversing(before):
                return before
            messages = sum(each.set_aside for each in before.partings)
            reason = f"reversed; {count_of(messages, 'message')} set aside in {topic.name}.divergent"
            return replace(before, state=MirrorState.MIRRORING, reason=reason, changed_ms=self._now_ms())

        await self._changes.change_mirror(topic_id, edit)

    async def _note(self, topic_id: UUID, reason: str) -> None:
        def edit(before: Mirror) -> Mirror:
            return replace(before, reason=reason) if _is_reversing(before) else before

        try:
            await self._changes.change_mirror(topic_id, edit)
        except HeadraceError as error:
            _log.info("the reversal of the topic with id %s is delayed: %s; %s", topic_id, reason, error)

    # -- one partition

    async def _set_aside(self, topic: TopicImage, partition: Partition) -> None:
        # The record as it is now: another leader may have gone on with it while this one waited for its turn.
        mirror = self._reversing(topic.topic_id)
        parting = mirror.parting(partition.index)
        if parting is None:
            parting = await self._begin(mirror, partition)
        if parting.is_complete:
            return
        parting = self._resumed(mirror, parting)
        if parting.is_complete:
            # Only the note of it failed.
            await self._save_progress(mirror, parting, partition)
            return
        target = await self.topics.ensure(topic)
        transactions = await self._transactions(partition, parting.offset, parting.end)
        unsaved_bytes = 0
        while not parting.is_complete:
            chunk = await self._read(partition, parting, transactions)
            for records in batches_of(chunk.records, _BATCH_BYTES):
                batch = build_batch(records)
                # A former leader stops: what two of them append is there twice.
                partition.check_leading()
                self._reversing(topic.topic_id)
                await self.topics.append(target, partition.index, batch)
                unsaved_bytes += len(batch)
            parting = chunk.parting
            self._unsaved[topic.topic_id, partition.index] = mirror.reversed_ms, parting
            if parting.is_complete or unsaved_bytes >= _SAVE_EVERY_BYTES:
                await self._save_progress(mirror, parting, partition)
                unsaved_bytes = 0

    async def _save_progress(self, mirror: Mirror, parting: Parting, partition: Partition) -> None:
        await self._save(mirror, parting, is_current=lambda: partition.is_leader)
        self._unsaved.pop((mirror.topic_id, partition.index), None)

    def _reversing(self, topic_id: UUID) -> Mirror:
        mirror = self._metadata.image.mirrors.get(topic_id)
        if mirror is None or not _is_reversing(mirror):
            raise MirrorNotReady("the reversal was ended")
        return mirror

    def _resumed(self, mirror: Mirror, parting: Parting) -> Parting:
        """The parting of the record, or what this broker has appended since: a note of it that failed is no reason to
        append it again."""
        began_ms, known = self._unsaved.get((mirror.topic_id, parting.partition), (0, parting))
        is_same = (began_ms, known.offset, known.end) == (mirror.reversed_ms, parting.offset, parting.end)
        return known if is_same and known.next_offset > parting.next_offset else parting

    async def _begin(self, mirror: Mirror, partition: Partition) -> Parting:
        """Fix the end of a partition, and find where it parts from the new source."""
        epoch, log = partition.leader_epoch, partition.log
        if not _is_reversing(partition.mirror) or epoch < mirror.reverse_epoch:
            raise MirrorNotReady(f"{partition} is not read-only yet")
        opened = len(log.producers.open_transactions())
        if opened and self._clock.wall_ms() - mirror.reversed_ms < TRANSACTIONS_S * 1000:
            raise MirrorNotReady(f"{partition} waits for the end of {opened} transactions")
        partition.freeze()
        end = log.end_offset
        async with asyncio.timeout(_COMMIT_S):
            await partition.until_committed(end)
        offset = await self._parting_offset(partition, mirror.link, mirror.source_topic, mirror.source_promoted_epoch)
        if mirror.queue:
            await self._queues.cut(partition, offset)
        first = (await self._transactions(partition, offset, end)).first_offset(offset)
        parting = Parting(partition.index, offset, end, max(first, log.start_offset))
        key = layout.partition_key(mirror.topic_id, partition.index)

        def is_current() -> bool:
            return partition.is_leader and partition.leader_epoch == epoch and log.end_offset == end

        return await self._save(mirror, parting, key, is_current=is_current)

    async def _parting_offset(self, partition: Partition, link_name: str, source_topic: str, promoted: int) -> int:
        link = self._metadata.image.links.get(link_name)
        if link is None:
            raise UnknownLink(f"there is no link {link_name}")
        if partition.log.epochs.latest >= promoted:
            raise InvalidLink(f"the leader epochs of {partition} have reached those of the other cluster")
        source = self._sources.of(link)
        await source.refresh()
        history = SourceHistory(source, source_topic, partition.index)
        return await history.parting(partition, promoted, partition.log.end_offset)

    async def _transactions(self, partition: Partition, offset: int, end: int) -> DivergentTransactions:
        """Those between a parting and an end."""
        log = partition.log

        def open_at_parting() -> dict[int, int]:
            return {
                producer_id: entry.first_offset
                for producer_id, entry in log.producers_as_of(offset).open_transactions()
            }

        divided = await asyncio.get_running_loop().run_in_executor(self._workers, open_at_parting)
        aborted: Iterable[TransactionRange] = (
            TransactionRange(each.producer_id, each.first_offset, each.last_offset)
            for each in log.aborted.within(offset, end)
        )
        opened = {producer_id: entry.first_offset for producer_id, entry in log.producers.open_transactions()}
        return DivergentTransactions(aborted, opened, divided)

    async def _read(
        self, partition: Partition, parting: Parting, transactions: DivergentTransactions, *, counts_only: bool = False
    ) -> DivergentChunk:
        try:
            cut = partition.log.slice(parting.next_offset, _READ_BYTES, parting.end, at_least_one=True)
        except OffsetOutOfRange:
            # Retention has removed what was there; a log that was truncated has another leader, or starts earlier.
            start = partition.log.start_offset
            if start <= parting.next_offset:
                raise
            return DivergentChunk([], replace(parting, next_offset=min(start, parting.end)))
        if cut is None:
            return DivergentChunk([], replace(parting, next_offset=parting.end))

        def work(cut: Slice) -> DivergentChunk:
            return divergent_chunk(cut.read(), partition.topic, parting, transactions, counts_only=counts_only)

        chunk = await asyncio.get_running_loop().run_in_executor(self._workers, work, cut)
        if chunk.parting.next_offset <= parting.next_offset:
            # Only compaction leaves no batch before the end.
            return DivergentChunk([], replace(chunk.parting, next_offset=parting.end))
        return chunk

    async def _save(self, mirror: Mirror, parting: Parting, *unchanged: str, is_current: Callable[[], bool]) -> Parting:
        """Note the progress of a partition in the record; returns it. Raises `MirrorNotReady` if another leader is
        further, or has found another end."""

        def edit(before: Mirror) -> Mirror:
            known = before.parting(parting.partition)
            is_other = known is not None and (
                (known.offset, known.end) != (parting.offset, parting.end) or known.next_offset > parting.next_offset
            )
            is_ended = not _is_reversing(before) or before.reversed_ms != mirror.reversed_ms
            if is_ended or is_other or not is_current():
                raise MirrorNotReady("another leader goes on with the reversal, or it was ended")
            return before.with_parting(parting)

        await self._changes.change_mirror(mirror.topic_id, edit, *unchanged)
        return parting

    # -- looking

    async def serve_partings(self, asked: AskPartings) -> list[PartingFigures]:
        """Where the partitions that this broker leads part from a source, as of now, and how much would be set
        aside."""
        name = self._metadata.image.topic_names.get(asked.topic_id)
        led = () if name is None else self._partitions.of_topic(name)
        found = [await self._figures(asked, each) for each in led if each.is_leader]
        return [
            PartingFigures(each.partition, each.offset, each.end, each.set_aside, each.aborted, each.undecided)
            for each in found
        ]

    async def _figures(self, asked: AskPartings, partition: Partition) -> Parting:
        offset = await self._parting_offset(partition, asked.link, asked.source_topic, asked.promoted_epoch)
        start, end = partition.log.start_offset, partition.high_watermark
        offset = min(offset, end)
        transactions = await self._transactions(partition, offset, end)
        parting = Parting(partition.index, offset, end, max(transactions.first_offset(offset), start))
        while not parting.is_complete:
            parting = (await self._read(partition, parting, transactions, counts_only=True)).parting
        return parting

    def _now_ms(self) -> int:
        return int(self._clock.wall_ms())


def _is_reversing(mirror: Mirror | None) -> bool:
    return mirror is not None and mirror.state is MirrorState.REVERSING
