"""The operations of queues, for the SQS API and the API of the SDK and the command line, on any broker.

Times are milliseconds: durations, or since the epoch where the name ends in `_at_ms`. Every error is a `HeadraceError`.
"""

from collections.abc import Awaitable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import msgspec

from headrace.config.queue import QueueSettings
from headrace.model.errors import HeadraceError
from headrace.model.queue_wire import (
    AllReceived,
    Counts,
    Filter,
    Headers,
    Move,
    OutgoingMessage,
    Peeked,
    Received,
    Sent,
)

__all__ = [
    "Counts",
    "Failures",
    "Filter",
    "Headers",
    "Move",
    "OutgoingMessage",
    "Peeked",
    "QueueEdit",
    "QueueInfo",
    "Queues",
    "RangeAcks",
    "RangeFailures",
    "ReceiveOptions",
    "Received",
    "Sent",
]


@dataclass(frozen=True, slots=True)
class QueueInfo:
    """A queue as the cluster knows it."""

    name: str
    topic_id: str
    settings: QueueSettings
    attributes: Mapping[str, str]
    """The contents of `queue.attributes`: tags, policies and times of the SQS API."""


class ReceiveOptions(msgspec.Struct, frozen=True):
    max_messages: int = 1
    wait_ms: int | None = None
    """None: the queue's `queue.receive.wait.ms`."""
    visibility_ms: int | None = None
    attempt_id: str | None = None
    """In a fifo queue: a receive with the same id, within 5 minutes and while nothing has changed, gets the same
    messages."""


Failures = list[HeadraceError | None]
"""For each item of the request, in order: its error, or None."""


RangeFailures = list[tuple[int, HeadraceError]]
"""The offsets that failed, each with its error."""


@dataclass(frozen=True, slots=True)
class RangeAcks:
    """Messages to acknowledge that were received as ranges: first and last offset, and the attempt."""

    topic_id: str
    ranges: Sequence[tuple[int, int, int]]

    @property
    def count(self) -> int:
        return sum(last - first + 1 for first, last, _ in self.ranges)


@dataclass(frozen=True, slots=True)
class QueueEdit:
    """A change of a queue's definition: settings by their names without `queue.`, None to go back to the default."""

    settings: Mapping[str, str | None] = field(default_factory=dict)
    attributes: Mapping[str, str | None] = field(default_factory=dict)
    expected: Mapping[str, str | None] = field(default_factory=dict)
    """Attributes as the change assumes them, None for absent ones: `QueueUnavailable` if another change came first."""


class Queues(Protocol):
    # Queues: changes of the cluster's metadata, on any broker.

    async def create(self, name: str, edit: QueueEdit) -> QueueInfo:
        """Create a queue: a topic of one partition. An existing queue with the same settings is fine; `QueueExists` if
        they differ, or if the name is that of a topic."""
        ...

    async def delete(self, name: str) -> None: ...

    def queues(self, prefix: str = "") -> list[QueueInfo]:
        """In the order of their names."""
        ...

    def find(self, name: str) -> QueueInfo:
        """`UnknownQueue` if there is none."""
        ...

    async def alter(self, name: str, edit: QueueEdit) -> None: ...

    # Messages: on the broker that leads the queue's partition, whichever broker is asked.

    async def send(self, name: str, messages: Sequence[OutgoingMessage]) -> list[Sent]:
        """Returns when every replica in sync has the messages on disk. All or none, of at most a batch's size."""
        ...

    async def receive(self, name: str, options: ReceiveOptions) -> list[Received]:
        """Lease messages. Empty if none came in time. `TooManyInFlight` past `queue.max.in.flight`."""
        ...

    async def acknowledge(self, name: str, receipts: Sequence[str], *, any_receipt: bool = False) -> Failures:
        """Delete messages: none of them is received again. Deleting one twice is fine. `NotInFlight` if it was received
        again since, or is not leased any more, unless `any_receipt` that the message had is accepted."""
        ...

    # The same three for callers without a task. The operation begins with the call, and the answer is a
    # `PendingResult` where no coroutine is needed.

    def begin_send(self, name: str, messages: Sequence[OutgoingMessage]) -> Awaitable[list[Sent]]: ...

    def begin_receive(self, name: str, options: ReceiveOptions) -> Awaitable[list[Received]]: ...

    def begin_acknowledge(
        self, name: str, receipts: Sequence[str], *, any_receipt: bool = False
    ) -> Awaitable[Failures]: ...

    def begin_receive_batches(self, name: str, options: ReceiveOptions) -> Awaitable[list[Received] | AllReceived]:
        """Like `begin_receive`; neighbours may be ranges, with the batches of the log that have them."""
        ...

    def begin_acknowledge_ranges(self, name: str, acks: RangeAcks) -> Awaitable[RangeFailures]: ...

    async def extend(self, name: str, wanted: Sequence[tuple[str, int]], *, any_receipt: bool = False) -> Failures:
        """Set the visibility timeout from now on of each receipt; 0: available at once. `NotInFlight` if the message is
        not in flight any more, or, unless `any_receipt` is accepted, with another receipt."""
        ...

    async def nack(self, name: str, wanted: Sequence[tuple[str, int | None, str]]) -> Failures:
        """Return messages that failed: receipt, how long to hide it (None: by the queue's retry policy), and the
        reason, which goes with it to the dead-letter queue."""
        ...

    async def peek(self, name: str, wanted: Filter, after_offset: int = -1) -> list[Peeked]:
        """Read messages in the order of sending, without receiving them. At most `Filter.limit`, or 100."""
        ...

    async def purge(self, name: str) -> None:
        """Delete all messages sent before. `PurgeInProgress` within a minute of the last purge."""
        ...

    async def counts(self, name: str) -> Counts: ...

    # Moving messages, as out of a dead-letter queue

    async def start_move(
        self, source: str, destination: str | None, wanted: Filter, per_second: int | None = None
    ) -> Move: ...

    async def cancel_move(self, move_id: str) -> Move: ...

    def source_of(self, move_id: str) -> str:
        """The queue out of which a task moves messages. `UnknownMove` if the id is not one of a queue's."""
        ...

    async def moves(self, source: str) -> list[Move]:
        """The latest first, at most ten."""
        ...
