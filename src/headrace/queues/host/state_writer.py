"""Persists the changes of an engine: one write at a time, each with all changes since the last (group commit).

Promises:
- `persisted` returns when everything that the engine had decided before is committed, so no answer is ahead of the
  state after a restart or a change of the leader (invariant 42);
- a write whose outcome is unknown is repeated after the state was opened again: the former write cannot arrive later
  and undo a newer one;
- once another broker leads, nothing is written any more, and all callers that wait fail.
"""

import asyncio
import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress

from headrace.coordinator.completion import PendingResult
from headrace.coordinator.machine import InternalRecord
from headrace.coordinator.result import Result
from headrace.model.backoff import ExponentialDelay, RetryDelays
from headrace.model.errors import HeadraceError, QueueUnavailable, StaleQueueLeader
from headrace.model.invariants import invariant
from headrace.queues.state_store import StateStore
from headrace.runtime.clock import Clock

log = logging.getLogger(__name__)

_PATIENCE_S = 10.0
"""How long a caller waits for a write before it fails with an unknown outcome."""
_REPORT_AFTER_MS = 2_000
_WAITING_MAX = 20_000
_RETRY_DELAY_S = ExponentialDelay(0.02, 1.0)
_PART_ENTRIES = 10_000
_PART_BYTES = 1024 * 1024
_PERSISTED: Result[None] = Result()

WhenPersisted = Callable[[Result[None]], None]


def _nothing() -> None:
    """For a writer that is closed."""


def _ignore_loss(error: HeadraceError) -> None:
    """For a writer that is closed."""


class StateWriter:
    def __init__(
        self,
        name: str,
        epoch: int,
        store: StateStore,
        clock: Clock,
        *,
        take: Callable[[], Sequence[InternalRecord]],
        written: Callable[[], None],
        lost: Callable[[HeadraceError], None],
    ) -> None:
        """`take` gives the entries to write since its last call; `written` is called when they are committed, before
        callers that wait go on; `lost` when another broker leads."""
        self._name = name
        self._epoch = epoch
        self._store = store
        self._clock = clock
        self._take = take
        self._written = written
        self._lost = lost
        self._term = -1
        self._waiting: list[WhenPersisted] = []
        self._writing: list[WhenPersisted] = []
        """Callers that wait for the current write."""
        self._task: asyncio.Task[None] | None = None
        self._failing_since_ms: float | None = None
        self._is_reported = False
        self._closed: HeadraceError | None = None

    # -- life

    async def open(self) -> list[InternalRecord]:
        """Fence the former leader, and read all entries. Retried until it succeeds, except for `StaleQueueLeader`."""
        delays = RetryDelays(_RETRY_DELAY_S)
        while True:
            try:
                self._term = await self._store.open(self._name, self._epoch)
                entries = await self._store.read(self._name, self._term)
                self._report_success()
                return entries
            except StaleQueueLeader:
                raise
            except HeadraceError as error:
                self._report_failure(error)
            await asyncio.sleep(delays.next())

    def close(self, why: HeadraceError) -> None:
        self._closed = why
        if self._task is not None:
            self._task.cancel()
        self._fail_waiting(why)

    async def stopped(self) -> None:
        """Wait until the task has ended, and drop the callbacks, which refer to the host."""
        if self._task is not None:
            with suppress(asyncio.CancelledError):
                await self._task
        self._take, self._written, self._lost = tuple, _nothing, _ignore_loss

    # -- writing

    def touch(self) -> None:
        """Write the changes of the engine soon."""
        if self._closed is None and (self._task is None or self._task.done()):
            self._task = asyncio.get_running_loop().create_task(self._run())

    def persisted(self) -> PendingResult[None]:
        """Resolved when everything that the engine has decided so far is committed."""
        done: PendingResult[None] = PendingResult()
        self.when_persisted(done.resolve)
        return done

    def when_persisted(self, tell: WhenPersisted) -> None:
        """Like `persisted`, for a callback, which is called once: at once with an error if nothing can be persisted."""
        refusal = self._closed or self._refusal()
        if refusal is not None:
            tell(Result(error=refusal))
            return
        self._waiting.append(tell)
        if self._task is None or self._task.done():
            self.touch()

    def check(self) -> None:
        """`QueueUnavailable` if changes cannot be persisted now."""
        refusal = self._refusal()
        if refusal is not None:
            raise refusal

    def _refusal(self) -> QueueUnavailable | None:
        since_ms = self._failing_since_ms
        if since_ms is not None and self._clock.monotonic_ms() - since_ms > _PATIENCE_S * 1000:
            return QueueUnavailable("the state of the queue cannot be written now: try again")
        if len(self._waiting) >= _WAITING_MAX:
            return QueueUnavailable("the queue is overloaded: try again")
        return None

    async def _run(self) -> None:
        while True:
            self._writing, self._waiting = self._waiting, []
            # One timer for all callers.
            timer = asyncio.get_running_loop().call_later(_PATIENCE_S, self._late)
            try:
                entries = self._take()
                for part in parts_of(entries):
                    await self._commit(part)
            except StaleQueueLeader as error:
                self._lost(error)
                return
            except asyncio.CancelledError:
                self._fail_waiting(self._closed or QueueUnavailable("the queue is being closed"))
                raise
            finally:
                timer.cancel()
            # Callers that `_late` has failed meanwhile are not among them.
            waiting, self._writing = self._writing, []
            if entries:
                self._written()
            invariant(self._closed is None, 42, "a queue that is closed answers nothing as persisted")
            for tell in waiting:
                tell(_PERSISTED)
            if not self._waiting and not entries:
                return

    def _late(self) -> None:
        """The write goes on; callers that wait for it fail with an unknown outcome, and new ones are refused."""
        self._fail_waiting(QueueUnavailable("the state of the queue could not be written in time: try again"))
        if self._failing_since_ms is None:
            self._failing_since_ms = self._clock.monotonic_ms() - _PATIENCE_S * 1000

    async def _commit(self, entries: Sequence[InternalRecord]) -> None:
        delays = RetryDelays(_RETRY_DELAY_S)
        must_open = False
        while True:
            try:
                if must_open:
                    self._term = await self._store.open(self._name, self._epoch)
                    must_open = False
                await self._store.write(self._name, self._term, entries)
            except StaleQueueLeader:
                raise
            except HeadraceError as error:
                self._report_failure(error)
                must_open = True
            else:
                self._report_success()
                return
            await asyncio.sleep(delays.next())

    def _report_failure(self, error: HeadraceError) -> None:
        now_ms = self._clock.monotonic_ms()
        if self._failing_since_ms is None:
            self._failing_since_ms = now_ms
        elif not self._is_reported and now_ms - self._failing_since_ms > _REPORT_AFTER_MS:
            self._is_reported = True
            log.warning("the state of %s cannot be written or read for now: %s", self._name, error)

    def _report_success(self) -> None:
        if self._failing_since_ms is not None:
            self._failing_since_ms = None
            if self._is_reported:
                self._is_reported = False
                log.warning("the state of %s is written and read again", self._name)

    def _fail_waiting(self, why: HeadraceError) -> None:
        waiting, self._waiting, self._writing = [*self._writing, *self._waiting], [], []
        for tell in waiting:
            # Each gets its own error, because an error has the traceback of where it was raised.
            tell(Result(error=type(why)(str(why))))


def parts_of(entries: Sequence[InternalRecord]) -> Iterator[Sequence[InternalRecord]]:
    """Parts of the size of one write. If only the first are written, that is a state that the queue was in."""
    first = size_bytes = 0
    for at, (key, value) in enumerate(entries):
        size_bytes += len(key) + len(value or b"")
        if at > first and (at - first >= _PART_ENTRIES or size_bytes > _PART_BYTES):
            yield entries[first:at]
            first, size_bytes = at, len(key) + len(value or b"")
    if first < len(entries):
        yield entries[first:]
