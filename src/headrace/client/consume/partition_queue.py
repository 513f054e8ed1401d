"""The messages of one partition on their way through a handler: one at a time, in order, with waits. Pure.

A lane keeps the order of its partition by never starting a message before the one before it is finished or set aside.
Lanes know nothing of each other, so partitions are handled side by side.
"""

from collections import deque
from collections.abc import Iterable

from headrace.client.message import Message


class Lane:
    """What is waiting, what is being handled, and how far the partition is done."""

    def __init__(self) -> None:
        self._queue: deque[Message] = deque()
        self._handled: deque[Message] = deque()
        self._in_hand: Message | None = None
        self._held_until_ms = 0
        self.failures = 0
        """How often the first message failed since it came in."""
        self.base: int | None = None
        """From where the partition must be read again if what is done and not committed is undone."""
        self.position: int | None = None
        """The offset after what is done; None if nothing is."""
        self._committed: int | None = None
        self.one_by_one = 0
        """So many messages are handled with the results of each awaited before the next; the loop's own mark."""
        self.is_claimed = False
        """Whether a worker looks after this lane; the loop's own mark."""
        self.is_closed = False
        """Hand out nothing more: the partition is being given up."""

    def __len__(self) -> int:
        return len(self._queue)

    @property
    def in_hand(self) -> Message | None:
        return self._in_hand

    @property
    def first_waiting(self) -> int | None:
        """The offset of the first message that waits or is in hand; None if there is none."""
        return self._queue[0].offset if self._queue else None

    def put(self, messages: Iterable[Message]) -> None:
        self._queue.extend(messages)
        if self.base is None and self._queue:
            self.base = self._queue[0].offset

    def next_due_ms(self) -> int | None:
        """When the first message may be handled; None if there is none, or one is in hand."""
        if self.is_closed or self._in_hand is not None or not self._queue:
            return None
        return max(self._held_until_ms, self._queue[0].not_before_ms)

    def start(self, now_ms: int) -> Message | None:
        """Take the first message in hand, if it is due."""
        due_ms = self.next_due_ms()
        if due_ms is None or due_ms > now_ms:
            return None
        self._in_hand = self._queue[0]
        return self._in_hand

    def advance(self) -> None:
        """The first message is handled; whether its results are safe is not known yet."""
        self._handled.append(self._queue.popleft())
        self._in_hand = None
        self._held_until_ms = 0

    def settle(self) -> None:
        """The results of the first message that was handled are safe: it is done."""
        self.position = self._handled.popleft().offset + 1
        self.failures = 0

    def finish(self) -> None:
        """The first message is done."""
        self.advance()
        self.settle()

    def take_back(self) -> int:
        """Handle again what was handled and is not done; how many messages that are."""
        count = len(self._handled)
        self._queue.extendleft(reversed(self._handled))
        self._handled.clear()
        self._in_hand = None
        return count

    def hold(self, until_ms: int, *, is_failure: bool = True) -> None:
        """The first message is to be tried again, not before a time."""
        self._in_hand = None
        self._held_until_ms = until_ms
        self.failures += is_failure

    def to_commit(self) -> int | None:
        """The offset to commit, if anything was done since the last commit."""
        return self.position if self.position != self._committed else None

    def committed(self, offset: int) -> None:
        self.base = self._committed = offset

    def uncommitted(self) -> None:
        """The last commit was not made after all."""
        self._committed = None
