"""`headrace.Client`: publish, subscribe, consume, ack."""

import threading
import weakref
from collections.abc import Sequence
from concurrent.futures import Future
from datetime import datetime
from types import TracebackType
from typing import Literal, TypeVar, Unpack

from headrace.client import librdkafka
from headrace.client.consumption import AtLeastOnce, AtMostOnce, Consumption
from headrace.client.message import Message
from headrace.client.outgoing import Options, Outgoing, Payload
from headrace.client.partitioners import Partitioner, by_key
from headrace.client.polling import Poller
from headrace.client.publisher import Published, Publisher
from headrace.client.stream import Stream
from headrace.client.subscription import Start, Subscription

StreamT = TypeVar("StreamT", bound=Stream)

Delivery = Literal["at-most-once", "at-least-once"]


class Client:
    """A connection to a broker, for as many threads as you like.

        with Client("localhost:9092") as client:
            client.publish("orders", {"item": "tea"}, key="alice")
            for order in client.consume("orders", group="billing"):
                bill(order.json())
                client.ack(order)

    `settings` go to librdkafka by their own names, for TLS, compression and the like. Nothing is connected before it is
    needed.
    """

    def __init__(
        self,
        bootstrap: str = "localhost:9092",
        *,
        client_id: str = "headrace",
        partitioner: Partitioner = by_key,
        source: str | None = None,
        settings: librdkafka.Settings | None = None,
    ) -> None:
        self.bootstrap = bootstrap
        self._client_id = client_id
        self._partitioner = partitioner
        self._source = source or f"/{client_id}"
        self._settings = dict(settings or {})
        self._lock = threading.Lock()
        self._lazy_publisher: Publisher | None = None
        self._streams: weakref.WeakSet[Stream] = weakref.WeakSet()

    def publish(self, topic: str, payload: Payload, **options: Unpack[Options]) -> Published:
        """Send a message and wait until it is stored. Raises `DeliveryFailed` if the broker refuses it and
        `Unreachable` if nobody answers in time (`message.timeout.ms`, a minute): then it may be stored or not."""
        return self._publisher.send(Outgoing(topic, payload, **options), is_awaited=True).result()

    def publish_soon(self, topic: str, payload: Payload, **options: Unpack[Options]) -> "Future[Published]":
        """Send a message without waiting, in batches with others: much faster for many.

        The future says what became of it; or call `flush`, which raises if any message since the last was not stored.
        """
        return self._publisher.send(Outgoing(topic, payload, **options), is_awaited=False)

    def flush(self, timeout_s: float | None = None) -> None:
        """Wait until every message sent so far is stored; raises if one was not."""
        if self._lazy_publisher is not None:
            self._lazy_publisher.flush(timeout_s)

    def subscribe(self, topic: str, *, start: Start = "latest") -> Subscription:
        """Every message of a topic from `start` on, without a group: all subscribers see all messages.

        Nothing is acknowledged or committed; the next subscription starts where it is told.
        """
        return self._opened(Subscription(self._reader(), topic, start, bounded=False))

    def replay(self, topic: str, since: Start = "earliest", until: datetime | None = None) -> Subscription:
        """The messages of a topic between two times, once over; without `until`, up to what is there now."""
        return self._opened(Subscription(self._reader(), topic, since, until, bounded=True))

    def consume(
        self,
        topic: str | Sequence[str],
        group: str,
        delivery: Delivery = "at-least-once",
        *,
        start: Literal["earliest", "latest"] = "earliest",
        batch: int = 100,
        commit_interval_s: float = 0.5,
        max_unacked: int = 10_000,
    ) -> Consumption:
        """The messages of one or more topics, shared among all who consume with the same group.

        `delivery="at-least-once"`: acknowledge each message when it is done (`ack`); what is not acknowledged comes
        again after a crash or a rebalance. No more than `max_unacked` are open at a time.
        `delivery="at-most-once"`: up to `batch` messages are committed before the first of them is handed over.
        `start` is where a group begins that has no committed offset.
        """
        poller = Poller(librdkafka.consumer(self.bootstrap, self._client_id, group, self._settings, start=start))
        topics = [topic] if isinstance(topic, str) else list(topic)
        if delivery == "at-most-once":
            return self._opened(AtMostOnce(poller, topics, batch))
        if delivery == "at-least-once":
            return self._opened(AtLeastOnce(poller, topics, commit_interval_s, max_unacked))
        raise ValueError(f"delivery must be at-most-once or at-least-once, not {delivery!r}")

    def ack(self, message: Message) -> None:
        """Say that a message is done: the same as `message.ack()`."""
        message.ack()

    def close(self) -> None:
        """Flush what was sent, end every stream with what is done kept."""
        self._end(is_success=True)

    def _end(self, *, is_success: bool) -> None:
        for stream in list(self._streams):
            if is_success:
                stream.close()
            else:
                stream.abandon()
        if self._lazy_publisher is not None:
            self._lazy_publisher.close()

    def __enter__(self) -> "Client":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end(is_success=kind is None)

    @property
    def _publisher(self) -> Publisher:
        with self._lock:
            if self._lazy_publisher is None:
                config = librdkafka.producer(
                    self.bootstrap, self._client_id, self._settings, uses_keys=self._partitioner is by_key
                )
                self._lazy_publisher = Publisher(config, self._partitioner, self._source)
            return self._lazy_publisher

    def _reader(self) -> Poller:
        # Never joined: librdkafka wants a group's name even of a consumer that is told its partitions.
        config = librdkafka.consumer(
            self.bootstrap, self._client_id, "headrace-subscriber", self._settings, start="earliest"
        )
        return Poller(config | {"enable.partition.eof": True, "allow.auto.create.topics": False})

    def _opened(self, stream: StreamT) -> StreamT:
        self._streams.add(stream)
        return stream
