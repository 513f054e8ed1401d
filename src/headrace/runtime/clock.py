"""Time as a dependency: the system clock in production, a manual one in tests and simulation."""

import time
from typing import Protocol


class Clock(Protocol):
    def wall_ms(self) -> int:
        """Milliseconds since the epoch; may jump. For timestamps in records and retention."""
        ...

    def monotonic_ms(self) -> float:
        """Milliseconds that never go back. For timeouts and measurements."""
        ...

    def monotonic_s(self) -> float:
        """The same clock in seconds, which costs a third of it: for what is measured for each request."""
        ...


class SystemClock:
    def wall_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic_ms(self) -> float:
        return time.monotonic() * 1000.0

    monotonic_s = staticmethod(time.monotonic)


class ManualClock:
    """A clock that moves only by `advance`."""

    def __init__(self, wall_ms: int = 1_700_000_000_000) -> None:
        self._wall_ms = wall_ms
        self._monotonic_ms = 0.0

    def wall_ms(self) -> int:
        return self._wall_ms

    def monotonic_ms(self) -> float:
        return self._monotonic_ms

    def monotonic_s(self) -> float:
        return self._monotonic_ms / 1000.0

    def advance(self, ms: int) -> None:
        self._wall_ms += ms
        self._monotonic_ms += ms
