"""A rate limit in bytes per second: bytes beyond it cause a wait. Pure."""

from collections.abc import Callable

_BURST_MS = 1_000.0
UNLIMITED_BYTES_PER_S = 2**63 - 1


class Throttle:
    """A token bucket with a burst of one second."""

    def __init__(self, bytes_per_s: Callable[[], int], now_ms: float) -> None:
        """`bytes_per_s` is called each time, since the rate may change."""
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
        """The time to wait before more bytes may be spent; 0 if they may be now."""
        rate = self._bytes_per_s()
        if rate >= UNLIMITED_BYTES_PER_S:
            return 0.0
        self._settle(rate, now_ms)
        return max(0.0, self._spent_bytes * 1000.0 / rate - _BURST_MS)

    def _settle(self, rate: int, now_ms: float) -> None:
        self._spent_bytes = max(0.0, self._spent_bytes - rate * (now_ms - self._as_of_ms) / 1000.0)
        self._as_of_ms = now_ms
