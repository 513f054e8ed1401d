"""Prometheus' alert rules, made of the table of problems. Pure.

    python -m headrace.monitor.health.alert_rules > deploy/prometheus/alerts.yml

Brokers decide what is a problem, with the thresholds of `rules.py`, and export it as `headrace_health_problem`. The
alerts wait a little more, and leave out which broker said it. What no broker can say of itself is in `up`.
"""

import json
import sys
from collections.abc import Iterator

from headrace.monitor.health.rules import RULES, HealthRule

METRIC = "headrace_health_problem"
METRIC_HELP = "1 for each problem of `headrace health`, by its kind, severity and subject. At most 11 for each kind."
JOB = "headrace"
UNREACHABLE, UNREACHABLE_AFTER_S = "HeadraceUnreachable", 60.0
ABSENT, ABSENT_AFTER_S = "HeadraceAbsent", 300.0
_NEVER_S = float("inf")

_HEAD = """\
# Alerts for Headrace: one for each kind of problem that `headrace health` knows, and two for brokers that Prometheus
# cannot ask. Made by `make docs` of src/headrace/monitor/health/rules.py: change it there.
groups:
  - name: headrace
    rules:
"""


def alert_rules(*, longest_s: float = _NEVER_S) -> str:
    """The rules file. No `for` is longer than `longest_s`: tests do not wait for minutes."""
    return _HEAD + "\n".join(_lines(longest_s)) + "\n"


def _lines(longest_s: float) -> Iterator[str]:
    for rule in RULES:
        expression = f'max without (instance) ({METRIC}{{id="{rule.id}"}}) > 0'
        after_s = min(rule.alert_after_s, longest_s)
        yield from _alert(rule.alert, expression, after_s, "{{ $labels.severity }}", _summary(rule), _advice(rule))
    yield from _alert(
        UNREACHABLE,
        f'up{{job="{JOB}"}} == 0',
        min(UNREACHABLE_AFTER_S, longest_s),
        "critical",
        "A broker cannot be scraped: {{ $labels.instance }}",
        "It is down, or Prometheus may not read /metrics. Look at `headrace cluster status` and at the error on "
        "Prometheus' page of targets.",
    )
    yield from _alert(
        ABSENT,
        f'absent(up{{job="{JOB}"}})',
        min(ABSENT_AFTER_S, longest_s),
        "critical",
        "Prometheus has no broker to scrape",
        f'Name the brokers under the job "{JOB}" of prometheus.yml.',
    )


def _summary(rule: HealthRule) -> str:
    return f"{rule.title}{{{{ with $labels.subject }}}}: {{{{ . }}}}{{{{ end }}}}"


def _advice(rule: HealthRule) -> str:
    action = rule.action.replace("{subject}", "{{ $labels.subject }}")
    return f"{rule.threshold[0].upper()}{rule.threshold[1:]}. {action}"


def _alert(name: str, expression: str, after_s: float, severity: str, summary: str, description: str) -> Iterator[str]:
    yield f"      - alert: {name}"
    yield f"        expr: {json.dumps(expression)}"
    if after_s:
        yield f"        for: {after_s:.0f}s"
    yield "        labels:"
    yield f"          severity: {json.dumps(severity)}"
    yield "        annotations:"
    yield f"          summary: {json.dumps(summary)}"
    yield f"          description: {json.dumps(description)}"


if __name__ == "__main__":
    sys.stdout.write(alert_rules())
