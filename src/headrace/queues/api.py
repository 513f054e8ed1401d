"""What the doors (SQS, the command line's and the SDK's API) ask of queues, on whichever broker they were asked.

Times are milliseconds: durations, or since the epoch where the name ends in `_at_ms`. Every error is a `HeadraceError`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import msgspec

from headrace.config.queue import QueueSettings
from headrace.model.errors import HeadraceError
from headrace.model.queued import NORMAL_PRIORITY

Headers = tuple[tuple[str, bytes | None], ...]


@dataclass(frozen=True, slots=True)
class QueueInfo:
    """A queue as the cluster knows it."""

    name: str
    topic_id: str
    settings: QueueSettings
    attributes: Mapping[str, str]
    """What `queue.attributes` holds: tags, policies and times of the SQS API, as it wrote them."""


@dataclass(frozen=True, slots=True)
class Counts:
    """How many messages a queue has, right within a second."""

    available: int
    in_flight: int
    delayed: int


class Outgoing(msgspec.Struct, frozen=True, array_like=True):
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


@dataclass(frozen=True, slots=True)
class ReceiveOptions:
    max_messages: int = 1
    wait_ms: int | None = None
    """Without it, as the queue says."""
    visibility_ms: int | None = None
    attempt_id: str | None = None
    """In a fifo queue: the same id again, within 5 minutes and while nothing has changed, gets the same messages."""


Failures = list[HeadraceError | None]
"""In the order of what was asked for: what failed, or None."""


@dataclass(frozen=True, slots=True)
class Edit:
    """A change of a queue's definition: settings by their names without `queue.`, None to go back to the default."""

    settings: Mapping[str, str | None] = field(default_factory=dict)
    attributes: Mapping[str, str | None] = field(default_factory=dict)


class Queues(Protocol):
    # Queues. These change the cluster's metadata: any broker does it.

    async def create(self, name: str, edit: Edit) -> QueueInfo:
        """A new queue: a topic of one partition. One that is there with the same settings is fine: `QueueExists` if
        they differ, or if it is a topic that is no queue."""
        ...

    async def delete(self, name: str) -> None: ...

    def queues(self, prefix: str = "") -> list[QueueInfo]:
        """In the order of their names."""
        ...

    def find(self, name: str) -> QueueInfo:
        """`UnknownQueue` if there is none."""
        ...

    async def alter(self, name: str, edit: Edit) -> None: ...

    # Messages. The broker that leads the queue's partition does it, whoever is asked.

    async def send(self, name: str, messages: Sequence[Outgoing]) -> list[Sent]:
        """Acknowledged when every replica in sync has them on disk. All or none, of at most a batch's size."""
        ...

    async def receive(self, name: str, options: ReceiveOptions) -> list[Received]:
        """Lease messages. Empty if none came in time. `TooManyInFlight` past `queue.max.in.flight`."""
        ...

    async def acknowledge(self, name: str, receipts: Sequence[str]) -> Failures:
        """They are done: none of them is received again. One that is done already is fine."""
        ...

    async def extend(self, name: str, wanted: Sequence[tuple[str, int]]) -> Failures:
        """Receipts, each with how long from now on it is to be leased; 0: available at once. `NotInFlight` if it is not
        leased any more."""
        ...

    async def give_back(self, name: str, wanted: Sequence[tuple[str, int | None, str]]) -> Failures:
        """Receipts, each with how long the message is to be hidden (None: as the queue's retry policy says) and why it
        failed, which goes with it to the dead-letter queue."""
        ...

    async def peek(self, name: str, wanted: Filter, after_offset: int = -1) -> list[Peeked]:
        """Look at messages in the order of sending; nothing changes. At most `Filter.limit`, or 100."""
        ...

    async def purge(self, name: str) -> None:
        """Everything sent before is gone. `PurgeInProgress` within a minute of the last."""
        ...

    async def counts(self, name: str) -> Counts: ...

    # Moving messages, as out of a dead-letter queue

    async def start_move(
        self, source: str, destination: str | None, wanted: Filter, per_second: int | None = None
    ) -> Move: ...

    async def cancel_move(self, move_id: str) -> Move: ...

    async def moves(self, source: str) -> list[Move]:
        """The latest first, at most ten."""
        ...
