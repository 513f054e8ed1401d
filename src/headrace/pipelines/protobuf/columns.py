"""Decoders for Protobuf messages: field by field in many messages at once. See `values/nodes.py`.

A step reads one field of all messages that have it next (`tags.py`), by operations on whole arrays. What is left of few
messages with many more fields is read one by one (`single.py`).

A field that is written with another type than that of its number is a fault. Fields that the reader's schema does not
have are skipped.
"""

from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.pipelines.protobuf.scalars import FIXED, MAX_S, PLAIN_NUMBERS, ScalarColumn, default_of, wire_type
from headrace.pipelines.protobuf.schema import MessageField, MessageType
from headrace.pipelines.protobuf.single import read_message
from headrace.pipelines.protobuf.tags import LENGTH, VARINT, NextTags, mask_of
from headrace.pipelines.values.nodes import ColumnNode, ValueCursor, structs, text_column
from headrace.pipelines.values.rows import TOO_DEEP_FOR_COLUMNS, RowCursors
from headrace.records.varints import Integers, try_uvarints

_MOST_STEPS_ALONE: Final = 64
_FEW_ROWS: Final = 32
"""After so many steps, messages are read one by one if fewer than this are left."""
_MAX_VARINT_BYTES: Final = 10

Part = tuple[Integers, pa.Array]
"""Rows, and a value for each of them; a row may be there several times."""


@dataclass
class _Found:
    """What was found of a message's fields."""

    parts: dict[int, list[Part]] = field(default_factory=dict)
    chosen: dict[str, Integers] = field(default_factory=dict)
    """By oneof, the number of the member that came last in each row."""


@dataclass(frozen=True)
class MessageNode(ColumnNode):
    """A message."""

    type: MessageType

    def column(self, rows: RowCursors) -> pa.Array:
        found = self._read(rows)
        columns = [self._assembled(each, found, rows) for each in self.type.fields]
        if self.type.is_time:
            return self._times(columns[0], columns[1], rows)
        return columns[0] if self.type.is_wrapper else structs(columns, self.arrow, len(rows))

    def one(self, value: ValueCursor) -> Any:
        found = read_message(self.type, [value.data], self.path, value.at)
        value.at = len(value.data)
        return found

    def _read(self, rows: RowCursors) -> _Found:
        """Read all fields: field by field, in all messages that have it next.

        Messages with their fields in order, as all libraries write them, are read in one round, whichever fields each
        of them has.
        """
        found = _Found(chosen={each.oneof: np.zeros(len(rows), np.int64) for each in self.type.fields if each.oneof})
        by_tag = sorted((tag, each.name, each) for each in self.type.fields for tag in _tags(each))
        tags = NextTags(rows, np.array([tag for tag, _, _ in by_tag], np.int64), self.path)
        steps = 0
        while not tags.at_end:
            for tag, _, field_ in by_tag:
                while len(which := tags.rows_at(tag)):
                    some = rows if len(which) == len(rows) else rows.some(which)
                    self._add(found, field_, tag & 7, which, some)
                    steps += 1
                    tags.advance(which, some, alone=steps > _MOST_STEPS_ALONE and len(which) < _FEW_ROWS)
                    if not field_.is_repeated:
                        break
            tags.skip_unknown()
            steps += 1
            if steps > _MOST_STEPS_ALONE:
                tags.leave_few(_FEW_ROWS)
        return found

    def _add(self, found: _Found, field_: MessageField, wire: int, owners: Integers, some: RowCursors) -> None:
        path = field_.path_in(self.path)
        if field_.is_repeated and wire == LENGTH and wire_type(field_.kind) != LENGTH:
            counts, column = _packed(field_, some, path)
            owners = np.repeat(owners, counts)
        else:
            column = _value(field_, some, path)
        found.parts.setdefault(field_.number, []).append((owners, column))
        if field_.oneof:
            found.chosen[field_.oneof][owners] = field_.number

    def _assembled(self, field_: MessageField, found: _Found, rows: RowCursors) -> pa.Array:
        parts = found.parts.get(field_.number, [])
        if field_.is_repeated:
            return _repeated(field_, parts, rows)
        count = len(rows)
        if len(parts) == 1 and len(parts[0][0]) == count and not field_.oneof:
            return parts[0][1]
        index = np.full(count, -1, np.int64)
        base = 0
        for owners, _ in parts:
            if field_.kind == "message" and (twice := index[owners] >= 0).any():
                # Protobuf merges them.
                rows.fail(mask_of(owners[twice], count), TOO_DEEP_FOR_COLUMNS)
            index[owners] = np.arange(base, base + len(owners))
            base += len(owners)
        missing = index < 0
        if field_.oneof:
            missing |= found.chosen[field_.oneof] != field_.number
        if not parts:
            made = pa.nulls(count, field_.arrow)
        elif len(parts) == 1 and field_.kind in PLAIN_NUMBERS:
            owners, column = parts[0]
            numbers = np.zeros(count, field_.arrow.to_pandas_dtype())
            numbers[owners] = np.asarray(column)
            return pa.array(numbers, field_.arrow, mask=missing if field_.has_presence else None)
        else:
            whole = parts[0][1] if len(parts) == 1 else pa.concat_arrays([column for _, column in parts])
            made = whole.take(pa.array(index, mask=missing if missing.any() else None))
        if field_.has_presence:
            return made
        return pc.fill_null(made, pa.scalar(default_of(field_), field_.arrow))

    def _times(self, seconds: pa.Array, nanos: pa.Array, rows: RowCursors) -> pa.Array:
        whole = np.asarray(seconds)
        if (wrong := (whole > MAX_S) | (whole < -MAX_S)).any():
            rows.fail(wrong, f"{self.path} is a time too far away")
            whole = np.where(wrong, 0, whole)
        return pa.array(whole * 1_000_000 + np.asarray(nanos).astype(np.int64) // 1000).view(self.arrow)


def _tags(field_: MessageField) -> list[int]:
    """The tags that a field is written with: packed and not."""
    wire = wire_type(field_.kind)
    wires = [wire, LENGTH] if field_.is_repeated and wire != LENGTH else [wire]
    return [field_.number << 3 | each for each in wires]


def _value(field_: MessageField, rows: RowCursors, path: str) -> pa.Array:
    """A single value of each row."""
    kind = field_.kind
    if kind in FIXED:
        return ScalarColumn(field_).of_fixed(rows.fixed(FIXED[kind], path))
    if wire_type(kind) == VARINT:
        return ScalarColumn(field_).of_numbers(rows.unsigned(path))
    starts, sizes = rows.chunks(rows.unsigned(path), path)
    if field_.message is None:
        found = rows.binary(starts, sizes)
        return text_column(found, rows, path) if kind == "string" else found
    inner = RowCursors(rows.buffer, rows.data, starts.copy(), starts + sizes, rows.faults, rows.reasons)
    made = MessageNode(path, field_.message.arrow, field_.message).column(inner)
    bad = rows.faults != 0
    rows.at[bad] = rows.ends[bad]
    return made


def _packed(field_: MessageField, rows: RowCursors, path: str) -> tuple[Integers, pa.Array]:
    """The number of values of each row, and the values."""
    starts, sizes = rows.chunks(rows.unsigned(path), path)
    if field_.kind in FIXED:
        width = np.dtype(FIXED[field_.kind]).itemsize
        sizes = _without(sizes % width != 0, rows, sizes, path)
        data = _bytes_of(rows.binary(starts, sizes))
        return sizes // width, ScalarColumn(field_).of_fixed(data.view(FIXED[field_.kind]))
    ends = rows.data.take(starts + sizes - 1, mode="clip") >= 0x80
    sizes = _without(ends & (sizes > 0), rows, sizes, path)
    data = _bytes_of(rows.binary(starts, sizes))
    last = np.flatnonzero(data < 0x80)
    firsts = np.concatenate([np.zeros(1, np.int64), last[:-1] + 1]) if len(last) else last
    bounds = np.concatenate([np.zeros(1, np.int64), np.cumsum(sizes)])
    places = np.searchsorted(last, bounds)
    counts = np.diff(places)
    numbers, _, wrong = try_uvarints(data, firsts, _MAX_VARINT_BYTES)
    if len(wrong):
        owner = np.repeat(np.arange(len(rows)), counts)
        rows.fail(mask_of(owner[wrong], len(rows)), f"{path} has a number of more than 64 bits")
    return counts, ScalarColumn(field_).of_numbers(numbers)


def _without(wrong: Any, rows: RowCursors, sizes: Integers, path: str) -> Integers:
    if not wrong.any():
        return sizes
    rows.fail(wrong, f"{path} is cut off")
    return np.where(wrong, 0, sizes)


def _bytes_of(column: pa.Array) -> Any:
    """The bytes of all values, one behind the other."""
    if not len(column) or column.buffers()[2] is None:
        return np.zeros(0, np.uint8)
    bounds = np.frombuffer(column.buffers()[1], np.int32)[column.offset : column.offset + len(column) + 1]
    return np.frombuffer(column.buffers()[2], np.uint8)[bounds[0] : bounds[-1]]


def _repeated(field_: MessageField, parts: list[Part], rows: RowCursors) -> pa.Array:
    count = len(rows)
    owner = np.concatenate([np.zeros(0, np.int64), *(owners for owners, _ in parts)])
    items = pa.concat_arrays([pa.array([], field_.item), *(column for _, column in parts)])
    if len(parts) > 1:
        order = np.argsort(owner, kind="stable")
        owner, items = owner[order], items.take(pa.array(order))
    bounds = np.zeros(count + 1, np.int32)
    np.cumsum(np.bincount(owner, minlength=count), out=bounds[1:])
    if not pa.types.is_map(field_.arrow):
        return pa.ListArray.from_arrays(pa.array(bounds), items, type=field_.arrow)
    keys, values = (pc.struct_field(items, [index]) for index in (0, 1))
    codes = np.asarray(keys.dictionary_encode().indices).astype(np.int64)
    pairs, firsts = np.unique(owner * (len(codes) + 1) + codes, return_index=True)
    if len(pairs) < len(codes):
        # The last entry of a key counts.
        again = np.ones(len(codes), np.bool_)
        again[firsts] = False
        rows.fail(mask_of(owner[again], count), TOO_DEEP_FOR_COLUMNS)
    return pa.MapArray.from_arrays(pa.array(bounds), keys, values, type=field_.arrow)
