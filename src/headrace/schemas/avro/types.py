"""Avro schemas as a graph of types; named types may refer to themselves. Pure.

Follows the Avro specification 1.12: names and namespaces, aliases, defaults of the type of their field, unions without
two branches of one kind. Unknown attributes are properties, which the canonical form contains.
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from headrace.schemas.avro.defaults import check_default
from headrace.schemas.errors import InvalidSchema
from headrace.schemas.json_text import loaded_json
from headrace.schemas.steps import StepLimit

PRIMITIVES: Final = frozenset({"null", "boolean", "int", "long", "float", "double", "bytes", "string"})
NAMED: Final = frozenset({"record", "error", "enum", "fixed"})
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
_ATTRIBUTES: Final = {
    "record": frozenset({"type", "name", "namespace", "doc", "aliases", "fields"}),
    "error": frozenset({"type", "name", "namespace", "doc", "aliases", "fields"}),
    "enum": frozenset({"type", "name", "namespace", "doc", "aliases", "symbols", "default"}),
    "fixed": frozenset({"type", "name", "namespace", "doc", "aliases", "size"}),
    "array": frozenset({"type", "items"}),
    "map": frozenset({"type", "values"}),
}
_FIELD_ATTRIBUTES: Final = frozenset({"name", "type", "doc", "default", "order", "aliases"})
_ORDERS: Final = ("ascending", "descending", "ignore")
_MISSING: Final = object()


@dataclass(eq=False, slots=True)
class AvroSchemaField:
    """A field of a record."""

    name: str
    type: "AvroSchemaType"
    aliases: tuple[str, ...] = ()
    doc: str | None = None
    has_default: bool = False
    default: Any = None
    order: str = "ascending"
    properties: Mapping[str, Any] = field(default_factory=dict)


@dataclass(eq=False, slots=True)
class AvroSchemaType:
    """A type; one object for each definition of a named type, so that recursion is a cycle."""

    kind: str
    """A primitive, or record, error, enum, fixed, array, map, union."""
    name: str = ""
    """The full name of a named type."""
    aliases: tuple[str, ...] = ()
    """Full names."""
    doc: str | None = None
    fields: tuple[AvroSchemaField, ...] = ()
    items: "AvroSchemaType | None" = None
    """The items of an array, or the values of a map."""
    symbols: tuple[str, ...] = ()
    symbol_set: frozenset[str] = frozenset()
    default_symbol: str | None = None
    size: int = 0
    branches: tuple["AvroSchemaType", ...] = ()
    properties: Mapping[str, Any] = field(default_factory=dict)

    @property
    def short_name(self) -> str:
        return self.name.rpartition(".")[2]

    @property
    def namespace(self) -> str:
        return self.name.rpartition(".")[0]

    @property
    def label(self) -> str:
        """The kind, or the full name of a named type, as unions tell their branches apart."""
        return self.name or self.kind


@dataclass(frozen=True, slots=True)
class AvroSchema:
    """A parsed schema, and the named types of the schemas that it refers to."""

    root: AvroSchemaType
    referenced: frozenset[str] = frozenset()
    """Full names that other schemas define."""


def parse_avro(text: str, references: Sequence[str] = (), *, is_new: bool = True) -> AvroSchema:
    """Parse a schema; `references` are the schemas that it refers to, each before those that use it.

    A schema that is not new, because it was registered before, may have defaults of another type. Raises
    `InvalidSchema` or `SchemaTooComplex`.
    """
    parser = _AvroParser(is_new)
    for each in references:
        parser.type(_loaded(each), "", 0)
    referenced = frozenset(parser.names)
    return AvroSchema(parser.type(_loaded(text), "", 0), referenced)


def _loaded(text: str) -> Any:
    try:
        return loaded_json(text)
    except ValueError as error:
        bare = text.strip()
        if bare in PRIMITIVES:
            return bare
        raise InvalidSchema(f"an Avro schema is JSON: {error}") from None


class _AvroParser:
    def __init__(self, is_new: bool) -> None:
        self.names: dict[str, AvroSchemaType] = {}
        self._is_new = is_new
        self._steps = StepLimit()

    def type(self, schema: Any, namespace: str, depth: int) -> AvroSchemaType:
        self._steps.step(depth)
        if isinstance(schema, str):
            return self._by_name(schema, namespace)
        if isinstance(schema, list):
            return self._union(schema, namespace, depth)
        if not isinstance(schema, dict):
            raise InvalidSchema(f"a type is a name, an object or a list, not {json.dumps(schema)[:100]}")
        kind = schema.get("type", _MISSING)
        if kind is _MISSING:
            raise InvalidSchema(f"an object without a type: {json.dumps(schema)[:100]}")
        if isinstance(kind, dict | list):
            return self.type(kind, namespace, depth + 1)
        if not isinstance(kind, str):
            raise InvalidSchema(f"a type is a name, an object or a list, not {json.dumps(kind)[:100]}")
        if kind in NAMED:
            return self._named(kind, schema, namespace, depth)
        if kind == "array":
            return AvroSchemaType(kind, items=self._inner(schema, "items", namespace, depth), properties=_rest(schema))
        if kind == "map":
            return AvroSchemaType(kind, items=self._inner(schema, "values", namespace, depth), properties=_rest(schema))
        if kind in PRIMITIVES:
            return AvroSchemaType(kind, properties=_rest(schema))
        return self._by_name(kind, namespace)

    def _inner(self, schema: Mapping[str, Any], key: str, namespace: str, depth: int) -> AvroSchemaType:
        if key not in schema:
            raise InvalidSchema(f"the type {schema['type']} lacks {key}")
        return self.type(schema[key], namespace, depth + 1)

    def _by_name(self, name: str, namespace: str) -> AvroSchemaType:
        if name in PRIMITIVES:
            return AvroSchemaType(name)
        for full in (_full(name, namespace), name):
            if (found := self.names.get(full)) is not None:
                return found
        raise InvalidSchema(f"the type {name[:200]} is not defined")

    def _union(self, schema: list[Any], namespace: str, depth: int) -> AvroSchemaType:
        branches = tuple(self.type(each, namespace, depth + 1) for each in schema)
        seen: set[str] = set()
        for branch in branches:
            if branch.kind == "union":
                raise InvalidSchema("a union directly contains a union")
            if branch.label in seen:
                raise InvalidSchema(f"a union contains {branch.label} twice")
            seen.add(branch.label)
        return AvroSchemaType("union", branches=branches)

    def _named(self, kind: str, schema: Mapping[str, Any], namespace: str, depth: int) -> AvroSchemaType:
        name = _text(schema, "name", f"a {kind}")
        if "." not in name:
            own = schema.get("namespace", namespace)
            name = _full(name, own if isinstance(own, str) else "")
        self._check_name(name)
        if name in self.names or name in PRIMITIVES:
            raise InvalidSchema(f"the type {name} is defined twice")
        namespace = name.rpartition(".")[0]
        aliases = tuple(_full(each, namespace) for each in _texts(schema, "aliases"))
        made = AvroSchemaType(kind, name, aliases, _doc(schema), properties=_rest(schema))
        self.names[name] = made
        if kind == "enum":
            self._fill_enum(made, schema)
        elif kind == "fixed":
            size = schema.get("size")
            if not isinstance(size, int) or isinstance(size, bool) or size < 0:
                raise InvalidSchema(f"the fixed {name} has no size")
            made.size = size
        else:
            made.fields = self._fields(schema, name, namespace, depth)
        return made

    def _fill_enum(self, made: AvroSchemaType, schema: Mapping[str, Any]) -> None:
        symbols = schema.get("symbols")
        if not isinstance(symbols, list) or not all(isinstance(each, str) for each in symbols):
            raise InvalidSchema(f"the enum {made.name} has no list of symbols")
        for symbol in symbols:
            self._check_name(symbol)
        if len(set(symbols)) < len(symbols):
            raise InvalidSchema(f"the enum {made.name} has a symbol twice")
        default = schema.get("default")
        if default is not None and default not in symbols:
            raise InvalidSchema(f"the default of the enum {made.name} is none of its symbols")
        made.symbols, made.symbol_set, made.default_symbol = tuple(symbols), frozenset(symbols), default

    def _fields(
        self, schema: Mapping[str, Any], record: str, namespace: str, depth: int
    ) -> tuple[AvroSchemaField, ...]:
        entries = schema.get("fields")
        if not isinstance(entries, list) or not all(isinstance(each, dict) for each in entries):
            raise InvalidSchema(f"the record {record} has no list of fields")
        made, seen = [], set()
        for entry in entries:
            each = self._field(entry, record, namespace, depth)
            if each.name in seen:
                raise InvalidSchema(f"the record {record} has the field {each.name} twice")
            seen.add(each.name)
            made.append(each)
        return tuple(made)

    def _field(self, entry: Mapping[str, Any], record: str, namespace: str, depth: int) -> AvroSchemaField:
        name = _text(entry, "name", f"a field of {record}")
        self._check_name(name)
        if "type" not in entry:
            raise InvalidSchema(f"the field {name} of {record} has no type")
        type_ = self.type(entry["type"], namespace, depth + 1)
        order = entry.get("order", "ascending")
        if order not in _ORDERS:
            raise InvalidSchema(f"the order of the field {name} is none of {', '.join(_ORDERS)}")
        has_default = "default" in entry
        if has_default and self._is_new and not check_default(type_, entry["default"], self._steps):
            raise InvalidSchema(f"the default of the field {name} of {record} is not of its type {type_.label}")
        properties = {key: value for key, value in entry.items() if key not in _FIELD_ATTRIBUTES}
        aliases = _texts(entry, "aliases")
        return AvroSchemaField(
            name, type_, aliases, _doc(entry), has_default, entry.get("default"), str(order), properties
        )

    def _check_name(self, name: str) -> None:
        parts = name.split(".") if self._is_new else ()
        if any(_NAME.match(part) is None for part in parts):
            raise InvalidSchema(f"{name[:200]!r} is not a name: letters, digits and _, not a digit first")


def _full(name: str, namespace: str) -> str:
    return name if "." in name or not namespace else f"{namespace}.{name}"


def _text(schema: Mapping[str, Any], key: str, what: str) -> str:
    value = schema.get(key)
    if not isinstance(value, str) or not value:
        raise InvalidSchema(f"{what} has no {key}")
    return value


def _texts(schema: Mapping[str, Any], key: str) -> tuple[str, ...]:
    value = schema.get(key, ())
    if not isinstance(value, list | tuple) or not all(isinstance(each, str) for each in value):
        raise InvalidSchema(f"{key} is not a list of names")
    return tuple(value)


def _doc(schema: Mapping[str, Any]) -> str | None:
    doc = schema.get("doc")
    return doc if isinstance(doc, str) else None


def _rest(schema: Mapping[str, Any]) -> dict[str, Any]:
    known = _ATTRIBUTES.get(schema["type"], frozenset({"type"}))
    return {key: value for key, value in schema.items() if key not in known}
