"""The retry policy of a handler: exponential backoff with a cap, jitter and a number of attempts. Pure."""

from dataclasses import dataclass

from headrace.client.keywords import checks_keywords
from headrace.model.backoff import ExponentialDelay


@checks_keywords
@dataclass(frozen=True, slots=True)
class Backoff:
    """Exponential backoff with a cap and jitter, for the retries of a handler.

    ```python
    from headrace import Backoff

    retry = Backoff(initial_s=0.2, factor=2, cap_s=30, attempts=5, jitter=0)
    assert [retry.delay_s(failures, 0) for failures in (1, 2, 3)] == [0.2, 0.4, 0.8]
    ```

    The wait after the n-th failure is `initial_s * factor ** (n - 1)`, at most `cap_s`. The share `jitter` of it is
    random, so that many failing workers do not retry at the same instant: 0 is none of it, 1 all of it.

    `attempts` counts the first attempt: 1 never retries, None never gives up.
    """

    initial_s: float = 0.2
    factor: float = 2.0
    cap_s: float = 30.0
    attempts: int | None = 5
    jitter: float = 0.5

    def __post_init__(self) -> None:
        if not 0 <= self.initial_s <= self.cap_s:
            raise ValueError("initial_s must be at least 0 and at most cap_s")
        if self.factor < 1:
            raise ValueError("factor must be at least 1")
        if self.attempts is not None and self.attempts < 1:
            raise ValueError("attempts must be at least 1, or None to never give up")
        if not 0 <= self.jitter <= 1:
            raise ValueError("jitter must be between 0 and 1")

    def is_spent(self, failures: int) -> bool:
        """Whether this many failures used up all attempts."""
        return self.attempts is not None and failures >= self.attempts

    def delay_s(self, failures: int, chance: float) -> float:
        """The delay after this many failures, counted from 1; `chance` in [0, 1) decides the random share."""
        full_s = ExponentialDelay(self.initial_s, self.cap_s, self.factor).after(failures)
        return full_s * (1 - self.jitter * chance)
