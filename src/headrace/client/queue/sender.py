"""Sends messages to a queue: one by one with the client's producer, many at a time with one of its own."""

import threading
import time
from collections.abc import Iterable, Sequence
from concurrent.futures import Future
from dataclasses import replace
from itertools import groupby, repeat
from typing import TYPE_CHECKING, Any, cast

from headrace.client.outgoing import Outgoing, Payload, ProducerRecord, RecordsOfBodies
from headrace.client.queue.description import KnownQueue
from headrace.client.queue.message import NewMessage, SentMessage, is_plain, record_of, records_of

if TYPE_CHECKING:
    from headrace.client.factory import ConnectionFactory


class QueueSender:
    """Sends messages to one queue. Thread-safe."""

    def __init__(self, name: str, connection: "ConnectionFactory", known: KnownQueue) -> None:
        self._name = name
        self._connection = connection
        self._known = known
        self._bulk = connection.bulk(name)
        self._sending = threading.Lock()
        self._sent_last: Future[SentMessage] | None = None
        """Futures that no caller waits for."""

    def send(self, message: NewMessage, *, is_awaited: bool) -> "Future[SentMessage]":
        """Send without waiting; if a caller ignores the future, `Client.flush` raises its error."""
        record, ids = self._record(message), self._known.ids

        def sent(stored: Any) -> SentMessage:
            offset = stored.offset()
            return SentMessage(ids, offset)

        if is_awaited:
            return self._connection.publisher.send_record(record, sent, is_awaited=True, ids=ids)
        with self._sending:
            self._sent_last = self._connection.publisher.send_record(record, sent, is_awaited=False, ids=ids)
            return self._sent_last

    def send_many(self, bodies: "Iterable[Payload | NewMessage]", common: NewMessage) -> list[SentMessage]:
        """Send in batches and wait until all are stored; `common` has the options of those that have none."""
        if is_plain(common):
            bodies = bodies if isinstance(bodies, list) else list(bodies)
            if set(map(type, bodies)) == {bytes}:
                self._check(common)
                return self._sent(RecordsOfBodies(self._name, cast(list[bytes], bodies), 0))
        records: list[ProducerRecord] = []
        for kind, run in groupby(bodies, type):
            if issubclass(kind, NewMessage):
                records += [self._record(each) for each in run]
            elif common.schema is not None:
                records += [self._record(replace(common, body=each)) for each in run]
            else:
                self._check(common)
                records += records_of(self._name, run, common, time.time())
        return self._sent(records)

    def _sent(self, records: Sequence[ProducerRecord]) -> list[SentMessage]:
        """Send them in batches and wait until all are stored."""
        ids = self._known.ids
        if self._sent_last is not None:
            # They keep their order.
            self._sent_last.exception()
        return list(map(SentMessage, repeat(ids), self._send_batch(records)))

    def _send_batch(self, records: Sequence[ProducerRecord]) -> list[int]:
        tracing = self._connection.tracing
        if tracing is None or (tracer := tracing.active) is None or not records:
            return self._bulk.send(records)
        with tracer.send_batch(self._name, records) as batch:
            return self._bulk.send(batch.records)

    def send_record(self, record: ProducerRecord) -> None:
        """Send a record as it is, and wait until it is stored."""
        ids = self._known.ids
        self._connection.publisher.send_record(record, lambda _: None, is_awaited=True, ids=ids).result()

    def close(self) -> None:
        self._bulk.close()

    def _record(self, message: NewMessage) -> ProducerRecord:
        self._check(message)
        if message.schema is not None:
            made = Outgoing(self._name, message.body, headers=message.headers, schema=message.schema)
            framed = self._connection.framed(made)
            message = replace(message, body=framed.payload, headers=framed.headers, schema=None)
        return record_of(self._name, message, time.time())

    def _check(self, message: NewMessage) -> None:
        if self._known.settings["type"] == "fifo" and message.group is None:
            raise ValueError(f"{self._name} is a fifo queue: say to which group the message belongs, group=…")
