"""The queue of one partition's messages for a handler: one at a time, in order, with retry delays. Pure.

It preserves order by never starting a message before its predecessor is finished or moved to a retry topic. Queues are
independent, so partitions are handled concurrently.
"""

from collections import deque
from collections.abc import Iterable

from headrace.client.message import Message


class PartitionQueue:
    """The messages that wait, the one being handled, and the position up to which the partition is done."""

    def __init__(self) -> None:
        self._queue: deque[Message] = deque()
        self._handled: deque[Message] = deque()
        self._in_flight: Message | None = None
        self._held_until_ms = 0
        self.failures = 0
        """How often the first message has failed here."""
        self.base: int | None = None
        """The offset to rewind to when everything since the last commit is undone."""
        self.position: int | None = None
        """The next offset after the last message that is done; None before the first."""
        self._committed: int | None = None
        self.one_by_one = 0
        """How many messages to handle without pipelining results; set and read by the loop."""
        self.is_claimed = False
        """Whether a worker is assigned to this queue; set and read by the loop."""
        self.is_closed = False
        """Whether the partition is being revoked: no message is started any more."""

    def __len__(self) -> int:
        return len(self._queue)

    @property
    def in_flight(self) -> Message | None:
        return self._in_flight

    @property
    def first_waiting(self) -> int | None:
        """The offset of the first message that waits or is being handled; None if there is none."""
        return self._queue[0].offset if self._queue else None

    def put(self, messages: Iterable[Message]) -> None:
        self._queue.extend(messages)
        if self.base is None and self._queue:
            self.base = self._queue[0].offset

    def next_due_ms(self) -> int | None:
        """When the first message may be handled; None if there is none, or one is being handled."""
        if self.is_closed or self._in_flight is not None or not self._queue:
            return None
        return max(self._held_until_ms, self._queue[0].not_before_ms)

    def start(self, now_ms: int) -> Message | None:
        """Start the first message, if it is due."""
        due_ms = self.next_due_ms()
        if due_ms is None or due_ms > now_ms:
            return None
        self._in_flight = self._queue[0]
        return self._in_flight

    def advance(self) -> None:
        """The first message was handled; its results are not acknowledged yet."""
        self._handled.append(self._queue.popleft())
        self._in_flight = None
        self._held_until_ms = 0

    def settle(self) -> None:
        """The results of the first handled message are acknowledged: it is done."""
        self.position = self._handled.popleft().offset + 1
        self.failures = 0

    def finish(self) -> None:
        """The first message is done."""
        self.advance()
        self.settle()

    def take_back(self) -> int:
        """Requeue messages that were handled and whose results are not acknowledged; returns how many."""
        count = len(self._handled)
        self._queue.extendleft(reversed(self._handled))
        self._handled.clear()
        self._in_flight = None
        return count

    def hold(self, until_ms: int, *, is_failure: bool = True) -> None:
        """Retry the first message, not before a time."""
        self._in_flight = None
        self._held_until_ms = until_ms
        self.failures += is_failure

    def to_commit(self) -> int | None:
        """The offset to commit, if anything was done since the last commit."""
        return self.position if self.position != self._committed else None

    def committed(self, offset: int) -> None:
        self.base = self._committed = offset

    def uncommitted(self) -> None:
        """The last commit failed."""
        self._committed = None
