"""The retry delay of a queue: how long a message is hidden after a failed attempt. Pure."""

from typing import NamedTuple

from headrace.config.queue import QueueSettings


class QueueRetryDelay(NamedTuple):
    first_ms: int
    factor: float
    most_ms: int
    jitter: float

    @classmethod
    def of(cls, settings: QueueSettings) -> "QueueRetryDelay":
        return cls(
            settings.retry_backoff_ms,
            settings.retry_backoff_factor,
            settings.retry_backoff_max_ms,
            settings.retry_jitter,
        )

    def after(self, attempt: int, random: float) -> int:
        """After this attempt, the first being 1; `random` from 0 to 1 says where between the bounds of the jitter."""
        try:
            plain = self.first_ms * self.factor ** (attempt - 1)
        except OverflowError:
            plain = float(self.most_ms)
        spread = min(plain, self.most_ms) * (1 + self.jitter * (2 * random - 1))
        return int(min(spread, self.most_ms))
