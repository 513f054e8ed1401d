"""`client.queue("emails")`: work that is handed out, acknowledged, retried, and dead-lettered when nothing helps."""

import threading
import time
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from dataclasses import dataclass
from datetime import datetime
from itertools import groupby
from typing import TYPE_CHECKING, Any, TypeVar, Unpack
from uuid import UUID

from headrace.client.errors import ClientError, NoSuchQueue, QueueFailed, Unreachable
from headrace.client.librdkafka import log
from headrace.client.outgoing import Payload, Record
from headrace.client.publisher import Publisher
from headrace.client.queue_http import Door
from headrace.client.queue_message import (
    NewMessage,
    PeekedMessage,
    QueueMessage,
    Seconds,
    SendOptions,
    SentMessage,
    buried,
    milliseconds,
    record_of,
    records_of,
    seconds,
)
from headrace.client.queue_settings import QueueOptions, check, known, settings_of
from headrace.client.queue_worker import Worker, WorkerLoop
from headrace.client.redrive import Redrive, RedriveOptions, Wanted
from headrace.client.settling import Settler
from headrace.model import queue_wire as wire
from headrace.model.queue_wire import Counts
from headrace.model.queued import Ids

if TYPE_CHECKING:
    from headrace.client.connection import Connection

_SLICE_S = 20.0
"""How long one call waits for messages."""
_KNOWN_FOR_S = 30.0
"""After this long it is asked again whether the queue is there: sending to one that is not would make a topic of it."""
_AT_ONCE = 1_000
"""No more in one call."""
_FOR_EVER_S = float("inf")

WorkerT = TypeVar("WorkerT", bound=Callable[[QueueMessage], object])


@dataclass(frozen=True, slots=True)
class Description:
    """A queue and its settings in force, by the names of `headrace.config.queue.QueueSettings`."""

    name: str
    settings: dict[str, bool | int | float | str]
    counts: Counts | None = None

    @property
    def is_fifo(self) -> bool:
        return self.settings.get("type") == "fifo"


class Queue:
    """A queue, for as many threads as you like. It need not exist before `create`, or `headrace queue create`.

    emails = client.queue("emails")
    emails.create(max_receives=5, dead_letter="emails-dead", backoff=1)
    emails.send({"to": "alice@example.org"}, delay=60)
    for message in emails.receive(max=10, wait=20):
        mail(message.json())
        message.ack()
    """

    def __init__(self, name: str, connection: "Connection", door: Door, register: Callable[[Worker], None]) -> None:
        self.name = name
        self._connection = connection
        self._door = door
        self._settler = Settler(name, door)
        self._register = register
        self._known: tuple[wire.Description, float] | None = None
        self._bulk = connection.bulk()
        self._sending = threading.Lock()
        self._sent_last: Future[SentMessage] | None = None
        """Of those that nobody waits for."""

    # The queue

    def create(self, **options: Unpack[QueueOptions]) -> "Queue":
        """Make the queue, and its dead-letter queue if that is not there. One that is there with the same settings is
        fine; with others it is `QueueFailed`: change it with `alter`."""
        settings = settings_of(options)
        settings.setdefault("type", "standard")
        self._create_dead_letter(settings, lambda: settings["type"])
        self._know(self._door.call(wire.CreateQueue(self.name, settings), wire.Description))
        return self

    def _create_dead_letter(self, settings: dict[str, str], kind: Callable[[], str]) -> None:
        """Make the dead-letter queue of these settings if it is not there, of the same kind; none for settings that
        will be refused."""
        check(settings)
        name = settings.get("dead.letter")
        if not name or name == self.name:
            return
        try:
            self._door.call(wire.DescribeQueue(name), wire.Description)
        except NoSuchQueue:
            self._door.call(wire.CreateQueue(name, {"type": kind()}), wire.Description)

    def alter(self, unset: Iterable[str] = (), **options: Unpack[QueueOptions]) -> None:
        """Change settings; those that are not given stay. Those in `unset`, by their own names such as
        `queue.dead.letter`, go back to their defaults."""
        settings = settings_of(options)
        self._create_dead_letter(settings, lambda: str(self.describe().settings["type"]))
        reset: dict[str, str | None] = {known(name): None for name in unset}
        self._door.call(wire.AlterQueue(self.name, {**reset, **settings}), wire.Nothing)
        self._known = None

    def delete(self) -> None:
        """Delete the queue with everything in it."""
        self._door.call(wire.DeleteQueue(self.name), wire.Nothing)
        self._known = None

    def describe(self) -> Description:
        """Its settings, and how many messages it has."""
        found = self._know(self._door.call(wire.DescribeQueue(self.name), wire.Description))
        return Description(found.queue, found.settings, found.counts)

    def counts(self) -> Counts:
        """How many messages are available, in flight and delayed; right within a second."""
        return self._door.call(wire.Count(self.name), Counts)

    def purge(self) -> None:
        """Forget every message that was sent before; not more than once a minute."""
        self._door.call(wire.Purge(self.name), wire.Nothing)

    # Sending

    def send(self, body: Payload, **options: Unpack[SendOptions]) -> SentMessage:
        """Send a message and wait until it is stored. The body is `bytes` as they are, `str` as UTF-8; anything else
        becomes JSON. Raises `DeliveryFailed`, or `Unreachable` as `Client.publish` does."""
        return self.send_awaited(NewMessage(body, **options)).result()

    def send_awaited(self, message: NewMessage) -> "Future[SentMessage]":
        """Send without waiting, for a caller that looks at the future."""
        return self._send(message, is_awaited=True)

    def send_soon(self, body: Payload, **options: Unpack[SendOptions]) -> "Future[SentMessage]":
        """Send a message without waiting, in batches with others. The future says what became of it; or call `flush`,
        which raises if any since the last was not stored."""
        return self._send(NewMessage(body, **options), is_awaited=False)

    def send_many(self, bodies: "Iterable[Payload | NewMessage]", **options: Unpack[SendOptions]) -> list[SentMessage]:
        """Send messages in batches and wait until all are stored. The options are for all of them, but for those that
        are a `NewMessage`. Raises `DeliveryFailed` with how many were not stored."""
        records: list[Record] = []
        for kind, run in groupby(bodies, type):
            if issubclass(kind, NewMessage):
                records += [self._record(each) for each in run]
            else:
                common = NewMessage(None, **options)
                self._check(common)
                records += records_of(self.name, run, common, time.time())
        ids = self._ids()
        if self._sent_last is not None:
            # They keep their order.
            self._sent_last.exception()
        return [SentMessage(ids.at(offset), offset) for offset in self._bulk.send(records)]

    def _send(self, message: NewMessage, *, is_awaited: bool) -> "Future[SentMessage]":
        record, ids = self._record(message), self._ids()

        def sent(stored: Any) -> SentMessage:
            offset = stored.offset()
            return SentMessage(ids.at(offset), offset)

        if is_awaited:
            return self._publisher.send_record(record, sent, is_awaited=True)
        with self._sending:
            self._sent_last = self._publisher.send_record(record, sent, is_awaited=False)
            return self._sent_last

    def _record(self, message: NewMessage) -> Record:
        self._check(message)
        return record_of(self.name, message, time.time())

    def _check(self, message: NewMessage) -> None:
        if self._settings()["type"] == "fifo" and message.group is None:
            raise ValueError(f"{self.name} is a fifo queue: say to which group the message belongs, group=…")

    def _ids(self) -> Ids:
        return Ids(UUID(self._description().topic_id))

    @property
    def _publisher(self) -> Publisher:
        return self._connection.publisher

    # Receiving

    def receive(self, max: int = 1, wait: float = 20.0, visibility: Seconds | None = None) -> list[QueueMessage]:
        """Up to `max` messages (and 1,000), as soon as there are any; none if none came within `wait` seconds. Each is
        hidden from others for `visibility`; without it, as the queue says."""
        give_up_at_s = time.monotonic() + wait
        while True:
            left_s = give_up_at_s - time.monotonic()
            found = self._receive(max, min(_SLICE_S, left_s), milliseconds(visibility))
            if found or left_s <= _SLICE_S:
                return found

    def receive_until(
        self, is_over: Callable[[], bool], maximum: int, wait_s: float, visibility_s: float
    ) -> list[QueueMessage]:
        """What a worker does: it waits for a broker that is away until `is_over`."""
        return self._receive(maximum, wait_s, round(visibility_s * 1000), patience_s=_FOR_EVER_S, is_over=is_over)

    def _receive(
        self,
        maximum: int,
        wait_s: float,
        visibility_ms: int | None,
        *,
        patience_s: float | None = None,
        is_over: Callable[[], bool] = lambda: False,
    ) -> list[QueueMessage]:
        wait_s = max(0.0, wait_s)
        call = wire.Receive(self.name, min(maximum, _AT_ONCE), round(wait_s * 1000), visibility_ms)
        found = self._door.call(call, wire.AllReceived, longer_s=wait_s, patience_s=patience_s, is_over=is_over)
        name, settler = self.name, self._settler
        return [QueueMessage(name, each, settler) for each in found.messages]

    def peek(self, max: int = 10, *, after_offset: int = -1, **wanted: Unpack[Wanted]) -> list[PeekedMessage]:
        """Look at messages, whatever their state, in the order of sending, without leasing them: at those that agree
        with everything given."""
        call = wire.Peek(self.name, _filter(wanted, limit=max), after_offset)
        return [PeekedMessage(each) for each in self._door.call(call, wire.AllPeeked).messages]

    def redrive(self, to: str | None = None, **options: Unpack[RedriveOptions]) -> Redrive:
        """Move messages of this queue, as out of a dead-letter queue: each to where it came from, or all to `to`; those
        that agree with everything given, `rate` a second. The broker does it; `Redrive.wait` waits for it."""
        limit, rate = options.get("limit"), options.get("rate")
        for name, value in (("limit", limit), ("rate", rate)):
            if value is not None and value < 1:
                raise ValueError(f"{name} must be 1 or more, not {value}")
        moved = _filter(options, limit, options.get("sent_from"), options.get("sent_before"))
        call = wire.StartMove(self.name, to, moved, rate)
        return Redrive(self._door, self._door.call(call, wire.Move))

    def redrives(self) -> list[Redrive]:
        """The latest moves out of this queue, the last first."""
        moves = self._door.call(wire.ListMoves(self.name), wire.Moves).moves
        return [Redrive(self._door, each) for each in moves]

    # Working

    def worker(self, concurrency: int = 8, *, visibility: Seconds | None = None) -> Callable[[WorkerT], WorkerT]:
        """Register a function that `Client.run` calls with the messages, `concurrency` at a time. With asyncio it may
        be `async`.

        When it returns, the message is acknowledged; while it works, the lease is extended, however long it takes.
        When it raises, the message is given back with the reason, and tried again as the queue's policy says; after
        `max_receives` it goes to the dead-letter queue, and at once when it is `Reject` that was raised. `Retry` says
        when to try again. On `stop`, SIGTERM or Ctrl-C the messages in hand are finished, and others given back.
        """

        def register(function: WorkerT) -> WorkerT:
            self._register(Worker(self, function, concurrency, visibility))
            return function

        return register

    def loop(self, worker: Worker) -> WorkerLoop:
        """The loop of a worker of this queue."""
        settings = self._settings()
        lease_s = seconds(worker.visibility) if worker.visibility else int(settings["visibility_timeout_ms"]) / 1000
        return WorkerLoop(
            self,
            worker.function,
            concurrency=worker.concurrency,
            lease_s=lease_s,
            is_fifo=settings["type"] == "fifo",
        )

    def bury(self, message: QueueMessage, reason: str) -> bool:
        """Move a message to the dead-letter queue now; the copy is stored first. False if there is none."""
        found = self._description()
        dead_letter = str(found.settings.get("dead_letter", ""))
        if not dead_letter:
            return False
        copy = buried(message, found.topic_id, dead_letter, reason, round(time.time() * 1000))
        try:
            self._publisher.send_record(copy, lambda _: None, is_awaited=True).result()
        except ClientError as error:
            log.warning("%s of %s could not be dead-lettered: %s", message.id, self.name, error)
            return False
        message.ack()
        return True

    def flush(self) -> None:
        """Wait until every acknowledgement so far is with the broker."""
        self._settler.flush()

    def close(self) -> None:
        """Wait for the acknowledgements on their way, and let go; done by the client when it is closed."""
        try:
            self._settler.close()
        finally:
            self._bulk.close()
            self._door.close()

    def _settings(self) -> dict[str, Any]:
        """Its settings, as they were within the last half minute. Raises `NoSuchQueue`."""
        return self._description().settings

    def _description(self) -> wire.Description:
        known = self._known
        if known is None:
            try:
                return self._know(self._door.call(wire.DescribeQueue(self.name), wire.Description))
            except NoSuchQueue as error:
                text = f"{error}; make it with queue.create() or `headrace queue create {self.name}`"
                raise NoSuchQueue(text, code=error.code) from None
        found, asked_at_s = known
        if time.monotonic() - asked_at_s <= _KNOWN_FOR_S:
            return found
        try:
            return self._know(self._door.call(wire.DescribeQueue(self.name), wire.Description, patience_s=0))
        except NoSuchQueue:
            self._known = None
            raise
        except (Unreachable, QueueFailed):
            # What is sent waits for the broker by itself.
            return self._know(found)

    def _know(self, found: wire.Description) -> wire.Description:
        self._known = (found, time.monotonic())
        return found


def _filter(
    wanted: Wanted, limit: int | None, sent_from: datetime | None = None, sent_before: datetime | None = None
) -> wire.Filter:
    contains = wanted.get("body_contains", b"")
    body = contains.encode() if isinstance(contains, str) else contains
    reason = wanted.get("reason_contains", "")
    return wire.Filter(list(wanted.get("ids", ())), reason, body, _ms(sent_from), _ms(sent_before), limit)


def _ms(when: datetime | None) -> int | None:
    return None if when is None else round(when.timestamp() * 1000)
