"""Shows a problem when it has lasted, and clears it when it has been gone for a while. Pure.

Each rule says how long. A value that moves around its threshold therefore is one problem, and not one each time.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from headrace.monitor.health.problem import HealthProblem, sorted_problems
from headrace.monitor.health.rules import BY_ID


@dataclass(slots=True)
class _Seen:
    problem: HealthProblem
    first_s: float
    last_s: float
    is_raised: bool = False


class ProblemHistory:
    """The problems as they are shown. It has at most as many as the checks find, and those that are being cleared."""

    def __init__(self) -> None:
        self._seen: dict[tuple[str, str], _Seen] = {}

    def update(self, found: Iterable[HealthProblem], now_s: float) -> list[HealthProblem]:
        """The problems to show, after the checks have found these at this time."""
        for problem in found:
            seen = self._seen.get(problem.key)
            if seen is None:
                self._seen[problem.key] = _Seen(problem, now_s, now_s)
            else:
                seen.problem, seen.last_s = problem, now_s
        for key, seen in [*self._seen.items()]:
            rule = BY_ID[seen.problem.id]
            gone_s = now_s - seen.last_s
            if gone_s > 0 and (not seen.is_raised or gone_s >= rule.clear_after_s):
                del self._seen[key]
            elif not gone_s and now_s - seen.first_s >= rule.raise_after_s:
                seen.is_raised = True
        return sorted_problems(seen.problem for seen in self._seen.values() if seen.is_raised)
