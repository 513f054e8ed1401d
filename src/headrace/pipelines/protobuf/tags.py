"""The tags of the fields that many Protobuf messages have next."""

from typing import Any, Final

import numpy as np

from headrace.pipelines.values.rows import TOO_DEEP_FOR_COLUMNS, RowCursors
from headrace.records.varints import Integers

VARINT, FIXED64, LENGTH, FIXED32 = 0, 1, 2, 5
_MAX_NUMBER: Final = 2**29 - 1
_NONE: Final = -1
_TABLE: Final = 2048
"""Tags below are looked up in a table, the others in a sorted list."""


def mask_of(rows: Integers, count: int) -> Any:
    mask = np.zeros(count, np.bool_)
    mask[rows] = True
    return mask


class NextTags:
    """For each message the tag of its next field, whose value its cursor is at; none at its end or after a fault.

    A field that the schema does not have is stored as -2 - its wire type.
    """

    def __init__(self, rows: RowCursors, known: Integers, path: str) -> None:
        self._rows = rows
        self._path = path
        self._known = known
        self._table = np.zeros(_TABLE, np.bool_)
        self._table[known[known < _TABLE]] = True
        self._tags = np.full(len(rows), _NONE)
        self._read(None)

    @property
    def at_end(self) -> bool:
        return bool((self._tags == _NONE).all())

    def rows_at(self, tag: int) -> Integers:
        return np.flatnonzero(self._tags == tag)

    def advance(self, which: Integers, some: RowCursors, *, alone: bool) -> None:
        """Go on to the next field after `some`, the cursors of the rows `which`, has read one."""
        if some is not self._rows:
            self._rows.put_back(which, some)
        if alone:
            self._leave(which)
        else:
            self._read(which)

    def skip_unknown(self) -> None:
        """Skip one field of each message that has one next that the schema does not have."""
        for key in np.unique(self._tags[self._tags < _NONE]).tolist():
            which = self.rows_at(key)
            some = self._rows.some(which)
            self._skip(-2 - key, some)
            self.advance(which, some, alone=False)

    def leave_few(self, fewer_than: int) -> None:
        """Leave the messages that are not at their end to be read one by one, if they are few."""
        which = np.flatnonzero(self._tags != _NONE)
        if len(which) < fewer_than:
            self._leave(which)

    def _leave(self, which: Integers) -> None:
        self._rows.fail(mask_of(which, len(self._rows)), TOO_DEEP_FOR_COLUMNS)
        self._tags[which] = _NONE

    def _skip(self, wire: int, some: RowCursors) -> None:
        if wire == VARINT:
            some.unsigned(self._path)
        elif wire == LENGTH:
            some.chunks(some.unsigned(self._path), self._path)
        elif wire in (FIXED64, FIXED32):
            some.chunks(np.full(len(some), 8 if wire == FIXED64 else 4, np.int64), self._path)
        else:
            some.fail(np.ones(len(some), np.bool_), f"{self._path} has a field of no known kind")

    def _read(self, which: Integers | None) -> None:
        rows = self._rows
        if which is None or len(which) == len(rows):
            has_more = rows.at < rows.ends
            which = None if has_more.all() else np.flatnonzero(has_more)
            self._tags[:] = _NONE
        else:
            self._tags[which] = _NONE
            which = which[rows.at[which] < rows.ends[which]]
        if which is not None and not len(which):
            return
        some = rows if which is None else rows.some(which)
        tags = some.unsigned(self._path)
        if not (is_known := self._are_known(tags)).all():
            tags = self._checked(tags, is_known, some)
        if some.faults.any():
            tags = np.where(some.faults == 0, tags, _NONE)
        if which is None:
            self._tags = tags
        else:
            rows.put_back(which, some)
            self._tags[which] = tags

    def _are_known(self, tags: Integers) -> Any:
        small = self._table.take(tags, mode="clip") & (tags < _TABLE - 1)
        has_large = len(self._known) > 0 and self._known[-1] >= _TABLE - 1
        return small | np.isin(tags, self._known) if has_large else small

    def _checked(self, tags: Integers, is_known: Any, some: RowCursors) -> Integers:
        numbers = tags >> 3
        some.fail((numbers <= 0) | (numbers > _MAX_NUMBER), "the value has a field of no valid number")
        mistyped = ~is_known & np.isin(numbers, self._known >> 3)
        for number in np.unique(numbers[mistyped]).tolist():
            some.fail(mistyped & (numbers == number), f"the field number {number} was written with another type")
        return np.where(is_known, tags, -2 - (tags & 7))
