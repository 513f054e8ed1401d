"""`headrace.Client`: publish, subscribe, consume, ack."""

import threading
import uuid
import weakref
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from datetime import datetime
from types import TracebackType
from typing import Any, Literal, TypedDict, TypeVar, Unpack, overload

from headrace.client import librdkafka, topics
from headrace.client.consumption import AtLeastOnce, AtMostOnce, Consumption
from headrace.client.exactly_once import ExactlyOnce
from headrace.client.handlers import Delivery, Handler, HandlerOptions
from headrace.client.loop import HandlerLoop
from headrace.client.message import Message
from headrace.client.outgoing import Options, Outgoing, Payload
from headrace.client.partitioners import Partitioner, by_key
from headrace.client.polling import Poller
from headrace.client.publisher import Published, Publisher
from headrace.client.running import run_until_stopped
from headrace.client.sinks import AtLeastOnceSink, AtMostOnceSink, ExactlyOnceSink, Sink
from headrace.client.stream import Stream
from headrace.client.subscription import Start, Subscription
from headrace.client.transactor import Transactor

StreamT = TypeVar("StreamT", bound=Stream)

HandlerT = TypeVar("HandlerT", bound=Callable[[Message], object])


class ConsumeOptions(TypedDict, total=False):
    """The further keyword arguments of `consume`."""

    start: Literal["earliest", "latest"]
    """Where a group begins that has committed nothing; `earliest` unless told."""
    batch: int
    """At most once: so many messages are committed before the first of them is handed over; 100 unless told."""
    max_unacked: int
    """At least once: no more than this many messages are open at a time; 10,000 unless told."""
    commit_interval_s: float
    """How often commits go out; unless told half a second, and a tenth of one for exactly once."""
    transactional_id: str | None
    """Exactly once: a name that this process keeps over restarts, so that its successor need not wait for it."""


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
        self._handlers: list[Handler] = []
        self._loops: list[HandlerLoop] = []
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

    @overload
    def consume(
        self,
        topic: str | Sequence[str],
        group: str,
        delivery: Literal["exactly-once"],
        **options: Unpack[ConsumeOptions],
    ) -> ExactlyOnce: ...
    @overload
    def consume(
        self, topic: str | Sequence[str], group: str, delivery: Delivery = ..., **options: Unpack[ConsumeOptions]
    ) -> Consumption: ...
    def consume(
        self,
        topic: str | Sequence[str],
        group: str,
        delivery: Delivery = "at-least-once",
        **options: Unpack[ConsumeOptions],
    ) -> Consumption:
        """The messages of one or more topics, shared among all who consume with the same group.

        - `"at-least-once"`: `ack` each message when it is done; what is not acknowledged comes again after
          a crash or a rebalance.
        - `"at-most-once"`: messages are committed before they are handed over; a crash may lose some.
        - `"exactly-once"`: what is published through the returned object and the positions are one transaction.
        """
        names = [topic] if isinstance(topic, str) else list(topic)
        interval_s = options.get("commit_interval_s")
        poller = self._poller(group, options.get("start", "earliest"))
        if delivery == "at-most-once":
            return self._opened(AtMostOnce(poller, names, options.get("batch", 100)))
        if delivery == "at-least-once":
            most = options.get("max_unacked", 10_000)
            return self._opened(AtLeastOnce(poller, names, 0.5 if interval_s is None else interval_s, most))
        if delivery == "exactly-once":
            transactor = self._transactor(options.get("transactional_id"), group)
            return self._opened(ExactlyOnce(poller, names, transactor, 0.1 if interval_s is None else interval_s))
        raise ValueError(f"delivery must be at-most-once, at-least-once or exactly-once, not {delivery!r}")

    def ack(self, message: Message) -> None:
        """Say that a message is done: the same as `message.ack()`."""
        message.ack()

    def handler(
        self, topic: str | Sequence[str], group: str, **options: Unpack[HandlerOptions]
    ) -> Callable[[HandlerT], HandlerT]:
        """Register a function that `run` calls with every message of the topics.

        It returns None, or `Outgoing` messages to publish: before the message is committed (at least once), or in one
        transaction with it (exactly once). When it raises, the message is tried again after `retry`, in place or, with
        `retry_mode="retry-topic"`, from a topic of its own; in the end it goes to `dead_letter`, or, without one, the
        handler stops. `headrace.Reject` skips the tries. `workers` partitions are handled at the same time.
        """

        def register(function: HandlerT) -> HandlerT:
            names = [topic] if isinstance(topic, str) else list(topic)
            self._handlers.append(Handler(names, group, function, **options))
            return function

        return register

    def run(self) -> None:
        """Run the registered handlers until `stop`, SIGTERM or Ctrl-C; the messages in hand are finished first. Raises
        what stopped a handler."""
        self._loops = [self._loop(each) for each in self._handlers]
        run_until_stopped(self._loops)

    def stop(self) -> None:
        """Let `run` return. May be called from anywhere, also from a handler."""
        for loop in self._loops:
            loop.stop()

    def _loop(self, handler: Handler) -> HandlerLoop:
        if handler.set_aside_topic is not None:
            config = librdkafka.common(self.bootstrap, self._client_id, librdkafka.shared(self._settings))
            topics.ensure(config, handler.set_aside_topic, like=handler.topics[0])
        poller = self._poller(handler.group, handler.start)
        sink: Sink
        if handler.delivery == "exactly-once":
            sink = ExactlyOnceSink(poller, self._transactor(handler.transactional_id, handler.group))
        elif handler.delivery == "at-least-once":
            sink = AtLeastOnceSink(poller, self._publisher)
        else:
            sink = AtMostOnceSink(poller, self._publisher)
        return HandlerLoop(
            poller,
            handler.all_topics,
            handler.function,
            handler.policy,
            sink,
            workers=handler.workers,
            batch=handler.batch,
            commit_interval_s=handler.interval_s,
        )

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
                self._lazy_publisher = Publisher(self._producer_config(), self._partitioner, self._source)
            return self._lazy_publisher

    def _poller(self, group: str, start: str) -> Poller:
        return Poller(librdkafka.consumer(self.bootstrap, self._client_id, group, self._settings, start=start))

    def _transactor(self, transactional_id: str | None, group: str) -> Transactor:
        """A producer of its own: transactions are a producer's, and one at a time."""
        config = self._producer_config() | {"transactional.id": transactional_id or f"{group}-{uuid.uuid4()}"}
        # A process that dies holds up its successors for this long, unless they use its transactional id.
        config.setdefault("transaction.timeout.ms", 10_000)
        config["message.timeout.ms"] = min(config["message.timeout.ms"], config["transaction.timeout.ms"])
        return Transactor(Publisher(config, self._partitioner, self._source), self.bootstrap)

    def _producer_config(self) -> dict[str, Any]:
        uses_keys = self._partitioner is by_key
        return librdkafka.producer(self.bootstrap, self._client_id, self._settings, uses_keys=uses_keys)

    def _reader(self) -> Poller:
        # Never joined: librdkafka wants a group's name even of a consumer that is told its partitions.
        config = librdkafka.consumer(
            self.bootstrap, self._client_id, "headrace-subscriber", self._settings, start="earliest"
        )
        return Poller(config | {"enable.partition.eof": True, "allow.auto.create.topics": False})

    def _opened(self, stream: StreamT) -> StreamT:
        self._streams.add(stream)
        return stream
