"""The tail of a queue's log: its messages are indexed by the engine as they are committed.

Messages that were sent through this broker are in memory; those of Kafka clients are read from the log. Everything up
to the last stable offset is indexed, by offset, once; a send is answered when its messages are indexed.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import Executor
from itertools import groupby
from typing import Any, cast

from headrace.config.queue import QueueSettings
from headrace.model.errors import HeadraceError, OffsetOutOfRange, QueueUnavailable
from headrace.observe.queue_counts import QueueCounts
from headrace.queues.engine.chunk_index import DuplicateMessage, LogMessage
from headrace.queues.engine.engine import Engine
from headrace.queues.host.decode import DecodedSlice, IndexStep, PlainRange, SkippedRange
from headrace.queues.host.message_cache import MessageCache, read_cached, read_slice
from headrace.replication.partition import Partition

log = logging.getLogger(__name__)

_SLICE_BYTES = 256 * 1024
_AT_HAND_BYTES = 32 * 1024
_STEPS_PER_TURN = 2_000
_RETRY_S = 0.5
_PATIENCE_S = 1.0


class OwnBatch:
    """Messages that were sent through the queue on this broker, so that they need not be read from the log."""

    __slots__ = ("_answer", "_is_committed", "_is_indexed", "duplicates", "first", "last", "log_messages", "sent_ms")

    def __init__(
        self,
        first: int,
        last: int,
        sent_ms: int,
        log_messages: Sequence[LogMessage] | None,
        answer: "Callable[[OwnBatch], None]",
    ) -> None:
        """Without `log_messages` all of them are plain. `answer` is called once, when they are committed and indexed,
        or cannot be indexed for now."""
        self.first = first
        self.last = last
        self.sent_ms = sent_ms
        self.log_messages = log_messages
        self.duplicates: Sequence[DuplicateMessage] = ()
        self._is_committed = False
        self._is_indexed = False
        self._answer: Callable[[OwnBatch], None] | None = answer

    def committed(self) -> None:
        self._is_committed = True
        self._answer_when_ready()

    def indexed(self) -> None:
        """The messages are indexed, or that is not waited for any more. That alone is no reason to answer: messages
        that are not committed may be lost, and a former leader may be the last to know (invariant 2)."""
        self._is_indexed = True
        self._answer_when_ready()

    def _answer_when_ready(self) -> None:
        if self._is_committed and self._is_indexed and self._answer is not None:
            answer, self._answer = self._answer, None
            answer(self)


def _do_not_start(work: Coroutine[Any, Any, None]) -> None:
    work.close()


def _nothing() -> None:
    """For the tail of a host that is closed."""


def _ignore_failure(error: Exception) -> None:
    """For the tail of a host that is closed."""


class LogTail:
    """Indexes the log of one engine."""

    def __init__(
        self,
        partition: Partition,
        *,
        settings: Callable[[], QueueSettings],
        now_ms: Callable[[], int],
        cache: MessageCache,
        counts: QueueCounts,
        workers: Executor,
        in_background: Callable[[Coroutine[Any, Any, None]], None],
        indexed: Callable[[], None],
        failed: Callable[[Exception], None],
    ) -> None:
        """`indexed` is called after each step, `failed` after an unexpected error."""
        self._partition = partition
        self._settings = settings
        self._now_ms = now_ms
        self._cache = cache
        self._counts = counts
        self._counted_to = int(partition.log.end_offset)
        """Messages from here on were sent since this broker leads, and are not counted yet."""
        self._workers = workers
        self._in_background = in_background
        self._indexed = indexed
        self._failed = failed
        self._engine: Engine | None = None
        self._own: deque[OwnBatch] = deque()
        self._waiting: dict[asyncio.Future[None], int] = {}
        """The offset up to which each waits for the index."""
        self._is_due = False
        self._is_reading = False
        self._is_closed = False

    # -- life

    async def catch_up(self, engine: Engine) -> None:
        """Index everything that is committed, for a new engine."""
        self._engine = None
        await self._read_to(engine, self._partition.last_stable_offset)

    def begin(self, engine: Engine) -> None:
        """Follow the end of the log."""
        self._engine = engine
        self._partition.data_waiters.add(self)
        self._index()

    def close(self) -> None:
        self._is_closed = True
        self._engine = None
        self._partition.data_waiters.remove(self)
        for batch in self._own:
            batch.indexed()
        self._own.clear()
        for done in self._waiting:
            if not done.done():
                done.set_result(None)

    def forget_host(self) -> None:
        """Drop the callbacks: it is closed, and all its tasks have ended."""
        settings = self._settings()
        self._settings = lambda: settings
        self._in_background = _do_not_start
        self._indexed, self._failed = _nothing, _ignore_failure

    # -- following

    async def caught_up(self) -> None:
        """Wait until everything that is committed now is indexed, for a little while."""
        engine, end = self._engine, self._partition.last_stable_offset
        if engine is None or engine.indexed_to >= end:
            return
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting[done] = end
        try:
            async with asyncio.timeout(_PATIENCE_S):
                await done
        except TimeoutError:
            return
        finally:
            del self._waiting[done]

    def data_arrived(self) -> None:
        """More of the log is committed."""
        if self._engine is not None and not self._is_due:
            self._is_due = True
            asyncio.get_running_loop().call_soon(self._index)

    def appended(self, batch: OwnBatch) -> None:
        """Messages were appended by this broker."""
        if not self._is_closed:
            self._own.append(batch)

    def _index(self) -> None:
        self._is_due = False
        try:
            self._index_now()
        except Exception as error:
            self._failed(error)

    def _index_now(self) -> None:
        engine = self._engine
        if engine is None:
            return
        if self._is_reading:
            self._answer_committed()
            return
        before = engine.indexed_to
        below = self._partition.last_stable_offset
        while engine.indexed_to < below:
            batch = self._next_own(engine)
            if batch is None or batch.first > engine.indexed_to or batch.last >= below:
                if batch is not None or not self._read_now(engine):
                    self._is_reading = True
                    self._in_background(self._read_on(engine, below if batch is None else min(below, batch.first)))
                elif engine.indexed_to < below:
                    self.data_arrived()
                break
            self._own.popleft()
            self._index_own(engine, batch)
        self._answer_committed()
        if engine.indexed_to > before:
            self._notify(engine)

    def _notify(self, engine: Engine) -> None:
        self._indexed()
        for done, end in self._waiting.items():
            if engine.indexed_to >= end and not done.done():
                done.set_result(None)

    def _answer_committed(self) -> None:
        """Answer sends that are committed behind an open transaction, or behind many records of other clients: they are
        indexed later."""
        for batch in self._own:
            if batch.last >= self._partition.high_watermark:
                break
            batch.indexed()

    def _next_own(self, engine: Engine) -> OwnBatch | None:
        while self._own and self._own[0].first < engine.indexed_to:
            # It was read from the log while the engine was loading.
            self._own.popleft().indexed()
        return self._own[0] if self._own else None

    def _index_own(self, engine: Engine, batch: OwnBatch) -> None:
        if batch.log_messages is None:
            self._index_plain(engine, PlainRange(batch.first, batch.last, batch.sent_ms), self._now_ms())
        else:
            batch.duplicates = self._index_messages(engine, batch.log_messages, self._now_ms())
        batch.indexed()

    def _index_plain(self, engine: Engine, plain: PlainRange, now_ms: int) -> None:
        engine.index_plain(*plain, now_ms)
        self._counts.sent += max(0, plain.last + 1 - max(plain.first, self._counted_to))
        self._counted_to = max(self._counted_to, plain.last + 1)

    def _index_messages(
        self, engine: Engine, messages: Sequence[LogMessage], now_ms: int
    ) -> Sequence[DuplicateMessage]:
        duplicates = engine.index(messages, now_ms)
        new = [each for each in messages if each.offset >= self._counted_to]
        if new:
            self._counts.sent += len(new) - sum(each.offset >= self._counted_to for each in duplicates)
            self._counted_to = new[-1].offset + 1
        return duplicates

    # -- reading

    def _read_now(self, engine: Engine) -> bool:
        """Index the next records of the log at once, if they are few and in the page cache."""
        offset = engine.indexed_to
        try:
            cut = self._partition.slice(offset, _AT_HAND_BYTES, committed=True, at_least_one=True)
            piece = (
                None if cut is None else read_cached(self._partition, cut, offset, self._settings(), is_for_index=True)
            )
        except HeadraceError:
            return False
        if piece is None or piece.next_offset == offset or len(piece.steps) > _STEPS_PER_TURN:
            return False
        self._index_steps(engine, piece.steps)
        self._cache.offer(self._partition.topic_id, piece.messages)
        return True

    async def _read_on(self, engine: Engine, end: int) -> None:
        try:
            await self._read_to(engine, end)
        except HeadraceError as error:
            if self._engine is engine:
                log.error("%s cannot be read for now: %s", self._partition, error)
                await asyncio.sleep(_RETRY_S)
        finally:
            self._is_reading = False
        self._index()

    async def _read_to(self, engine: Engine, end: int) -> None:
        """Index the log up to an offset that is committed and stable."""
        partition = self._partition
        while engine.indexed_to < end and not self._is_closed:
            offset = engine.indexed_to
            try:
                cut = partition.slice(offset, _SLICE_BYTES, committed=True, at_least_one=True)
            except OffsetOutOfRange:
                engine.drop_before(min(end, partition.log.start_offset))
                if engine.indexed_to == offset:
                    raise
                continue
            if cut is None:
                engine.skip(offset, end - 1)
                break
            piece = await read_slice(partition, cut, offset, self._settings(), self._workers, is_for_index=True)
            if piece.next_offset == offset:
                raise QueueUnavailable(f"nothing can be read of {partition} at offset {offset}")
            await self._index_piece(engine, piece)
            self._cache.offer(partition.topic_id, piece.messages)
            if self._engine is engine:
                self._notify(engine)

    async def _index_piece(self, engine: Engine, piece: DecodedSlice) -> None:
        for at in range(0, len(piece.steps), _STEPS_PER_TURN):
            if at:
                await asyncio.sleep(0)
            self._index_steps(engine, piece.steps[at : at + _STEPS_PER_TURN])

    def _index_steps(self, engine: Engine, steps: Sequence[IndexStep]) -> None:
        now_ms = self._now_ms()
        for kind, run in groupby(steps, type):
            if kind is LogMessage:
                self._index_messages(engine, cast(list[LogMessage], list(run)), now_ms)
                continue
            for step in run:
                if isinstance(step, PlainRange):
                    self._index_plain(engine, step, now_ms)
                elif isinstance(step, SkippedRange):
                    engine.skip(step.first, step.last)
