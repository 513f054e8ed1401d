"""Keeping what an engine changes: one write at a time, and the next takes everything that has gathered meanwhile.

Promises:
- whoever waits for `kept` is told when everything that the engine had decided before is committed, so an answer never
  says what a restart or another leader does not know (invariant 42);
- a write that may or may not have been made is made again, after the state was opened anew: the former one cannot come
  late then and undo a later one;
- once another broker leads, nothing is written any more, and everybody who waits is told.
"""

import asyncio
import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress

from headrace.coordinator.machine import InternalRecord
from headrace.model.errors import HeadraceError, QueueUnavailable, StaleQueueLeader
from headrace.model.invariants import invariant
from headrace.queues.state_store import StateStore
from headrace.runtime.clock import Clock

log = logging.getLogger(__name__)

_PATIENCE_S = 10.0
"""How long somebody waits for a write before being told that it is not known whether it will be made."""
_TELL_AFTER_MS = 2_000
_WAITING_MAX = 20_000
_BACKOFF_FIRST_S = 0.02
_BACKOFF_MAX_S = 1.0
_PART_ENTRIES = 10_000
_PART_BYTES = 1024 * 1024


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
        """`take` gives what is to be written since it was asked last; `written` is called when that is committed,
        before those who wait are told; `lost` when another broker leads."""
        self._name = name
        self._epoch = epoch
        self._store = store
        self._clock = clock
        self._take = take
        self._written = written
        self._lost = lost
        self._term = -1
        self._waiting: list[asyncio.Future[None]] = []
        self._writing: list[asyncio.Future[None]] = []
        """Those who wait for the write under way."""
        self._task: asyncio.Task[None] | None = None
        self._failing_since_ms: float | None = None
        self._is_told = False
        self._closed: HeadraceError | None = None

    # -- life

    async def open(self) -> list[InternalRecord]:
        """Take over from whoever led before; everything there is. Tried until it works: only `StaleQueueLeader` is
        raised."""
        backoff_s = _BACKOFF_FIRST_S
        while True:
            try:
                self._term = await self._store.open(self._name, self._epoch)
                entries = await self._store.read(self._name, self._term)
                self._works()
                return entries
            except StaleQueueLeader:
                raise
            except HeadraceError as error:
                self._say(error)
            await asyncio.sleep(backoff_s)
            backoff_s = min(_BACKOFF_MAX_S, backoff_s * 2)

    def close(self, why: HeadraceError) -> None:
        self._closed = why
        if self._task is not None:
            self._task.cancel()
        self._tell(why)

    async def stopped(self) -> None:
        if self._task is not None:
            with suppress(asyncio.CancelledError):
                await self._task

    # -- writing

    def touch(self) -> None:
        """There is something to be written: it is, soon."""
        if self._closed is None and (self._task is None or self._task.done()):
            self._task = asyncio.get_running_loop().create_task(self._run())

    async def kept(self) -> None:
        """Until everything that the engine has decided so far is committed."""
        if self._closed is not None:
            raise self._closed
        self.check()
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(done)
        self.touch()
        await done

    def check(self) -> None:
        """Refuse to begin what could not be kept: `QueueUnavailable`."""
        since_ms = self._failing_since_ms
        if since_ms is not None and self._clock.monotonic_ms() - since_ms > _PATIENCE_S * 1000:
            raise QueueUnavailable("the state of the queue cannot be written now: try again")
        if len(self._waiting) >= _WAITING_MAX:
            raise QueueUnavailable("the queue has too much to do: try again")

    async def _run(self) -> None:
        while True:
            waiting, self._waiting = self._waiting, []
            self._writing = waiting
            # One timer for all who wait, and not one for each.
            timer = asyncio.get_running_loop().call_later(_PATIENCE_S, self._late)
            try:
                entries = self._take()
                for part in _parts(entries):
                    await self._commit(part)
            except StaleQueueLeader as error:
                self._lost(error)
                return
            except asyncio.CancelledError:
                self._tell(self._closed or QueueUnavailable("the queue is being closed"))
                raise
            finally:
                timer.cancel()
            self._writing = []
            if entries:
                self._written()
            invariant(self._closed is None, 42, "a queue that is closed answers nothing as persisted")
            for done in waiting:
                if not done.done():
                    done.set_result(None)
            if not self._waiting and not entries:
                return

    def _late(self) -> None:
        """The write goes on; those who wait for it hear that it may or may not be made, and so do those who come."""
        self._tell(QueueUnavailable("the state of the queue could not be written in time: try again"))
        if self._failing_since_ms is None:
            self._failing_since_ms = self._clock.monotonic_ms() - _PATIENCE_S * 1000

    async def _commit(self, entries: Sequence[InternalRecord]) -> None:
        backoff_s = _BACKOFF_FIRST_S
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
                self._say(error)
                must_open = True
            else:
                self._works()
                return
            await asyncio.sleep(backoff_s)
            backoff_s = min(_BACKOFF_MAX_S, backoff_s * 2)

    def _say(self, error: HeadraceError) -> None:
        now_ms = self._clock.monotonic_ms()
        if self._failing_since_ms is None:
            self._failing_since_ms = now_ms
        elif not self._is_told and now_ms - self._failing_since_ms > _TELL_AFTER_MS:
            self._is_told = True
            log.warning("the state of %s cannot be written or read for now: %s", self._name, error)

    def _works(self) -> None:
        if self._failing_since_ms is not None:
            self._failing_since_ms = None
            if self._is_told:
                self._is_told = False
                log.warning("the state of %s is written and read again", self._name)

    def _tell(self, why: HeadraceError) -> None:
        waiting, self._waiting, self._writing = [*self._writing, *self._waiting], [], []
        for done in waiting:
            if not done.done():
                # One of its own for each: an error remembers where it was raised.
                done.set_exception(type(why)(str(why)))


def _parts(entries: Sequence[InternalRecord]) -> Iterator[Sequence[InternalRecord]]:
    """Of a size that one write takes. If only the first of them are made, that is a state the queue was in."""
    first = size_bytes = 0
    for at, (key, value) in enumerate(entries):
        size_bytes += len(key) + len(value or b"")
        if at > first and (at - first >= _PART_ENTRIES or size_bytes > _PART_BYTES):
            yield entries[first:at]
            first, size_bytes = at, len(key) + len(value or b"")
    if first < len(entries):
        yield entries[first:]
