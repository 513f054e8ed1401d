"""Rates of objects on this broker, from counters that only grow. Pure.

A rate is that of the last sample. An object that was not in the sample before has none yet.
"""

from collections.abc import Hashable

Counters = tuple[int, ...]
PerSecond = tuple[float, ...]


class RateTable:
    """The rates of objects by any key; an object that a sample leaves out is dropped."""

    def __init__(self) -> None:
        self._counted: dict[Hashable, Counters] = {}
        self._rates: dict[Hashable, PerSecond] = {}
        self._next_counted: dict[Hashable, Counters] = {}
        self._next_rates: dict[Hashable, PerSecond] = {}
        self._at_ms: float | None = None

    def of(self, key: Hashable) -> PerSecond | None:
        """What each counter grew by per second; None if none did, or it is not known yet."""
        return self._rates.get(key)

    def note(self, key: Hashable, counted: Counters, now_ms: float, *, began_at_zero: bool = False) -> None:
        """Add one object to the sample in progress, which `finish` ends.

        The counters of an object that `began_at_zero` were zero if it was not there at the last sample.
        """
        self._next_counted[key] = counted
        before = self._counted.get(key, (0,) * len(counted) if began_at_zero else None)
        if before is None or before == counted or self._at_ms is None or now_ms <= self._at_ms:
            return
        per_s = 1000.0 / (now_ms - self._at_ms)
        # A counter that went back began again: the object was replaced by another of the same name.
        self._next_rates[key] = tuple(max(0, now - then) * per_s for now, then in zip(counted, before, strict=True))

    def finish(self, now_ms: float) -> None:
        """End the sample, which began at this time."""
        self._counted, self._next_counted = self._next_counted, {}
        self._rates, self._next_rates = self._next_rates, {}
        self._at_ms = now_ms
