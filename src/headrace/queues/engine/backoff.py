"""The retry delay of a queue: how long a message stays invisible after a failed attempt. Pure."""

from typing import NamedTuple

from headrace.config.queue import QueueSettings
from headrace.model.backoff import ExponentialDelay


class QueueRetryDelay(NamedTuple):
    delay_ms: ExponentialDelay
    jitter: float

    @classmethod
    def of(cls, settings: QueueSettings) -> "QueueRetryDelay":
        delay_ms = ExponentialDelay(
            settings.retry_backoff_ms, settings.retry_backoff_max_ms, settings.retry_backoff_factor
        )
        return cls(delay_ms, settings.retry_jitter)

    def after(self, attempt: int, random: float) -> int:
        """The delay in milliseconds after this attempt, counted from 1; `random` in [0, 1] picks the jitter."""
        jittered_ms = self.delay_ms.after(attempt) * (1 + self.jitter * (2 * random - 1))
        return int(min(jittered_ms, self.delay_ms.limit))
