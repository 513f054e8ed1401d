"""Exponential backoff: how long to wait before a retry. Pure; the caller sleeps, and adds jitter where many retry."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ExponentialDelay:
    """A delay of `first` that grows by `factor` with each consecutive failure, up to `limit`.

    The unit of `first` and `limit` is the caller's, and is the unit of the result.
    """

    first: float
    limit: float
    factor: float = 2.0

    def after(self, failures: int) -> float:
        """The delay after this many consecutive failures, counted from 1."""
        if not self.first:
            return 0.0
        try:
            return min(self.limit, self.first * self.factor ** (failures - 1))
        except OverflowError:
            return self.limit


class RetryDelays:
    """The delays of one retry loop: `next()` after a failure, `reset()` after a success."""

    __slots__ = ("_delay", "failures")

    def __init__(self, delay: ExponentialDelay) -> None:
        self._delay = delay
        self.failures = 0

    def next(self) -> float:
        self.failures += 1
        return self._delay.after(self.failures)

    def reset(self) -> None:
        self.failures = 0

    @property
    def is_at_limit(self) -> bool:
        """Whether the next delay is as long as the last one."""
        return self._delay.after(self.failures + 1) >= self._delay.limit
