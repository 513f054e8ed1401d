"""Rates of the partitions on this broker, from counters that only grow. Pure.

A rate is that of the last sample. A partition that was not in the sample before has none yet.
"""

from collections.abc import Hashable
from typing import NamedTuple

from headrace.monitor.snapshots import NO_RATES, Rates


class Counters(NamedTuple):
    """What a partition has counted since this broker opened it."""

    messages_in: int = 0
    bytes_in: int = 0
    messages_out: int = 0
    bytes_out: int = 0


class RateTable:
    """The rates of objects by any key; an object that a sample leaves out is dropped."""

    def __init__(self) -> None:
        self._counted: dict[Hashable, Counters] = {}
        self._rates: dict[Hashable, Rates] = {}
        self._next_counted: dict[Hashable, Counters] = {}
        self._next_rates: dict[Hashable, Rates] = {}
        self._at_ms: float | None = None

    def of(self, key: Hashable) -> Rates:
        return self._rates.get(key, NO_RATES)

    def note(self, key: Hashable, counted: Counters, now_ms: float) -> None:
        """Add one object to the sample in progress, which `finish` ends."""
        self._next_counted[key] = counted
        before = self._counted.get(key)
        if before is None or self._at_ms is None or now_ms <= self._at_ms or before == counted:
            return
        per_s = 1000.0 / (now_ms - self._at_ms)
        # A counter that went back began again: the object was replaced by another of the same name.
        grown = [max(0, now - then) * per_s for now, then in zip(counted, before, strict=True)]
        self._next_rates[key] = Rates(*grown)

    def finish(self, now_ms: float) -> Rates:
        """End the sample; the sum of all rates."""
        self._counted, self._next_counted = self._next_counted, {}
        self._rates, self._next_rates = self._next_rates, {}
        self._at_ms = now_ms
        return sum(self._rates.values(), NO_RATES)
