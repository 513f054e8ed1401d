"""`client.queue("emails")`: a queue whose messages are leased, acknowledged, retried and dead-lettered."""

from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from headrace.client.errors import NoSuchQueue
from headrace.client.health import WorkerMonitor, name_of
from headrace.client.keywords import checks_keywords
from headrace.client.outgoing import Headers, Payload, pairs
from headrace.client.queue.acks import AckBatcher
from headrace.client.queue.calls import TaskCall
from headrace.client.queue.description import KnownQueue, QueueDescription
from headrace.client.queue.message import (
    NewMessage,
    PeekedMessage,
    QueueMessage,
    Seconds,
    SentMessage,
    milliseconds,
)
from headrace.client.queue.receiver import QueueReceiver
from headrace.client.queue.redrive import Redrive, filter_of
from headrace.client.queue.rpc import QueueRpc
from headrace.client.queue.sender import QueueSender
from headrace.client.queue.settings import QueueOptions, check, known, settings_of
from headrace.client.queue.worker import Concurrency, QueueWorker, WorkerLoop
from headrace.client.queue.worker_source import WorkerSource
from headrace.model import queue_wire as wire
from headrace.model.queue_wire import Counts

if TYPE_CHECKING:
    from headrace.client.factory import ConnectionFactory
    from headrace.client.schemas.serializer import Serializer

WorkerT = TypeVar("WorkerT", bound=Callable[[QueueMessage], object])


@checks_keywords
class Queue:
    """A queue: each message is received by one worker, and redelivered until it is acknowledged. Thread-safe.

    ```python
    emails = client.queue("emails")
    emails.send({"to": "alice@example.org"}, priority=9)
    for message in emails.receive(max=10, wait=20):
        print(message.json()["to"])
        message.ack()
    ```
    """

    def __init__(
        self, name: str, connection: "ConnectionFactory", rpc: QueueRpc, register: Callable[[QueueWorker], None]
    ) -> None:
        self.name = name
        self._rpc = rpc
        self._connection = connection
        self._settler = AckBatcher(name, rpc)
        self._register = register
        self._known = KnownQueue(name, rpc)
        self._sender = QueueSender(name, connection, self._known)
        self._receiver = QueueReceiver(name, connection, rpc, self._settler)

    # The queue

    def create(
        self,
        *,
        type: Literal["standard", "fifo"] | None = None,
        visibility: Seconds | None = None,
        delay: Seconds | None = None,
        retention: Seconds | None = None,
        max_receives: int | None = None,
        dead_letter: str | None = None,
        backoff: Seconds | None = None,
        backoff_factor: float | None = None,
        backoff_max: Seconds | None = None,
        jitter: float | None = None,
        priority_ageing: Seconds | None = None,
        dedupe_by_content: bool | None = None,
        max_in_flight: int | None = None,
        max_backlog: int | None = None,
        max_backlog_bytes: int | None = None,
        max_backlog_age: Seconds | None = None,
        max_backlog_policy: Literal["block", "refuse", "drop-oldest"] | None = None,
        settings: Mapping[str, str] | None = None,
    ) -> "Queue":
        """Create the queue, and its dead-letter queue if that does not exist. Does nothing if it exists with the same
        settings, and raises `QueueFailed` if it exists with others: change them with `alter`.

        ```python
        client.queue("letters").create(max_receives=5, dead_letter="letters-dead", backoff=1)
        ```

        Times are seconds or a `timedelta`.

        - `type`: `"standard"`, or `"fifo"`: in order within a group, without duplicates. Cannot be changed later.
        - `visibility`: the visibility timeout: how long a received message is hidden; by default 30 seconds.
        - `delay`: how long a message is hidden after it was sent.
        - `retention`: when a message without an acknowledgement is deleted; by default 4 days.
        - `max_receives`, `dead_letter`: a message that was received this often goes to that queue.
        - `backoff`, `backoff_factor`, `backoff_max`, `jitter`: how long a message is hidden after a failure.
        - `priority_ageing`: a message that has waited this long counts as one level more urgent.
        - `dedupe_by_content`: in a fifo queue, the same body within 5 minutes is one message.
        - `max_in_flight`: no more than so many messages are in flight.
        - `max_backlog`, `max_backlog_bytes`, `max_backlog_age`: how much the queue may have that is not acknowledged;
          beyond that senders wait, unless `max_backlog_policy` is `refuse` (`BacklogFull`) or `drop-oldest`.
        - `settings`: any others by their names, such as `queue.max.message.bytes`.
        """
        options = QueueOptions(
            type=type or "standard",
            visibility=visibility,
            delay=delay,
            retention=retention,
            max_receives=max_receives,
            dead_letter=dead_letter,
            backoff=backoff,
            backoff_factor=backoff_factor,
            backoff_max=backoff_max,
            jitter=jitter,
            priority_ageing=priority_ageing,
            dedupe_by_content=dedupe_by_content,
            max_in_flight=max_in_flight,
            max_backlog=max_backlog,
            max_backlog_bytes=max_backlog_bytes,
            max_backlog_age=max_backlog_age,
            max_backlog_policy=max_backlog_policy,
            settings=settings,
        )
        chosen = settings_of(options)
        self._create_dead_letter(chosen, lambda: chosen["type"])
        self._known.note(self._rpc.call(wire.CreateQueue(self.name, chosen), wire.Description))
        return self

    def _create_dead_letter(self, settings: dict[str, str], kind: Callable[[], str]) -> None:
        """Make the dead-letter queue of these settings if it is not there, of the same kind; none for settings that
        will be refused."""
        check(settings)
        name = settings.get("dead.letter")
        if not name or name == self.name:
            return
        try:
            self._rpc.call(wire.DescribeQueue(name), wire.Description)
        except NoSuchQueue:
            self._rpc.call(wire.CreateQueue(name, {"type": kind()}), wire.Description)

    def alter(
        self,
        unset: Iterable[str] = (),
        *,
        type: Literal["standard", "fifo"] | None = None,
        visibility: Seconds | None = None,
        delay: Seconds | None = None,
        retention: Seconds | None = None,
        max_receives: int | None = None,
        dead_letter: str | None = None,
        backoff: Seconds | None = None,
        backoff_factor: float | None = None,
        backoff_max: Seconds | None = None,
        jitter: float | None = None,
        priority_ageing: Seconds | None = None,
        dedupe_by_content: bool | None = None,
        max_in_flight: int | None = None,
        max_backlog: int | None = None,
        max_backlog_bytes: int | None = None,
        max_backlog_age: Seconds | None = None,
        max_backlog_policy: Literal["block", "refuse", "drop-oldest"] | None = None,
        settings: Mapping[str, str] | None = None,
    ) -> None:
        """Change settings; those that are not given stay. Those in `unset`, by their own names such as
        `queue.dead.letter`, go back to their defaults. The others are those of `create`.

        ```python
        client.queue("emails-dead").alter(visibility=60, unset=["queue.delay.ms"])
        ```
        """
        options = QueueOptions(
            type=type,
            visibility=visibility,
            delay=delay,
            retention=retention,
            max_receives=max_receives,
            dead_letter=dead_letter,
            backoff=backoff,
            backoff_factor=backoff_factor,
            backoff_max=backoff_max,
            jitter=jitter,
            priority_ageing=priority_ageing,
            dedupe_by_content=dedupe_by_content,
            max_in_flight=max_in_flight,
            max_backlog=max_backlog,
            max_backlog_bytes=max_backlog_bytes,
            max_backlog_age=max_backlog_age,
            max_backlog_policy=max_backlog_policy,
            settings=settings,
        )
        chosen = settings_of(options)
        self._create_dead_letter(chosen, lambda: str(self.describe().settings["type"]))
        reset: dict[str, str | None] = {known(name): None for name in unset}
        self._rpc.call(wire.AlterQueue(self.name, {**reset, **chosen}), wire.Nothing)
        self._known.forget()

    def delete(self) -> None:
        """Delete the queue with everything in it."""
        self._rpc.call(wire.DeleteQueue(self.name), wire.Nothing)
        self._known.forget()

    def describe(self) -> QueueDescription:
        """Its settings, and how many messages it has."""
        found = self._known.ask()
        return QueueDescription(found.queue, found.settings, found.counts)

    def counts(self) -> Counts:
        """How many messages are available, in flight and delayed; right within a second."""
        return self._rpc.call(wire.Count(self.name), Counts)

    def purge(self) -> None:
        """Delete every message that was sent before; at most once a minute."""
        self._rpc.call(wire.Purge(self.name), wire.Nothing)

    # Sending

    def send(
        self,
        body: Payload,
        *,
        delay: Seconds | None = None,
        at: datetime | None = None,
        priority: int | None = None,
        group: str | None = None,
        dedupe: str | None = None,
        ttl: Seconds | None = None,
        headers: Headers | None = None,
        schema: "str | Serializer | None" = None,
    ) -> SentMessage:
        """Send a message and wait until it is stored. The body is `bytes` as they are, `str` as UTF-8; anything else
        becomes JSON. Raises `DeliveryFailed`, or `Unreachable` as `Client.publish` does.

        ```python
        emails.send({"to": "alice@example.org"}, delay=60, priority=9)
        ```

        - `delay`: not to be received before so many seconds from now; without it, as the queue says.
        - `at`: not to be received before this time, minutes or months from now.
        - `priority`: 0 to 9, the highest first; by default 4.
        - `group`: messages of a group are handled one after the other. A fifo queue wants one.
        - `dedupe`: in a FIFO queue, a message with the same id within five minutes is not stored again.
        - `ttl`: not to be received after so many seconds from now.
        - `headers`: a mapping, or pairs where a name comes more than once.
        - `schema`: a subject of the schema registry, or a serializer: the body is encoded by it, as by
          `Client.publish`.
        """
        return self.send_awaited(NewMessage(body, delay, at, priority, group, dedupe, ttl, headers, schema)).result()

    def send_awaited(self, message: NewMessage) -> "Future[SentMessage]":
        """Send without waiting, for a caller that looks at the future."""
        return self._sender.send(message, is_awaited=True)

    def send_soon(
        self,
        body: Payload,
        *,
        delay: Seconds | None = None,
        at: datetime | None = None,
        priority: int | None = None,
        group: str | None = None,
        dedupe: str | None = None,
        ttl: Seconds | None = None,
        headers: Headers | None = None,
        schema: "str | Serializer | None" = None,
    ) -> "Future[SentMessage]":
        """Send a message without waiting, in batches with others. The future says what became of it; or call
        `Client.flush`, which raises if any since the last was not stored. The arguments are those of `send`."""
        message = NewMessage(body, delay, at, priority, group, dedupe, ttl, headers, schema)
        return self._sender.send(message, is_awaited=False)

    def send_many(
        self,
        bodies: "Iterable[Payload | NewMessage]",
        *,
        delay: Seconds | None = None,
        at: datetime | None = None,
        priority: int | None = None,
        group: str | None = None,
        dedupe: str | None = None,
        ttl: Seconds | None = None,
        headers: Headers | None = None,
        schema: "str | Serializer | None" = None,
    ) -> list[SentMessage]:
        """Send messages in batches and wait until all are stored. The options, those of `send`, are for all of them
        that are not a `NewMessage`. Raises `DeliveryFailed` with how many were not stored."""
        common = NewMessage(None, delay, at, priority, group, dedupe, ttl, headers, schema)
        return self._sender.send_many(bodies, common)

    def call(
        self,
        body: Payload,
        *,
        delay: Seconds | None = None,
        at: datetime | None = None,
        priority: int | None = None,
        group: str | None = None,
        dedupe: str | None = None,
        ttl: Seconds | None = None,
        headers: Headers | None = None,
        schema: "str | Serializer | None" = None,
        type: Any = None,
    ) -> TaskCall:
        """Send a message whose result is wanted: the value that its worker returns, see `TaskCall.result`. `type` is
        that of the result, see `Client.consume`; without it, what JSON gives, or `bytes`. The others are those of
        `send`.

        ```python
        client.queue("sums").create()
        call = client.queue("sums").call([1, 2, 3])
        print(call.done())
        ```
        """
        call, reply_headers = self._connection.replies.new_call(self.name, self._connection.reader(type))
        headers = [*pairs(headers), *reply_headers]
        message = NewMessage(body, delay, at, priority, group, dedupe, ttl, headers, schema)
        call.message_id = self.send_awaited(message).result().id
        return call

    # Receiving

    def receive(
        self, max: int = 1, wait: float = 20.0, visibility: Seconds | None = None, *, type: Any = None
    ) -> list[QueueMessage]:
        """Up to `max` messages (and 1,000), as soon as there are any; none if none came within `wait` seconds. Each is
        hidden from others for `visibility`; without it, as the queue says. `type` is that of `message.value`, see
        `Client.consume`."""
        return self._receiver.receive(max, wait, milliseconds(visibility), type)

    def receive_until(
        self, is_over: Callable[[], bool], maximum: int, wait_s: float, visibility_s: float
    ) -> list[QueueMessage]:
        """Receive as a worker does: wait for a broker that is away, and raise `Unreachable` every few seconds."""
        return self._receiver.receive_until(is_over, maximum, wait_s, visibility_s)

    def peek(
        self,
        max: int = 10,
        *,
        after_offset: int = -1,
        ids: Iterable[str] = (),
        body_contains: str | bytes = b"",
        reason_contains: str = "",
    ) -> list[PeekedMessage]:
        """Look at messages, whatever their state, in the order of sending, without leasing them: at those that agree
        with everything given."""
        call = wire.Peek(self.name, filter_of(ids, body_contains, reason_contains, max), after_offset)
        return [PeekedMessage(each) for each in self._rpc.call(call, wire.AllPeeked).messages]

    def redrive(
        self,
        to: str | None = None,
        *,
        ids: Iterable[str] = (),
        body_contains: str | bytes = b"",
        reason_contains: str = "",
        sent_from: datetime | None = None,
        sent_before: datetime | None = None,
        limit: int | None = None,
        rate: int | None = None,
    ) -> Redrive:
        """Move messages out of this (dead-letter) queue: each to the queue it came from, or all to `to`. Moves those
        that match every filter, at most `limit`, `rate` a second. The broker does it; `Redrive.wait` waits for it.

        ```python
        client.queue("emails-dead").redrive(reason_contains="Timeout", rate=100).wait()
        ```
        """
        for name, value in (("limit", limit), ("rate", rate)):
            if value is not None and value < 1:
                raise ValueError(f"{name} must be 1 or more, not {value}")
        moved = filter_of(ids, body_contains, reason_contains, limit, sent_from, sent_before)
        call = wire.StartMove(self.name, to, moved, rate)
        return Redrive(self._rpc, self._rpc.call(call, wire.Move))

    def redrives(self) -> list[Redrive]:
        """The latest moves out of this queue, the last first."""
        moves = self._rpc.call(wire.ListMoves(self.name), wire.Moves).moves
        return [Redrive(self._rpc, each) for each in moves]

    # Working

    def worker(
        self, concurrency: Concurrency = 8, *, visibility: Seconds | None = None, type: Any = None
    ) -> Callable[[WorkerT], WorkerT]:
        """Register a function that `Client.run` calls with the messages, `concurrency` at a time. With asyncio it may
        be `async`. `"auto"` uses as many threads as raise the rate, from 1 to 64.

        When it returns, the message is acknowledged; while it runs, the lease is extended. When it raises, the message
        is returned with the reason and retried by the queue's policy; after `max_receives` it goes to the dead-letter
        queue, after `Reject` at once. `Retry` chooses the delay. On `stop`, SIGTERM or Ctrl-C the messages in progress
        are finished, and others returned. `type` is that of `message.value`; a message of another type goes to the
        dead-letter queue, if there is one.
        """

        def register(function: WorkerT) -> WorkerT:
            monitor = WorkerMonitor(name_of(function), f"queue {self.name}")
            self._register(QueueWorker(self, function, monitor, concurrency, visibility, type))
            return function

        return register

    def loop(self, worker: QueueWorker) -> WorkerLoop:
        """The loop of a worker of this queue."""
        source = WorkerSource(
            self.name,
            self._connection,
            self._rpc,
            settler=self._settler,
            known=self._known,
            sender=self._sender,
            receiver=self._receiver,
        )
        return source.loop(worker)

    def reply(self, message: QueueMessage, value: object) -> None:
        """Send a result to the caller of a received message, if it has one. A worker does that by returning it."""
        self._connection.reply_sender.returned(message, value)

    def flush(self) -> None:
        """Wait until every acknowledgement so far is with the broker."""
        self._settler.flush()

    def __enter__(self) -> "Queue":
        """`with client.queue("emails") as queue:` flushes when the block ends. The queue stays usable: it is closed
        with its client."""
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if error is None:
            self.flush()

    def close(self) -> None:
        """Wait for the acknowledgements in flight, and close; closing the client does it."""
        try:
            self._settler.close()
        finally:
            self._sender.close()
            self._rpc.close()
