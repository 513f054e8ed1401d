"""Avro schema resolution: how values of the writer's schema are read with the reader's schema. Pure.

Fields are matched by name or alias. Fields that only the writer has are skipped; fields that only the reader has get
its default. Numbers are widened, strings are read as bytes and bytes as strings. Record names are not compared: a
subject whose record was renamed stays readable.
"""

from typing import Any

import pyarrow as pa

from headrace.pipelines.avro.columns import (
    BooleanNode,
    BytesNode,
    DecimalNode,
    EnumNode,
    FloatNode,
    IntegerNode,
    NullNode,
)
from headrace.pipelines.avro.nested import RecordNode, RepeatedNode, UnionNode
from headrace.pipelines.avro.schema import AvroField, AvroType
from headrace.pipelines.values.nodes import ColumnNode
from headrace.pipelines.values.types import SchemaError
from headrace.records.varints import INT32_BYTES, INT64_BYTES

_BECOMES = {
    "int": ("int", "long", "float", "double"),
    "long": ("long", "float", "double"),
    "float": ("float", "double"),
    "string": ("string", "bytes"),
    "bytes": ("bytes", "string"),
}
ROOT = "the value"


def reading(writer: AvroType, reader: AvroType, path: str = ROOT) -> ColumnNode:
    """The decoder from the writer's type to the reader's; `SchemaError` if they are incompatible."""
    if writer.kind == "union" or reader.kind == "union":
        return _union(writer, reader, path)
    if not _goes_with(writer, reader):
        raise SchemaError(f"{path} was written as {writer.kind} and cannot be read as {reader.kind}")
    if reader.kind == "record":
        return _record(writer, reader, path)
    if reader.items is not None and writer.items is not None:
        return _repeated(writer.items, reader, reader.items, path)
    if reader.kind == "enum":
        known = set(reader.symbols)
        symbols = tuple(symbol if symbol in known else reader.default_symbol for symbol in writer.symbols)
        return EnumNode(path, reader.arrow, symbols)
    return _simple(writer, reader, path)


def _simple(writer: AvroType, reader: AvroType, path: str) -> ColumnNode:
    size = writer.size if writer.kind == "fixed" else None
    if reader.logical == "decimal":
        return DecimalNode(path, reader.arrow, size)
    if writer.kind in ("int", "long"):
        in_milliseconds = reader.logical.endswith("-millis")
        return IntegerNode(path, reader.arrow, INT32_BYTES if writer.kind == "int" else INT64_BYTES, in_milliseconds)
    if writer.kind in ("float", "double"):
        return FloatNode(path, reader.arrow, 4 if writer.kind == "float" else 8)
    if writer.kind == "boolean":
        return BooleanNode(path, reader.arrow)
    if writer.kind == "null":
        return NullNode(path, reader.arrow)
    return BytesNode(path, reader.arrow, size)


def _goes_with(writer: AvroType, reader: AvroType) -> bool:
    if reader.kind not in _BECOMES.get(writer.kind, (writer.kind,)):
        return False
    # With another scale the number would have another value.
    if "decimal" in (reader.logical, writer.logical) and _scale(writer) != _scale(reader):
        return False
    return writer.kind != "fixed" or writer.size == reader.size


def _scale(type_: AvroType) -> int | None:
    return type_.arrow.scale if type_.logical == "decimal" else None


def _record(writer: AvroType, reader: AvroType, path: str) -> ColumnNode:
    places = {name: place for place, field in enumerate(reader.fields) for name in field.aliases}
    places |= {field.name: place for place, field in enumerate(reader.fields)}
    written: list[tuple[ColumnNode, int | None]] = []
    taken: set[int] = set()
    for field in writer.fields:
        place = places.get(field.name)
        place = None if place in taken else place
        within = field.name if path == ROOT else f"{path}.{field.name}"
        written.append((reading(field.type, field.type if place is None else reader.fields[place].type, within), place))
        if place is not None:
            taken.add(place)
    missing = [(place, field) for place, field in enumerate(reader.fields) if place not in taken]
    return RecordNode(path, reader.arrow, tuple(written), tuple((place, _default(field)) for place, field in missing))


def _repeated(written: AvroType, reader: AvroType, wanted: AvroType, path: str) -> ColumnNode:
    item = reading(written, wanted, f"{path}[]")
    if reader.kind == "array":
        return RepeatedNode(path, reader.arrow, item, written.least_bytes)
    pair = pa.struct([("key", pa.string()), ("value", wanted.arrow)])
    key = BytesNode(f"{path} key", pa.string())
    return RepeatedNode(path, reader.arrow, RecordNode(path, pair, ((key, 0), (item, 1))), 1 + written.least_bytes)


def _union(writer: AvroType, reader: AvroType, path: str) -> ColumnNode:
    members = reader.members if reader.kind == "union" else (reader,)
    takes_null = reader.kind == "null" or any(each.kind == "null" for each in reader.branches)
    branches: list[tuple[ColumnNode | str, int | None]] = []
    for branch in writer.branches if writer.kind == "union" else (writer,):
        if branch.kind == "null":
            branches.append((NullNode(path, reader.arrow), None) if takes_null else (f"{path} is null", None))
            continue
        # Prefer the same type to one that it can be promoted to.
        fitting = sorted(
            (place for place, each in enumerate(members) if _goes_with(branch, each)),
            key=lambda place: (members[place].kind != branch.kind, members[place].name != branch.name),
        )
        reason = f"{path} was written as {branch.kind}, which the schema that it is read with does not have"
        branches.append((reading(branch, members[fitting[0]], path), fitting[0]) if fitting else (reason, None))
    if all(isinstance(node, str) for node, _ in branches):
        raise SchemaError(f"{path} was written as {writer.kind} and cannot be read as {reader.kind}")
    return UnionNode(path, reader.arrow, tuple(branches), writer.kind == "union", len(members) > 1)


def _default(field: AvroField) -> Any:
    if not field.has_default:
        raise SchemaError(f"{field.name} was not written, and the schema that it is read with has no default for it")
    try:
        found = _value(field.type, field.default)
        pa.array([found], field.type.arrow)
    except (TypeError, ValueError, KeyError, AttributeError, pa.ArrowException):
        raise SchemaError(f"{field.name} has a default of another type: {field.default!r}") from None
    return found


def _value(type_: AvroType, default: Any) -> Any:
    """A default, which is JSON, as a value of its type; the default of a union belongs to its first branch."""
    if type_.kind == "union":
        branch = type_.branches[0]
        if branch.kind == "null" or len(type_.members) == 1:
            return None if branch.kind == "null" else _value(branch, default)
        return {f"member{type_.members.index(branch)}": _value(branch, default)}
    if type_.kind == "record":
        return {each.name: _value(each.type, default.get(each.name, each.default)) for each in type_.fields}
    if type_.items is not None:
        if type_.kind == "map":
            return [(key, _value(type_.items, value)) for key, value in default.items()]
        return [_value(type_.items, each) for each in default]
    if type_.kind in ("bytes", "fixed"):
        data = default.encode("latin-1")
        if type_.logical != "decimal":
            return data
        number = int.from_bytes(data, "big", signed=True)
        return pa.scalar(number, pa.decimal128(38, 0)).as_py().scaleb(-type_.arrow.scale)
    if type_.logical.endswith("-millis"):
        return default * 1000
    return default
