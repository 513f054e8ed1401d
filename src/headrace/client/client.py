"""`headrace.Client`: publish, subscribe, consume, ack, and run handlers."""

from collections.abc import Sequence
from concurrent.futures import Future
from contextlib import ExitStack
from datetime import datetime
from types import TracebackType
from typing import Literal, Unpack, overload

from headrace.client.base import ClientBase
from headrace.client.connection import ConsumeOptions
from headrace.client.consumption import Consumption
from headrace.client.exactly_once import ExactlyOnce
from headrace.client.handlers import Delivery
from headrace.client.librdkafka import logged
from headrace.client.outgoing import Options, Outgoing, Payload
from headrace.client.publisher import Published
from headrace.client.queue import Description, Queue
from headrace.client.running import run_until_stopped
from headrace.client.stream import Stream
from headrace.client.subscription import Start, Subscription


class Client(ClientBase[Stream]):
    """A connection to a broker, for as many threads as you like. Nothing is connected before it is needed.

        with Client("localhost:9092") as client:
            client.publish("orders", {"item": "tea"}, key="alice")
            for order in client.consume("orders", group="billing"):
                bill(order.json())
                client.ack(order)

    `settings` go to librdkafka by their own names, for TLS, compression and the like.
    """

    def publish(self, topic: str, payload: Payload, **options: Unpack[Options]) -> Published:
        """Send a message and wait until it is stored. Raises `DeliveryFailed` if the broker refuses it and
        `Unreachable` if nobody answers in time (`message.timeout.ms`, a minute): then it may be stored or not."""
        return self._connection.publisher.send(Outgoing(topic, payload, **options), is_awaited=True).result()

    def publish_soon(self, topic: str, payload: Payload, **options: Unpack[Options]) -> "Future[Published]":
        """Send a message without waiting, in batches with others: much faster for many.

        The future says what became of it; or call `flush`, which raises if any message since the last was not stored.
        """
        return self._connection.publisher.send(Outgoing(topic, payload, **options), is_awaited=False)

    def flush(self, timeout_s: float | None = None) -> None:
        """Wait until every message sent so far is stored; raises if one was not."""
        if (publisher := self._connection.used_publisher) is not None:
            publisher.flush(timeout_s)

    def subscribe(self, topic: str, *, start: Start = "latest") -> Subscription:
        """Every message of a topic from `start` on, without a group: all subscribers see all messages.

        Nothing is acknowledged or committed; the next subscription starts where it is told.
        """
        return self._opened(self._connection.subscription(topic, start, bounded=False))

    def replay(self, topic: str, since: Start = "earliest", until: datetime | None = None) -> Subscription:
        """The messages of a topic between two times, once over; without `until`, up to what is there now."""
        return self._opened(self._connection.subscription(topic, since, until, bounded=True))

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
        return self._opened(self._connection.consumption(topic, group, delivery, options))

    def queue(self, name: str) -> Queue:
        """A queue: work that is handed out, acknowledged and retried. The same object for the same name."""
        return self._queue(name)

    def queues(self, prefix: str = "", *, with_counts: bool = False) -> list[Description]:
        """The queues that there are, those whose names begin with `prefix`, in the order of their names."""
        return self._connection.queues(prefix, with_counts=with_counts)

    def run(self) -> None:
        """Run the registered handlers and workers until `stop`, SIGTERM or Ctrl-C; the messages in hand are finished
        first. Raises what stopped one of them."""
        self._begin(self._made_loops(self._handlers, self._workers))
        try:
            run_until_stopped(self._loops)
        finally:
            self._is_stopped = False

    def close(self) -> None:
        """Flush what was sent and acknowledged, end every stream with what is done kept. Lets go of everything,
        whatever fails of it."""
        with ExitStack() as stack:
            if (publisher := self._connection.used_publisher) is not None:
                stack.callback(publisher.close)
            for queue in self._queues.values():
                stack.callback(queue.close)
            for stream in list(self._streams):
                stack.callback(stream.close)

    def abandon(self) -> None:
        """The same after a failure: transactions in progress are aborted, and what fails now is only logged."""
        for stream in list(self._streams):
            stream.abandon()
        with logged("closing"):
            self.close()

    def __enter__(self) -> "Client":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self.close()
        else:
            self.abandon()
