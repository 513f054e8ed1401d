"""The messages in flight at a worker of a queue: waiting for a thread, or being handled, each with a lease. Pure.

In a FIFO queue the messages of one group are handled one after the other. When one fails, those received behind it are
returned to the queue, since they must not be handled before it.
"""

from collections import deque
from collections.abc import Iterable
from typing import Generic, TypeVar

_AHEAD_S = 0.25
"""Seconds of work to prefetch: enough that threads do not wait for the network, little enough that messages do not wait
here while other workers are idle."""
_AHEAD_MOST = 1_000
_PACE_EVERY_S = 0.2

Message = TypeVar("Message")


class InFlightMessage(Generic[Message]):
    """One message in flight. `group` is its message group in a FIFO queue, otherwise None."""

    __slots__ = ("group", "is_lost", "message", "renew_at_s")

    def __init__(self, message: Message, group: str | None, renew_at_s: float) -> None:
        self.message = message
        self.group = group
        self.renew_at_s = renew_at_s
        self.is_lost = False


class InFlightMessages(Generic[Message]):
    """All messages in flight, of which `concurrency` are handled at a time. Times are seconds of a monotonic clock."""

    def __init__(self, concurrency: int, lease_s: float, now_s: float) -> None:
        self.concurrency = concurrency
        self._lease_s = lease_s
        self._waiting: deque[InFlightMessage[Message]] = deque()
        self._behind: dict[str, deque[InFlightMessage[Message]]] = {}
        """Of each group that has a message waiting or being handled: those behind it."""
        self._all: set[InFlightMessage[Message]] = set()
        self.running = 0
        self._finished = 0
        self._per_s = 0.0
        self._counted_at_s = now_s

    def __len__(self) -> int:
        return len(self._all)

    def put(self, messages: Iterable[tuple[Message, str | None]], now_s: float) -> None:
        """Add messages that were just received, each with its group if the queue is FIFO."""
        for message, group in messages:
            held = InFlightMessage(message, group, now_s + self._lease_s / 2)
            self._all.add(held)
            if group is None:
                self._waiting.append(held)
            elif group in self._behind:
                self._behind[group].append(held)
            else:
                self._behind[group] = deque()
                self._waiting.append(held)

    def start(self) -> InFlightMessage[Message] | None:
        """The next message to be handled, if there is one."""
        while self._waiting:
            held = self._waiting.popleft()
            if held.is_lost:
                self._drop(held)
                self._next_of(held.group)
                continue
            self.running += 1
            return held
        return None

    def done(self, held: InFlightMessage[Message]) -> None:
        """It was handled."""
        self._end(held)
        self._next_of(held.group)

    def failed(self, held: InFlightMessage[Message]) -> list[Message]:
        """A message failed. Removes and returns those behind it in its group, which must not be handled before it."""
        self._end(held)
        if held.group is None:
            return []
        behind = self._behind.pop(held.group, deque())
        for each in behind:
            self._drop(each)
        return [each.message for each in behind if not each.is_lost]

    def room(self, now_s: float) -> int:
        """How many messages more to receive."""
        passed_s = now_s - self._counted_at_s
        if passed_s >= _PACE_EVERY_S:
            self._per_s = (self._per_s + self._finished / passed_s) / 2
            self._finished = 0
            self._counted_at_s = now_s
        ahead = min(_AHEAD_MOST, int(self._per_s * _AHEAD_S))
        return max(0, self.concurrency + ahead - len(self._all))

    def to_renew(self, now_s: float) -> list[InFlightMessage[Message]]:
        """Those whose leases are to be extended now: more than half of their time is over. They count as extended;
        `lost` says of which it was not so."""
        due = [each for each in self._all if each.renew_at_s <= now_s and not each.is_lost]
        for each in due:
            each.renew_at_s = now_s + self._lease_s / 2
        return due

    def lost(self, held: InFlightMessage[Message]) -> None:
        """The lease is over: if it was not begun, it is not to be."""
        held.is_lost = True

    def give_up(self) -> list[Message]:
        """Remove and return every message that no thread has begun to handle."""
        found = [*self._waiting, *(each for behind in self._behind.values() for each in behind)]
        self._waiting.clear()
        for behind in self._behind.values():
            behind.clear()
        for each in found:
            self._drop(each)
        return [each.message for each in found if not each.is_lost]

    def _end(self, held: InFlightMessage[Message]) -> None:
        self.running -= 1
        self._finished += 1
        self._drop(held)

    def _drop(self, held: InFlightMessage[Message]) -> None:
        self._all.discard(held)

    def _next_of(self, group: str | None) -> None:
        if group is None:
            return
        behind = self._behind.get(group)
        if behind:
            self._waiting.append(behind.popleft())
        else:
            self._behind.pop(group, None)
