"""Metrics of pipelines, from their last reports. Only the leader of `__pipelines` exports them: each is there once.

There are at most `MAX_PIPELINES` pipelines, and a dozen series of each.
"""

from collections.abc import Callable, Iterable

from headrace.monitor.pipelines.entries import PipelineEntry
from headrace.monitor.pipelines.service import PipelineReports
from headrace.monitor.scrape import Collector
from headrace.observe.families import Metric, MetricFamily, counter, gauge

_P = "pipeline"
STATE = gauge(
    "headrace_pipeline_state",
    "1 for the state that a pipeline is in: starting, running, restarting, stopping, stopped, ended, failed or "
    "not-reporting.",
    _P,
    "state",
)
REPORTED = gauge("headrace_pipeline_reported_timestamp_seconds", "When a pipeline has last reported.", _P)

_VALUES: tuple[tuple[Metric, Callable[[PipelineEntry], float]], ...] = (
    (counter("headrace_pipeline_rows_in_total", "Records read by the current run.", _P), lambda each: each.rows_in),
    (counter("headrace_pipeline_rows_out_total", "Rows written by the current run.", _P), lambda each: each.rows_out),
    (
        counter("headrace_pipeline_bad_records_total", "Records that failed to decode or failed in a step.", _P),
        lambda each: each.bad,
    ),
    (
        counter("headrace_pipeline_dead_letters_total", "Dead letters written by the current run.", _P),
        lambda each: each.dead_letters,
    ),
    (counter("headrace_pipeline_batches_total", "Batches of the current run.", _P), lambda each: each.batches),
    (
        counter("headrace_pipeline_busy_seconds_total", "Time that the current run has spent in batches.", _P),
        lambda each: each.busy_ms / 1000,
    ),
    (
        counter("headrace_pipeline_restarts_total", "Restarts after a failure since the supervisor started.", _P),
        lambda each: each.restarts,
    ),
    (
        gauge("headrace_pipeline_rows_per_second", "Records read in the last half minute.", _P),
        lambda each: each.rows_per_s,
    ),
    (
        gauge("headrace_pipeline_batch_duration_seconds", "Time of the last batch.", _P),
        lambda each: each.batch_ms / 1000,
    ),
    (gauge("headrace_pipeline_lag_records", "Records still to read.", _P), lambda each: each.lag),
    (gauge("headrace_pipeline_state_rows", "Rows in the state store.", _P), lambda each: each.state_rows),
    (gauge("headrace_pipeline_state_bytes", "Memory of the state store.", _P), lambda each: each.state_bytes),
)
METRICS = (STATE, REPORTED, *(metric for metric, _ in _VALUES))


def pipeline_collector(pipelines: PipelineReports) -> Collector:
    async def collect() -> Iterable[MetricFamily]:
        found = [*pipelines.led()]
        return (
            STATE.family([(STATE.label_text(each.name, each.state), 1) for each in found]),
            REPORTED.family([(REPORTED.label_text(each.name), each.reported_ms / 1000) for each in found]),
            *(
                metric.family([(metric.label_text(each.name), value(each)) for each in found])
                for metric, value in _VALUES
            ),
        )

    return collect
