"""The HTTP protocol between the SDK and a broker's queues: the calls `Headrace.*`, their answers, and queue messages.

A call is `POST /` with the header `X-Amz-Target: Headrace.<name of the call's class>` and the call as its body; the
answer is the class in `ANSWERS`. Both are in the format of `Content-Type`: `application/x-msgpack`, or
`application/json` with bytes in base64. An error has another status than 200 and a `Problem` as its body.

Times are milliseconds: durations, or since the epoch where the name ends in `_at_ms`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import msgspec

from headrace.model.queued import NORMAL_PRIORITY

MSGPACK = "application/x-msgpack"
JSON = "application/json"
TARGET_PREFIX = "Headrace."

Headers = tuple[tuple[str, bytes | None], ...]


@dataclass(frozen=True, slots=True)
class Counts:
    """A queue's message counts, accurate to a second."""

    available: int
    in_flight: int
    delayed: int
    last_due_at_ms: int | None = None
    """Of a queue with a schedule: the due time of its last message."""


class OutgoingMessage(msgspec.Struct, frozen=True, array_like=True):
    """A message to be sent."""

    body: bytes
    id: str
    priority: int = NORMAL_PRIORITY
    delay_ms: int | None = None
    """None: the queue's default."""
    due_at_ms: int | None = None
    ttl_ms: int | None = None
    group: str | None = None
    dedupe: str | None = None
    """The deduplication id in a fifo queue; None in a standard queue."""
    headers: Headers = ()
    """Everything else: attributes of the SQS API (see `model.queued`) and the sender's own headers."""


class Sent(msgspec.Struct, frozen=True, array_like=True):
    id: str
    """The id of the first message, if this one is a duplicate."""
    offset: int
    """In a fifo queue the sequence number."""


class Received(msgspec.Struct, frozen=True, array_like=True):
    """A message that is leased to its receiver until `deadline_at_ms`."""

    id: str
    receipt: str
    body: bytes
    offset: int
    sent_at_ms: int
    attempt: int
    """The receive count: 1 at the first receive."""
    first_received_at_ms: int
    deadline_at_ms: int
    priority: int = NORMAL_PRIORITY
    group: str | None = None
    dedupe: str | None = None
    origin: str | None = None
    """The raw `hr.origin` of a message that was moved, from or to a dead-letter queue."""
    headers: Headers = ()
    """All headers without a field here (see `model.queued`)."""


class Peeked(msgspec.Struct, frozen=True, array_like=True):
    """A message in the queue; peeking does not lease it."""

    id: str
    body: bytes
    offset: int
    sent_at_ms: int
    attempt: int
    state: str
    """available, in flight, delayed or dead (on its way to the dead-letter queue)."""
    until_at_ms: int | None = None
    """When a message in flight or delayed becomes visible."""
    priority: int = NORMAL_PRIORITY
    group: str | None = None
    origin: str | None = None
    headers: Headers = ()


class Move(msgspec.Struct, frozen=True, array_like=True):
    """A task that moves messages to another queue, or back to their source queues (redrive)."""

    id: str
    source: str
    destination: str | None
    """None: each to its source queue."""
    status: str
    """RUNNING, COMPLETED, CANCELLING, CANCELLED or FAILED."""
    started_at_ms: int
    moved: int
    to_move: int
    """The approximate number when it started."""
    per_second: int | None = None
    failure: str | None = None


@dataclass(frozen=True, slots=True)
class Filter:
    """Selects the messages of a queue that match all given conditions."""

    ids: Sequence[str] = ()
    reason_contains: str = ""
    body_contains: bytes = b""
    sent_from_ms: int | None = None
    sent_before_ms: int | None = None
    limit: int | None = None


# Calls, and their answers


class Problem(msgspec.Struct, frozen=True):
    """The error of a call, or of one message in it."""

    error: str
    """The name of a class in `model.errors`, such as `UnknownQueue`."""
    message: str
    """The error message."""


class Nothing(msgspec.Struct, frozen=True):
    """The empty answer of a call that succeeded."""


class Description(msgspec.Struct, frozen=True):
    """A queue with its settings and counts."""

    queue: str
    topic_id: str
    settings: dict[str, bool | int | float | str]
    """All settings in force: the fields of `config.queue.QueueSettings` except `attributes`."""
    counts: Counts | None = None
    """In lists only if requested."""


class CreateQueue(msgspec.Struct, frozen=True):
    """Create a queue; an existing one with the same settings is fine."""

    queue: str
    settings: dict[str, str] = {}
    """By name without `queue.`, such as `visibility.timeout.ms`."""


class AlterQueue(msgspec.Struct, frozen=True):
    queue: str
    settings: dict[str, str | None]
    """None resets to the default."""


class DeleteQueue(msgspec.Struct, frozen=True):
    queue: str


class DescribeQueue(msgspec.Struct, frozen=True):
    queue: str


class ListQueues(msgspec.Struct, frozen=True):
    prefix: str = ""
    with_counts: bool = False


class Descriptions(msgspec.Struct, frozen=True):
    queues: list[Description]


class Send(msgspec.Struct, frozen=True):
    queue: str
    messages: list[OutgoingMessage]


class AllSent(msgspec.Struct, frozen=True):
    sent: list[Sent]


class Receive(msgspec.Struct, frozen=True, omit_defaults=True):
    queue: str
    max_messages: int = 1
    wait_ms: int | None = None
    visibility_ms: int | None = None
    attempt_id: str | None = None
    as_batches: bool = False
    """Whether the answer may have ranges of messages, as batches of the log. A broker that does not know it ignores
    it."""


class LeasedRange(msgspec.Struct, frozen=True, array_like=True):
    """Messages with consecutive offsets that are leased to their receiver until `deadline_at_ms`."""

    first: int
    last: int
    attempt: int
    first_received_at_ms: int
    deadline_at_ms: int


class AllReceived(msgspec.Struct, frozen=True, omit_defaults=True):
    """Messages, or ranges of them."""

    messages: list[Received]
    ranges: list[LeasedRange] = []
    """In the order in which they are to be handled."""
    batches: bytes = b""
    """Record batches of the log that have the messages of all ranges, and maybe others before and behind them."""
    topic_id: str = ""
    """The queue's topic, with ranges."""


class Acknowledge(msgspec.Struct, frozen=True, omit_defaults=True):
    queue: str
    receipts: list[str]
    ranges: list[tuple[int, int, int]] = []
    """First and last offset, and the attempt, of messages that were received as ranges."""
    topic_id: str = ""
    """The queue's topic, with ranges."""


class Extend(msgspec.Struct, frozen=True):
    queue: str
    wanted: list[tuple[str, int]]
    """Receipts, each with its new visibility timeout from now on."""


class GiveBack(msgspec.Struct, frozen=True):
    queue: str
    wanted: list[tuple[str, int | None, str]]
    """Receipts, each with its retry delay (None: by the queue's retry policy) and the reason of the failure."""


class Outcomes(msgspec.Struct, frozen=True, omit_defaults=True):
    problems: list[Problem | None]
    """In the order of the request; None is success."""
    range_problems: list[tuple[int, Problem]] | None = None
    """The offsets of the request's ranges that failed. None if there were no ranges, or the broker ignored them."""


class Peek(msgspec.Struct, frozen=True):
    queue: str
    wanted: Filter = Filter()
    after_offset: int = -1


class AllPeeked(msgspec.Struct, frozen=True):
    messages: list[Peeked]


class Purge(msgspec.Struct, frozen=True):
    queue: str


class Count(msgspec.Struct, frozen=True):
    queue: str


class StartMove(msgspec.Struct, frozen=True):
    source: str
    destination: str | None = None
    wanted: Filter = Filter()
    per_second: int | None = None


class CancelMove(msgspec.Struct, frozen=True):
    move_id: str


class ListMoves(msgspec.Struct, frozen=True):
    source: str


class Moves(msgspec.Struct, frozen=True):
    moves: list[Move]


ANSWERS: Mapping[type[msgspec.Struct], type] = {
    CreateQueue: Description,
    AlterQueue: Nothing,
    DeleteQueue: Nothing,
    DescribeQueue: Description,
    ListQueues: Descriptions,
    Send: AllSent,
    Receive: AllReceived,
    Acknowledge: Outcomes,
    Extend: Outcomes,
    GiveBack: Outcomes,
    Peek: AllPeeked,
    Purge: Nothing,
    Count: Counts,
    StartMove: Move,
    CancelMove: Move,
    ListMoves: Moves,
}
"""The answer's class by the call's class."""
