"""An hour of figures of a pipeline."""

from headrace.model.pipeline_report import PipelineReport
from headrace.monitor.pipelines.points import POINTS, STEP_S, PipelinePoints

START_MS = 1_700_000_000_000
STEP_MS = STEP_S * 1000


def figures(rows_per_s: float, lag: int = 0) -> PipelineReport:
    return PipelineReport(instance="a", state="running", rows_per_s=rows_per_s, lag=lag)


def test_without_reports_there_is_no_history() -> None:
    assert PipelinePoints().history(START_MS).series == {"rows_per_s": [], "lag": [], "batch_ms": []}


def test_the_last_report_of_a_step_is_its_point_and_missing_ones_are_unknown() -> None:
    points = PipelinePoints()
    points.add(figures(1.0), START_MS)
    points.add(figures(2.0, lag=5), START_MS + 5000)
    points.add(figures(4.0), START_MS + 3 * STEP_MS)
    history = points.history(START_MS + 4 * STEP_MS)
    assert history.series["rows_per_s"] == [2.0, None, None, 4.0, None]
    assert history.series["lag"] == [5.0, None, None, 0.0, None]
    assert (history.step_s, history.end_ms) == (STEP_S, START_MS + 4 * STEP_MS)


def test_an_hour_is_the_most() -> None:
    points = PipelinePoints()
    for step in range(POINTS + 50):
        points.add(figures(float(step)), START_MS + step * STEP_MS)
    history = points.history(START_MS + (POINTS + 49) * STEP_MS)
    assert history.series["rows_per_s"] == [float(step) for step in range(50, POINTS + 50)]


def test_after_a_long_silence_the_old_points_are_gone() -> None:
    points = PipelinePoints()
    points.add(figures(1.0), START_MS)
    points.add(figures(2.0), START_MS + 1000 * STEP_MS)
    assert points.history(START_MS + 1000 * STEP_MS).series["rows_per_s"] == [2.0]


def test_a_clock_that_goes_back_changes_nothing_else() -> None:
    points = PipelinePoints()
    points.add(figures(1.0), START_MS)
    points.add(figures(2.0), START_MS - STEP_MS)
    assert points.history(START_MS).series["rows_per_s"] == [2.0, 1.0]
