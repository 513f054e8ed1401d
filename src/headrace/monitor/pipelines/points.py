"""The recent figures of a pipeline: one point per ten seconds, for an hour. Pure."""

import math
from array import array

from headrace.model.pipeline_report import PipelineReport
from headrace.monitor.pipelines.entries import SeriesHistory

STEP_S = 10
POINTS = 360
_SERIES = ("rows_per_s", "lag", "batch_ms")


class PipelinePoints:
    """A ring of points per series: 4.3 KiB in all. The last report within a step is its point."""

    __slots__ = ("_last_step", "_rings")

    def __init__(self) -> None:
        self._rings = {name: array("f", [math.nan]) * POINTS for name in _SERIES}
        self._last_step = -1

    def add(self, report: PipelineReport, wall_ms: int) -> None:
        step = wall_ms // (STEP_S * 1000)
        self._clear_until(step)
        for name, ring in self._rings.items():
            ring[step % POINTS] = getattr(report, name)

    def history(self, wall_ms: int) -> SeriesHistory:
        """All points from the first one on, up to now."""
        end = wall_ms // (STEP_S * 1000)
        self._clear_until(end)
        steps = [step % POINTS for step in range(end - POINTS + 1, end + 1)]
        series = {name: [_shown(ring[at]) for at in steps] for name, ring in self._rings.items()}
        return SeriesHistory(STEP_S, end * STEP_S * 1000, _without_empty_start(series))

    def _clear_until(self, step: int) -> None:
        """Points between the last step and this one were not reported."""
        if step <= self._last_step:
            return  # the same step, or the clock went back
        for missed in range(max(self._last_step + 1, step - POINTS + 1), step + 1):
            for ring in self._rings.values():
                ring[missed % POINTS] = math.nan
        self._last_step = step


def _shown(value: float) -> float | None:
    return None if math.isnan(value) else round(value, 3)


def _without_empty_start(series: dict[str, list[float | None]]) -> dict[str, list[float | None]]:
    known = (at for values in series.values() for at, value in enumerate(values) if value is not None)
    first = min(known, default=POINTS)
    return {name: values[first:] for name, values in series.items()}
