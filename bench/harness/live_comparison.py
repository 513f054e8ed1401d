"""What a feature costs: the CPU time of one running broker with the feature on and off, switched while it runs.

Two processes of the same code differ by some percent, as memory happens to be laid out, and so does a process from
minute to minute, with what else the machine does. Therefore there is one broker and one connection, and the feature is
switched in short slices in the order off, on, on, off and then on, off, off, on: what drifts linearly cancels out
within a block of four. A block gives one ratio of CPU time per request. The result is the median of the ratios, with
the interval that has it with a probability of 95 % (bootstrap). A *control* block, for which nothing is switched,
follows each block: its interval has to contain 1, and its width shows what can be told apart.

CPU time is that of all threads of the broker in ns (`/proc/PID/task/*/schedstat`): other work on the machine changes it
only by what it does to the processor's caches.
"""

import random
import statistics
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

from harness.client_connection import cpu_ns

_SETTLE_S = 0.01
_WARM_UP_S = 0.005
_RESAMPLES = 2_000
_BLOCKS = ((False, True, True, False), (True, False, False, True))


class Estimate(NamedTuple):
    """A median, and the bounds of its interval of 95 %."""

    median: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.median:.3f} ({self.low:.3f} to {self.high:.3f})"


class LiveComparison(NamedTuple):
    off_us: float
    """CPU time per request."""
    on_us: float
    ratio: Estimate
    """On to off."""
    control: Estimate
    """Off to off."""

    def cells(self) -> list[str]:
        return [f"{self.off_us:.2f}", f"{self.on_us:.2f}", str(self.ratio), str(self.control)]


HEADER = "| µs of CPU per request | off | on | on : off | control |\n|---|---:|---:|---|---|"


def compared(
    pid: int,
    ask: Callable[[], int],
    switch: Callable[[bool], None],
    *,
    blocks: int,
    slice_s: float,
    spent_ns: Callable[[int], int] = cpu_ns,
) -> LiveComparison:
    """Compare the broker `pid` with a feature on and off. `ask` makes requests, and returns how many they were.

    `spent_ns` is what is compared: the CPU time of the broker, or a clock.
    """
    found: dict[bool, list[float]] = {False: [], True: []}
    ratios, controls = [], []
    spent = partial(spent_ns, pid)
    for number in range(blocks):
        block = _BLOCKS[number % 2]
        times = [_slice(spent, ask, lambda on=on: switch(on), slice_s) for on in block]  # type: ignore[misc]
        for on, took in zip(block, times, strict=True):
            found[on].append(took)
        ratios.append(_ratio(block, times))
        switch(False)
        controls.append(_ratio(block, [_slice(spent, ask, lambda: None, slice_s) for _ in block]))
    off_us, on_us = (statistics.median(found[on]) for on in (False, True))
    return LiveComparison(off_us, on_us, estimated(ratios), estimated(controls))


def _slice(spent: Callable[[], int], ask: Callable[[], int], prepare: Callable[[], None], slice_s: float) -> float:
    """Microseconds that are spent per request."""
    prepare()
    time.sleep(_SETTLE_S)
    _asked(ask, _WARM_UP_S)
    before = spent()
    count = _asked(ask, slice_s)
    return (spent() - before) / 1e3 / count


def _asked(ask: Callable[[], int], seconds: float) -> int:
    count, end = 0, time.monotonic() + seconds
    while time.monotonic() < end:
        count += ask()
    return count


def _ratio(block: Sequence[bool], times: Sequence[float]) -> float:
    on, off = (sum(took for is_on, took in zip(block, times, strict=True) if is_on is side) for side in (True, False))
    return on / off


def estimated(ratios: Sequence[float], seed: int = 0) -> Estimate:
    """The median of ratios and its interval, by drawing from them again and again."""
    drawn = random.Random(seed)
    medians = sorted(statistics.median(drawn.choices(ratios, k=len(ratios))) for _ in range(_RESAMPLES))
    return Estimate(statistics.median(ratios), medians[int(_RESAMPLES * 0.025)], medians[int(_RESAMPLES * 0.975)])
