"""A token bucket, computed as Kafka's `TokenBucket` (KIP-599): bursts are allowed, their mean rate is bounded. Pure."""

from headrace.quotas.rate import RateWindows, rounded


class TokenBucket:
    """The tokens of one client: full at first, refilled at the rate of the quota, negative when overdrawn."""

    __slots__ = ("_bound", "_burst", "_tokens", "_updated_ms", "_windows")

    def __init__(self, windows: RateWindows, bound: float, now_ms: int) -> None:
        self._windows = windows
        self._bound = bound
        self._burst = self._tokens = windows.samples * windows.window_ms / 1000.0 * bound
        self._updated_ms = now_ms

    @property
    def bound(self) -> float:
        """The tokens that are added each second."""
        return self._bound

    def change(self, bound: float, now_ms: int) -> None:
        """Refill at another rate from now on; tokens beyond the new burst are lost."""
        self.tokens(now_ms)
        self._bound = bound
        self._burst = self._windows.samples * self._windows.window_ms / 1000.0 * bound

    def tokens(self, now_ms: int) -> float:
        self._tokens = min(self._burst, self._tokens + self._bound * (now_ms - self._updated_ms) / 1000.0)
        self._updated_ms = now_ms
        return self._tokens

    def is_full(self, now_ms: int) -> bool:
        return self.tokens(now_ms) >= self._burst

    def take(self, count: float, now_ms: int) -> None:
        """Take tokens, also ones that are not there."""
        self._tokens = min(self._burst, self.tokens(now_ms) - count)

    def delay_ms(self, now_ms: int) -> int:
        """How long it takes until no token is owed; 0 if none is."""
        tokens = self.tokens(now_ms)
        return 0 if tokens >= 0 else rounded(-tokens / self._bound * 1000.0)
