"""A fetch: locates slices of the logs, waits for data, and answers with bytes that are never decoded.

`Fetch` is common to all fetches; `consumer_fetch.py` and `replica_fetch.py` have the parts of consumers and replicas.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any, Protocol
from uuid import UUID

from kio.schema.errors import ErrorCode

from headrace.kafka.batch_checks import BatchLimits
from headrace.kafka.dispatch import Answer, Context, Raw
from headrace.kafka.errors import error_code
from headrace.kafka.fetch_reads import (
    Damaged,
    Later,
    PartitionSlice,
    limits_of,
    read_at_once,
    read_blocking,
    read_in_turns,
)
from headrace.kafka.fetch_sessions import NO_SESSION, FetchPlan, PartitionFetch, PartitionKey
from headrace.kafka.leaders import LEADER_ERRORS, current_leader, endpoints_of
from headrace.kafka.ordered_reads import OrderedReader
from headrace.kafka.request_meter import FETCH
from headrace.model.errors import CorruptBatch, HeadraceError, OffsetOutOfRange
from headrace.protocol.codec import response_header
from headrace.protocol.fast import FETCH_LEADERS_FROM, FetchedPartition, TopicKey, fetch_response
from headrace.protocol.units import to_ms
from headrace.replication.partition import Partition
from headrace.replication.waiters import DataWaiter
from headrace.runtime.deferred import Deferred
from headrace.storage.segment import walk_headers
from headrace.storage.slice import Slice

log = logging.getLogger(__name__)

READ_COMMITTED = 1
NO_REPLICA = -1
_ZERO_ID = UUID(int=0)


class FetchClient(Protocol):
    """The client of one fetch: decides which partitions it wants, how far it may read, and which events wake it."""

    def note_progress(self) -> None:
        """Record what the request reports about the client's progress. Called once, first."""

    def wanted(self) -> Iterable[tuple[PartitionKey, PartitionFetch]]:
        """Return the partitions to check, in the order in which to serve them."""

    def partition(self, key: PartitionKey) -> Partition:
        """Return the partition if this broker may serve the client from it; else raise the reason."""

    def preferred_replica(self, partition: Partition, offset: int) -> int:
        """Return the broker that the client should read from instead; -1 for none."""

    def slice(
        self, partition: Partition, offset: int, max_bytes: int, waiter: DataWaiter, *, at_least_one: bool
    ) -> Slice | None:
        """Return the slice that the client may read. If it must wait for one, the waiter is called later."""

    def must_be_answered(self) -> bool:
        """Whether the answer must not wait for data."""

    def wait(self, waiter: DataWaiter, found: Sequence[PartitionSlice]) -> None:
        """Register the waiter, to be called when there may be more to read."""

    def stop_waiting(self, waiter: DataWaiter) -> None: ...

    def must_name(self, key: PartitionKey) -> bool:
        """Whether an incremental answer must include the partition even if nothing changed."""

    def note_answered(self, found: Sequence[PartitionSlice]) -> None:
        """Update the client's state for an answer with these slices. Called before the answer is built."""


class Fetch:
    """One fetch, for any client."""

    __slots__ = (
        "_answer",
        "_client",
        "_committed",
        "_ctx",
        "_is_due",
        "_leave_line",
        "_max_bytes",
        "_metered",
        "_min_bytes",
        "_plan",
        "_timer",
        "_wait_ms",
    )  # fmt: skip

    def __init__(self, ctx: Context, request: Any, plan: FetchPlan, client: FetchClient) -> None:
        self._ctx = ctx
        self._plan = plan
        self._client = client
        self._committed = request.isolation_level == READ_COMMITTED
        self._max_bytes = min(request.max_bytes, ctx.services.settings.fetch_max_bytes)
        self._metered = None if ctx.peer.is_follower else ctx.metered
        if self._metered is not None:
            self._max_bytes = self._metered.fetch_max_bytes(self._max_bytes)
        self._min_bytes: int = min(request.min_bytes, self._max_bytes)
        self._wait_ms = to_ms(request.max_wait)
        self._answer: Deferred[Answer] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._is_due = False
        self._leave_line: Callable[[], None] | None = None
        """Gives up a read that waits for its turn."""

    def run(self) -> Answer | Deferred[Answer]:
        self._client.note_progress()
        found = self._look()
        if self._is_enough(found):
            return self._read(found)
        self._answer = Deferred(hurry=self._finish, size_bytes=max(0, self._max_bytes))
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(self._wait_ms / 1000, self._finish)
        self._client.wait(self, found)
        if self._plan.session is not None:
            self._plan.session.waiting = self._finish
        return self._answer

    # -- waiting

    def data_arrived(self) -> None:
        """Schedule one check for all data that arrives in this turn of the event loop."""
        if not self._is_due:
            self._is_due = True
            asyncio.get_running_loop().call_soon(self._look_again)

    def _look_again(self) -> None:
        self._is_due = False
        if self._timer is None:
            return
        found = self._look()
        if self._is_enough(found):
            self._settle(found)

    def _finish(self) -> None:
        if self._timer is not None:
            self._settle(self._look())
        elif self._leave_line is not None:
            self._leave_line()

    def _settle(self, found: Sequence[PartitionSlice]) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._client.stop_waiting(self)
        if self._plan.session is not None:
            self._plan.session.waiting = None
        result = self._read(found)
        answer = self._answer
        assert answer is not None
        if isinstance(result, Deferred):
            result.then(answer.resolve)
        else:
            answer.resolve(result)

    # -- locating the slices, without reading them

    def _look(self) -> list[PartitionSlice]:
        left_bytes = self._max_bytes
        found: list[PartitionSlice] = []
        is_first = True
        for key, wanted in self._client.wanted():
            item = self._look_at(key, wanted, left_bytes, at_least_one=is_first)
            found.append(item)
            if item.slice is not None:
                left_bytes = max(0, left_bytes - item.slice.takes_bytes)
                is_first = False
        return found

    def _look_at(
        self, key: PartitionKey, wanted: PartitionFetch, left_bytes: int, *, at_least_one: bool
    ) -> PartitionSlice:
        max_bytes = min(wanted.max_bytes, left_bytes)
        is_wanted = max_bytes > 0 or at_least_one
        client = self._client
        partition: Partition | None = None
        try:
            partition = client.partition(key)
            replica = partition.replica
            replica.check_epoch(wanted.current_leader_epoch)
            diverging = replica.diverges_at(wanted.last_fetched_epoch, wanted.offset)
            cut = None
            preferred = client.preferred_replica(partition, wanted.offset)
            if diverging is None and is_wanted and preferred < 0:
                cut = client.slice(partition, wanted.offset, max_bytes, self, at_least_one=at_least_one)
        except HeadraceError as error:
            failed = self._failed(key, error_code(error))
            if isinstance(error, CorruptBatch) and partition is not None and partition.is_replicated:
                # A batch before the offset is corrupt: nothing in that segment can be trusted.
                partition.on_damaged(partition, partition.log.segment_start(wanted.offset))
                failed = self._failed(key, ErrorCode.kafka_storage_error)
            if isinstance(error, OffsetOutOfRange) and partition is not None:
                # A replica continues from the log start.
                start, high_watermark = partition.log.start_offset, partition.high_watermark
                failed = failed._replace(high_watermark=high_watermark, log_start_offset=start)
            return PartitionSlice(key, None, failed, None)
        part = FetchedPartition(
            key.partition,
            0,
            partition.high_watermark,
            replica.last_stable_offset,
            partition.log.start_offset,
            () if self._committed else None,
            diverging=diverging,
            preferred_replica=preferred,
        )
        return PartitionSlice(key, partition, part, cut)

    def _is_enough(self, found: Sequence[PartitionSlice]) -> bool:
        if self._wait_ms <= 0 or self._client.must_be_answered():
            return True
        total = 0
        for item in found:
            if item.part.error_code or item.part.diverging is not None or item.part.preferred_replica >= 0:
                return True
            if item.slice is not None:
                if item.slice.is_closed:
                    # What the next segment has comes with another fetch, however long this one waits.
                    return True
                total += item.slice.takes_bytes
        return total >= self._min_bytes

    # -- reading

    def _read(self, found: Sequence[PartitionSlice]) -> Answer | Deferred[Answer]:
        """Answer at once if every byte is in the page cache, and few are encrypted."""
        metered = self._metered
        if metered is not None:
            size_bytes = 0
            for item in found:
                if item.slice is not None:
                    size_bytes += item.slice.length
            if metered.fetched(size_bytes):
                return self._throttled(metered.throttle_ms)
        self._client.note_answered(found)
        parts: list[FetchedPartition] = []
        later: Later | None = None
        for item in found:
            part = read_at_once(item)
            if isinstance(part, Later):
                later = part
                if part is Later.IN_WORKER:
                    break
                part = item.part
            parts.append(part)
        peer = self._ctx.peer
        if peer.ordered_reads and later is not Later.IN_WORKER:
            ordered_reads = self._ctx.services.ordered_reads
            later = later if ordered_reads.answers_at_once(peer, found) else Later.IN_WORKER
        return self._reply(found, parts) if later is None else self._read_later(found, parts, later)

    def _throttled(self, throttle_ms: int) -> Answer:
        """The empty answer of a client that has exceeded a quota. It has no session yet if it asked for a new one."""
        plan = self._plan
        session_id = plan.session_id
        if plan.session is not None and not plan.is_incremental:
            self._ctx.services.fetch_sessions.end(session_id)
            session_id = NO_SESSION
        return answer_with(self._ctx, (), error=ErrorCode.none, session_id=session_id, throttle_ms=throttle_ms)

    def _read_later(
        self, found: Sequence[PartitionSlice], parts: Sequence[FetchedPartition], later: Later
    ) -> Deferred[Answer]:
        """Decrypt in turns with other work if every byte is in the page cache; else read in a worker thread."""
        answer: Deferred[Answer] = Deferred(
            hurry=self._finish, size_bytes=sum(item.slice.length for item in found if item.slice is not None)
        )
        if later is Later.IN_WORKER:
            self._read_in_worker(found, answer)
        else:
            self._ctx.services.turns.run(self._decrypt_in_turns(found, parts, answer))
        return answer

    def _decrypt_in_turns(
        self, found: Sequence[PartitionSlice], parts: Sequence[FetchedPartition], answer: Deferred[Answer]
    ) -> Iterator[None]:
        try:
            read = yield from read_in_turns(found, parts)
        except Exception as error:
            self._answer_with_error(found, answer, error)
        else:
            answer.resolve(self._reply(found, read))

    def _read_in_worker(self, found: Sequence[PartitionSlice], answer: Deferred[Answer]) -> None:
        limits = [limits_of(item) for item in found]

        def done(read: asyncio.Future[list[FetchedPartition | Damaged]]) -> None:
            self._leave_line = None
            error = read.exception()
            if error is None:
                parts = [self._report_damage(*each) for each in zip(found, limits, read.result(), strict=True)]
                answer.resolve(self._reply(found, parts))
                ordered_reads.read_on(readers)
            else:
                self._answer_with_error(found, answer, error)

        cold_reads, ordered_reads = self._ctx.services.cold_reads, self._ctx.services.ordered_reads
        is_follower = self._ctx.peer.is_follower
        give_way = None if is_follower else cold_reads.give_way
        readers: Sequence[OrderedReader | None] = (
            [None] * len(found) if is_follower else ordered_reads.follow(self._ctx.peer, found)
        )
        files = [None if reader is None else reader.file for reader in readers]
        read = cold_reads.run(partial(read_blocking, found, limits, give_way, files), done, is_follower=is_follower)

        def leave_line() -> None:
            """The client is gone, or the broker is stopping: answer without records."""
            self._leave_line = None
            if read is not None and cold_reads.leave(read):
                answer.resolve(self._reply(found, [item.part for item in found]))

        self._leave_line = leave_line

    def _answer_with_error(
        self, found: Sequence[PartitionSlice], answer: Deferred[Answer], error: BaseException
    ) -> None:
        """Answer on any error: answers are sent in order, so a missing one would block all later ones."""
        log.error("reading for a fetch failed", exc_info=error)
        answer.resolve(self._reply(found, [self._failed(item.key, error_code(error)) for item in found]))

    def _report_damage(
        self, item: PartitionSlice, limits: BatchLimits | None, part: FetchedPartition | Damaged
    ) -> FetchedPartition:
        if isinstance(part, FetchedPartition):
            return part
        partition = item.partition
        assert partition is not None
        assert limits is not None
        # A log that was truncated during the read is not damaged.
        if partition.leader_epoch == limits.leader_epoch and partition.log.end_offset >= limits.end_offset:
            partition.on_damaged(partition, part.offset)
        return self._failed(item.key, ErrorCode.kafka_storage_error)

    def _reply(self, found: Sequence[PartitionSlice], parts: Sequence[FetchedPartition]) -> Answer:
        session = self._plan.session
        if self._committed:
            parts = [_with_aborted(item, part) for item, part in zip(found, parts, strict=True)]
        answered = [(item.key, part) for item, part in zip(found, parts, strict=True)]
        if session is not None:
            news = session.take_news(answered, self._client.must_name)
            if self._plan.is_incremental:
                answered = news
        throttle_ms = 0 if self._metered is None else self._metered.throttle_ms
        return answer_with(
            self._ctx, answered, error=ErrorCode.none, session_id=self._plan.session_id, throttle_ms=throttle_ms
        )

    def _failed(self, key: PartitionKey, code: ErrorCode) -> FetchedPartition:
        if code.value in LEADER_ERRORS and self._ctx.version >= FETCH_LEADERS_FROM:
            leader = current_leader(self._ctx, key.topic, key.partition)
            return FetchedPartition(key.partition, code.value, current_leader=leader)
        return FetchedPartition(key.partition, code.value)


def hosted_partition(ctx: Context, key: PartitionKey) -> Partition:
    """Return this broker's replica of the partition, by topic name or id; raise the reason if there is none."""
    table = ctx.services.partitions
    topic, index = key
    return table.get(topic, index) if isinstance(topic, str) else table.by_id(topic, index)


def _with_aborted(item: PartitionSlice, part: FetchedPartition) -> FetchedPartition:
    """Add the aborted transactions within the records, if any."""
    if item.partition is None or item.slice is None or not part.records or not item.partition.log.aborted:
        return part
    cut = item.slice
    if not item.partition.aborted_within(cut.first_batch_offset, item.part.last_stable_offset):
        return part
    headers = walk_headers(cut.file, cut.position, cut.position + cut.length)
    end = max((header.next_offset for _, header in headers), default=cut.first_batch_offset)
    return part._replace(aborted=item.partition.aborted_within(cut.first_batch_offset, end))


def answer_with(
    ctx: Context,
    parts: Sequence[tuple[PartitionKey, FetchedPartition]],
    *,
    error: ErrorCode,
    session_id: int,
    throttle_ms: int = 0,
) -> Raw:
    """Build the answer; consecutive partitions of one topic share its entry."""
    topics: list[tuple[TopicKey, list[FetchedPartition]]] = []
    last: TopicKey | None = None
    for key, part in parts:
        topic = _ZERO_ID if key.topic is None else key.topic
        if not topics or topic != last:
            topics.append((topic, []))
            last = topic
        topics[-1][1].append(part)
    leaders = [part.current_leader for _, part in parts if part.error_code]
    if leaders or error is not ErrorCode.none:
        _count_errors(ctx, parts, error)
    return Raw(
        fetch_response(
            ctx.version,
            response_header(ctx.header),
            topics,
            error_code=error.value,
            session_id=session_id,
            throttle_ms=throttle_ms,
            endpoints=endpoints_of(ctx, leaders) if leaders else (),
        )
    )


def _count_errors(ctx: Context, parts: Sequence[tuple[PartitionKey, FetchedPartition]], error: ErrorCode) -> None:
    meter = ctx.services.meter
    if meter is None:
        return
    if error is not ErrorCode.none:
        meter.failed(FETCH, error.value)
    for _, part in parts:
        if part.error_code:
            meter.failed(FETCH, part.error_code)
