"""The host of an engine: connects it to the log of its partition, its persisted state, and time.

One host serves a queue for one leader epoch of its partition. It loads the persisted state, indexes the committed log
from there on, and follows its end. All operations go through `decide`: the engine decides at once, and the answer is
given when the decision is persisted (invariant 42). When another broker begins to lead, the host is closed: operations
that wait fail, and decisions that were not answered do not count.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import Executor
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any, TypeVar

from headrace.config.queue import QueueSettings
from headrace.coordinator.completion import PendingResult
from headrace.coordinator.machine import InternalRecord
from headrace.coordinator.result import Result
from headrace.coordinator.timers import TimerLoop
from headrace.model.errors import HeadraceError, QueueUnavailable, StaleQueueLeader
from headrace.model.invariants import invariant
from headrace.model.queue_state import OWN_KEYS
from headrace.model.state_partition import state_name
from headrace.observe.queue_counts import QueueCounts
from headrace.queues.engine.engine import Engine
from headrace.queues.host.log_tail import LogTail
from headrace.queues.host.message_cache import MessageCache
from headrace.queues.host.state_writer import StateWriter, WhenPersisted
from headrace.queues.state_store import StateStore
from headrace.quotas.disk_pressure import DiskPressure
from headrace.replication.partition import Partition
from headrace.runtime.clock import Clock

T = TypeVar("T")
U = TypeVar("U")

log = logging.getLogger(__name__)

_LOADED_AT_ONCE = 500
_OPEN_PATIENCE_S = 10.0
_RETRY_S = 0.5
_SAVE_SOON_S = 1.0


class SteadyClock:
    """Wall time that does not jump while the broker runs: the wall clock at the start plus the time since."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._difference_ms = clock.wall_ms() - clock.monotonic_ms()

    def now_ms(self) -> int:
        return int(self._clock.monotonic_ms() + self._difference_ms)

    def monotonic_ms(self, at_ms: int) -> float:
        return at_ms - self._difference_ms


@dataclass(frozen=True, slots=True)
class HostContext:
    """The services that all hosts of a broker share."""

    store: StateStore
    clock: Clock
    time: SteadyClock
    timers: TimerLoop
    workers: Executor
    jitter: Callable[[], float]
    cache: MessageCache
    loading: asyncio.Semaphore
    """Limits how many hosts load at a time."""
    disk: DiskPressure
    feature_level: Callable[[], int]


class HostState(Enum):
    LOADING = auto()
    OPEN = auto()
    CLOSED = auto()


class QueueHost:
    def __init__(self, partition: Partition, settings: QueueSettings, context: HostContext) -> None:
        self.partition = partition
        self.name = state_name(partition.topic_id, partition.index)
        self.epoch = partition.leader_epoch
        self.settings = settings
        self.context = context
        self.state = HostState.LOADING
        self.own_entries: dict[bytes, bytes] = {}
        """Persisted entries that are not the engine's; changed by `persist_own`."""
        self.messages = QueueCounts()
        self.on_open: list[Callable[[], None]] = []
        self.on_change: list[Callable[[], None]] = []
        """Called after every change that may have made messages available, or dead."""
        self.on_close: list[Callable[[HeadraceError], None]] = []
        self.on_configure: list[Callable[[], None]] = []
        """Called when the settings have changed, before they are applied."""
        self.beyond_bound: Callable[[Engine], int | None] = _unbounded
        """The most messages that the engine may have before the oldest are dropped; None: any number."""
        self._engine: Engine | None = None
        self._own_changes: dict[bytes, bytes | None] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._opened: asyncio.Future[None] | None = None
        self._why_closed: HeadraceError | None = None
        self._rests_until_ms = 0.0
        self._is_arm_due = False
        self._start_taken = 0
        self._start_persisted = 0
        self._saving: asyncio.TimerHandle | None = None
        self.log = LogTail(
            partition,
            settings=lambda: self.settings,
            now_ms=context.time.now_ms,
            cache=context.cache,
            counts=self.messages,
            workers=context.workers,
            in_background=self.in_background,
            indexed=self._indexed,
            failed=self._failed,
        )
        self._writer = StateWriter(
            self.name,
            self.epoch,
            context.store,
            context.clock,
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
        self.in_background(self._load())

    def close(self, why: HeadraceError) -> None:
        """Stop answering: another broker leads, or the queue was deleted."""
        if self.state is HostState.CLOSED:
            return
        self.state = HostState.CLOSED
        self._why_closed = why
        self.log.close()
        self.context.timers.cancel(self)
        if self._saving is not None:
            self._saving.cancel()
        self._writer.close(why)
        for task in tuple(self._tasks):
            task.cancel()
        if self._opened is not None and not self._opened.done():
            self._opened.set_exception(why)
        for tell in self.on_close:
            tell(why)

    async def stopped(self) -> None:
        """Wait until everything has ended after `close`, and drop what makes a cycle of references: the memory is freed
        at once, and not by a garbage collection."""
        await self._writer.stopped()
        for task in tuple(self._tasks):
            with suppress(asyncio.CancelledError):
                await task
        self.log.forget_host()
        for callbacks in (self.on_open, self.on_change, self.on_close, self.on_configure):
            callbacks.clear()
        self.beyond_bound = _unbounded
        if self._engine is not None:
            self._engine.close()
            self._engine = None

    async def opened(self) -> None:
        """Wait until the queue is loaded; `QueueUnavailable` after a while."""
        if self.state is HostState.OPEN:
            return
        if self._why_closed is not None:
            raise self._refusal
        assert self._opened is not None
        try:
            async with asyncio.timeout(_OPEN_PATIENCE_S):
                await asyncio.shield(self._opened)
        except TimeoutError:
            raise QueueUnavailable(f"{self} is being loaded: try again") from None

    @property
    def engine(self) -> Engine:
        """`QueueUnavailable` unless it is loaded."""
        if self._engine is None or self.state is not HostState.OPEN:
            raise self._refusal
        return self._engine

    @property
    def _refusal(self) -> HeadraceError:
        """Each caller gets its own error: the traceback of one that is raised refers to this host."""
        why = self._why_closed
        return QueueUnavailable(f"{self} is being loaded: try again") if why is None else type(why)(str(why))

    @property
    def is_closed(self) -> bool:
        return self.state is HostState.CLOSED

    @property
    def has_engine(self) -> bool:
        return self.state is HostState.OPEN

    def now_ms(self) -> int:
        return self.context.time.now_ms()

    # -- operations

    def decide(self, decision: Callable[[Engine, int], T], finish: Callable[[T], U]) -> PendingResult[U]:
        """What `finish` makes of the engine's decision, once that is persisted."""
        decided = self.decide_now(decision)
        answer: PendingResult[U] = PendingResult()

        def persisted(result: "Result[None]") -> None:
            error = result.error
            answer.resolve(Result(finish(decided)) if error is None else Result(error=error))

        self._writer.when_persisted(persisted)
        return answer

    def decide_now(self, decision: Callable[[Engine, int], T]) -> T:
        """Like `decide`, but the caller must await `persisted` before it answers."""
        engine = self.engine
        self._writer.check()
        decided = decision(engine, self.now_ms())
        self._writer.touch()
        self._changed()
        return decided

    async def persisted(self) -> None:
        """Wait until all decisions so far are persisted."""
        await self._writer.persisted()

    def when_persisted(self, tell: WhenPersisted) -> None:
        """Like `persisted`, for a callback."""
        self._writer.when_persisted(tell)

    def persist_own(self, key: bytes, value: bytes | None) -> None:
        """Persist an entry beside the engine's state with the next write; None removes it."""
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
            for tell in self.on_configure:
                tell()
            if self._engine is not None and self.state is HostState.OPEN:
                self._engine.configure(settings, self.now_ms())
                self._drop_oldest(self._engine)
                self._writer.touch()
                self._changed()

    @property
    def log_start(self) -> int:
        """Records below this offset are not needed, and that is persisted."""
        return self._start_persisted

    # -- loading

    async def _load(self) -> None:
        said = ""
        while True:
            try:
                await self._load_now()
                break
            except StaleQueueLeader as error:
                self._lost(error)
                return
            except HeadraceError as error:
                # Damage may be repaired from another replica, and missing data may arrive.
                if said != str(error):
                    said = str(error)
                    log.error("%s cannot be loaded for now, retrying: %s", self, error)
            await asyncio.sleep(_RETRY_S)
        self.state = HostState.OPEN
        if self._opened is not None and not self._opened.done():
            self._opened.set_result(None)
        for tell in self.on_open:
            tell()
        assert self._engine is not None
        self.log.begin(self._engine)
        self._changed()

    async def _load_now(self) -> None:
        entries = await self._writer.open()
        self.own_entries = {key: value for key, value in entries if key.startswith(OWN_KEYS) and value is not None}
        engine_entries = [entry for entry in entries if not entry.key.startswith(OWN_KEYS)]
        # The state may refer to records that a new leader does not know to be committed yet.
        await self.partition.until_committed(self.partition.log.end_offset)
        async with self.context.loading:
            settings = self.settings
            engine = Engine(settings, self.context.jitter, self.context.feature_level)
            if len(engine_entries) <= _LOADED_AT_ONCE:
                engine.load(engine_entries)
            else:
                await asyncio.get_running_loop().run_in_executor(self.context.workers, engine.load, engine_entries)
            engine.drop_before(self.partition.log.start_offset)
            await self.log.catch_up(engine)
        if self.settings != settings:
            engine.configure(self.settings, self.now_ms())
        self._drop_oldest(engine)
        self._engine = engine

    def _drop_oldest(self, engine: Engine) -> None:
        """Drop what is beyond the bound, before receivers can see it. If that is not persisted before a crash, it is
        decided again from the log."""
        most = self.beyond_bound(engine)
        if most is not None:
            engine.drop_beyond(most, self.now_ms())
        self.messages.dropped = engine.dropped

    def _indexed(self) -> None:
        if self._engine is not None:
            self._drop_oldest(self._engine)
        self._save_soon()
        self._changed()

    # -- persisting

    def _take(self) -> Sequence[InternalRecord]:
        engine = self._engine
        if engine is None:
            return ()
        entries = engine.take_changes()
        self._start_taken = engine.log_start
        if self._own_changes:
            entries += [InternalRecord(key, value) for key, value in self._own_changes.items()]
            self._own_changes = {}
        return entries

    def _written(self) -> None:
        invariant(self._start_persisted <= self._start_taken, 45, "the start of a queue's log never moves back")
        self._start_persisted = self._start_taken

    def _save_soon(self) -> None:
        """Persist the index in the background, so that records need not be read again."""
        if self._saving is None and self.state is HostState.OPEN:
            self._saving = asyncio.get_running_loop().call_later(_SAVE_SOON_S, self._save)

    def _save(self) -> None:
        self._saving = None
        self._writer.touch()

    def _lost(self, error: HeadraceError) -> None:
        if self.state is not HostState.CLOSED:
            log.info("%s is led elsewhere: %s", self.name, error)
            self.close(QueueUnavailable(f"{self} is led by another broker: try again"))

    # -- time

    def _changed(self) -> None:
        for tell in self.on_change:
            tell()
        if not self._is_arm_due:
            # Once for all decisions of a turn.
            self._is_arm_due = True
            asyncio.get_running_loop().call_soon(self._arm)

    def _arm(self) -> None:
        self._is_arm_due = False
        engine = self._engine
        if engine is None or self.state is not HostState.OPEN:
            return
        due_ms = engine.next_due_ms
        if due_ms is None:
            self.context.timers.cancel(self)
            return
        deadline_ms = max(self.context.time.monotonic_ms(due_ms), self._rests_until_ms)
        if self.context.timers.deadline_of(self) != deadline_ms:
            self.context.timers.set(self, deadline_ms, self._due)

    def _due(self) -> None:
        if self.state is not HostState.OPEN or self._engine is None:
            return
        # An engine that stays due must not starve the event loop.
        self._rests_until_ms = self.context.clock.monotonic_ms() + 1
        try:
            self._engine.due(self.now_ms())
            self._writer.touch()
            self._changed()
        except Exception as error:
            # Other queues use the same timer loop.
            self._failed(error)

    def in_background(self, work: Coroutine[Any, Any, None]) -> None:
        """Run a task that ends with this host; if it fails unexpectedly, the queue is loaded again."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: "asyncio.Task[None]") -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._failed(error)

    def _failed(self, error: BaseException) -> None:
        """An unexpected error: the state in memory may be wrong, the persisted state is not."""
        if self.state is not HostState.CLOSED:
            log.error("%s is loaded again after an unexpected error", self.name, exc_info=error)
            self.close(QueueUnavailable(f"{self} had an unexpected error, see the broker's log"))


def _unbounded(engine: Engine) -> int | None:
    """No bound on the messages of an engine."""
    return None


def _seen(future: "asyncio.Future[None]") -> None:
    """Mark the exception as retrieved: there may be no waiter."""
    if not future.cancelled():
        future.exception()
