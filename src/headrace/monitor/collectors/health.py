"""The problems of `headrace health`, as this broker sees them: Prometheus' alert rules are about these."""

from collections.abc import Iterable

from headrace.monitor.health.alert_rules import METRIC, METRIC_HELP
from headrace.monitor.health.problem import SEVERITIES
from headrace.monitor.health.service import HealthService
from headrace.monitor.scrape import Collector
from headrace.observe.families import MetricFamily, gauge

PROBLEM = gauge(METRIC, METRIC_HELP, "id", "severity", "subject")
PROBLEMS = gauge("headrace_health_problems", "Problems that this broker sees, by severity.", "severity")
CHECKED = gauge("headrace_health_checked_seconds", "Seconds since the health of this broker was last checked.")
METRICS = (PROBLEM, PROBLEMS, CHECKED)


def health_collector(health: HealthService) -> Collector:
    async def collect() -> Iterable[MetricFamily]:
        problems = health.own
        counts = {each: sum(problem.severity == each for problem in problems) for each in SEVERITIES}
        return (
            PROBLEM.family([(PROBLEM.label_text(each.id, each.severity, each.subject), 1) for each in problems]),
            PROBLEMS.family([(PROBLEMS.label_text(severity), count) for severity, count in counts.items()]),
            CHECKED.single(health.checked_s_ago),
        )

    return collect
