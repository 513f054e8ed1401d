"""Sending: appending records to the queue's partition, those of one turn of the event loop in one batch.

A send is answered when every replica in sync has it on disk, like a Produce with acks=all (invariant 2). By then it is
indexed: the next receive finds it, and the answer to a duplicate names the first message.
"""

import asyncio
from collections.abc import Awaitable, Sequence
from typing import NamedTuple

from headrace.config.queue import QueueSettings
from headrace.coordinator.completion import PendingResult, finished, refused
from headrace.coordinator.result import Result
from headrace.model.errors import (
    BacklogBlocked,
    DiskFull,
    HeadraceError,
    InvalidMessage,
    NotEnoughReplicas,
    NotLeader,
    QueueUnavailable,
)
from headrace.model.queue_wire import Sent
from headrace.model.queued import MessageIds
from headrace.queues.engine.chunk_index import DuplicateMessage, LogMessage
from headrace.queues.host.codec import DecodedMessage, message_of
from headrace.queues.host.decode import is_plain, log_message_of
from headrace.queues.host.host import QueueHost
from headrace.queues.host.log_tail import OwnBatch
from headrace.quotas.disk_pressure import NEARLY_FULL
from headrace.records.batch import read_header
from headrace.records.builder import build_batch
from headrace.records.reader import Record
from headrace.replication.backlog import WAIT_S

BATCH_MAX_BYTES = 1024 * 1024
_BATCH_MAX_RECORDS = 2_000
_RECORD_OVERHEAD_BYTES = 100
_PATIENCE_S = 30.0
_TOO_LATE = "the messages could not be replicated in time; they may have been sent"
UNCOMMITTED_MAX_BYTES = 128 * 1024 * 1024
BLOCKED_MAX_BYTES = 32 * 1024 * 1024
"""Of these, the bytes of sends that wait for room in a backlog: the rest is for queues that have room."""


class SendBudget:
    """Limits the bytes of uncommitted messages, for all queues of a broker. Past the limit, sends wait."""

    def __init__(self, limit_bytes: int = UNCOMMITTED_MAX_BYTES) -> None:
        self._limit_bytes = limit_bytes
        self._used_bytes = 0
        self._blocked_bytes = 0
        self._room = asyncio.Event()
        self._room.set()

    def take_now(self, size_bytes: int) -> bool:
        """Whether there was room without waiting."""
        if self._is_full(size_bytes):
            return False
        self._used_bytes += size_bytes
        return True

    async def take(self, size_bytes: int) -> None:
        """`QueueUnavailable` if there is no room for too long."""
        if self._is_full(size_bytes):
            try:
                async with asyncio.timeout(_PATIENCE_S):
                    while self._is_full(size_bytes):
                        self._room.clear()
                        await self._room.wait()
            except TimeoutError:
                raise QueueUnavailable("too many messages are being written: try again") from None
        self._used_bytes += size_bytes

    def _is_full(self, size_bytes: int) -> bool:
        return self._used_bytes > 0 and self._used_bytes + size_bytes > self._limit_bytes

    def release(self, size_bytes: int) -> None:
        self._used_bytes -= size_bytes
        self._room.set()

    def block(self, size_bytes: int) -> bool:
        """Whether a send may wait for room in a backlog; then `unblock` it."""
        if self._blocked_bytes + size_bytes > BLOCKED_MAX_BYTES:
            return False
        self._blocked_bytes += size_bytes
        return True

    def unblock(self, size_bytes: int) -> None:
        self._blocked_bytes -= size_bytes


class _Sending(NamedTuple):
    records: Sequence[Record]
    size_bytes: int
    done: PendingResult[list[Sent]]
    releases_budget: bool
    """Whether its bytes go back to the budget when it is done; else its caller returns them."""


class MessageSender:
    def __init__(self, host: QueueHost, budget: SendBudget) -> None:
        self._host = host
        self._budget = budget
        self._waiting: list[_Sending] = []
        self._is_due = False

    def send(self, records: Sequence[Record], *, is_moved: bool = False) -> Awaitable[list[Sent]]:
        """All of them or none, in this order, of at most a batch's size. `NotLeader` means that nothing was written.

        Messages that are moved from another queue are neither slowed nor refused because the disk is nearly full.
        """
        if not records:
            return finished([])
        size_bytes = sum(map(_size_bytes, records))
        most_bytes = self._host.partition.settings.max_message_bytes
        if size_bytes > most_bytes:
            raise InvalidMessage(f"messages of {size_bytes} bytes are too large to be sent at once: send several times")
        disk, partition = self._host.context.disk, self._host.partition
        if disk.is_refusing and not is_moved:
            raise DiskFull(NEARLY_FULL)
        is_bound = partition.backlog is not None or partition.stored is not None or disk.is_slowing
        if not is_bound and self._budget.take_now(size_bytes):
            return self._sent(records, size_bytes, releases_budget=True)
        return self._send_within_bounds(records, size_bytes, is_moved=is_moved)

    async def _send_within_bounds(self, records: Sequence[Record], size_bytes: int, *, is_moved: bool) -> list[Sent]:
        disk = self._host.context.disk
        if self._refusal(len(records), size_bytes) is not None and (stored := self._stored(records)) is not None:
            return stored
        await self._budget.take(size_bytes)
        try:
            sent = await self._sent_with_room(records, size_bytes)
        finally:
            self._budget.release(size_bytes)
        if disk.is_slowing and not is_moved:
            delay_ms = disk.produced(size_bytes, self._host.context.clock.monotonic_ms())
            if delay_ms:
                disk.note_throttled(delay_ms)
                await asyncio.sleep(delay_ms / 1000)
        if (room := self._host.partition.stored) is not None:
            account, delay_ms = room.delay(size_bytes, self._host.context.clock.monotonic_ms())
            if delay_ms:
                account.note_throttled(delay_ms)
                await asyncio.sleep(delay_ms / 1000)
        return sent

    def _stored(self, records: Sequence[Record]) -> list[Sent] | None:
        """The answer to a retry, which needs no room: all of these messages are stored already; None if not."""
        host = self._host
        if not (host.settings.is_fifo and host.has_engine):
            return None
        ids, sent = MessageIds(host.partition.topic_id), []
        for record in records:
            message = message_of(record, ids, is_fifo=True, offset=host.partition.log.end_offset)
            first = host.engine.first_sent(log_message_of(message, host.settings))
            if first is None:
                return None
            sent.append(Sent(first[1], first[0]))
        return sent

    async def _sent_with_room(self, records: Sequence[Record], size_bytes: int) -> list[Sent]:
        """Wait for room, if the backlog has a bound that blocks."""
        partition = self._host.partition
        if partition.backlog is None:
            return await self._sent(records, size_bytes)
        now_s = asyncio.get_running_loop().time
        until_s = now_s() + WAIT_S
        while True:
            may_wait = now_s() < until_s
            if (guard := partition.backlog) is not None:
                may_wait = may_wait and not guard.is_crowded and self._budget.block(size_bytes)
                if may_wait:
                    try:
                        await guard.until_room(len(records), size_bytes, until_s - now_s())
                    finally:
                        self._budget.unblock(size_bytes)
            try:
                return await self._sent(records, size_bytes)
            except BacklogBlocked:
                # Another sender was faster.
                if not may_wait:
                    raise

    def _sent(
        self, records: Sequence[Record], size_bytes: int, *, releases_budget: bool = False
    ) -> PendingResult[list[Sent]]:
        partition = self._host.partition
        if not partition.is_writable:
            try:
                partition.check_writable()
            except HeadraceError as error:
                if releases_budget:
                    self._budget.release(size_bytes)
                return refused(error)
        done: PendingResult[list[Sent]] = PendingResult()
        self._waiting.append(_Sending(records, size_bytes, done, releases_budget))
        if not self._is_due:
            self._is_due = True
            asyncio.get_running_loop().call_soon(self._append_all)
        return done

    def _append_all(self) -> None:
        self._is_due = False
        waiting, self._waiting = self._waiting, []
        part: list[_Sending] = []
        size_bytes = count = 0
        partition = self._host.partition
        is_bound = partition.backlog is not None or partition.stored is not None
        for sending in waiting:
            if is_bound:
                refusal = self._refusal(count + len(sending.records), size_bytes + sending.size_bytes)
                if refusal is not None and part:
                    self._append(part)
                    part, size_bytes, count = [], 0, 0
                    refusal = self._refusal(len(sending.records), sending.size_bytes)
                if refusal is not None:
                    self._fail((sending,), refusal)
                    continue
            if part and (
                size_bytes + sending.size_bytes > BATCH_MAX_BYTES or count + len(sending.records) > _BATCH_MAX_RECORDS
            ):
                self._append(part)
                part, size_bytes, count = [], 0, 0
            part.append(sending)
            size_bytes += sending.size_bytes
            count += len(sending.records)
        if part:
            self._append(part)

    def _refusal(self, count: int, size_bytes: int) -> HeadraceError | None:
        """Why so much must not be appended now; None if it may be."""
        guard, room = self._host.partition.backlog, self._host.partition.stored
        refusal = None if guard is None else guard.refusal(count, size_bytes)
        return room.refusal(size_bytes) if refusal is None and room is not None else refusal

    def _append(self, sendings: Sequence[_Sending]) -> None:
        host = self._host
        partition, settings = host.partition, host.settings
        records = [record for sending in sendings for record in sending.records]
        try:
            if partition.in_sync_count < partition.settings.min_insync_replicas:
                raise NotEnoughReplicas(f"{partition} has too few replicas in sync: {partition.in_sync_count}")
            batch = build_batch(records)
            appended = partition.append(batch, read_header(batch))
            if partition.stored is not None:
                partition.stored.add(len(batch))
        except HeadraceError as error:
            self._fail(sendings, error)
            return
        first, ids, is_fifo = appended.base_offset, MessageIds(partition.topic_id), settings.is_fifo
        messages = [
            message_of(record, ids, is_fifo=is_fifo, offset=offset) for offset, record in enumerate(records, first)
        ]
        # One timer for all sends of the batch.
        timer = asyncio.get_running_loop().call_later(_PATIENCE_S, self._fail, sendings, QueueUnavailable(_TOO_LATE))

        def answer(batch: OwnBatch) -> None:
            timer.cancel()
            self._answer(sendings, messages, batch.duplicates)

        own = OwnBatch(first, appended.last_offset, records[-1].timestamp, _log_messages(messages, settings), answer)
        host.log.appended(own)

        def committed(error: BaseException | None) -> None:
            if error is not None:
                timer.cancel()
                self._fail(sendings, _unknown(error))
                return
            host.context.cache.offer(partition.topic_id, messages)
            own.committed()
            if not host.has_engine:
                own.indexed()

        if partition.when_committed(appended.last_offset + 1, committed):
            committed(None)
            host.log.data_arrived()

    def _answer(
        self, sendings: Sequence[_Sending], messages: Sequence[DecodedMessage], duplicates: Sequence[DuplicateMessage]
    ) -> None:
        sent = [Sent(message.id, message.offset) for message in messages]
        for offset, first_offset, first_id in duplicates:
            sent[offset - messages[0].offset] = Sent(first_id, first_offset)
        at = 0
        for sending in sendings:
            end = at + len(sending.records)
            self._resolve(sending, Result(sent[at:end]))
            at = end

    def _fail(self, sendings: Sequence[_Sending], error: HeadraceError) -> None:
        for sending in sendings:
            # Each gets its own error, because an error has the traceback of where it was raised.
            self._resolve(sending, Result(error=type(error)(str(error))))

    def _resolve(self, sending: _Sending, result: "Result[list[Sent]]") -> None:
        done = sending.done
        if not done.done:
            if sending.releases_budget:
                self._budget.release(sending.size_bytes)
            done.resolve(result)


def _size_bytes(record: Record) -> int:
    _, _, key, value, headers = record
    size_bytes = _RECORD_OVERHEAD_BYTES + len(value or b"") + len(key or b"")
    for name, data in headers:
        size_bytes += len(name) + len(data or b"") + 8
    return size_bytes


def _log_messages(messages: Sequence[DecodedMessage], settings: QueueSettings) -> list[LogMessage] | None:
    """None if all of them are plain."""
    if not settings.is_fifo and all(map(is_plain, messages)):
        return None
    return [log_message_of(message, settings) for message in messages]


def _unknown(error: BaseException) -> HeadraceError:
    """The error for a batch that was written and may still be committed."""
    if isinstance(error, NotLeader):
        return QueueUnavailable(f"the leader of the queue changed; the messages may have been sent: {error}")
    return error if isinstance(error, HeadraceError) else QueueUnavailable(str(error))
