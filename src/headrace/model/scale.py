"""How many processes a backlog needs: for `headrace work` and for `GET /api/v1/scale/…`. Pure.

The estimate is that of the time to drain: messages that wait, divided by what one process handles per second. As many
processes are wanted as drain the backlog within the target. Without a measured rate the age of the oldest message
decides: twice as many processes when it is over the target.

- Monotone: more messages never want fewer processes.
- Bounded: by the minimum and the maximum, by the partitions of a topic (one more member would be idle), and by the
  number of messages. The bound of the partitions comes before the minimum.
- Steady (`PoolScaler`): after an increase, and after any sample that wanted more, nothing is stopped for the cooldown.
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil

_SETTLE_S = 2.0
"""Between two increases: the processes of the first must show in the measured rate."""
_SHORT_S = 1.0
"""A backlog that is drained within this is no reason to hold processes, however old its messages are."""
_HALF_LIFE_S = 10.0


@dataclass(frozen=True, slots=True)
class ScaleRules:
    """The bounds of a pool of processes, and how fast it is to be."""

    minimum: int = 1
    maximum: int = 8
    target_s: float = 30.0
    """A backlog is to be drained within this."""
    cooldown_s: float = 60.0
    """How long fewer processes must be enough before any is stopped."""


@dataclass(frozen=True, slots=True)
class SourceLoad:
    """The backlog of one queue, or of one group in its topics."""

    name: str
    """As in sentences: `queue emails`."""
    waiting: int | None
    """Messages that are not acknowledged, those in progress included; None if it is not known."""
    oldest_s: float | None = None
    """The age of the oldest of them: the lag in seconds."""
    each_per_s: float | None = None
    """Messages that one process handles per second; None if that was not measured."""
    cap: int | None = None
    """More processes would be idle: the partitions of the topics. None for a queue."""


@dataclass(frozen=True, slots=True)
class WantedProcesses:
    """How many processes a source wants now, and why."""

    count: int
    reason: str
    drain_s: float | None = None
    """How long the processes that run now need for the backlog; None if it is not known."""


def wanted_processes(load: SourceLoad, rules: ScaleRules, running: int | None) -> WantedProcesses:
    """The processes that one source wants. `running` is how many there are, None if that is not known."""
    if load.waiting is None:
        return _bounded(load, rules, running or 0, f"the backlog of {load.name} is not known", None)
    if load.waiting <= 0:
        return _bounded(load, rules, 0, f"{load.name} has nothing waiting", 0.0)
    rate = load.each_per_s or 0.0
    drain_s = load.waiting / (rate * running) if rate and running else None
    backlog = f"{load.name} has {load.waiting:,} waiting"
    if load.oldest_s is not None:
        backlog += f", the oldest for {load.oldest_s:,.0f} s"
    is_late = load.oldest_s is not None and load.oldest_s > rules.target_s
    if rate:
        need = ceil(load.waiting / (rate * rules.target_s))
        why = f"{backlog}: at {_rate(rate)} per process {_processes(need)} drain it within {rules.target_s:g} s"
        if is_late and running and need < running and drain_s is not None and drain_s > _SHORT_S:
            need, why = running, f"{backlog}: later than {rules.target_s:g} s, so none is stopped"
    elif is_late:
        need = 2 * running if running else rules.maximum
        why = f"{backlog}: later than {rules.target_s:g} s, and no rate was measured"
    else:
        need, why = running or 1, f"{backlog}: no rate was measured yet"
    return _bounded(load, rules, min(need, load.waiting), why, drain_s)


def _bounded(load: SourceLoad, rules: ScaleRules, need: int, why: str, drain_s: float | None) -> WantedProcesses:
    top = rules.maximum if load.cap is None else min(rules.maximum, max(1, load.cap))
    count = min(max(need, rules.minimum), top)
    if need > count:
        bound = f"the maximum is {top}" if top == rules.maximum else f"it has {_partitions(top)}"
        why += f"; {bound}"
    elif need < count:
        why += f"; the minimum is {count}"
    return WantedProcesses(count, why, drain_s)


def _processes(count: int) -> str:
    return "1 process would" if count == 1 else f"{count:,} processes would"


def _partitions(count: int) -> str:
    return "1 partition" if count == 1 else f"{count:,} partitions"


def _rate(per_s: float) -> str:
    return f"{per_s:,.0f}/s" if per_s >= 10 else f"{per_s:.2g}/s"


class PoolScaler:
    """Decides how many processes of a pool run. Times are seconds of a monotonic clock."""

    def __init__(self, rules: ScaleRules, now_s: float) -> None:
        self._rules = rules
        self._raised_at_s: float | None = None
        self._wanted: deque[tuple[float, int]] = deque()
        """What was wanted within the cooldown."""
        self._since_s = now_s

    def decide(self, loads: Sequence[SourceLoad], running: int, now_s: float) -> WantedProcesses:
        """How many are to run, and why: the most that any source wants, unless that is fewer and the cooldown is not
        over."""
        nothing = WantedProcesses(self._rules.minimum, "no queue and no group to scale by: the minimum")
        found = [wanted_processes(load, self._rules, running) for load in loads]
        best = max(found, key=lambda each: each.count, default=nothing)
        window, cooldown_s = self._wanted, self._rules.cooldown_s
        window.append((now_s, best.count))
        while window and window[0][0] < now_s - cooldown_s:
            window.popleft()
        if best.count > running:
            if self._raised_at_s is not None and now_s - self._raised_at_s < _SETTLE_S:
                return WantedProcesses(running, f"{best.reason}; the processes just started come first", best.drain_s)
            self._raised_at_s = now_s
            return best
        if best.count == running:
            return best
        enough = min(running, max(count for _, count in window))
        quiet_s = now_s - max(self._since_s, self._raised_at_s or self._since_s)
        if quiet_s < cooldown_s or enough == running:
            return WantedProcesses(running, f"{best.reason}; held for the cooldown of {cooldown_s:g} s", best.drain_s)
        return WantedProcesses(enough, best.reason, best.drain_s)


class ProcessRate:
    """How many messages one process handles per second, measured while messages wait: an idle process is not slow.

    Older measurements count less, by half every ten seconds.
    """

    def __init__(self) -> None:
        self._handled = 0.0
        self._process_s = 0.0

    def note(self, handled: int, processes: int, passed_s: float, *, is_busy: bool) -> None:
        """So many messages were handled by these processes within this time."""
        if not is_busy or passed_s <= 0:
            return
        remaining = 0.5 ** (passed_s / _HALF_LIFE_S)
        self._handled = self._handled * remaining + handled
        self._process_s = self._process_s * remaining + processes * passed_s

    @property
    def per_s(self) -> float | None:
        """None if nothing was measured."""
        if self._process_s < 1.0 or self._handled < 0.01:
            return None
        return self._handled / self._process_s
