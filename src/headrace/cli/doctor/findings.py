"""A finding of `headrace doctor`: what was seen, and what to do about it."""

from dataclasses import dataclass
from enum import Enum


class CheckStatus(Enum):
    OK = "ok"
    WARNING = "warning"
    PROBLEM = "problem"


@dataclass(frozen=True, slots=True)
class Finding:
    status: CheckStatus
    what: str
    advice: str | None = None


def ok(what: str) -> Finding:
    return Finding(CheckStatus.OK, what)


def warning(what: str, advice: str) -> Finding:
    return Finding(CheckStatus.WARNING, what, advice)


def problem(what: str, advice: str | None = None) -> Finding:
    return Finding(CheckStatus.PROBLEM, what, advice)
