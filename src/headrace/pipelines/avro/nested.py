"""Decoders for compound Avro types: records, arrays, maps and unions. See `columns`."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.pipelines.values.nodes import ColumnNode, UnreadableValue, ValueCursor, spread, structs
from headrace.pipelines.values.rows import TOO_DEEP_FOR_COLUMNS, RowCursors
from headrace.records.varints import INT32_BYTES, Integers

_MOST_STEPS_ALONE = 64
_FEW_ROWS = 32
"""Each step reads one item of each row. If only few rows have many more items, these rows are read one by one."""


@dataclass(frozen=True)
class RecordNode(ColumnNode):
    """Fields in the writer's order, each with its index in the reader's record, and the reader's defaults."""

    written: tuple[tuple[ColumnNode, int | None], ...]
    defaults: tuple[tuple[int, Any], ...] = ()

    def column(self, rows: RowCursors) -> pa.Array:
        columns: list[pa.Array] = [None] * self.arrow.num_fields
        for node, place in self.written:
            if place is None:
                node.skip(rows)
            else:
                columns[place] = node.column(rows)
        for place, default in self.defaults:
            kind = self.arrow.field(place).type
            columns[place] = pa.array([default], kind).take(pa.array(np.zeros(len(rows), np.int64)))
        return structs(columns, self.arrow, len(rows))

    def one(self, value: ValueCursor) -> dict[str, Any]:
        found = {self.arrow.field(place).name: default for place, default in self.defaults}
        for node, place in self.written:
            each = node.one(value)
            if place is not None:
                found[self.arrow.field(place).name] = each
        return found


@dataclass(frozen=True)
class RepeatedNode(ColumnNode):
    """An array, or a map as an array of pairs: blocks of items, each with its count, ended by an empty block."""

    items: ColumnNode
    least_bytes: int

    def column(self, rows: RowCursors) -> pa.Array:
        going_on = np.arange(len(rows))
        in_block = np.zeros(len(rows), np.int64)
        found: list[pa.Array] = [pa.array([], self.items.arrow)]
        owners: list[Integers] = [going_on[:0]]
        steps = 0
        while len(going_on):
            self._next_blocks(rows, going_on[in_block[going_on] == 0], in_block)
            going_on = going_on[(in_block[going_on] > 0) & (rows.faults[going_on] == 0)]
            steps += 1
            if steps > _MOST_STEPS_ALONE and len(going_on) < _FEW_ROWS:
                alone = np.zeros(len(rows), np.bool_)
                alone[going_on] = True
                rows.fail(alone, TOO_DEEP_FOR_COLUMNS)
                break
            if not len(going_on):
                break
            part = rows.some(going_on)
            found.append(self.items.column(part))
            owners.append(going_on)
            rows.put_back(going_on, part)
            in_block[going_on] -= 1
        owner = np.concatenate(owners)
        items = pa.concat_arrays(found).take(pa.array(np.argsort(owner, kind="stable")))
        bounds = np.zeros(len(rows) + 1, np.int32)
        np.cumsum(np.bincount(owner, minlength=len(rows)), out=bounds[1:])
        return self._assembled(pa.array(bounds), items)

    def _next_blocks(self, rows: RowCursors, which: Integers, in_block: Integers) -> None:
        part = rows.some(which)
        counts = part.numbers(self.path)
        negative = np.flatnonzero(counts < 0)
        if len(negative):
            # A negative count is followed by the size of the block in bytes.
            sized = part.some(negative)
            sized.numbers(self.path)
            part.put_back(negative, sized)
            counts = np.abs(counts)
        wrong = (counts < 0) | (counts > (part.ends - part.at) // self.least_bytes)
        if wrong.any():
            part.fail(wrong, f"{self.path} is cut off")
        in_block[which] = np.where(part.faults != 0, 0, counts)
        rows.put_back(which, part)

    def _assembled(self, bounds: pa.Array, items: pa.Array) -> pa.Array:
        if pa.types.is_map(self.arrow):
            keys, values = (pc.struct_field(items, [index]) for index in (0, 1))
            return pa.MapArray.from_arrays(bounds, keys, values, type=self.arrow)
        return pa.ListArray.from_arrays(bounds, items, type=self.arrow)

    def one(self, value: ValueCursor) -> list[Any]:
        found = []
        while count := value.number(self.path):
            if count < 0:
                value.number(self.path)
                count = -count
            if count > (len(value.data) - value.at) // self.least_bytes:
                raise UnreadableValue(f"{self.path} is cut off")
            found += [self.items.one(value) for _ in range(count)]
        if pa.types.is_map(self.arrow):
            return [(pair["key"], pair["value"]) for pair in found]
        return found


@dataclass(frozen=True)
class UnionNode(ColumnNode):
    """One of several types. Each branch has the index of its struct member; None for null, 0 for a single member."""

    branches: tuple[tuple[ColumnNode | str, int | None], ...]
    """A text instead of a node is the reason why the reader's schema cannot read this branch."""
    is_written: bool = True
    """Whether the writer's type is a union, so that a branch number precedes the value."""
    is_struct: bool = False

    def column(self, rows: RowCursors) -> pa.Array:
        count = len(rows)
        chosen = rows.numbers(self.path, INT32_BYTES) if self.is_written else np.zeros(count, np.int64)
        outside = (chosen < 0) | (chosen >= len(self.branches))
        if outside.any():
            rows.fail(outside, f"{self.path} is of none of the types it can have")
        members: dict[int, list[pa.Array]] = {}
        for number, (node, place) in enumerate(self.branches):
            which = np.flatnonzero((chosen == number) & (rows.faults == 0))
            if isinstance(node, str):
                rows.fail((chosen == number) & (rows.faults == 0), node)
            elif len(which):
                part = rows.some(which) if len(which) < count else rows
                column = node.column(part)
                if part is not rows:
                    rows.put_back(which, part)
                    column = spread(column, which, count)
                if place is not None:
                    members.setdefault(place, []).append(column)
        columns = {place: each[0] if len(each) == 1 else pc.coalesce(*each) for place, each in members.items()}
        if not self.is_struct:
            return columns[0] if columns else pa.nulls(count, self.arrow)
        filled = [
            columns[place] if place in columns else pa.nulls(count, self.arrow.field(place).type)
            for place in range(self.arrow.num_fields)
        ]
        is_null = [place is None for _, place in self.branches]
        return structs(filled, self.arrow, count, pa.array(np.isin(chosen, np.flatnonzero(is_null))))

    def one(self, value: ValueCursor) -> Any:
        chosen = value.number(self.path, INT32_BYTES) if self.is_written else 0
        if not 0 <= chosen < len(self.branches):
            raise UnreadableValue(f"{self.path} is of none of the types it can have")
        node, place = self.branches[chosen]
        if isinstance(node, str):
            raise UnreadableValue(node)
        found = node.one(value)
        return found if not self.is_struct or place is None else {self.arrow.field(place).name: found}
