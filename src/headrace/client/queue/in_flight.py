"""What a worker of a queue has in hand: messages that wait for a thread, those being handled, and when each lease is
to be extended. Pure.

In a fifo queue the messages of one group are handled one after the other; when one fails, those behind it that are
here are to be given back, for they must not be handled before it.
"""

from collections import deque
from collections.abc import Iterable
from typing import Generic, TypeVar

_AHEAD_S = 0.25
"""So much work, in seconds, is received ahead: enough that threads do not wait for the network, and little enough that
messages do not wait here while others could handle them."""
_AHEAD_MOST = 1_000
_PACE_EVERY_S = 0.2

Message = TypeVar("Message")


class InFlightMessage(Generic[Message]):
    """A message in hand. `message` is anything; `group` is its group in a fifo queue, otherwise None."""

    __slots__ = ("group", "is_lost", "message", "renew_at_s")

    def __init__(self, message: Message, group: str | None, renew_at_s: float) -> None:
        self.message = message
        self.group = group
        self.renew_at_s = renew_at_s
        self.is_lost = False


class Hand(Generic[Message]):
    """`concurrency` messages are handled at a time. Times are seconds of one clock that does not jump."""

    def __init__(self, concurrency: int, lease_s: float, now_s: float) -> None:
        self._concurrency = concurrency
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
        """Messages that were received just now, each with its group if the queue is fifo."""
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
        """It was not handled. Returns those that must not be handled before it and are in hand no more."""
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
        return max(0, self._concurrency + ahead - len(self._all))

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
        """Everything that was not begun; it is in hand no more."""
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
