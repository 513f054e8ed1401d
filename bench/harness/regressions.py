"""Whether one revision needs more CPU time than another, from ratios that were measured in sets of processes.

A set has three brokers of the same hash seed: of the revision before, of the one after, and once more of the one
before, the control. It gives two ratios of CPU time per operation: after : before, where before is the mean of both
brokers of that revision, and control : before, of one to the other. The control shows what the machine does to a
measurement; the spread of the sets shows as well what the layout of memory does to it, which is the same for the
control and differs between revisions. The larger of both is the noise.
"""

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

_STUDENT_97_5 = (math.inf, 12.71, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228)
"""Student's t for one side of 97.5 %, by degrees of freedom."""
_UNCLEAR_NOISE = 0.15
_CONTROL_TO_RATIO = 0.75
"""A ratio of two measurements has twice the variance of one; that of one to the mean of two has 1.5 times of it."""


class Outcome(Enum):
    SLOWER = "**slower**"
    FASTER = "faster"
    SAME = "the same"
    UNCLEAR = "unclear, too much noise"


@dataclass(frozen=True)
class Judgement:
    ratio: float
    """Of the CPU time per operation, after : before; the mean of the sets, as all means of ratios geometric."""
    control: float
    noise: float
    """How far from 1 the ratio can be by chance: 0.04 is 4 %."""
    tolerance: float

    @property
    def outcome(self) -> Outcome:
        limit = 1 + max(self.noise, self.tolerance)
        if self.ratio > limit:
            return Outcome.SLOWER
        if self.ratio < 1 / limit:
            return Outcome.FASTER
        return Outcome.SAME if self.noise < _UNCLEAR_NOISE else Outcome.UNCLEAR


class Turns(NamedTuple):
    """CPU time per operation in each turn of the three processes of a set."""

    before: list[float]
    after: list[float]
    control: list[float]

    def ratio(self) -> float:
        """After : before. Turns are compared one by one: what else the machine did was the same for all three."""
        turns = zip(self.before, self.after, self.control, strict=True)
        return statistics.median(after / math.sqrt(before * control) for before, after, control in turns)

    def control_ratio(self) -> float:
        return statistics.median(control / before for before, control in zip(self.before, self.control, strict=True))


def judged_turns(sets: Sequence[Turns], tolerance: float) -> Judgement:
    """The judgement on one operation."""
    return judged([each.ratio() for each in sets], [each.control_ratio() for each in sets], tolerance)


def judged(ratios: Sequence[float], controls: Sequence[float], tolerance: float) -> Judgement:
    """The judgement on one operation, by a ratio of each kind for each set."""
    logs, control_logs = [math.log(each) for each in ratios], [math.log(each) for each in controls]
    count = len(logs)
    mean = statistics.fmean(logs)
    noise = math.inf
    if count > 1:
        layout = sum((each - mean) ** 2 for each in logs) / (count - 1)
        machine = sum(each**2 for each in control_logs) / count * _CONTROL_TO_RATIO
        student = _STUDENT_97_5[min(count - 1, len(_STUDENT_97_5) - 1)]
        noise = math.expm1(student * math.sqrt(max(layout, machine) / count))
    return Judgement(math.exp(mean), math.exp(statistics.fmean(control_logs)), noise, tolerance)
