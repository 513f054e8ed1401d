"""Makes problems of findings: their advice, their links, and at most a few of one kind. Pure."""

import shlex
from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar
from urllib.parse import quote

from headrace.monitor.health.problem import MAX_PER_RULE, HealthProblem, Severity
from headrace.monitor.health.rules import BY_ID

T = TypeVar("T")


def problem(
    rule_id: str, sentence: str, *, severity: Severity | None = None, subject: str = "", page: str
) -> HealthProblem:
    """A problem of a rule; without a `severity` the rule has only one."""
    rule = BY_ID[rule_id]
    advice = rule.action.replace("{subject}", shlex.quote(subject) if subject else rule.noun)
    link = f"/ui/{page}" + (f"/{quote(subject, safe='')}" if subject and page in _OWN_PAGES else "")
    return HealthProblem(rule.id, severity or rule.severities[0], sentence, advice, subject, link)


_OWN_PAGES = frozenset({"topics", "groups", "queues", "pipelines"})
"""Where each subject has a page of its own."""


def bounded(found: Sequence[T], make: Callable[[T], HealthProblem], plural: str) -> Iterator[HealthProblem]:
    """The problems that `make` makes of the first findings of one kind; one more says how many others there are."""
    yield from map(make, found[:MAX_PER_RULE])
    if len(found) > MAX_PER_RULE:
        more, like = len(found) - MAX_PER_RULE, make(found[MAX_PER_RULE])
        rule = BY_ID[like.id]
        advice = rule.action.replace("{subject}", rule.noun)
        page = like.link.split("/")[2]
        yield HealthProblem(rule.id, like.severity, f"{more:,} more {plural}.", advice, "", f"/ui/{page}")


def duration(seconds: float) -> str:
    """`40 s`, `12 min`, `3.5 h`, `20 days`."""
    if seconds < 120:
        return f"{seconds:.0f} s"
    if seconds < 7200:
        return f"{seconds / 60:.0f} min"
    if seconds < 172_800:
        hours = seconds / 3600
        return f"{hours:.0f} h" if hours == int(hours) else f"{hours:.1f} h"
    return f"{seconds / 86_400:.0f} days"


def size(count_bytes: float) -> str:
    """`512 MiB`, `1.2 GiB`."""
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if count_bytes < 1024 or unit == "TiB":
            return f"{count_bytes:.0f} {unit}" if unit in ("B", "KiB") else f"{count_bytes:.1f} {unit}"
        count_bytes /= 1024
    raise AssertionError


def counted(number: int, noun: str) -> str:
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"
