"""A rate over sampled windows, computed as Kafka's `Rate` and `QuotaUtils` compute it. Pure.

Values are summed in samples of one window each. A sample that has had no value for all windows is emptied. The rate is
the sum divided by the time since the start of the oldest sample, and at least by all windows but one: a client that
has just begun may use the quota of the windows that are missing, at once.

If O is the rate and T the quota over a window W, the delay X that brings O down to T is (O - T) / T * W.
"""

from math import floor, inf
from typing import NamedTuple

MAX_DELAY_MS = 2**31 - 1
"""The protocol has no room for a longer one."""
_START, _LAST, _VALUE = 0, 1, 2


class RateWindows(NamedTuple):
    """How many windows a rate is measured over, and how long each is."""

    samples: int = 11
    window_ms: int = 1000


class SampledRate:
    """The rate of one client. Times are milliseconds that never go back."""

    __slots__ = ("_at", "_checks_at_ms", "_least_s", "_oldest_ms", "_samples", "_total", "_windows")

    def __init__(self, windows: RateWindows) -> None:
        self._windows = windows
        self._least_s = (windows.samples - 1) * windows.window_ms / 1000
        self._samples: list[list[float]] = []
        """The first one begins with the first value."""
        self._at = 0
        self._total = 0.0
        """The sum of all samples, and below the start of the oldest: valid until `_checks_at_ms`."""
        self._oldest_ms = 0.0
        self._checks_at_ms = -inf

    def record(self, value: float, now_ms: int) -> None:
        """Count a value, which may be negative to take back an earlier one."""
        if not self._samples:
            self._empty_old_samples(now_ms)
        sample = self._samples[self._at]
        if now_ms - sample[_START] >= self._windows.window_ms:
            sample = self._advance(now_ms)
        sample[_VALUE] += value
        sample[_LAST] = now_ms
        self._total += value

    def charge(self, value: float, bound: float, now_ms: int) -> int:
        """Count a value; the delay that it costs. On the path of every request: most are in the current sample."""
        sample = self._samples[self._at] if self._samples else None
        if sample is not None and now_ms < self._checks_at_ms and now_ms - sample[_START] < self._windows.window_ms:
            sample[_LAST] = now_ms
            sample[_VALUE] += value
            self._total += value
            # The rate is measured over at least this time.
            if self._total <= bound * self._least_s:
                return 0
        else:
            self.record(value, now_ms)
        return self.delay_ms(bound, now_ms)

    @property
    def steady_until_ms(self) -> float:
        """Until when values are of the current sample, and no other one expires. Valid after `charge`."""
        return min(self._samples[self._at][_START] + self._windows.window_ms, self._checks_at_ms)

    def free(self, bound: float) -> float:
        """What may be recorded until `steady_until_ms` at least without a delay."""
        return bound * self._least_s - self._total

    def measure(self, now_ms: int) -> float:
        """The rate in units per second."""
        return self.total(now_ms) / self.window_ms(now_ms) * 1000.0

    def total(self, now_ms: int) -> float:
        """The sum of all samples."""
        if now_ms >= self._checks_at_ms:
            self._empty_old_samples(now_ms)
        return self._total

    def recent(self, span_ms: int, now_ms: int) -> float:
        """The rate of about the last `span_ms`, or of the current window if that is longer."""
        since_ms = now_ms - max(span_ms, self._windows.window_ms)
        found = [sample for sample in self._samples if sample[_START] > since_ms]
        return max(0.0, sum(sample[_VALUE] for sample in found)) / (now_ms - since_ms) * 1000.0

    def window_ms(self, now_ms: int) -> float:
        """The time that the rate is measured over."""
        if now_ms >= self._checks_at_ms:
            self._empty_old_samples(now_ms)
        samples, window_ms = self._windows
        elapsed_ms = now_ms - self._oldest_ms
        missing = samples - 1 - elapsed_ms // window_ms
        if missing > 0:
            elapsed_ms += missing * window_ms
        return max(elapsed_ms, 1)

    def delay_ms(self, bound: float, now_ms: int) -> int:
        """How long to wait until the rate is within the bound, if nothing is recorded meanwhile; 0 if it is."""
        rate = self.measure(now_ms)
        if rate <= bound:
            return 0
        return rounded((rate - bound) / bound * self.window_ms(now_ms))

    def _advance(self, now_ms: int) -> list[float]:
        # One sample more than windows: the oldest may overlap the beginning of the measured time.
        self._at = (self._at + 1) % (self._windows.samples + 1)
        fresh: list[float] = [now_ms, now_ms, 0.0]
        if self._at >= len(self._samples):
            self._samples.append(fresh)
        else:
            self._samples[self._at] = fresh
        self._refresh()
        return fresh

    def _empty_old_samples(self, now_ms: int) -> None:
        expires_ms = self._windows.samples * self._windows.window_ms
        if not self._samples:
            self._samples.append([now_ms, now_ms, 0.0])
        for sample in self._samples:
            if now_ms - sample[_LAST] >= expires_ms:
                sample[:] = (now_ms, now_ms, 0.0)
        self._refresh()

    def _refresh(self) -> None:
        samples = self._samples
        self._total = sum(sample[_VALUE] for sample in samples)
        self._oldest_ms = min(sample[_START] for sample in samples)
        expires_ms = self._windows.samples * self._windows.window_ms
        self._checks_at_ms = min(sample[_LAST] for sample in samples) + expires_ms


def rounded(ms: float) -> int:
    """Round half up, as Java's `Math.round` does; at most what the protocol has room for."""
    return floor(min(ms, MAX_DELAY_MS) + 0.5)
