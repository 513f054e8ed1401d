"""`headrace.Client`: publish, subscribe, consume, ack, and run handlers."""

from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import ExitStack, contextmanager
from datetime import datetime
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, overload

from headrace.client.base import ClientBase
from headrace.client.consume import runner
from headrace.client.consume.exactly_once import ExactlyOnce
from headrace.client.consume.group import Consumption
from headrace.client.consume.options import Delivery
from headrace.client.consume.stream import Stream
from headrace.client.consume.subscription import Start, Subscription
from headrace.client.kafka.librdkafka import log_errors
from headrace.client.kafka.publisher import Published
from headrace.client.keywords import checks_keywords
from headrace.client.outgoing import Headers, Key, Outgoing, Payload
from headrace.client.queue.description import QueueDescription
from headrace.client.queue.queue import Queue
from headrace.client.schedules import Schedules
from headrace.client.schemas.schemas import Schemas
from headrace.client.signals import chosen
from headrace.client.topics import Topics

if TYPE_CHECKING:
    from headrace.client.schemas.serializer import Serializer


@checks_keywords
class Client(ClientBase[Stream]):
    """A client of a broker or a cluster. Thread-safe; it connects with the first call.

    ```python
    from headrace import Client

    with Client("localhost:9092") as client:
        client.publish("orders", {"item": "tea"}, key="alice")
        for order in client.consume("orders", group="billing"):
            print(order.json()["item"])
            client.ack(order)
            break
    ```
    """

    def _prepare(self) -> None:
        self._topics = Topics(self._connection.contact, self._connection.admin_config())
        self._schemas = Schemas(self._connection.schemas)
        self._schedules = self._made_schedules()

    @property
    def topics(self) -> Topics:
        """Create, list, describe, alter and delete topics: `client.topics.create("orders", partitions=6)`."""
        return self._topics

    @property
    def schemas(self) -> Schemas:
        """The schema registry of the brokers: `client.schemas.register("orders-value", Order)`."""
        return self._schemas

    @property
    def schedules(self) -> Schedules:
        """List, remove and run the schedules of the cluster: `client.schedules.list()`."""
        return self._schedules

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
    ) -> Published:
        """Send a message and wait until it is stored. Raises `DeliveryFailed` if the broker refuses it, and
        `Unreachable` without an answer in time (`message.timeout.ms`, a minute): then it may be stored or not.

        ```python
        client.publish("orders", {"item": "tea"}, key="alice", headers={"tenant": "7"})
        ```

        - `payload`: `bytes` as they are, `str` as UTF-8, None as a tombstone; anything else becomes JSON.
        - `key`: messages with the same key go to the same partition, in order.
        - `headers`: a mapping, or pairs where a name comes more than once.
        - `partition`: instead of the one that the key or the partitioner chooses.
        - `timestamp`: a `datetime`, or milliseconds since the epoch; without it, now.
        - `type`: the kind of event, such as `order.placed`: makes the message a CloudEvent.
        - `id`: the id of the event; without it a random one. The same id twice means the same event.
        - `source`, `subject`, `content_type`, `correlation_id`: further attributes of the event.
        - `schema`: a subject of the schema registry, such as `orders-value`, or a serializer (`client.schemas`): the
          payload is encoded by its latest version. If it has none, that of the payload's own type is registered.
          `InvalidMessage` for a payload that does not fit.
        - `key_schema`: the same for the key, which may then be a value of any type.
        """
        event = (type, content_type, correlation_id, id, source, subject, schema, key_schema)
        outgoing = Outgoing(topic, payload, key, headers, partition, timestamp, *event)
        return self._connection.publisher.send(outgoing, is_awaited=True).result()

    def publish_soon(
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
    ) -> "Future[Published]":
        """Send a message without waiting, in batches with others: much faster for many. The arguments are those of
        `publish`.

        ```python
        for item in ("tea", "cake"):
            client.publish_soon("orders", {"item": item})
        client.flush()
        ```

        The future has the result; or call `flush`, which raises if any message since the last one was not stored.
        """
        event = (type, content_type, correlation_id, id, source, subject, schema, key_schema)
        outgoing = Outgoing(topic, payload, key, headers, partition, timestamp, *event)
        return self._connection.publisher.send(outgoing, is_awaited=False)

    def flush(self, timeout_s: float | None = None) -> None:
        """Wait until every message sent so far is stored; raises if one was not."""
        if (publisher := self._connection.used_publisher) is not None:
            publisher.flush(timeout_s)

    def subscribe(
        self, topic: str, *, start: Start = "latest", type: Any = None, everywhere: bool = False
    ) -> Subscription:
        """Read every message of a topic from `start` on, without a group: all subscribers see all messages.

        ```python
        for order in client.subscribe("orders", start="earliest"):
            print(order.json())
            break
        ```

        `start` is `"latest"`, `"earliest"` or a `datetime`. No offsets are committed.

        With `everywhere=True`, the mirrors of topics of this name in other clusters are read as well, also those that
        appear later: they are found within 15 seconds. `message.origin_cluster` says where a message is from.
        """
        return self._opened(
            self._connection.subscription(topic, start, bounded=False, kind=type, everywhere=everywhere)
        )

    def replay(
        self,
        topic: str,
        since: Start = "earliest",
        until: datetime | None = None,
        *,
        type: Any = None,
        everywhere: bool = False,
    ) -> Subscription:
        """Read the messages of a topic between two times, then stop; without `until`, up to the current end.

        ```python
        from datetime import UTC, datetime, timedelta

        yesterday = datetime.now(UTC) - timedelta(days=1)
        for order in client.replay("orders", since=yesterday):
            print(order.json())
        ```

        With `everywhere=True`, those of its mirrors as well, as they are now.
        """
        return self._opened(
            self._connection.subscription(topic, since, until, bounded=True, kind=type, everywhere=everywhere)
        )

    @overload
    def consume(
        self,
        topic: str | Sequence[str],
        group: str,
        delivery: Literal["exactly-once"],
        *,
        start: Literal["earliest", "latest"] = ...,
        batch: int = ...,
        max_unacked: int = ...,
        commit_interval_s: float | None = ...,
        transactional_id: str | None = ...,
        type: Any = ...,
        everywhere: bool = ...,
    ) -> ExactlyOnce: ...
    @overload
    def consume(
        self,
        topic: str | Sequence[str],
        group: str,
        delivery: Delivery = ...,
        *,
        start: Literal["earliest", "latest"] = ...,
        batch: int = ...,
        max_unacked: int = ...,
        commit_interval_s: float | None = ...,
        transactional_id: str | None = ...,
        type: Any = ...,
        everywhere: bool = ...,
    ) -> Consumption: ...
    def consume(
        self,
        topic: str | Sequence[str],
        group: str,
        delivery: Delivery = "at-least-once",
        *,
        start: Literal["earliest", "latest"] = "earliest",
        batch: int = 100,
        max_unacked: int = 10_000,
        commit_interval_s: float | None = None,
        transactional_id: str | None = None,
        type: Any = None,
        everywhere: bool = False,
    ) -> Consumption:
        """Consume topics as a member of a group: each partition is read by one member.

        ```python
        with client.consume("orders", group="billing") as orders:
            for order in orders:
                print(order.json()["item"])
                client.ack(order)
                break
        ```

        - `"at-least-once"`: `ack` each message after handling it; a message that is not acknowledged is delivered again
          after a crash or a rebalance.
        - `"at-most-once"`: offsets are committed before messages are delivered; a crash may lose some.
        - `"exactly-once"`: messages published through the returned stream, and the offsets, are one transaction.

        Further arguments:

        - `start`: where a group begins that has committed nothing.
        - `batch`: at most once, so many messages are committed before the first of them is delivered.
        - `max_unacked`: at least once, no more than this many messages are open at a time.
        - `commit_interval_s`: how often offsets are committed; by default 0.5, and 0.1 for exactly once.
        - `transactional_id`: exactly once, a name that this process keeps over restarts, so that its successor need not
          wait for it.
        - `type`: the type of `message.value`: a dataclass, a msgspec Struct, a pydantic model, a TypedDict, a class of
          Protobuf, or `dict`. Values are read by the schema that they name, or as JSON.
        - `everywhere`: consume the mirrors of topics of these names in other clusters, too, also those that appear
          later: they are found within 15 seconds. `message.origin_cluster` says where a message is from.
        """
        return self._opened(
            self._connection.consumption(
                topic,
                group,
                delivery,
                start=start,
                batch=batch,
                max_unacked=max_unacked,
                commit_interval_s=commit_interval_s,
                transactional_id=transactional_id,
                kind=type,
                everywhere=everywhere,
            )
        )

    def queue(self, name: str) -> Queue:
        """The queue of this name; the same object for the same name. `Queue.create` creates it on the broker."""
        return self._queue(name)

    def queues(self, prefix: str = "", *, with_counts: bool = False) -> list[QueueDescription]:
        """List the queues whose names begin with `prefix`, ordered by name."""
        return self._connection.queues(prefix, with_counts=with_counts)

    def run(self, *, signals: Iterable[int] | None = None) -> None:
        """Run the registered handlers and workers until `stop`, SIGTERM or Ctrl-C, then finish the messages in
        progress. Raises the error that stopped one of them.

        `signals` are those that stop it: by default SIGTERM and SIGINT (Ctrl-C), each only if it has no other handler;
        none outside of the main thread, and none with `signals=()`.
        """
        wanted = chosen(signals)
        self._begin(self._made_loops(self._handlers, self._workers))
        try:
            runner.run_until_stopped(self._loops, wanted)
        finally:
            self._is_stopped = False

    @contextmanager
    def running(self) -> Iterator["Client"]:
        """Run the registered handlers and workers in the background while the block lasts. Leaving it finishes the
        messages in progress, and raises the error that stopped one of them. Signals are left alone.

        ```python
        with client.running():
            print(client.health().is_running)
        ```
        """
        self._begin(self._made_loops(self._handlers, self._workers))
        futures = runner.start(self._loops)
        with ExitStack() as stack:
            stack.callback(setattr, self, "_is_stopped", False)
            try:
                yield self
            except BaseException:
                self.stop()
                runner.wait_quietly(futures)
                raise
            self.stop()
            runner.wait_for(futures)

    def close(self) -> None:
        """Flush messages and acknowledgements, commit and close every stream. A failure does not stop the rest."""
        with ExitStack() as stack:
            if (publisher := self._connection.used_publisher) is not None:
                stack.callback(publisher.close)
            stack.callback(self._connection.close_calls)
            for queue in self._queues.values():
                stack.callback(queue.close)
            for stream in list(self._streams):
                stack.callback(stream.close)

    def abandon(self) -> None:
        """Close after a failure: open transactions are aborted, and further errors are only logged."""
        for stream in list(self._streams):
            stream.abandon()
        with log_errors("closing"):
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
