"""An engine in its surroundings: the partition whose records are its messages, the state that is kept, and time.

One host serves a queue, or a share group on a partition, for one leader epoch of the partition. It loads what was kept,
indexes the committed log from there on, and goes on with what comes. Whoever asks it for something does so through
`decide`: the engine decides at once, and the answer is given when that is kept (invariant 42). If another broker begins
to lead, the host is closed; whoever waits is told, and nothing that was not answered counts.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import Executor
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any, TypeVar

from headrace.config.queue import QueueSettings
from headrace.coordinator.machine import Entry
from headrace.coordinator.timers import TimerLoop
from headrace.model.errors import HeadraceError, OffsetOutOfRange, QueueUnavailable, StaleQueueLeader
from headrace.queues.arrivals import Arrival, Duplicate
from headrace.queues.bodies import Kept, read_slice
from headrace.queues.engine import Engine
from headrace.queues.indexing import Piece, Plain, Skipped, Step, read_ranges
from headrace.queues.stock import Keeping
from headrace.queues.store import StateStore, state_name
from headrace.queues.writing import StateWriter
from headrace.replication.partition import Partition
from headrace.runtime.clock import Clock

T = TypeVar("T")

log = logging.getLogger(__name__)

OWN_KEYS = b"!"
"""Entries of the host itself begin with it; all others are the engine's."""
_SLICE_BYTES = 256 * 1024
_STEPS_PER_TURN = 2_000
_OPEN_PATIENCE_S = 10.0
_RETRY_S = 0.5
_SAVE_SOON_S = 1.0


class Time:
    """Wall time that does not jump while the broker runs: the wall clock's at the start, and what has passed since."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._difference_ms = clock.wall_ms() - clock.monotonic_ms()

    def now_ms(self) -> int:
        return int(self._clock.monotonic_ms() + self._difference_ms)

    def monotonic_ms(self, at_ms: int) -> float:
        return at_ms - self._difference_ms


@dataclass(frozen=True, slots=True)
class Around:
    """What all hosts of a broker share."""

    store: StateStore
    clock: Clock
    time: Time
    timers: TimerLoop
    workers: Executor
    jitter: Callable[[], float]
    kept: Kept
    loading: asyncio.Semaphore
    """So many hosts load at a time."""


class State(Enum):
    LOADING = auto()
    OPEN = auto()
    CLOSED = auto()


class OwnBatch:
    """Messages that this host has appended itself, so that they need not be read again."""

    __slots__ = ("arrivals", "duplicates", "first", "indexed", "last", "sent_ms")

    def __init__(self, first: int, last: int, sent_ms: int, arrivals: Sequence[Arrival] | None) -> None:
        """Without `arrivals` all of them are plain."""
        self.first = first
        self.last = last
        self.sent_ms = sent_ms
        self.arrivals = arrivals
        self.duplicates: Sequence[Duplicate] = ()
        self.indexed: Callable[[], None] | None = None
        """Called when the engine knows of them, or cannot yet though they are committed."""


class Host:
    def __init__(
        self,
        partition: Partition,
        group: str,
        settings: QueueSettings,
        keeping: Keeping,
        around: Around,
        *,
        reads_records: bool,
        start_offset: Callable[[], int] | None = None,
    ) -> None:
        """`reads_records`: records say more of messages than that they are there. `start_offset` tells where a group
        without a state begins; without it, at the log's start."""
        self.partition = partition
        self.name = state_name(partition.topic_id, partition.index, group)
        self.epoch = partition.leader_epoch
        self.settings = settings
        self.around = around
        self.state = State.LOADING
        self.own_entries: dict[bytes, bytes] = {}
        """What is kept beside the engine's entries; changed by `keep_own`."""
        self.on_open: list[Callable[[], None]] = []
        self.on_change: list[Callable[[], None]] = []
        """Called after anything that may have made messages available, or dead."""
        self.on_close: list[Callable[[HeadraceError], None]] = []
        self._keeping = keeping
        self._reads_records = reads_records
        self._start_offset = start_offset
        self._engine: Engine | None = None
        self._own: deque[OwnBatch] = deque()
        self._own_changes: dict[bytes, bytes | None] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._is_index_due = False
        self._is_reading = False
        self._opened: asyncio.Future[None] | None = None
        self._why_closed: HeadraceError | None = None
        self._start_taken = 0
        self._start_kept = 0
        self._saving: asyncio.TimerHandle | None = None
        self._writer = StateWriter(
            self.name,
            self.epoch,
            around.store,
            around.clock,
            take=self._take,
            written=self._written,
            lost=self._lost,
        )

    def __str__(self) -> str:
        return str(self.partition)

    # -- life

    def start(self) -> None:
        self._opened = asyncio.get_running_loop().create_future()
        self._opened.add_done_callback(_seen)
        self._in_background(self._load())

    def close(self, why: HeadraceError) -> None:
        """Answer nobody any more: another broker leads, or the queue is gone."""
        if self.state is State.CLOSED:
            return
        self.state = State.CLOSED
        self._why_closed = why
        self.partition.data_waiters.remove(self)
        self.around.timers.cancel(self)
        if self._saving is not None:
            self._saving.cancel()
        self._writer.close(why)
        for task in tuple(self._tasks):
            task.cancel()
        if self._opened is not None and not self._opened.done():
            self._opened.set_exception(why)
        for batch in self._own:
            if batch.indexed is not None:
                batch.indexed()
        self._own.clear()
        for tell in self.on_close:
            tell(why)

    async def stopped(self) -> None:
        await self._writer.stopped()
        for task in tuple(self._tasks):
            with suppress(asyncio.CancelledError):
                await task

    async def opened(self) -> None:
        """Until the queue can be asked, for a while; `QueueUnavailable` after that."""
        if self.state is State.OPEN:
            return
        if self._why_closed is not None:
            raise self._why_closed
        assert self._opened is not None
        try:
            async with asyncio.timeout(_OPEN_PATIENCE_S):
                await asyncio.shield(self._opened)
        except TimeoutError:
            raise QueueUnavailable(f"{self} is being loaded: try again") from None

    @property
    def engine(self) -> Engine:
        """`QueueUnavailable` unless it is loaded."""
        if self._engine is None or self.state is not State.OPEN:
            raise self._why_closed or QueueUnavailable(f"{self} is being loaded: try again")
        return self._engine

    @property
    def is_closed(self) -> bool:
        return self.state is State.CLOSED

    @property
    def has_engine(self) -> bool:
        return self.state is State.OPEN

    def now_ms(self) -> int:
        return self.around.time.now_ms()

    # -- asking

    async def decide(self, decision: Callable[[Engine, int], T]) -> T:
        """What the engine decides, when that is kept."""
        decided = self.decide_now(decision)
        await self._writer.kept()
        return decided

    def decide_now(self, decision: Callable[[Engine, int], T]) -> T:
        """The same, but nobody may be told before `kept`."""
        engine = self.engine
        self._writer.check()
        decided = decision(engine, self.now_ms())
        self._writer.touch()
        self._changed()
        return decided

    async def kept(self) -> None:
        """Until everything that was decided so far is kept."""
        await self._writer.kept()

    def keep_own(self, key: bytes, value: bytes | None) -> None:
        """Keep something beside the engine's state, with the next write; None forgets it."""
        key = OWN_KEYS + key
        self._own_changes[key] = value
        if value is None:
            self.own_entries.pop(key, None)
        else:
            self.own_entries[key] = value
        self._writer.touch()

    def configure(self, settings: QueueSettings) -> None:
        if settings != self.settings:
            self.settings = settings
            if self._engine is not None and self.state is State.OPEN:
                self._engine.configure(settings, self.now_ms())
                self._writer.touch()
                self._changed()

    @property
    def log_start(self) -> int:
        """Records below this offset are not needed any more, and that is kept."""
        return self._start_kept

    # -- loading

    async def _load(self) -> None:
        while True:
            try:
                async with self.around.loading:
                    await self._load_now()
                break
            except StaleQueueLeader as error:
                self._lost(error)
                return
            except HeadraceError as error:
                # What is damaged may be mended by another replica; what is not there now, come.
                log.error("%s cannot be loaded for now: %s", self.name, error)
            await asyncio.sleep(_RETRY_S)
        self.state = State.OPEN
        if self._opened is not None and not self._opened.done():
            self._opened.set_result(None)
        for tell in self.on_open:
            tell()
        self._index_now()
        self._changed()

    async def _load_now(self) -> None:
        entries = await self._writer.open()
        self.own_entries = {key: value for key, value in entries if key.startswith(OWN_KEYS) and value is not None}
        engine = Engine(self.settings, self.around.jitter, self._keeping)
        engine.load(entry for entry in entries if not entry.key.startswith(OWN_KEYS))
        self._engine = engine
        if not entries and self._start_offset is not None:
            engine.skip(engine.indexed_to, self._start_offset() - 1)
        engine.drop_before(self.partition.log.start_offset)
        # All that there is: what was received before may be of what a new leader does not know yet to be committed.
        await self.partition.until_committed(self.partition.log.end_offset)
        self.partition.data_waiters.add(self)
        await self._read_to(self.partition.last_stable_offset)

    # -- indexing

    def data_arrived(self) -> None:
        """More of the log is committed."""
        if self.state is State.OPEN and not self._is_index_due:
            self._is_index_due = True
            asyncio.get_running_loop().call_soon(self._index_now)

    def appended(self, batch: OwnBatch) -> None:
        """This host's owner has appended messages."""
        if self.state is not State.CLOSED:
            self._own.append(batch)

    def _index_now(self) -> None:
        """Index what is committed: what was sent here at once, what others have written by reading it."""
        self._is_index_due = False
        engine = self._engine
        if engine is None or self.state is not State.OPEN:
            return
        if self._is_reading:
            self._answer_committed()
            return
        before = engine.indexed_to
        below = self.partition.last_stable_offset
        while engine.indexed_to < below:
            batch = self._next_own(engine)
            if batch is None or batch.first > engine.indexed_to or batch.last >= below:
                self._is_reading = True
                end = below if batch is None else min(below, batch.first)
                self._in_background(self._read_on(end))
                break
            self._own.popleft()
            self._index_own(engine, batch)
        self._answer_committed()
        if engine.indexed_to > before:
            self._save_soon()
            self._changed()

    def _answer_committed(self) -> None:
        """Those who have sent what is committed, but behind a transaction that is not over, or much that others have
        written: the engine hears of it later."""
        for batch in self._own:
            if batch.last >= self.partition.high_watermark:
                break
            if batch.indexed is not None:
                batch.indexed()
                batch.indexed = None

    def _next_own(self, engine: Engine) -> OwnBatch | None:
        while self._own and self._own[0].first < engine.indexed_to:
            # It was read from the log while this host was loading.
            batch = self._own.popleft()
            if batch.indexed is not None:
                batch.indexed()
        return self._own[0] if self._own else None

    def _index_own(self, engine: Engine, batch: OwnBatch) -> None:
        if batch.arrivals is None:
            engine.index_plain(batch.first, batch.last, batch.sent_ms, self.now_ms())
        else:
            batch.duplicates = engine.index(batch.arrivals, self.now_ms())
        if batch.indexed is not None:
            batch.indexed()

    async def _read_on(self, end: int) -> None:
        try:
            await self._read_to(end)
        except HeadraceError as error:
            if self.state is State.OPEN:
                log.error("%s cannot be read for now: %s", self.partition, error)
                await asyncio.sleep(_RETRY_S)
        finally:
            self._is_reading = False
        self._index_now()

    async def _read_to(self, end: int) -> None:
        """Index from the log up to an offset that is committed and stable."""
        engine, partition = self._engine, self.partition
        assert engine is not None
        while engine.indexed_to < end and self.state is not State.CLOSED:
            offset = engine.indexed_to
            try:
                cut = partition.slice(offset, _SLICE_BYTES, committed=True, at_least_one=True)
            except OffsetOutOfRange:
                engine.skip(offset, min(end, partition.log.start_offset) - 1)
                if engine.indexed_to == offset:
                    raise
                continue
            if cut is None:
                engine.skip(offset, end - 1)
                break
            if self._reads_records:
                piece = await read_slice(partition, cut, offset, self.settings, self.around.workers)
            else:
                below, aborted = partition.last_stable_offset, partition.aborted_within(offset, end)
                data = await asyncio.get_running_loop().run_in_executor(
                    self.around.workers, cut.file.read, cut.position, cut.length
                )
                piece = read_ranges(data, offset, below, aborted)
            if piece.next_offset == offset:
                raise QueueUnavailable(f"nothing can be read of {partition} at offset {offset}")
            await self._index_piece(engine, piece)
            for message in piece.messages:
                self.around.kept.offer(partition.topic_id, message)
            self._save_soon()
            if self.state is State.OPEN:
                self._changed()

    async def _index_piece(self, engine: Engine, piece: Piece) -> None:
        now_ms = self.now_ms()
        arrivals: list[Arrival] = []

        def flush() -> None:
            if arrivals:
                engine.index(arrivals, now_ms)
                arrivals.clear()

        for at, step in enumerate(piece.steps, 1):
            if isinstance(step, Arrival):
                arrivals.append(step)
            else:
                flush()
                _apply(engine, step, now_ms)
            if at % _STEPS_PER_TURN == 0:
                flush()
                await asyncio.sleep(0)
        flush()

    # -- keeping

    def _take(self) -> Sequence[Entry]:
        engine = self._engine
        if engine is None:
            return ()
        entries = engine.take_changes()
        self._start_taken = engine.log_start
        if self._own_changes:
            entries += [Entry(key, value) for key, value in self._own_changes.items()]
            self._own_changes = {}
        return entries

    def _written(self) -> None:
        self._start_kept = self._start_taken

    def _save_soon(self) -> None:
        """What was indexed need not be read again once it is kept. Nobody waits for that."""
        if self._saving is None and self.state is State.OPEN:
            self._saving = asyncio.get_running_loop().call_later(_SAVE_SOON_S, self._save)

    def _save(self) -> None:
        self._saving = None
        self._writer.touch()

    def _lost(self, error: HeadraceError) -> None:
        if self.state is not State.CLOSED:
            log.info("%s is led elsewhere: %s", self.name, error)
            self.close(QueueUnavailable(f"{self} is led by another broker: try again"))

    # -- time

    def _changed(self) -> None:
        for tell in self.on_change:
            tell()
        self._arm()

    def _arm(self) -> None:
        engine = self._engine
        if engine is None or self.state is not State.OPEN:
            return
        due_ms = engine.next_due_ms
        if due_ms is None:
            self.around.timers.cancel(self)
            return
        deadline_ms = self.around.time.monotonic_ms(due_ms)
        if self.around.timers.deadline_of(self) != deadline_ms:
            self.around.timers.set(self, deadline_ms, self._due)

    def _due(self) -> None:
        if self.state is State.OPEN and self._engine is not None:
            self._engine.due(self.now_ms())
            self._writer.touch()
            self._changed()

    def _in_background(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: "asyncio.Task[None]") -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("%s is given up, and loaded anew by the next leader or start", self.name, exc_info=error)
            self.close(QueueUnavailable(f"{self} met an unexpected error: the broker's log says which"))


def _apply(engine: Engine, step: Step, now_ms: int) -> None:
    if isinstance(step, Plain):
        engine.index_plain(step.first, step.last, step.sent_ms, now_ms)
    elif isinstance(step, Skipped):
        engine.skip(step.first, step.last)


def _seen(future: "asyncio.Future[None]") -> None:
    """Nobody may be waiting for it."""
    if not future.cancelled():
        future.exception()
