"""A problem in words, and the state of a cluster that has some. Pure."""

from collections.abc import Iterable, Sequence
from typing import Literal, NamedTuple

import msgspec

Severity = Literal["critical", "warning", "info"]

SEVERITIES: tuple[Severity, ...] = ("critical", "warning", "info")
"""The worst first."""

HealthStatus = Literal["ok", "warning", "critical"]

MAX_PER_RULE = 10
"""How many problems of one kind are listed one by one; one more stands for the others."""


class HealthProblem(msgspec.Struct, frozen=True, array_like=True):
    """A problem, as the HTTP API, the command line and the calls between brokers carry it. New fields go to the end."""

    id: str
    """The kind: the `id` of a row in `rules.py`."""
    severity: Severity
    sentence: str
    advice: str
    """What to do, with the command."""
    subject: str = ""
    """The broker, topic, group, queue or pipeline; empty for the cluster, and for several at once."""
    link: str = ""
    """The page of the dashboard, below `/ui`."""

    @property
    def key(self) -> tuple[str, str]:
        """Two problems with the same key are one, seen by two brokers or at two times."""
        return self.id, self.subject


class ProblemView(msgspec.Struct, frozen=True):
    """A problem in JSON."""

    id: str
    severity: Severity
    sentence: str
    advice: str
    subject: str
    link: str


class HealthView(msgspec.Struct, frozen=True):
    """The health of a cluster in JSON."""

    status: HealthStatus
    sentence: str
    problems: list[ProblemView]


class _Order(NamedTuple):
    severity: int
    id: str
    subject: str


def sorted_problems(problems: Iterable[HealthProblem]) -> list[HealthProblem]:
    """The worst first; of two with the same key, the worse one."""
    best: dict[tuple[str, str], HealthProblem] = {}
    for problem in sorted(problems, key=_order):
        best.setdefault(problem.key, problem)
    return [*best.values()]


def _order(problem: HealthProblem) -> _Order:
    return _Order(SEVERITIES.index(problem.severity), problem.id, problem.subject)


def health_view(problems: Iterable[HealthProblem]) -> HealthView:
    ordered = sorted_problems(problems)
    views = [
        ProblemView(each.id, each.severity, each.sentence, each.advice, each.subject, each.link) for each in ordered
    ]
    return HealthView(status_of(ordered), summary(ordered), views)


def status_of(problems: Iterable[HealthProblem]) -> HealthStatus:
    """A cluster that has only information to show is ok."""
    severities = {problem.severity for problem in problems}
    return "critical" if "critical" in severities else "warning" if "warning" in severities else "ok"


def summary(problems: Sequence[HealthProblem]) -> str:
    """One sentence on the health of a cluster: its worst problem, and how many more there are."""
    serious = [problem for problem in sorted_problems(problems) if problem.severity != "info"]
    if not serious:
        return "Everything is fine."
    critical = sum(problem.severity == "critical" for problem in serious)
    warnings = len(serious) - critical
    counts = [_count(critical, "critical problem"), _count(warnings, "warning")]
    worst = serious[0].sentence
    if len(serious) == 1:
        return worst
    return f"{' and '.join(filter(None, counts))}; the worst: {worst}"


def _count(number: int, noun: str) -> str:
    return "" if not number else f"{number} {noun}" if number == 1 else f"{number} {noun}s"
