"""Rows as Avro, in bulk: the schema that columns have, and their bytes.

Every field is a union of null and its type, with the default null, so that columns can be added and removed later.
"""

import json
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.pipelines.values.columns_schema import check_name, no_type, record_name
from headrace.pipelines.values.pieces import (
    Valid,
    compact,
    constant,
    filled,
    fixed,
    grouped,
    item_counts,
    joined,
    sizes_of,
    valid_rows,
    varints,
)
from headrace.pipelines.values.schemas import WriterSchema
from headrace.pipelines.values.types import SchemaError
from headrace.records.varints import zigzag

_PRIMITIVES = {
    pa.bool_(): "boolean", pa.int8(): "int", pa.int16(): "int", pa.int32(): "int", pa.int64(): "long",
    pa.float32(): "float", pa.float64(): "double", pa.string(): "string", pa.binary(): "bytes",
    pa.date32(): {"type": "int", "logicalType": "date"},
}  # fmt: skip


def avro_schema(columns: pa.DataType, topic: str, previous: WriterSchema | None) -> WriterSchema:
    """The schema of rows with these columns, a struct; the record has the name of that in `previous`."""
    record = _record(columns, record_name(topic), "")
    if previous is not None and previous.kind == "AVRO":
        known = json.loads(previous.text)
        if isinstance(known, dict) and known.get("type") == "record":
            record |= {key: known[key] for key in ("name", "namespace") if key in known}
    return WriterSchema(json.dumps(record))


def _record(columns: pa.DataType, name: str, path: str) -> dict[str, Any]:
    fields = []
    for each in columns:
        where = f"{path}.{each.name}".lstrip(".")
        check_name(each.name, where, "Avro")
        type_ = ["null", _type(each.type, f"{name}_{each.name}", where)]
        fields.append({"name": each.name, "type": type_, "default": None})
    return {"type": "record", "name": name, "fields": fields}


def _type(arrow: pa.DataType, name: str, path: str) -> Any:
    if arrow in _PRIMITIVES:
        return _PRIMITIVES[arrow]
    if pa.types.is_timestamp(arrow):
        return {"type": "long", "logicalType": "timestamp-micros" if arrow.tz else "local-timestamp-micros"}
    if pa.types.is_decimal(arrow):
        return {"type": "bytes", "logicalType": "decimal", "precision": arrow.precision, "scale": arrow.scale}
    if pa.types.is_struct(arrow):
        return _record(arrow, name, path)
    if pa.types.is_list(arrow):
        return {"type": "array", "items": ["null", _type(arrow.value_type, name, f"{path}[]")]}
    if pa.types.is_map(arrow):
        if not pa.types.is_string(arrow.key_type):
            raise SchemaError(f"the keys of {path} are of type {arrow.key_type}: those of Avro's maps are STRING")
        return {"type": "map", "values": ["null", _type(arrow.item_type, name, f"{path}[]")]}
    raise no_type(path, arrow, "Avro")


def encode_avro(rows: pa.Array) -> pa.Array:
    """A struct column, whose rows are not null, as Avro."""
    return _fields(rows, np.ones(len(rows), np.bool_))


def _fields(rows: pa.Array, valid: Valid) -> pa.Array:
    parts = [part for each in rows.flatten() for part in _nullable(each, valid)]
    return joined(*parts) if parts else constant(b"", valid)


def _nullable(column: pa.Array, inside: Valid) -> tuple[pa.Array, pa.Array]:
    """The number of the branch, and the value; nothing in rows that are not `inside` a record."""
    valid = valid_rows(column) & inside
    branch = varints(np.where(valid, 2, 0).astype(np.uint64), inside)
    return branch, _value(column, valid)


def _value(column: pa.Array, valid: Valid) -> pa.Array:
    arrow = column.type
    if pa.types.is_boolean(arrow):
        return fixed(filled(column, value=False).astype(np.uint8), valid)
    if pa.types.is_floating(arrow):
        return fixed(filled(column, 0), valid)
    if pa.types.is_string(arrow) or pa.types.is_binary(arrow):
        data = pc.fill_null(column.cast(pa.binary()), b"")
        return joined(_numbers(sizes_of(data), valid), data)
    if pa.types.is_decimal(arrow):
        return _decimals(column, valid)
    if pa.types.is_struct(arrow):
        return _fields(column, valid)
    if pa.types.is_list(arrow) or pa.types.is_map(arrow):
        return _repeated(compact(column), valid)
    if pa.types.is_timestamp(arrow):
        return _numbers(filled(column.cast(pa.timestamp("us", arrow.tz)).view(pa.int64()), 0), valid)
    if pa.types.is_date(arrow):
        column = column.view(pa.int32())
    return _numbers(filled(column, 0).astype(np.int64), valid)


def _numbers(numbers: Any, valid: Valid) -> pa.Array:
    return varints(zigzag(numbers), valid)


def _decimals(column: pa.Array, valid: Valid) -> pa.Array:
    """All in 16 bytes, the most significant first."""
    data = np.frombuffer(column.buffers()[1], np.uint8).reshape(-1, 16)[column.offset : column.offset + len(column)]
    wide = np.ascontiguousarray(data[:, ::-1]).view("V16")[:, 0]
    return joined(_numbers(np.full(len(column), 16), valid), fixed(wide, valid))


def _repeated(column: pa.Array, valid: Valid) -> pa.Array:
    """One block with all items, unless there are none, and the empty block at the end."""
    counts = item_counts(column)
    every = np.ones(int(counts.sum()), np.bool_)
    if pa.types.is_map(column.type):
        names = column.keys.cast(pa.binary())
        items = joined(_numbers(sizes_of(names), every), names, *_nullable(column.items, every))
    else:
        items = joined(*_nullable(column.values, every))
    return joined(_numbers(counts, valid & (counts > 0)), grouped(counts, items), constant(b"\0", valid))
