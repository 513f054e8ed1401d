"""What has happened to groups and queues since a while: stalls, waiting messages, dead letters. Pure.

Memory is in proportion to the groups that have lag and the queues that have messages.
"""

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from headrace.monitor.health.facts import GroupFact, QueueFact
from headrace.monitor.health.rules import DEAD_LETTER_WINDOW_S


class GroupLag(NamedTuple):
    """A group as it is now."""

    group: str
    members: int
    lag_messages: int
    lag_seconds: float | None
    stalled_s: float
    """For how long its position has not moved."""


@dataclass(slots=True)
class _Stall:
    since_s: float
    lag_then: int


class StallBook:
    """Remembers how far behind each group was when it stopped to move."""

    def __init__(self) -> None:
        self._stalls: dict[str, _Stall] = {}
        self._seen: dict[str, _Stall] = {}

    def look(self, group: GroupLag, now_s: float) -> GroupFact | None:
        """What has happened since a group stopped to move; None if its lag has not grown since."""
        if group.lag_messages <= 0:
            return None
        since_s = now_s - group.stalled_s
        stall = self._stalls.get(group.group)
        # A second more or less is no movement: the two clocks are read at different times.
        if stall is None or since_s > stall.since_s + 1.0:
            stall = _Stall(since_s, group.lag_messages)
        self._seen[group.group] = stall
        growth = group.lag_messages - stall.lag_then
        if growth <= 0:
            return None
        return GroupFact(
            group.group, group.members, group.lag_messages, growth, now_s - stall.since_s, group.lag_seconds
        )

    def finish(self) -> None:
        """Forget the groups that were not looked at since the last call, and those without lag."""
        self._stalls, self._seen = self._seen, {}


class QueueLook(NamedTuple):
    """A queue as it is now."""

    queue: str
    available: int
    stored: int
    """Messages in any state."""
    oldest_age_s: float
    received_s_ago: float | None
    """None if nothing was received as far as is known."""
    is_dead_letter_queue: bool


@dataclass(slots=True)
class _Queue:
    waits_since_s: float | None = None
    stored: int | None = None
    arrivals: deque[tuple[float, int]] = field(default_factory=deque)


class QueueBook:
    """Remembers since when messages of a queue wait, and how many dead letters came."""

    def __init__(self) -> None:
        self._queues: dict[str, _Queue] = {}

    def update(self, queues: Iterable[QueueLook], now_s: float) -> list[QueueFact]:
        seen: dict[str, _Queue] = {}
        facts = []
        for counts in queues:
            queue = seen[counts.queue] = self._queues.get(counts.queue) or _Queue()
            if not counts.available:
                queue.waits_since_s = None
            elif queue.waits_since_s is None:
                queue.waits_since_s = now_s
            dead = self._arrived(queue, counts.stored, now_s) if counts.is_dead_letter_queue else 0
            # Letters wait in a dead-letter queue until a person has read them: it needs no consumer.
            if (counts.available and not counts.is_dead_letter_queue) or dead:
                waits_s = now_s - (now_s if queue.waits_since_s is None else queue.waits_since_s)
                idle_s = waits_s if counts.received_s_ago is None else min(counts.received_s_ago, waits_s)
                available = 0 if counts.is_dead_letter_queue else counts.available
                facts.append(QueueFact(counts.queue, available, counts.oldest_age_s, idle_s, dead))
        self._queues = seen
        return facts

    @staticmethod
    def _arrived(queue: _Queue, stored: int, now_s: float) -> int:
        """How many more messages there were at each look, in sum over the window."""
        if queue.stored is not None and stored > queue.stored:
            queue.arrivals.append((now_s, stored - queue.stored))
        queue.stored = stored
        while queue.arrivals and queue.arrivals[0][0] <= now_s - DEAD_LETTER_WINDOW_S:
            queue.arrivals.popleft()
        return sum(count for _, count in queue.arrivals)


class EventWindow:
    """Counts events of the last minute, in slots of five seconds."""

    def __init__(self, window_s: float = 60.0, slot_s: float = 5.0) -> None:
        self._slot_s = slot_s
        self._slots: deque[tuple[int, int]] = deque(maxlen=int(window_s / slot_s) + 1)
        self._window_s = window_s

    def add(self, now_s: float, count: int = 1) -> None:
        slot = int(now_s / self._slot_s)
        if self._slots and self._slots[-1][0] == slot:
            self._slots[-1] = (slot, self._slots[-1][1] + count)
        else:
            self._slots.append((slot, count))

    def count(self, now_s: float) -> int:
        oldest = (now_s - self._window_s) / self._slot_s
        return sum(count for slot, count in self._slots if slot > oldest - 1)


class MeanWindow:
    """The mean of what was measured in the last minute, from counters that only grow."""

    def __init__(self, window_s: float = 60.0, samples_max: int = 32) -> None:
        self._window_s = window_s
        self._samples: deque[tuple[float, int, float]] = deque(maxlen=samples_max)

    def mean(self, now_s: float, count: int, total: float) -> float | None:
        """The mean since the oldest sample of the window; None if nothing was measured since."""
        self._samples.append((now_s, count, total))
        while len(self._samples) > 1 and self._samples[1][0] <= now_s - self._window_s:
            self._samples.popleft()
        _, count_then, total_then = self._samples[0]
        return (total - total_then) / (count - count_then) if count > count_then else None
