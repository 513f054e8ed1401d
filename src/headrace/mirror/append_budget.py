"""How many batches of source clusters are appended in one turn of the event loop.

A source decides how small its batches are and how many of them one answer has. Each costs some microseconds, and while
they are appended nothing else runs: not the clients of this broker, nor the renewal of its lease.
"""

from collections.abc import Callable

BATCHES_MAX = 10_000
"""About a tenth of a second."""


class AppendBudget:
    """Shared by all mirror partitions of a broker."""

    def __init__(self, in_next_turn: Callable[[Callable[[], None]], object], batches_max: int = BATCHES_MAX) -> None:
        """`in_next_turn` calls back in the next turn, as `call_soon` of an event loop does."""
        self._in_next_turn = in_next_turn
        self._batches_max = batches_max
        self.left = batches_max
        """Batches that may still be appended in this turn."""

    def spend(self, batches: int) -> None:
        if self.left == self._batches_max and batches:
            self._in_next_turn(self._refill)
        self.left -= batches

    def _refill(self) -> None:
        self.left = self._batches_max
