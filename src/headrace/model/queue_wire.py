"""What is said between a queue's door over HTTP and the SDK: the messages of queues, and the calls `Headrace.*`.

A call is `POST /` with the header `X-Amz-Target: Headrace.<name of the call's class>` and the call as its body; the
answer is the class in `ANSWERS`. Both are in the format that `Content-Type` names: `application/x-msgpack`, or
`application/json` with bytes in base64. What fails is answered with another status than 200 and `Problem`.

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
    """How many messages a queue has, right within a second."""

    available: int
    in_flight: int
    delayed: int


class OutgoingMessage(msgspec.Struct, frozen=True, array_like=True):
    """A message to be sent."""

    body: bytes
    id: str
    priority: int = NORMAL_PRIORITY
    delay_ms: int | None = None
    """Without it, as the queue says."""
    due_at_ms: int | None = None
    ttl_ms: int | None = None
    group: str | None = None
    dedupe: str | None = None
    """The id by which a fifo queue knows a message that it has got already. For a standard queue: None."""
    headers: Headers = ()
    """Everything else: attributes of the SQS API (see `model.queued`) and the sender's own headers."""


class Sent(msgspec.Struct, frozen=True, array_like=True):
    id: str
    """That of the message sent first, where this one is a duplicate."""
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
    """1 the first time that it is received."""
    first_received_at_ms: int
    deadline_at_ms: int
    priority: int = NORMAL_PRIORITY
    group: str | None = None
    dedupe: str | None = None
    origin: str | None = None
    """Of a message that was moved here, from a dead-letter queue or into one: `hr.origin` as it is."""
    headers: Headers = ()
    """All others than those of `model.queued` that have a field here."""


class Peeked(msgspec.Struct, frozen=True, array_like=True):
    """A message as it lies in the queue, leased to nobody by looking at it."""

    id: str
    body: bytes
    offset: int
    sent_at_ms: int
    attempt: int
    state: str
    """available, in flight, delayed or dead (on its way to the dead-letter queue)."""
    until_at_ms: int | None = None
    """When what is in flight or delayed is available again."""
    priority: int = NORMAL_PRIORITY
    group: str | None = None
    origin: str | None = None
    headers: Headers = ()


class Move(msgspec.Struct, frozen=True, array_like=True):
    """A task that moves messages from one queue to another, or to where each came from."""

    id: str
    source: str
    destination: str | None
    """None: each to the queue that it came from."""
    status: str
    """RUNNING, COMPLETED, CANCELLING, CANCELLED or FAILED."""
    started_at_ms: int
    moved: int
    to_move: int
    """Roughly, when it began."""
    per_second: int | None = None
    failure: str | None = None


@dataclass(frozen=True, slots=True)
class Filter:
    """Which messages of a queue are meant: all that agree with everything given."""

    ids: Sequence[str] = ()
    reason_contains: str = ""
    body_contains: bytes = b""
    sent_from_ms: int | None = None
    sent_before_ms: int | None = None
    limit: int | None = None


# Calls, and their answers


class Problem(msgspec.Struct, frozen=True):
    """What went wrong: of a whole call, or of one message in it."""

    error: str
    """The name of the class of `model.errors`, such as `UnknownQueue`."""
    message: str
    """A sentence."""


class Nothing(msgspec.Struct, frozen=True):
    """There is nothing to say but that it is done."""


class Description(msgspec.Struct, frozen=True):
    queue: str
    topic_id: str
    settings: dict[str, bool | int | float | str]
    """All that are in force: the fields of `config.queue.QueueSettings`, but `attributes`."""
    counts: Counts | None = None
    """Not in lists, unless asked for."""


class CreateQueue(msgspec.Struct, frozen=True):
    """One that is there with the same settings is fine."""

    queue: str
    settings: dict[str, str] = {}
    """By their names without `queue.`, such as `visibility.timeout.ms`."""


class AlterQueue(msgspec.Struct, frozen=True):
    queue: str
    settings: dict[str, str | None]
    """None: back to the default."""


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


class Receive(msgspec.Struct, frozen=True):
    queue: str
    max_messages: int = 1
    wait_ms: int | None = None
    visibility_ms: int | None = None
    attempt_id: str | None = None


class AllReceived(msgspec.Struct, frozen=True):
    messages: list[Received]


class Acknowledge(msgspec.Struct, frozen=True):
    queue: str
    receipts: list[str]


class Extend(msgspec.Struct, frozen=True):
    queue: str
    wanted: list[tuple[str, int]]
    """Receipts, each with how long from now on."""


class GiveBack(msgspec.Struct, frozen=True):
    queue: str
    wanted: list[tuple[str, int | None, str]]
    """Receipts, each with how long it is to be hidden (None: as the queue's retry policy says) and why it failed."""


class Outcomes(msgspec.Struct, frozen=True):
    problems: list[Problem | None]
    """In the order of what was asked for."""


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
"""By the class of the call."""
