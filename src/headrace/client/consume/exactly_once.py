"""Consume, transform, produce in one transaction, as a stream."""

import time
from collections.abc import Iterable
from datetime import datetime
from typing import TYPE_CHECKING

from headrace.client.consume.group import Consumption
from headrace.client.kafka.consumer import PartitionConsumer, Where
from headrace.client.kafka.transactor import TransactionAborted, Transactor
from headrace.client.keywords import checks_keywords
from headrace.client.message import Message
from headrace.client.outgoing import Headers, Key, Outgoing, Payload

if TYPE_CHECKING:
    from headrace.client.schemas.serializer import Serializer


@checks_keywords
class ExactlyOnce(Consumption):
    """A stream in which requesting the next message marks the previous one as done; there is no `ack`.

    Messages published with `publish` of this object and the consumed offsets are committed together, every
    `commit_interval_s`. When a transaction fails, its messages are redelivered, as if for the first time.
    Leaving the `with` block commits; leaving it by an exception aborts.
    """

    def __init__(
        self, poller: PartitionConsumer, topics: list[str], transactor: Transactor, commit_interval_s: float
    ) -> None:
        self._transactor = transactor
        self._interval_s = commit_interval_s
        self._committed_at_s = time.monotonic()
        self._done: dict[Where, int] = {}
        self._bases: dict[Where, int] = {}
        super().__init__(poller, topics)

    def publish(
        self,
        topic: str,
        payload: Payload,
        *,
        key: Key = None,
        headers: Headers | None = None,
        partition: int | None = None,
        timestamp: datetime | int | None = None,
        type: str | None = None,
        content_type: str | None = None,
        correlation_id: str | None = None,
        id: str | None = None,
        source: str | None = None,
        subject: str | None = None,
        schema: "str | Serializer | None" = None,
        key_schema: "str | Serializer | None" = None,
    ) -> None:
        """Publish in the transaction: readers see it when the transaction is committed. The arguments are those of
        `Client.publish`.

        with client.consume("orders", group="billing", delivery="exactly-once") as orders:
            for order in orders:
                orders.publish("invoices", invoice_for(order), key=order.key)
        """
        event = (type, content_type, correlation_id, id, source, subject, schema, key_schema)
        self.publish_outgoing(Outgoing(topic, payload, key, headers, partition, timestamp, *event))

    def publish_outgoing(self, outgoing: Outgoing) -> None:
        """The same for a message that is put together already."""
        try:
            self._transactor.publish(outgoing)
        except TransactionAborted:
            # The commit raises it again, and there the messages can be redelivered.
            return

    def hand_back(self, messages: Iterable[Message]) -> None:
        for each in messages:
            where = (each.topic, each.partition)
            self._done[where] = min(each.offset, self._done.get(where, each.offset))

    def stop(self) -> None:
        super().stop()
        self._transactor.hurry()

    def commit(self) -> None:
        self._commit(keeping=self._poller.assignment())

    def _before_take(self) -> None:
        if time.monotonic() - self._committed_at_s >= self._interval_s:
            self.commit()

    def _fill(self, timeout_s: float) -> None:
        self._buffer.extend(self._poller.take(500, min(timeout_s, self._interval_s)))

    def _deliver(self, message: Message) -> Message:
        where = (message.topic, message.partition)
        self._bases.setdefault(where, message.offset)
        self._done[where] = message.offset + 1
        return message

    def _commit(self, keeping: set[Where]) -> None:
        self._committed_at_s = time.monotonic()
        metadata = self._poller.group_metadata() if self._done else None
        try:
            self._transactor.commit(self._done, metadata)
        except TransactionAborted:
            self._undo(keeping)
        else:
            self._bases |= self._done
            self._done = {}

    def _undo(self, keeping: set[Where]) -> None:
        is_certain = self._transactor.abort()
        self._drop(self._bases)
        starts = {where: offset for where, offset in self._bases.items() if where in keeping}
        if not is_certain:
            starts |= self._poller.committed(starts)
        self._bases, self._done = {}, {}
        self._poller.seek(starts)

    def _go_to(self, positions: dict[Where, int]) -> None:
        self.commit()
        for where in positions:
            self._bases.pop(where, None)
        super()._go_to(positions)

    def _on_revoked(self, where: set[Where]) -> None:
        if not self._is_closed:
            self._commit(keeping=self._poller.assignment() - where)
        self._forget(where)

    def _on_lost(self, where: set[Where]) -> None:
        if where & set(self._done):
            self._undo(keeping=self._poller.assignment() - where)
        self._forget(where)

    def _forget(self, where: set[Where]) -> None:
        for each in where:
            self._bases.pop(each, None)
        self._drop(where)

    def _finish(self, is_success: bool) -> None:
        try:
            if is_success:
                self._commit(keeping=set())
            else:
                self._transactor.abort()
        finally:
            self._transactor.close()
