"""What the doors (SQS, the command line's and the SDK's API) ask of queues, on whichever broker they were asked.

Times are milliseconds: durations, or since the epoch where the name ends in `_at_ms`. Every error is a `HeadraceError`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from headrace.config.queue import QueueSettings
from headrace.model.errors import HeadraceError
from headrace.model.queue_wire import Counts, Filter, Headers, Move, OutgoingMessage, Peeked, Received, Sent

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
    """What `queue.attributes` holds: tags, policies and times of the SQS API, as it wrote them."""


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
class QueueEdit:
    """A change of a queue's definition: settings by their names without `queue.`, None to go back to the default."""

    settings: Mapping[str, str | None] = field(default_factory=dict)
    attributes: Mapping[str, str | None] = field(default_factory=dict)
    expected: Mapping[str, str | None] = field(default_factory=dict)
    """Attributes as the change assumes them, None for absent ones: `QueueUnavailable` if another change came first."""


class Queues(Protocol):
    # Queues. These change the cluster's metadata: any broker does it.

    async def create(self, name: str, edit: QueueEdit) -> QueueInfo:
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

    async def alter(self, name: str, edit: QueueEdit) -> None: ...

    # Messages. The broker that leads the queue's partition does it, whoever is asked.

    async def send(self, name: str, messages: Sequence[OutgoingMessage]) -> list[Sent]:
        """Acknowledged when every replica in sync has them on disk. All or none, of at most a batch's size."""
        ...

    async def receive(self, name: str, options: ReceiveOptions) -> list[Received]:
        """Lease messages. Empty if none came in time. `TooManyInFlight` past `queue.max.in.flight`."""
        ...

    async def acknowledge(self, name: str, receipts: Sequence[str], *, any_receipt: bool = False) -> Failures:
        """They are done: none of them is received again. One that is done already is fine. `NotInFlight` if it was
        received again since, or is not leased any more: unless `any_receipt` that the message had will do."""
        ...

    async def extend(self, name: str, wanted: Sequence[tuple[str, int]], *, any_receipt: bool = False) -> Failures:
        """Receipts, each with how long from now on it is to be leased; 0: available at once. `NotInFlight` if it is not
        leased any more, or, unless `any_receipt` will do, to somebody else."""
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
