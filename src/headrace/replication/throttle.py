"""A limit in bytes per second: what was spent beyond it must be waited for. Pure."""

from collections.abc import Callable

_BURST_MS = 1_000.0
UNLIMITED_BYTES_PER_S = 2**63 - 1


class Throttle:
    """Lets up to a second's worth through at once, and then no more than the rate."""

    def __init__(self, bytes_per_s: Callable[[], int], now_ms: float) -> None:
        """The rate is asked for each time, since it may change."""
        self._bytes_per_s = bytes_per_s
        self._spent_bytes = 0.0
        self._as_of_ms = now_ms

    def spend(self, size_bytes: int, now_ms: float) -> None:
        rate = self._bytes_per_s()
        if rate >= UNLIMITED_BYTES_PER_S:
            self._spent_bytes = 0.0
            return
        self._settle(rate, now_ms)
        self._spent_bytes += size_bytes

    def wait_ms(self, now_ms: float) -> float:
        """How long nothing more may be spent; 0 if it may now."""
        rate = self._bytes_per_s()
        if rate >= UNLIMITED_BYTES_PER_S:
            return 0.0
        self._settle(rate, now_ms)
        return max(0.0, self._spent_bytes * 1000.0 / rate - _BURST_MS)

    def _settle(self, rate: int, now_ms: float) -> None:
        self._spent_bytes = max(0.0, self._spent_bytes - rate * (now_ms - self._as_of_ms) / 1000.0)
        self._as_of_ms = now_ms
