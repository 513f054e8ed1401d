"""How the brokers of a cluster divide a quota that is meant for all of them together. Pure.

Each broker computes its own share from what it and the others have reported. A broker whose clients are not delayed
gets what they use and a quarter more; those whose clients are delayed (*hungry* ones) divide the rest equally. If none
is hungry, all of them divide the rest, so that there is room for clients that come. A broker whose report is missing
counts as one that uses its equal part, whatever it does.

- No starvation: a hungry broker gets at least its equal part, limit / n, and every other one at least `FLOOR` / n, with
  which a client that comes to it can begin until the next exchange.
- The shares that are computed from the same reports add up to at most limit * (1 + `FLOOR`): only the floors of brokers
  that use less are beyond the limit.
"""

from collections.abc import Iterable, Sequence
from math import inf
from typing import NamedTuple

FLOOR = 0.1
"""The part of a quota that brokers have beyond their shares, all of them together."""
_HEADROOM = 1.25


class BrokerDemand(NamedTuple):
    """What the clients of one broker use of one quota."""

    used: float = 0.0
    """Each second."""
    is_hungry: bool = False
    """Whether they are delayed: they would use more."""


NO_DEMAND = BrokerDemand()


def divided(limit: float, demands: Sequence[BrokerDemand | None]) -> list[float]:
    """The share of each broker; None stands for a broker whose demand is not known."""
    equal_part = limit / len(demands)
    known = [each for each in demands if each is not None]
    wanted = [inf if each.is_hungry else each.used * _HEADROOM for each in known]
    room = equal_part * len(known)
    level = _level(room, wanted)
    given = [min(each, level) for each in wanted]
    left = max(0.0, room - sum(given)) / max(1, len(known))
    floor = equal_part * FLOOR
    shares = iter([max(each + left, floor) for each in given])
    return [equal_part if each is None else next(shares) for each in demands]


def _level(room: float, wanted: Iterable[float]) -> float:
    """The most that each can get: who wants less gets that, and the others this, and together they get the room."""
    ascending = sorted(wanted)
    for at, each in enumerate(ascending):
        level = room / (len(ascending) - at)
        if each > level:
            return level
        room -= each
    return inf
