"""The deadline of the current phase of a classic group: the join phase, or the sync phase. Pure.

The join phase of a group that was empty is short, so that a single member need not wait, and is extended while more
members join, up to the rebalance timeout.
"""

from headrace.groups.group import Now


class RebalanceTimer:
    def __init__(self, initial_delay_ms: int) -> None:
        self.deadline_ms: float | None = None
        self.is_initial = False
        """Whether this is the join phase of a group that was empty."""
        self._initial_delay_ms = initial_delay_ms
        self._delay_left_ms = 0.0
        self._has_grown = False

    def start(self, timeout_ms: float, now: Now) -> None:
        self.deadline_ms = now.ms + timeout_ms

    def start_join_phase(self, timeout_ms: float, now: Now, *, was_empty: bool) -> None:
        self.is_initial = was_empty and self._initial_delay_ms > 0
        if self.is_initial:
            self._delay_left_ms = max(0.0, timeout_ms - self._initial_delay_ms)
            self._has_grown = False
            timeout_ms = self._initial_delay_ms
        self.start(timeout_ms, now)

    def note_growth(self) -> None:
        """Note that a new member joined."""
        self._has_grown = True

    def extend(self, now: Now) -> bool:
        """Extend an initial join phase in which members joined. Returns whether it was extended."""
        if not (self.is_initial and self._has_grown and self._delay_left_ms > 0):
            return False
        delay_ms = min(self._initial_delay_ms, self._delay_left_ms)
        self._delay_left_ms -= delay_ms
        self._has_grown = False
        self.start(delay_ms, now)
        return True

    def end_join_phase(self) -> None:
        self.is_initial = False

    def stop(self) -> None:
        self.deadline_ms = None

    def is_due(self, now: Now) -> bool:
        return self.deadline_ms is not None and self.deadline_ms <= now.ms
