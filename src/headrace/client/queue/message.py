"""Messages of queues: as they are received, and how one is written as a record (see `headrace.model.queued`)."""

import json
import uuid
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypedDict, TypeVar

from headrace.client.errors import Unreachable
from headrace.client.failures import reason_for_broker
from headrace.client.keywords import checks_keywords
from headrace.client.message import CONTENT_TYPE, UNREAD, Header, PayloadReader, read_value
from headrace.client.outgoing import Headers, Payload, ProducerRecord, encode_payload, pairs
from headrace.client.queue.acks import AckResult
from headrace.client.queue.ranges import RangeMessage
from headrace.model import queued
from headrace.model.failure_headers import failure_headers, read_reason, without_failure
from headrace.model.queue_wire import Peeked, Received

if TYPE_CHECKING:
    from headrace.client.schemas.serializer import Serializer

Seconds = float | timedelta
"""A number of seconds, or a `timedelta`."""


class SendOptions(TypedDict, total=False):
    """The keyword arguments of `Queue.send`."""

    delay: Seconds | None
    at: datetime | None
    priority: int | None
    group: str | None
    dedupe: str | None
    ttl: Seconds | None
    headers: Headers | None
    schema: "str | Serializer | None"


@checks_keywords
@dataclass(frozen=True, slots=True)
class NewMessage:
    """A message with send options of its own, for `Queue.send_many`. The options are those of `Queue.send`.

    ```python
    from headrace import NewMessage

    mail = {"to": "alice@example.org"}
    emails.send_many([mail, NewMessage(mail, delay=60), NewMessage(mail, priority=9)])
    ```
    """

    body: Payload
    delay: Seconds | None = None
    at: datetime | None = None
    priority: int | None = None
    group: str | None = None
    dedupe: str | None = None
    ttl: Seconds | None = None
    headers: Headers | None = None
    schema: "str | Serializer | None" = None


class SentMessage:
    """The id and the offset of a message that was stored.

    ```python
    sent = emails.send({"to": "alice@example.org"})
    print(sent.id, sent.offset)
    ```
    """

    __slots__ = ("_ids", "offset")

    def __init__(self, ids: queued.MessageIds, offset: int) -> None:
        self._ids = ids
        self.offset = offset

    @property
    def id(self) -> str:
        # Made only when it is read: most programs that send many messages do not.
        return self._ids.at(self.offset)

    def __iter__(self) -> Iterator[str | int]:
        return iter((self.id, self.offset))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, SentMessage) and (self.id, self.offset) == (other.id, other.offset)

    def __hash__(self) -> int:
        return hash((self.id, self.offset))

    def __repr__(self) -> str:
        return f"SentMessage(id={self.id!r}, offset={self.offset})"


def is_plain(message: NewMessage) -> bool:
    """Whether it has nothing but its body."""
    return message == NewMessage(message.body)


def record_of(queue: str, message: NewMessage, now_s: float) -> ProducerRecord:
    """The record of a message. Raises `ValueError` for options that make no sense."""
    return next(records_of(queue, (message.body,), message, now_s))


def records_of(queue: str, bodies: Iterable[Payload], options: NewMessage, now_s: float) -> Iterator[ProducerRecord]:
    """The records of messages that have all the same but their bodies."""
    key, common = _headers(options, now_s)
    typed: dict[str | None, list[Header]] = {None: common}
    is_typed = any(name == CONTENT_TYPE for name, _ in common)
    for body in bodies:
        value, content_type = encode_payload(body)
        headers = typed.get(content_type)
        if headers is None:
            headers = common if is_typed else [*common, (CONTENT_TYPE, str(content_type).encode())]
            typed[content_type] = headers
        yield ProducerRecord(queue, b"" if value is None else value, key, headers, 0)


def _headers(message: NewMessage, now_s: float) -> tuple[bytes | None, list[Header]]:
    """Key and headers, but for the content type."""
    headers = pairs(message.headers)
    if reserved := next((name for name, _ in headers if name.startswith("hr.")), None):
        raise ValueError(f"headers that begin with hr. are the queue's own: {reserved}")
    if message.priority is not None and message.priority != queued.NORMAL_PRIORITY:
        if not (
            isinstance(message.priority, int) and queued.LOWEST_PRIORITY <= message.priority <= queued.HIGHEST_PRIORITY
        ):
            raise ValueError(f"priority must be 0 to 9, not {message.priority!r}")
        headers.append((queued.PRIORITY, b"%d" % message.priority))
    if (due_ms := _due_ms(message, now_s)) is not None:
        headers.append((queued.DUE, b"%d" % due_ms))
    if message.ttl is not None:
        if (ttl_s := seconds(message.ttl)) <= 0:
            raise ValueError("ttl must be more than nothing")
        headers.append((queued.EXPIRES, b"%d" % round((now_s + ttl_s) * 1000)))
    key = None
    if message.group is not None:
        key = message.group.encode()
        headers.append((queued.GROUP, key))
    if message.dedupe is not None:
        headers.append((queued.DEDUPE, message.dedupe.encode()))
    return key, headers


def _due_ms(message: NewMessage, now_s: float) -> int | None:
    if message.at is not None:
        if message.delay is not None:
            raise ValueError("give delay or at, not both")
        if not isinstance(message.at, datetime):
            raise TypeError(f"at must be a datetime, not {message.at!r}")
        if message.at.tzinfo is None:
            raise ValueError("at has no time zone: give datetime.now().astimezone() and the like")
        return round(message.at.timestamp() * 1000)
    if message.delay is None:
        return None
    if (delay_s := seconds(message.delay)) < 0:
        raise ValueError("delay must not be negative")
    return round((now_s + delay_s) * 1000)


def seconds(value: Seconds) -> float:
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, str):
        raise TypeError(f"a time must be a number of seconds or a timedelta, not {value!r}")
    return float(value)


def milliseconds(value: Seconds | None) -> int | None:
    return None if value is None else round(seconds(value) * 1000)


FoundT = TypeVar("FoundT", Received, Peeked)


class QueueMessageBody(Generic[FoundT]):
    """The readable part of a message of a queue: body, headers and counts."""

    __slots__ = ("found",)

    found: FoundT

    def __init__(self, found: FoundT) -> None:
        self.found = found

    @property
    def id(self) -> str:
        return self.found.id

    @property
    def body(self) -> bytes:
        return self.found.body

    @property
    def headers(self) -> tuple[Header, ...]:
        return self.found.headers

    @property
    def sent_at_ms(self) -> int:
        return self.found.sent_at_ms

    @property
    def attempt(self) -> int:
        """How often it was received: 1 the first time."""
        return self.found.attempt

    @property
    def priority(self) -> int:
        return self.found.priority

    @property
    def group(self) -> str | None:
        return self.found.group

    @property
    def offset(self) -> int:
        return self.found.offset

    @property
    def origin(self) -> str | None:
        """Of a message that was moved: from where, as JSON."""
        return self.found.origin

    @property
    def text(self) -> str:
        """The body as UTF-8 text."""
        return self.body.decode()

    def json(self) -> Any:
        """The body as JSON."""
        return json.loads(self.body)

    def header(self, name: str) -> str | None:
        """The last header of this name as text; None if there is none."""
        for each, value in reversed(self.headers):
            if each == name:
                return None if value is None else value.decode(errors="replace")
        return None

    @property
    def sent_at(self) -> datetime:
        return datetime.fromtimestamp(self.sent_at_ms / 1000, UTC)

    @property
    def came_from(self) -> str | None:
        """Of a message that was moved: the queue that it was in before."""
        return self._of_origin("queue")

    @property
    def reason(self) -> str | None:
        """Of a message in a dead-letter queue: why it failed the last time. Of a worker that raised: type and text of
        the exception, and file and line in its code; the headers `headrace-exception-type`, `-message`, `-file` and
        `-line` have them one by one."""
        found = self._of_origin("reason")
        return None if found is None else read_reason(found)[0]

    @property
    def attempts_before(self) -> int:
        """Of a message in a dead-letter queue: how often it was received in the queue that it came from; otherwise
        0."""
        found = self._of_origin("attempts") or ""
        return int(found) if found.isdecimal() else 0

    def _of_origin(self, name: str) -> str | None:
        try:
            found = json.loads(self.origin).get(name) if self.origin else None
        except (ValueError, AttributeError):
            return None
        return None if found is None else str(found)


def dead_letter_record(
    message: "QueueMessage", topic_id: str, dead_letter: str, reason: str, now_ms: int
) -> ProducerRecord:
    """The record by which a message goes to the dead-letter queue, as a broker writes it. It may be written twice: the
    queue knows it by where it came from."""
    text, failure = read_reason(reason)
    origin = {
        "queue": message.queue,
        "topic_id": uuid.UUID(topic_id).hex,
        "offset": message.offset,
        "reason": text,
        "attempts": message.attempt,
        "moved_at_ms": now_ms,
    }
    headers: list[Header] = [
        (queued.ID, message.id.encode()),
        (queued.DUE, b"%d" % now_ms),
        (queued.ATTEMPT, b"%d" % message.attempt),
        (queued.ORIGIN, json.dumps(origin, ensure_ascii=False, separators=(",", ":")).encode()),
    ]
    if message.priority != queued.NORMAL_PRIORITY:
        headers.append((queued.PRIORITY, b"%d" % message.priority))
    key = None if message.group is None else message.group.encode()
    if key is not None:
        headers.append((queued.GROUP, key))
    if message.dedupe is not None:
        headers.append((queued.DEDUPE, message.dedupe.encode()))
    headers += [each for each in without_failure(message.headers) if each[0] != queued.ATTEMPT]
    headers += [(name, value.encode()) for name, value in failure_headers(text, failure, message.attempt)]
    return ProducerRecord(dead_letter, message.body, key, headers, partition=0, timestamp_ms=message.sent_at_ms)


class Acknowledger(Protocol):
    """Acknowledges, returns and extends the leases of messages; see `acks.py`."""

    def ack(self, message: str | RangeMessage) -> AckResult: ...
    def nack(self, receipt: str, delay_ms: int | None, reason: str) -> AckResult: ...
    def extend(self, receipt: str, visibility_ms: int) -> AckResult: ...


@checks_keywords
class QueueMessage(QueueMessageBody[Received]):
    """A received message, leased to this receiver until it is acknowledged or its visibility timeout ends.

    ```python
    for message in emails.receive(max=10, wait=20):
        with message:  # acknowledges it; an exception returns it to the queue with the reason
            print(message.id, message.attempt, message.json())
    ```
    """

    __slots__ = ("_process", "_scope", "_settling", "_value", "is_settled", "queue", "reader")

    def __init__(
        self,
        queue: str,
        found: Received,
        settling: Acknowledger,
        process: "Callable[[QueueMessage], AbstractContextManager[object]] | None" = None,
        /,
    ) -> None:
        """`process` makes what is entered with `with message:`, beside settling it."""
        self.found = found
        self._process = process
        self._scope: AbstractContextManager[object] | None = None
        self._settling = settling
        self.queue = queue
        self.is_settled = False
        """Whether it was acknowledged or returned here."""
        self.reader: PayloadReader | None = None
        """What reads the value, if a type was given."""
        self._value: Any = UNREAD

    @property
    def value(self) -> Any:
        """The body as a value of the `type` that `receive` or the worker was given. Raises `InvalidMessage` if it is
        not of that type."""
        if self._value is UNREAD:
            self._value = read_value(self.reader, self.body, self.headers)
        if isinstance(self._value, Exception):
            raise self._value
        return self._value

    def read_ahead(self, unreachable: Unreachable | None = None) -> Unreachable | None:
        """Read the value so that `value` need not wait, see `Message.read_ahead`."""
        try:
            if unreachable is not None:
                raise unreachable
            _ = self.value
        except Exception as error:
            self._value = error
            return error if isinstance(error, Unreachable) else None
        return None

    @property
    def dedupe(self) -> str | None:
        return self.found.dedupe

    @property
    def receipt(self) -> str:
        """What stands for the lease."""
        return self.found.receipt

    def __repr__(self) -> str:
        return f"<message {self.id} of {self.queue}, attempt {self.attempt}>"

    def ack(self) -> AckResult:
        """It is done and is not received again. Goes out at once, together with others; `result()` of what is
        returned waits until the broker has it, and `Queue.flush` and `close` do for all."""
        self.is_settled = True
        found: Any = self.found
        return self._settling.ack(found if type(found) is RangeMessage else found.receipt)

    def nack(self, delay: Seconds | None = None, reason: str = "") -> AckResult:
        """It failed, and is to be tried again after `delay`; without one, as the queue's retry policy says. The reason
        goes with it to the dead-letter queue."""
        self.is_settled = True
        return self._settling.nack(self.receipt, milliseconds(delay), reason)

    def __enter__(self) -> "QueueMessage":
        """`with message:` acknowledges it when the block ends, unless it was settled there; when an exception ends the
        block, it is returned with that as the reason."""
        self.begin_process()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if not self.is_settled:
                if error is None:
                    self.ack()
                else:
                    self.nack(reason=reason_for_broker(error))
        finally:
            self.end_process(error)

    def begin_process(self) -> None:
        """Begin the span of handling the message, where there is tracing; `with message:` does."""
        if self._process is not None:
            self._scope = self._process(self)
            self._scope.__enter__()

    def end_process(self, error: BaseException | None) -> None:
        """End the span of handling the message."""
        if self._scope is not None:
            self._scope.__exit__(None if error is None else type(error), error, None)
            self._scope = None

    def extend(self, seconds: Seconds) -> None:
        """Keep it for so long from now on. Raises `LeaseLost` if it is not ours any more."""
        self.extend_soon(seconds).result()

    def extend_soon(self, seconds: Seconds) -> AckResult:
        """The same without waiting; the returned object has the result."""
        return self._settling.extend(self.receipt, milliseconds(seconds) or 0)


class PeekedMessage(QueueMessageBody[Peeked]):
    """A message of a queue as `Queue.peek` shows it, without a lease.

    ```python
    for message in emails.peek(max=10):
        print(message.id, message.state, message.text)
    ```
    """

    __slots__ = ()

    @property
    def state(self) -> str:
        """available, in flight, delayed or dead (on its way to the dead-letter queue)."""
        return self.found.state

    @property
    def until_ms(self) -> int | None:
        """When a message that is in flight or delayed becomes visible, in milliseconds since the epoch."""
        return self.found.until_at_ms

    def __repr__(self) -> str:
        return f"<message {self.id}, {self.state}>"
