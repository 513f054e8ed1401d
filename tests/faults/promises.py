"""What each delivery guarantee promises of a copy of the numbers from 0 on. Pure."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

Delivery = Literal["at-most-once", "at-least-once", "exactly-once"]


@dataclass(frozen=True)
class Outcome:
    """A copy of so many numbers, compared with the original."""

    count: int
    lost: int
    repeated: int
    """Copies beyond the first, of all numbers."""
    strange: int
    """Numbers that nobody sent."""


def compare(count: int, found: Iterable[int]) -> Outcome:
    copies = list(found)
    distinct = set(copies)
    strange = sum(not 0 <= number < count for number in distinct)
    return Outcome(count, count - len(distinct) + strange, len(copies) - len(distinct), strange)


def check(delivery: Delivery, outcome: Outcome, *, most_lost: int = 0) -> None:
    """Raises unless the promise was kept. `most_lost` is what the crashes may have cost where losing is allowed."""
    assert not outcome.strange, f"{outcome.strange} were copied that nobody sent"
    if delivery != "at-least-once":
        assert not outcome.repeated, f"{outcome.repeated} of {outcome.count} were copied again"
    allowed = most_lost if delivery == "at-most-once" else 0
    assert outcome.lost <= allowed, f"{outcome.lost} of {outcome.count} are missing, where {allowed} may be"
