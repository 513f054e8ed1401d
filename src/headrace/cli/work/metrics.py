"""The figures of `headrace work --listen` for Prometheus."""

from collections import Counter

from headrace.cli.work.status import PoolView
from headrace.observe.families import MetricFamily, counter, gauge

PROCESSES = gauge("headrace_work_processes", "Processes of the pool: loading, loaded, running or stopping.", "state")
WANTED = gauge("headrace_work_wanted_processes", "How many processes the backlog needs, within the bounds.")
MAXIMUM = gauge("headrace_work_processes_max", "The largest number of processes.")
RESTARTS = counter("headrace_work_restarts_total", "Processes that ended by themselves and were replaced.")
HANDLED = counter("headrace_work_messages_handled_total", "Messages that were handled, by queue or group.", "source")
BACKLOG = gauge("headrace_work_backlog_messages", "Messages that are not acknowledged, if known.", "source")
OLDEST = gauge("headrace_work_oldest_message_seconds", "The age of the oldest of them, if known.", "source")
RATE = gauge("headrace_work_process_messages_per_second", "What one process can handle, if measured.", "source")


def families(view: PoolView) -> list[MetricFamily]:
    """The metrics of a pool."""
    states = Counter(each.state for each in view.processes)

    def of(metric_values: dict[str, float | None]) -> list[tuple[str, float]]:
        return [(BACKLOG.label_text(name), value) for name, value in metric_values.items() if value is not None]

    return [
        PROCESSES.family([(PROCESSES.label_text(state), number) for state, number in states.items()]),
        WANTED.single(view.size),
        MAXIMUM.single(view.rules.maximum),
        RESTARTS.single(view.restarts),
        HANDLED.family(of(dict(view.handled))),
        BACKLOG.family(of({each.name: each.waiting for each in view.loads})),
        OLDEST.family(of({each.name: each.oldest_s for each in view.loads})),
        RATE.family(of({each.name: each.each_per_s for each in view.loads})),
    ]
