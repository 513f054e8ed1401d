"""How many threads a worker with `concurrency="auto"` uses: as many as raise the rate of completions. Pure.

The number is changed in steps, and each step is an experiment that lasts for a second and at least one message for each
thread. More threads stay if they raised the rate by a good part of what they should: they wait for something outside.
If they did not, the work is bound by the processor, or by what it calls, and the number before is restored. Fewer
threads stay if they were as fast. Failed experiments are repeated after longer and longer waits.

Nothing is learned while threads are idle: without a backlog the number does not grow.
"""

from dataclasses import dataclass
from enum import Enum, auto

MOST_THREADS = 64
FIRST_THREADS = 4
_WINDOW_S = 1.0
_LONGEST_WINDOW_S = 10.0
"""For slow functions: the window ends even if fewer messages than threads were finished."""
_FIRST_STEP = 2.0
"""Doubles at first, until more threads did not help."""
_STEP = 1.25
_MOSTLY_BUSY = 0.25
"""Threads may be idle for a moment between receives: as often as this, for each message."""
_WORTH = 0.4
"""More threads must bring at least this part of the proportional rise of the rate."""
_AS_FAST = 0.95
"""Fewer threads may lose this much."""
_FIRST_PAUSE = 2
_LONGEST_PAUSE = 32
"""Windows between experiments, after failures."""


class Trial(Enum):
    """The experiment that is going on."""

    NONE = auto()
    MORE = auto()
    FEWER = auto()


@dataclass(slots=True)
class _Window:
    began_s: float
    finished: int = 0
    idle: int = 0


class ThreadLimit:
    """The number of threads that may handle messages. Times are seconds of a monotonic clock."""

    def __init__(self, now_s: float, maximum: int = MOST_THREADS, first: int = FIRST_THREADS) -> None:
        self.threads = min(first, maximum)
        self._maximum = maximum
        self._window = _Window(now_s)
        self._trial = Trial.NONE
        self._before = self.threads
        self._rate_before = 0.0
        self._step = _FIRST_STEP
        self._pause = 0
        self._next_pause = _FIRST_PAUSE
        self._last_failed = Trial.NONE

    def finished(self) -> None:
        """A message was handled, with success or not."""
        self._window.finished += 1

    def idle(self) -> None:
        """A thread that might have handled a message had none."""
        self._window.idle += 1

    def tick(self, now_s: float) -> bool:
        """End the window if it is long enough; True if the number of threads has changed."""
        window, passed_s = self._window, now_s - self._window.began_s
        enough = _WINDOW_S if window.finished >= self.threads else _LONGEST_WINDOW_S
        if passed_s < enough:
            return False
        self._window = _Window(now_s)
        before = self.threads
        if window.idle > window.finished * _MOSTLY_BUSY:
            if self._trial is Trial.MORE:
                self.threads = self._before
            self._trial = Trial.NONE
        elif window.finished:
            self._judge(window.finished / passed_s)
        return self.threads != before

    def _judge(self, rate: float) -> None:
        if self._trial is Trial.MORE:
            expected = self._rate_before * self.threads / self._before
            is_good = rate >= self._rate_before + _WORTH * (expected - self._rate_before)
        elif self._trial is Trial.FEWER:
            is_good = rate >= self._rate_before * _AS_FAST
        else:
            self._rate_before = rate
            if self._pause:
                self._pause -= 1
            else:
                self._try()
            return
        if is_good:
            self._next_pause = _FIRST_PAUSE
            self._rate_before = rate
            self._go_on(self._trial)
        else:
            self._last_failed = self._trial
            self.threads, self._trial, self._step = self._before, Trial.NONE, _STEP
            self._pause, self._next_pause = self._next_pause, min(2 * self._next_pause, _LONGEST_PAUSE)

    def _try(self) -> None:
        """Begin an experiment: in the direction that has not failed last."""
        self._go_on(Trial.FEWER if self._last_failed is Trial.MORE else Trial.MORE)

    def _go_on(self, trial: Trial) -> None:
        larger = min(self._maximum, max(self.threads + 1, int(self.threads * self._step)))
        smaller = max(1, min(self.threads - 1, int(self.threads / _STEP)))
        wanted = larger if trial is Trial.MORE else smaller
        self._before = self.threads
        if wanted == self.threads:
            # At the bound: later in the other direction.
            self._last_failed, self._trial = trial, Trial.NONE
            self._pause, self._next_pause = self._next_pause, min(2 * self._next_pause, _LONGEST_PAUSE)
            return
        self.threads, self._trial = wanted, trial
