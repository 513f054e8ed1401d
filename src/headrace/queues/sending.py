"""Sending: appending records to the queue's partition, those of one turn of the event loop in one batch.

A send is answered when every replica in sync has it on disk, as Produce with acks=all is (invariant 2). The engine has
looked at it by then: whoever receives next finds it, and the answer to a duplicate names the message that came first.
"""

import asyncio
from collections.abc import Sequence
from typing import NamedTuple
from uuid import UUID

from headrace.config.queue import QueueSettings
from headrace.model.errors import HeadraceError, InvalidMessage, NotEnoughReplicas, NotLeader, QueueUnavailable
from headrace.model.queue_wire import Sent
from headrace.queues.arrivals import Arrival, Duplicate
from headrace.queues.bodies import Kept
from headrace.queues.following import OwnBatch
from headrace.queues.host import Host
from headrace.queues.indexing import arrival_of, is_plain
from headrace.queues.messages import Message, message_of
from headrace.records.batch import read_header
from headrace.records.builder import build_batch
from headrace.records.reader import Record

BATCH_MAX_BYTES = 1024 * 1024
_BATCH_MAX_RECORDS = 2_000
_RECORD_OVERHEAD_BYTES = 100
_PATIENCE_S = 30.0
UNCOMMITTED_MAX_BYTES = 128 * 1024 * 1024


class Budget:
    """How many bytes of messages may be on their way to the disk, for all queues of a broker. Past it, sends wait."""

    def __init__(self, limit_bytes: int = UNCOMMITTED_MAX_BYTES) -> None:
        self._limit_bytes = limit_bytes
        self._used_bytes = 0
        self._room = asyncio.Event()
        self._room.set()

    async def take(self, size_bytes: int) -> None:
        while self._used_bytes and self._used_bytes + size_bytes > self._limit_bytes:
            self._room.clear()
            await self._room.wait()
        self._used_bytes += size_bytes

    def give_back(self, size_bytes: int) -> None:
        self._used_bytes -= size_bytes
        self._room.set()


class _Sending(NamedTuple):
    records: Sequence[Record]
    size_bytes: int
    done: "asyncio.Future[list[Sent]]"


class Sender:
    def __init__(self, host: Host, budget: Budget) -> None:
        self._host = host
        self._budget = budget
        self._waiting: list[_Sending] = []
        self._is_due = False

    async def send(self, records: Sequence[Record]) -> list[Sent]:
        """All of them or none, in this order, of at most a batch's size. `NotLeader` means that nothing was written."""
        if not records:
            return []
        size_bytes = sum(map(_size_bytes, records))
        most_bytes = self._host.partition.settings.max_message_bytes
        if size_bytes > most_bytes:
            raise InvalidMessage(f"messages of {size_bytes} bytes are too large to be sent at once: send several times")
        try:
            async with asyncio.timeout(_PATIENCE_S):
                await self._budget.take(size_bytes)
                try:
                    return await self._sent(records, size_bytes)
                finally:
                    self._budget.give_back(size_bytes)
        except TimeoutError:
            raise QueueUnavailable(
                "the messages could not be brought to all replicas in time; they may have been sent"
            ) from None

    async def _sent(self, records: Sequence[Record], size_bytes: int) -> list[Sent]:
        self._host.partition.check_leading()
        done: asyncio.Future[list[Sent]] = asyncio.get_running_loop().create_future()
        self._waiting.append(_Sending(records, size_bytes, done))
        if not self._is_due:
            self._is_due = True
            asyncio.get_running_loop().call_soon(self._append_all)
        return await done

    def _append_all(self) -> None:
        self._is_due = False
        waiting, self._waiting = self._waiting, []
        part: list[_Sending] = []
        size_bytes = count = 0
        for sending in waiting:
            if sending.done.done():
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

    def _append(self, sendings: Sequence[_Sending]) -> None:
        host = self._host
        partition, settings = host.partition, host.settings
        records = [record for sending in sendings for record in sending.records]
        try:
            if partition.in_sync_count < partition.settings.min_insync_replicas:
                raise NotEnoughReplicas(f"{partition} has too few replicas in sync: {partition.in_sync_count}")
            batch = build_batch(records)
            appended = partition.append(batch, read_header(batch))
        except HeadraceError as error:
            for sending in sendings:
                _fail(sending, error)
            return
        first = appended.base_offset
        messages = [
            message_of(record._replace(offset=offset), partition.topic_id, is_fifo=settings.is_fifo)
            for offset, record in enumerate(records, first)
        ]
        own = OwnBatch(
            first,
            appended.last_offset,
            records[-1].timestamp,
            _arrivals(messages, settings),
            lambda batch: _answer_all(sendings, messages, batch.duplicates),
        )
        host.log.appended(own)

        def committed(error: BaseException | None) -> None:
            if error is not None:
                for sending in sendings:
                    _fail(sending, _unknown(error))
                return
            _keep(host.around.kept, partition.topic_id, messages)
            if not host.has_engine:
                own.answer()

        if partition.when_committed(appended.last_offset + 1, committed):
            committed(None)
            host.log.data_arrived()


def _size_bytes(record: Record) -> int:
    headers = sum(len(name) + len(value or b"") + 8 for name, value in record.headers)
    return _RECORD_OVERHEAD_BYTES + len(record.value or b"") + len(record.key or b"") + headers


def _arrivals(messages: Sequence[Message], settings: QueueSettings) -> list[Arrival] | None:
    """None if there is nothing to say of any of them."""
    if not settings.is_fifo and all(map(is_plain, messages)):
        return None
    return [arrival_of(message, settings) for message in messages]


def _keep(kept: Kept, topic_id: UUID, messages: Sequence[Message]) -> None:
    for message in messages:
        kept.offer(topic_id, message)


def _answer_all(sendings: Sequence[_Sending], messages: Sequence[Message], duplicates: Sequence[Duplicate]) -> None:
    first = {offset: (first_offset, first_id) for offset, first_offset, first_id in duplicates}
    at = 0
    for sending in sendings:
        some = messages[at : at + len(sending.records)]
        at += len(sending.records)
        if not sending.done.done():
            sending.done.set_result(
                [
                    Sent(first[message.offset][1], first[message.offset][0])
                    if message.offset in first
                    else Sent(message.id, message.offset)
                    for message in some
                ]
            )


def _fail(sending: _Sending, error: HeadraceError) -> None:
    if not sending.done.done():
        sending.done.set_exception(error)


def _unknown(error: BaseException) -> HeadraceError:
    """It was written, and may be there in the end."""
    if isinstance(error, NotLeader):
        return QueueUnavailable(f"the leader of the queue changed; the messages may have been sent: {error}")
    return error if isinstance(error, HeadraceError) else QueueUnavailable(str(error))
