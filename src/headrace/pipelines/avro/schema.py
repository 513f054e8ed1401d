"""Parses Avro schemas to a tree of types, with the Arrow and Spark type of each. Pure.

Named types are expanded wherever they are used. Recursive types are refused: neither Arrow nor Spark has a type for
them. The mapping is that of Spark's own `from_avro`:

    int, long, float, double, boolean, string, bytes     INT, BIGINT, FLOAT, DOUBLE, BOOLEAN, STRING, BINARY
    enum; fixed                                          STRING; BINARY
    record, array, map                                   STRUCT, ARRAY, MAP<STRING, …>
    date; timestamp-millis, -micros; local-timestamp-…   DATE; TIMESTAMP; TIMESTAMP_NTZ
    decimal of at most 38 digits                         DECIMAL(p, s)
    a union of null and one type                         that type
    int and long, float and double                       BIGINT, DOUBLE
    any other union                                      STRUCT<member0: …, member1: …>, of which one is set

Other logical types are read as their underlying type.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

import pyarrow as pa

from headrace.pipelines.values.types import SchemaError

PRIMITIVES: Final = {
    "null": pa.null(),
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "bytes": pa.binary(),
    "string": pa.string(),
}
_TIMES: Final = {
    "date": ("int", pa.date32()),
    "timestamp-millis": ("long", pa.timestamp("us", tz="UTC")),
    "timestamp-micros": ("long", pa.timestamp("us", tz="UTC")),
    "local-timestamp-millis": ("long", pa.timestamp("us")),
    "local-timestamp-micros": ("long", pa.timestamp("us")),
}
_MAX_DIGITS = 38
_MAX_DEPTH = 64
_WIDER = {frozenset(("int", "long")): "long", frozenset(("float", "double")): "double"}


@dataclass(frozen=True)
class AvroField:
    """A field of a record."""

    name: str
    type: "AvroType"
    aliases: tuple[str, ...] = ()
    has_default: bool = False
    default: Any = None


@dataclass(frozen=True)
class AvroType:
    """A type of a schema."""

    kind: str
    """A primitive, or enum, fixed, record, array, map, union."""
    arrow: pa.DataType
    name: str = ""
    logical: str = ""
    fields: tuple[AvroField, ...] = ()
    items: "AvroType | None" = None
    """The type of an array's items or of a map's values."""
    symbols: tuple[str, ...] = ()
    default_symbol: str | None = None
    size: int = 0
    branches: tuple["AvroType", ...] = ()
    members: tuple["AvroType", ...] = field(default=())
    """The members of a union without null: one type, or several as the fields of a struct."""

    @property
    def least_bytes(self) -> int:
        """The minimum size of a value in bytes."""
        if self.kind == "null":
            return 0
        if self.kind == "record":
            return sum(each.type.least_bytes for each in self.fields)
        return {"float": 4, "double": 8, "fixed": self.size}.get(self.kind, 1)


def parse_schema(text: str | Mapping[str, Any], named: list[str] | None = None) -> AvroType:
    """Parse a schema; `named` are schemas whose named types it uses. Raises `SchemaError`."""
    names: dict[str, Any] = {}
    for each in named or ():
        _collect(_loaded(each), "", names)
    schema = _loaded(text) if isinstance(text, str) else text
    _collect(schema, "", names)
    return _SchemaParser(names).type(schema, "", ())


def columns_of(type_: AvroType) -> AvroType:
    """The type as a record: a record unchanged, any other type as the only column, `value`."""
    if type_.kind == "record":
        return type_
    return AvroType("record", pa.struct([("value", type_.arrow)]), fields=(AvroField("value", type_),))


def _loaded(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        # A registry may return the bare name of a primitive type.
        if text.strip() in PRIMITIVES:
            return text.strip()
        raise SchemaError("an Avro schema is not JSON") from None


def _full(name: str, namespace: str) -> str:
    return name if "." in name or not namespace else f"{namespace}.{name}"


def _namespace(schema: Mapping[str, Any], inherited: str) -> str:
    name = str(schema.get("name", ""))
    return name.rpartition(".")[0] if "." in name else str(schema.get("namespace", inherited) or "")


def _collect(schema: Any, namespace: str, names: dict[str, Any], depth: int = 0) -> None:
    """Every named type in the schema, by its full name."""
    if depth > _MAX_DEPTH:
        raise SchemaError(f"an Avro schema is nested more than {_MAX_DEPTH} deep")
    if isinstance(schema, list):
        for each in schema:
            _collect(each, namespace, names, depth + 1)
    elif isinstance(schema, dict):
        if "name" in schema and schema.get("type") in ("record", "error", "enum", "fixed"):
            namespace = _namespace(schema, namespace)
            names[_full(str(schema["name"]), namespace)] = schema
        for key in ("type", "items", "values"):
            if isinstance(schema.get(key), dict | list):
                _collect(schema[key], namespace, names, depth + 1)
        for each in schema.get("fields") or ():
            _collect(each.get("type") if isinstance(each, dict) else None, namespace, names, depth + 1)


class _SchemaParser:
    def __init__(self, names: Mapping[str, Any]) -> None:
        self._names = names

    def type(self, schema: Any, namespace: str, inside: tuple[str, ...]) -> AvroType:
        if len(inside) > _MAX_DEPTH:
            raise SchemaError(f"an Avro schema is nested more than {_MAX_DEPTH} deep")
        if isinstance(schema, list):
            return self._union(schema, namespace, inside)
        if isinstance(schema, str):
            if schema in PRIMITIVES:
                return AvroType(schema, PRIMITIVES[schema])
            full = next((name for name in (_full(schema, namespace), schema) if name in self._names), None)
            if full is None:
                raise SchemaError(f"the Avro schema uses a type {schema} that it does not define")
            return self.type(self._names[full], full.rpartition(".")[0], inside)
        kind = schema.get("type") if isinstance(schema, Mapping) else None
        if isinstance(kind, dict | list):
            return self.type(kind, namespace, (*inside, ""))
        try:
            return self._of(str(kind), schema, namespace, inside)
        except (KeyError, TypeError, AttributeError) as error:
            raise SchemaError(f"the Avro schema has a {kind} without what it needs: {error!r}") from None

    def _of(self, kind: str, schema: Mapping[str, Any], namespace: str, inside: tuple[str, ...]) -> AvroType:
        if kind in PRIMITIVES:
            return _logical(AvroType(kind, PRIMITIVES[kind]), schema)
        if kind == "array":
            items = self._sized(schema["items"], namespace, inside)
            return AvroType(kind, pa.list_(items.arrow), items=items)
        if kind == "map":
            items = self.type(schema["values"], namespace, (*inside, ""))
            return AvroType(kind, pa.map_(pa.string(), items.arrow), items=items)
        if kind not in ("record", "error", "enum", "fixed"):
            return self.type(kind, namespace, inside)
        namespace = _namespace(schema, namespace)
        name = _full(str(schema["name"]), namespace)
        if kind == "enum":
            symbols = tuple(map(str, schema["symbols"]))
            return AvroType(kind, pa.string(), name, symbols=symbols, default_symbol=schema.get("default"))
        if kind == "fixed":
            return _logical(AvroType(kind, pa.binary(), name, size=max(0, int(schema["size"]))), schema)
        if name in inside:
            raise SchemaError(f"the record {name} contains itself, for which Spark has no type")
        fields = tuple(
            AvroField(
                str(each["name"]),
                self.type(each["type"], namespace, (*inside, name)),
                tuple(map(str, each.get("aliases", ()))),
                "default" in each,
                each.get("default"),
            )
            for each in schema["fields"]
        )
        return AvroType("record", pa.struct([(each.name, each.type.arrow) for each in fields]), name, fields=fields)

    def _sized(self, schema: Any, namespace: str, inside: tuple[str, ...]) -> AvroType:
        """The type of array items. It must have a minimum size, or a few bytes could claim any number of items."""
        items = self.type(schema, namespace, (*inside, ""))
        if not items.least_bytes:
            raise SchemaError("the Avro schema has an array of items that take no bytes")
        return items

    def _union(self, schema: list[Any], namespace: str, inside: tuple[str, ...]) -> AvroType:
        branches = tuple(self.type(each, namespace, (*inside, "")) for each in schema)
        members = tuple(each for each in branches if each.kind != "null")
        wider = _WIDER.get(frozenset(each.kind for each in members))
        if wider and len(members) == 2 and not any(each.logical for each in members):
            members = (AvroType(wider, PRIMITIVES[wider]),)
        if len(members) == 1:
            return AvroType("union", members[0].arrow, branches=branches, members=members)
        if not members:
            return AvroType("union", pa.null(), branches=branches)
        arrow = pa.struct([(f"member{number}", each.arrow) for number, each in enumerate(members)])
        return AvroType("union", arrow, branches=branches, members=members)


def _logical(type_: AvroType, schema: Mapping[str, Any]) -> AvroType:
    logical = schema.get("logicalType")
    if logical in _TIMES and _TIMES[logical][0] == type_.kind:
        return replace(type_, logical=logical, arrow=_TIMES[logical][1])
    if logical == "decimal" and type_.kind in ("bytes", "fixed"):
        precision, scale = schema.get("precision", 0), schema.get("scale", 0)
        if (
            isinstance(precision, int)
            and isinstance(scale, int)
            and 0 <= scale <= precision <= _MAX_DIGITS
            and precision
        ):
            return replace(type_, logical=logical, arrow=pa.decimal128(precision, scale))
    return type_
