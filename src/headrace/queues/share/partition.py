"""A partition of a share group on the broker that leads it: its log, its engine, and its persisted state.

Records are indexed as far as members have fetched, in the order of the log, from the headers of batches alone.

Promises:
- an acknowledgement is answered when it is committed: an accepted record is not delivered again after a crash;
- an acquired record is delivered when that is committed (`when_persisted`): each delivery of a record has a higher
  count than the one before it, and a former leader delivers nothing;
- fetches that wait are woken when there may be records: new ones, or returned ones;
- if a commit fails, this instance is void (`is_void`), and another one is opened from the persisted state.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable
from concurrent.futures import Executor
from typing import NamedTuple

from headrace.config.group import EARLIEST, LATEST, READ_COMMITTED, GroupSettings, parse_reset
from headrace.model.errors import HeadraceError, NotLeader, OffsetOutOfRange, StaleQueueLeader
from headrace.model.state_partition import state_name
from headrace.queues.share.acks import AckBatch, acknowledge
from headrace.queues.share.dead_letter_delivery import DeadLetterDelivery
from headrace.queues.share.dead_letters import LetterWriter
from headrace.queues.share.engine import AcquiredRange, ShareEngine
from headrace.queues.state_store import StateStore
from headrace.records.batch import BatchHeader, iter_headers
from headrace.replication.partition import Partition
from headrace.replication.waiters import DataWaiters
from headrace.runtime.clock import Clock
from headrace.runtime.disk import Buffer
from headrace.storage.slice import Slice

log = logging.getLogger(__name__)


class AcquireLimit(NamedTuple):
    """The most that a member wants to acquire."""

    member: str
    max_records: int


class AcquiredBatches(NamedTuple):
    """The records that a member has acquired: whole batches, and the ranges in them."""

    batches: list[Buffer]
    spans: list[AcquiredRange]
    records: int


class ShareLimits(NamedTuple):
    """The current limits of a group."""

    deliveries: int
    locks: int
    lock_ms: int
    has_dead_letters: bool
    """Whether the group has a dead-letter topic."""


class SharePosition(NamedTuple):
    """The position of a group in a partition."""

    start_offset: int
    leader_epoch: int
    lag: int
    """How many offsets are not acked."""


class SharePartition:
    def __init__(
        self,
        partition: Partition,
        group_id: str,
        *,
        store: StateStore,
        clock: Clock,
        workers: Executor,
        settings: Callable[[], GroupSettings],
        letters: LetterWriter,
    ) -> None:
        """`settings` are those of the group that are in force now."""
        self.partition = partition
        self.group_id = group_id
        self.is_void = False
        self.waiters = DataWaiters()
        """Fetches that wait for records."""
        self._name = state_name(partition.topic_id, partition.index, group_id)
        self._store = store
        self._clock = clock
        self._workers = workers
        self._settings = settings
        self._limits = limits = self._current_limits()
        self._engine = ShareEngine(
            limits.deliveries, limits.locks, limits.lock_ms, has_dead_letters=limits.has_dead_letters
        )
        self._dead_letters = DeadLetterDelivery(
            partition, group_id, self._engine, letters, committed=self._committed, is_void=lambda: self.is_void
        )
        self._leader_epoch = partition.leader_epoch
        self.acquired_count = 0
        """Deliveries of records to members since this broker leads the partition."""
        self._term = 0
        self._writing = asyncio.Lock()
        self._timer: asyncio.TimerHandle | None = None
        self._timer_due_ms = 0
        self._in_background: set[asyncio.Task[None]] = set()

    # -- life

    async def open(self, start_offset: int | None = None) -> None:
        """Load the state of the group. A new group begins at `start_offset`, or where its settings say."""
        self._term = await self._store.open(self._name, self._leader_epoch)
        entries = await self._store.read(self._name, self._term)
        if entries:
            self._engine.load(entries)
        else:
            self._engine.start_at(await self._first_offset() if start_offset is None else start_offset)
        await self._committed()
        self._check()
        self.partition.data_waiters.add(self)

    async def _first_offset(self) -> int:
        wanted = parse_reset(self._settings().share_auto_offset_reset)
        partition, end = self.partition, self._end
        if wanted == LATEST:
            return end
        if wanted == EARLIEST:
            return partition.log.start_offset
        since_ms = self._clock.wall_ms() - int(wanted)
        loop = asyncio.get_running_loop()
        found = await loop.run_in_executor(self._workers, partition.log.offset_for_time, since_ms, end)
        return end if found is None else found.offset

    def close(self) -> None:
        """Another broker leads, or the state is void: fetches that wait are woken."""
        self.is_void = True
        self.partition.data_waiters.remove(self)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._dead_letters.close()
        self.waiters.advanced()

    async def settled(self) -> None:
        """Wait until no write is in progress."""
        async with self._writing:
            return

    def data_arrived(self) -> None:
        self.waiters.advanced()

    def _current_limits(self) -> "ShareLimits":
        group = self._settings()
        return ShareLimits(
            group.share_delivery_count_limit,
            group.share_partition_max_record_locks,
            group.share_record_lock_duration_ms,
            bool(group.errors_deadletterqueue_topic_name),
        )

    def _follow_settings(self) -> None:
        limits = self._current_limits()
        if limits != self._limits:
            self._limits = limits
            self._engine.limit(
                limits.deliveries,
                limits.locks,
                limits.lock_ms,
                self._now_ms(),
                has_dead_letters=limits.has_dead_letters,
            )

    def _follow_log(self) -> None:
        """Set the start and the end of the log in the engine."""
        self._engine.drop_before(self.partition.log.start_offset)
        self._engine.log_end = self._end

    @property
    def _end(self) -> int:
        """The end of the log for members."""
        return self.partition.last_stable_offset if self._is_committed_only else self.partition.high_watermark

    @property
    def _is_committed_only(self) -> bool:
        return self._settings().share_isolation_level == READ_COMMITTED

    def _check(self) -> None:
        partition = self.partition
        if self.is_void or not partition.is_leader or partition.leader_epoch != self._leader_epoch:
            raise NotLeader(f"{self.partition} is not led by this broker any more, or is being loaded")

    # -- taking records

    def look(self, max_bytes: int) -> Slice | None:
        """The slice of the log with the next available records; None if there are none now."""
        self._check()
        self._follow_settings()
        engine, partition, now_ms = self._engine, self.partition, self._now_ms()
        self._follow_log()
        if engine.in_flight >= self._limits.locks:
            return None
        first = engine.next_available(now_ms)
        at = engine.indexed_to if first is None else first
        try:
            return partition.slice(at, max_bytes, committed=self._is_committed_only, at_least_one=True)
        except OffsetOutOfRange:
            if at <= partition.log.end_offset:
                raise
            # The log ends before the position of the group: records were lost, and the group goes on with new ones.
            log.warning("%s ends before %d, where the share group %s was", partition, at, self.group_id)
            engine.start_at(partition.log.end_offset)
            return None

    def take(self, data: Buffer, wanted: AcquireLimit) -> AcquiredBatches:
        """Acquire records of these batches, which `look` found; others may have acquired them since. They must not be
        delivered before `when_persisted`. If none is acquired although there were some batches, look again."""
        self._check()
        engine, now_ms = self._engine, self._now_ms()
        most_locks, lock_ms = self._limits.locks, self._limits.lock_ms
        batches: list[Buffer] = []
        spans: list[AcquiredRange] = []
        count = 0
        view = memoryview(data)
        for position, header in iter_headers(data):
            room = min(wanted.max_records - count, most_locks - engine.in_flight)
            if room <= 0:
                break
            if header.last_offset >= engine.indexed_to:
                self._learn(header, now_ms)
            got = engine.acquire(header.base_offset, header.last_offset, room, now_ms, wanted.member, lock_ms)
            if got:
                batches.append(view[position : position + header.size])
                spans.extend(got)
                count += sum(span.last - span.first + 1 for span in got)
        self._arm()
        self._dead_letters.look()
        self.acquired_count += count
        if (traffic := self.partition.traffic) is not None:
            traffic.messages_out += count
            traffic.bytes_out += sum(map(len, batches))
        return AcquiredBatches(batches, spans, count)

    async def when_persisted(self) -> None:
        """Returns when everything that was acquired so far is committed. If that fails, this instance is void and
        nothing of it was acquired."""
        self._check()
        await self._committed()

    def _learn(self, header: BatchHeader, now_ms: int) -> None:
        """Index a batch. One of markers, or of an aborted transaction, has no records for members."""
        is_aborted = self._is_committed_only and self.partition.log.aborted.covers(header)
        if header.is_control or is_aborted:
            self._engine.skip(self._engine.indexed_to, header.last_offset)
        else:
            self._engine.index_plain(header.base_offset, header.last_offset, None, now_ms)

    async def acknowledge(self, batches: Iterable[AckBatch], member: str) -> None:
        """`InvalidRecordState` or `ProtocolError`, and nothing has changed, unless all of it belongs to the member, but
        for what is below the group's start."""
        self._check()
        self._follow_settings()
        engine = self._engine
        in_flight = engine.in_flight
        self._follow_log()
        has_changed = acknowledge(engine, batches, member, self._now_ms(), self._limits.lock_ms)
        self._arm()
        if has_changed:
            await self._committed()
            self._dead_letters.look()
        if engine.in_flight < in_flight:
            self.waiters.advanced()

    async def release(self, member: str, *, is_excused: bool) -> None:
        """A member has left: its records are available again. Excused if it did not fail: then the delivery does not
        count towards the delivery limit."""
        self._check()
        self._follow_log()
        engine, now_ms = self._engine, self._now_ms()
        owned = engine.acquired_by(member, now_ms)
        for span in owned:
            engine.release(span.first, span.last, member, now_ms, is_excused=is_excused)
        if owned:
            self._arm()
            await self._committed()
            self._dead_letters.look()
            self.waiters.advanced()

    @property
    def in_flight(self) -> int:
        """Records that members have acquired and not acknowledged."""
        return self._engine.in_flight

    def position(self) -> SharePosition:
        self._check()
        engine, partition = self._engine, self.partition
        self._follow_log()
        counts = engine.counts()
        unseen = max(0, partition.high_watermark - engine.indexed_to)
        return SharePosition(engine.head, self._leader_epoch, counts.available + counts.in_flight + unseen)

    # -- time

    def _now_ms(self) -> int:
        return int(self._clock.monotonic_ms())

    def _arm(self) -> None:
        """Set the timer for the end of the next lock."""
        due_ms = self._engine.next_due_ms
        if self._timer is not None:
            if due_ms is not None and due_ms >= self._timer_due_ms:
                return
            self._timer.cancel()
            self._timer = None
        if due_ms is not None and not self.is_void:
            delay_s = max(0, due_ms - self._now_ms()) / 1000
            self._timer_due_ms = due_ms
            self._timer = asyncio.get_running_loop().call_later(delay_s, self._on_time)

    def _on_time(self) -> None:
        self._timer = None
        if self.is_void:
            return
        in_flight = self._engine.in_flight
        self._follow_log()
        self._engine.due(self._now_ms())
        if self._engine.in_flight < in_flight:
            self._commit_later()
            self._dead_letters.look()
            self.waiters.advanced()
        self._arm()

    # -- persisting

    def _commit_later(self) -> None:
        task = asyncio.get_running_loop().create_task(self._committed_or_void())
        self._in_background.add(task)
        task.add_done_callback(self._in_background.discard)

    async def _committed_or_void(self) -> None:
        try:
            await self._committed()
        except HeadraceError as error:
            log.warning("the share group %s loads its state of %s again: %s", self.group_id, self.partition, error)

    async def _committed(self) -> None:
        """Returns when all changes so far are committed. Callers that come during a write share the next one."""
        async with self._writing:
            self._check()
            entries = self._engine.take_changes()
            if not entries:
                return
            try:
                await self._store.write(self._name, self._term, entries)
            except BaseException as error:
                # The engine is ahead of the persisted state.
                self.close()
                if isinstance(error, StaleQueueLeader):
                    raise NotLeader(str(error)) from error
                raise
