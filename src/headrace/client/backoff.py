"""How long to wait before trying again: exponential, capped, with jitter. Pure."""

from dataclasses import dataclass

from headrace.client.keywords import checks_keywords


@checks_keywords
@dataclass(frozen=True, slots=True)
class Backoff:
    """The n-th failure is followed by a wait of `initial_s * factor ** (n - 1)`, at most `cap_s`, of which the share
    `jitter` is random: 0 is none, 1 anything down to no wait. Random waits keep many failing workers from coming back
    at the same instant.

    `attempts` counts the first try too: 1 never tries again, None never gives up.
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
        """Whether there is no further try after this many failures."""
        return self.attempts is not None and failures >= self.attempts

    def delay_s(self, failures: int, chance: float) -> float:
        """The wait after the given number of failures (from 1). `chance` in [0, 1) decides the random share."""
        try:
            full_s = min(self.cap_s, self.initial_s * self.factor ** (failures - 1))
        except OverflowError:
            full_s = self.cap_s
        return full_s * (1 - self.jitter * chance)
