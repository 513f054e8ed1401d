"""The last hour of what the broker has seen: a point every ten seconds for each series. Pure.

Bounds: a series takes 1.4 KiB; there are at most `series_max` of them. An object whose figures were zero for an hour is
dropped, and so is a deleted topic. If there is no room, a new object takes the place of the one that has been at zero
for longest; if none has, it gets no history.
"""

import math
from array import array
from collections.abc import Callable, Iterable, Mapping, Sequence

from headrace.monitor.snapshots import STEP_S, HistoryData

POINTS = 3600 // STEP_S
_STEP_MS = STEP_S * 1000
_RATE = "_per_s"

ObjectKey = tuple[str, str]
"""Kind and name."""

Values = Mapping[str, float | None]


class ObjectHistory:
    """The series of one object: rings of points, which all end at the same step."""

    __slots__ = ("_added", "_last_step", "_rings", "active_step")

    def __init__(self, names: Iterable[str]) -> None:
        self._rings = {name: array("f", [math.nan]) * POINTS for name in names}
        self._last_step = -1
        self._added = 0
        """How many values were added to the last point."""
        self.active_step = -1
        """The last step at which a value was not zero."""

    def __len__(self) -> int:
        return len(self._rings)

    def add(self, step: int, values: Values) -> None:
        """Set the point of a step: the mean of the rates, and the last of other values, if there are several.

        Steps that went by without a value are unknown.
        """
        self._clear_until(step)
        for name, value in values.items():
            ring, at = self._rings[name], step % POINTS
            if value is None:
                ring[at] = math.nan
                continue
            if name.endswith(_RATE) and self._added and not math.isnan(ring[at]):
                value += (ring[at] - value) * self._added / (self._added + 1)
            ring[at] = value
            if value:
                self.active_step = step
        self._added += 1

    def last(self, name: str, count: int, step: int) -> list[float | None]:
        """The points of a series up to a step."""
        self._clear_until(step)
        ring = self._rings.get(name)
        return [] if ring is None else [_shown(ring[at % POINTS]) for at in range(step - count + 1, step + 1)]

    def all(self, step: int) -> dict[str, list[float | None]]:
        return {name: self.last(name, POINTS, step) for name in self._rings}

    def _clear_until(self, step: int) -> None:
        # At the same step, or if the clock went back, nothing is cleared.
        if step > self._last_step:
            self._added = 0
        for missed in range(max(self._last_step + 1, step - POINTS + 1), step + 1):
            for ring in self._rings.values():
                ring[missed % POINTS] = math.nan
        self._last_step = max(self._last_step, step)


def _shown(value: float) -> float | None:
    return None if math.isnan(value) else round(value, 3)


class FigureHistory:
    def __init__(self, series_max: int) -> None:
        self._series_max = series_max
        self._objects: dict[ObjectKey, ObjectHistory] = {}
        self._size = 0
        self._full_step = -1
        """The step at which no idle object was found to be replaced."""

    @property
    def size(self) -> int:
        """How many series there are."""
        return self._size

    def add(self, kind: str, name: str, wall_ms: int, values: Values) -> None:
        """Add a point to the history of an object. An object without activity gets no new history."""
        step, key = wall_ms // _STEP_MS, (kind, name)
        found = self._objects.get(key)
        if found is None:
            if not any(values.values()) or not self._make_room(len(values), step):
                return
            found = self._objects[key] = ObjectHistory(values)
            self._size += len(found)
        found.add(step, values)

    def _make_room(self, wanted: int, step: int) -> bool:
        while self._size + wanted > self._series_max:
            if self._full_step == step:
                return False
            idlest = min(self._objects, key=lambda key: self._objects[key].active_step, default=None)
            if idlest is None or self._objects[idlest].active_step >= step - 1:
                self._full_step = step
                return False
            self._drop(idlest)
        return True

    def drop_idle(self, wall_ms: int) -> None:
        """Drop the objects whose figures were zero for as long as points are stored."""
        oldest = wall_ms // _STEP_MS - POINTS
        for key in [key for key, each in self._objects.items() if each.active_step <= oldest]:
            self._drop(key)

    def drop_unless(self, kind: str, exists: Callable[[str], bool]) -> None:
        """Drop the objects of this kind that do not exist any more, by their names."""
        for key in [key for key in self._objects if key[0] == kind and not exists(key[1])]:
            self._drop(key)

    def _drop(self, key: ObjectKey) -> None:
        self._size -= len(self._objects.pop(key))

    def last(self, kind: str, name: str, series: str, count: int, wall_ms: int) -> list[float | None]:
        """The last points of a series; empty if there is none."""
        found = self._objects.get((kind, name))
        return [] if found is None else found.last(series, count, wall_ms // _STEP_MS)

    def read(self, kind: str, name: str, wall_ms: int) -> HistoryData:
        """The whole history of an object, from its first known point on."""
        step, found = wall_ms // _STEP_MS, self._objects.get((kind, name))
        series = {} if found is None else without_unknown_start(found.all(step))
        return HistoryData(step * _STEP_MS, series)


def without_unknown_start(series: Mapping[str, list[float | None]]) -> dict[str, list[float | None]]:
    """Series of one length, from the first point that is known in any of them on."""
    known = (at for values in series.values() for at, value in enumerate(values) if value is not None)
    first = min(known, default=max(map(len, series.values()), default=0))
    return {name: values[first:] for name, values in series.items()}


# Histories of several brokers

_LARGEST = ("lag_seconds", "oldest_age_s")


def merge_histories(histories: Sequence[HistoryData], end_ms: int) -> HistoryData:
    """One history of several: sums of counts and rates, the largest of ages and times."""
    end_step = end_ms // _STEP_MS
    names = dict.fromkeys(name for each in histories for name in each.series)
    merged: dict[str, list[float | None]] = {name: [None] * POINTS for name in names}
    for each in histories:
        # Clocks differ: the last point of another broker may be that of another step.
        behind = end_step - each.end_ms // _STEP_MS
        for name, values in each.series.items():
            takes_largest = name.endswith("_ms") or name in _LARGEST
            for back, value in enumerate(reversed(values)):
                at = POINTS - 1 - behind - back
                if value is None or not 0 <= at < POINTS:
                    continue
                known = merged[name][at]
                merged[name][at] = value if known is None else max(known, value) if takes_largest else known + value
    return HistoryData(end_step * _STEP_MS, without_unknown_start(merged))
