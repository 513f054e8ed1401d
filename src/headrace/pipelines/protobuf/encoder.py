"""Rows as Protobuf, in bulk: the message that columns have, and their bytes.

Every field is `optional`, arrays are `repeated`. Field numbers are those that the subject's newest version has for a
name; a new column gets a number that no version had, and the number of a column that is gone stays reserved.
"""

import re
from collections.abc import Set
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.model.errors import HeadraceError
from headrace.pipelines.protobuf.scalars import wire_type
from headrace.pipelines.protobuf.schema import parse_protobuf
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
from headrace.runtime.varint import encode_uvarint
from headrace.schemas.protobuf.syntax import ProtoMessage

_SCALARS: Final = {
    pa.bool_(): "bool", pa.int8(): "int32", pa.int16(): "int32", pa.int32(): "int32", pa.int64(): "int64",
    pa.float32(): "float", pa.float64(): "double", pa.string(): "string", pa.binary(): "bytes",
    pa.date32(): "string",
}  # fmt: skip
_TIMESTAMP: Final = "google.protobuf.Timestamp"
_KEYS: Final = ("bool", "int32", "int64", "string")


class NullItem(HeadraceError):
    """A row that Protobuf cannot express."""


@dataclass(frozen=True)
class RowField:
    """A column as a field."""

    name: str
    number: int
    kind: str
    """A scalar, Timestamp, or `message`."""
    is_repeated: bool = False
    message: "RowMessage | None" = None

    @property
    def tag(self) -> bytes:
        wire = 2 if self.kind == _TIMESTAMP else wire_type(self.kind)
        return encode_uvarint(self.number << 3 | (2 if self.is_repeated else wire))


@dataclass(frozen=True)
class RowMessage:
    """The message of rows, of a struct, or of a map's entries."""

    fields: tuple[RowField, ...]


def protobuf_schema(columns: pa.DataType, topic: str, previous: WriterSchema | None) -> tuple[WriterSchema, RowMessage]:
    """The schema of rows with these columns, a struct, and how rows are written; `previous` has the numbers so far."""
    package, name, known = "", record_name(topic), None
    if previous is not None and previous.kind == "PROTOBUF":
        file = parse_protobuf(previous.text, previous.references).file
        if file.messages:
            package, known = file.package, file.messages[0]
            name = known.name
    writer = _ProtoText()
    message, lines = writer.message(columns, name, known, "", "")
    head = ['syntax = "proto3";', *([f"package {package};"] if package else [])]
    head += ['import "google/protobuf/timestamp.proto";'] if writer.has_times else []
    return WriterSchema("\n".join([*head, *lines, ""]), kind="PROTOBUF"), message


class _ProtoText:
    def __init__(self) -> None:
        self.has_times = False

    def message(
        self, columns: pa.DataType, name: str, known: ProtoMessage | None, path: str, indent: str
    ) -> tuple[RowMessage, list[str]]:
        numbers = {each.name: each.number for each in known.fields} if known else {}
        ranges = known.reserved_ranges if known else []
        next_number = max([*numbers.values(), *(last for _, last in ranges)], default=0) + 1
        before = set(numbers.values())
        taken = {column.name for column in columns}
        in_json: dict[str, str] = {}
        fields, lines = [], [f"{indent}message {name} {{"]
        for column in columns:
            where = f"{path}.{column.name}".lstrip(".")
            check_name(column.name, where, "Protobuf")
            if (other := in_json.setdefault(_json_name(column.name), where)) != where:
                raise SchemaError(f"{other} and {where} are one name in the JSON form of Protobuf: rename one with AS")
            if column.name not in numbers:
                numbers[column.name], next_number = next_number, next_number + 1
            type_name, inner = _type_name(column.name, known, taken)
            made, nested, text = self._field(column, numbers[column.name], type_name, inner, where, indent + "  ")
            if nested:
                taken.add(type_name)
            fields.append(made)
            lines += [*nested, f"{indent}  {text} = {made.number};"]
        gone = [*ranges, *((number, number) for number in sorted(before - {each.number for each in fields}))]
        lines += [f"{indent}  reserved {first} to {last};" for first, last in gone]
        return RowMessage(tuple(fields)), [*lines, f"{indent}}}"]

    def _field(
        self, column: pa.Field, number: int, type_name: str, known: ProtoMessage | None, path: str, indent: str
    ) -> tuple[RowField, list[str], str]:
        """The field, the lines of the message `type_name` if it needs one, and its text."""
        arrow, name = column.type, column.name
        if pa.types.is_map(arrow):
            key, _, _, _ = self._type(arrow.key_type, type_name, None, path, indent)
            if key not in _KEYS:
                raise SchemaError(f"the keys of {path} are of type {arrow.key_type}: cast them to STRING")
            kind, message, nested, text = self._type(arrow.item_type, type_name, known, f"{path}[]", indent)
            entry = RowMessage((RowField("key", 1, key), RowField("value", 2, kind, message=message)))
            return RowField(name, number, "message", True, entry), nested, f"map<{key}, {text}> {name}"
        if pa.types.is_list(arrow):
            kind, message, nested, text = self._type(arrow.value_type, type_name, known, f"{path}[]", indent)
            return RowField(name, number, kind, True, message), nested, f"repeated {text} {name}"
        kind, message, nested, text = self._type(arrow, type_name, known, path, indent)
        return RowField(name, number, kind, False, message), nested, f"optional {text} {name}"

    def _type(
        self, arrow: pa.DataType, name: str, known: ProtoMessage | None, path: str, indent: str
    ) -> tuple[str, RowMessage | None, list[str], str]:
        """The kind, the message, its lines, and the name of the type."""
        if arrow in _SCALARS:
            return _SCALARS[arrow], None, [], _SCALARS[arrow]
        if pa.types.is_timestamp(arrow) and arrow.tz:
            self.has_times = True
            return _TIMESTAMP, None, [], _TIMESTAMP
        if pa.types.is_timestamp(arrow) or pa.types.is_decimal(arrow):
            return "string", None, [], "string"
        if pa.types.is_struct(arrow):
            message, lines = self.message(arrow, name, known, path, indent)
            return "message", message, lines, name
        if pa.types.is_list(arrow) or pa.types.is_map(arrow):
            raise SchemaError(f"{path} is an array or a map in another one, which Protobuf does not have: use a struct")
        raise no_type(path, arrow, "Protobuf")


def _json_name(name: str) -> str:
    """The name of a field in the JSON form of Protobuf."""
    return re.sub(r"_+(.?)", lambda found: found[1].upper(), name)


def _type_name(column: str, known: ProtoMessage | None, taken: Set[str]) -> tuple[str, ProtoMessage | None]:
    """The name of the message for a column, and that message in the version before.

    Fields and messages in a message share their names, so none of `taken` can be used.
    """
    messages = {each.name: each for each in known.messages} if known else {}
    before = next((each.type.rpartition(".")[2] for each in known.fields if each.name == column), "") if known else ""
    if before in messages and before not in taken:
        return before, messages[before]
    name = "".join(part[:1].upper() + part[1:] for part in column.split("_"))
    name = name if name[:1].isalpha() else f"Struct{name}"
    while name in taken or name in messages:
        name += "_"
    return name, None


def encode_protobuf(rows: pa.Array, message: RowMessage) -> pa.Array:
    """A struct column, whose rows are not null, as messages."""
    return _message(rows, message, np.ones(len(rows), np.bool_))


def _message(rows: pa.Array, message: RowMessage, inside: Valid) -> pa.Array:
    parts = [constant(b"", inside)]
    for field, column in zip(message.fields, rows.flatten(), strict=True):
        if field.is_repeated:
            parts.append(_repeated(field, compact(column)))
        else:
            valid = valid_rows(column) & inside
            parts += [constant(field.tag, valid), _value(field, column, valid)]
    return joined(*parts)


def _value(field: RowField, column: pa.Array, valid: Valid) -> pa.Array:
    if field.message is not None:
        return _sized(_message(column, field.message, valid), valid)
    match field.kind:
        case "float" | "double":
            return fixed(filled(column, 0), valid)
        case "bool":
            return varints(filled(column, value=False).astype(np.uint64), valid)
        case "int32" | "int64":
            return varints(filled(column, 0).astype(np.int64).view(np.uint64), valid)
        case "string":
            column = column.cast(pa.string())
    if field.kind == _TIMESTAMP:
        return _sized(_times(column, valid), valid)
    return _sized(pc.fill_null(column.cast(pa.binary()), b""), valid)


def _sized(data: pa.Array, valid: Valid) -> pa.Array:
    return joined(varints(sizes_of(data).view(np.uint64), valid), data)


def _times(column: pa.Array, valid: Valid) -> pa.Array:
    moments = filled(column.cast(pa.timestamp("us", column.type.tz)).view(pa.int64()), 0)
    seconds, micros = np.divmod(moments, 1_000_000)
    return joined(
        constant(b"\x08", valid),
        varints(seconds.view(np.uint64), valid),
        constant(b"\x10", valid),
        varints((micros * 1000).view(np.uint64), valid),
    )


def _repeated(field: RowField, column: pa.Array) -> pa.Array:
    """Items, each behind the tag; numbers packed behind one tag. A null list is an empty one."""
    counts = item_counts(column)
    every = np.ones(int(counts.sum()), np.bool_)
    if pa.types.is_map(column.type):
        items: Any = pa.StructArray.from_arrays([column.keys, column.items], ["key", "value"])
        holes = column.items.null_count
    else:
        items, holes = column.values, column.values.null_count
    if holes:
        raise NullItem(f"the column {field.name} has a null item, which Protobuf cannot express: filter it out")
    values = _value(RowField(field.name, field.number, field.kind, message=field.message), items, every)
    if field.kind not in ("message", "string", "bytes", _TIMESTAMP):
        some = counts > 0
        return joined(constant(field.tag, some), _sized(grouped(counts, values), some))
    return grouped(counts, joined(constant(field.tag, every), values))
