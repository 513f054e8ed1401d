"""The table of all checks, and functions to run and report them."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from headrace.testing.checkers.facts import Facts
from headrace.testing.checkers.groups import find_group_faults
from headrace.testing.checkers.leaders import find_stale_acks, find_unclean_elections
from headrace.testing.checkers.transactions import find_aborted_reads, find_torn, find_zombie_producers
from headrace.testing.checkers.values import (
    find_acks_without_sync,
    find_duplicates,
    find_inconsistent_offsets,
    find_lost,
    find_power_cut_losses,
    find_reordered,
    find_skips,
    find_strangers,
    find_unseen,
)
from headrace.testing.histories import History


class Anomaly(NamedTuple):
    """One violation of a guarantee."""

    number: int
    name: str
    what: str

    def __str__(self) -> str:
        return f"{self.name} ({self.number}): {self.what}"


CHECKS: dict[int, tuple[str, Callable[[Facts], Iterator[str]]]] = {
    1: ("lost write", find_lost),
    2: ("unseen", find_unseen),
    3: ("aborted read", find_aborted_reads),
    4: ("duplicate", find_duplicates),
    5: ("inconsistent offset", find_inconsistent_offsets),
    6: ("poll skip or backward poll", find_skips),
    7: ("reordered send", find_reordered),
    8: ("torn transaction", find_torn),
    9: ("fsync loss", find_power_cut_losses),
    10: ("unclean election", find_unclean_elections),
    11: ("stale ack", find_stale_acks),
    12: ("zombie producer", find_zombie_producers),
    13: ("silent corruption", find_strangers),
    15: ("group", find_group_faults),
    17: ("ack without sync", find_acks_without_sync),
}
"""The checks by number. 14, divergence, is checked on the disks (`replicas.py`)."""


def check(history: History, only: Iterable[int] | None = None) -> list[Anomaly]:
    """All anomalies of a history, or only those with the numbers in `only`."""
    facts = Facts(history)
    chosen = set(CHECKS if only is None else only)
    return [
        Anomaly(number, name, what)
        for number, (name, find) in CHECKS.items()
        if number in chosen
        for what in find(facts)
    ]


def report(anomalies: list[Anomaly], most: int = 10) -> str:
    """The number of anomalies of each kind, and the first `most` of each."""
    by_name: dict[str, list[Anomaly]] = defaultdict(list)
    for one in anomalies:
        by_name[one.name].append(one)
    counts = ", ".join(f"{len(some)} of {name}" for name, some in by_name.items())
    lines = [str(one) for some in by_name.values() for one in some[:most]]
    return "\n  ".join([f"{len(anomalies)} anomalies: {counts}", *lines]) if anomalies else "no anomaly"
