"""The columns of a JSON Schema, in Spark's DDL. Pure.

string; integer; number; boolean                    STRING; BIGINT; DOUBLE; BOOLEAN
string of the format date-time, date                TIMESTAMP, DATE
array; object with properties; other objects        ARRAY; STRUCT; MAP<STRING, …>
a type or null                                      the type
anything else                                       STRING: numbers, lists and objects as text
"""

from collections.abc import Mapping
from typing import NamedTuple

from headrace.pipelines.values.types import SchemaError
from headrace.schemas.errors import InvalidSchema
from headrace.schemas.json_schema.document import JsonSchemaDocument, parse_json_schema
from headrace.schemas.json_schema.nodes import JsonNode, resolved

_MAX_DEPTH = 16
_TIMES = {"date-time": "TIMESTAMP", "date": "DATE"}


def parse_document(text: str, references: tuple[tuple[str, str], ...] = ()) -> JsonSchemaDocument:
    """Parse a JSON Schema; `SchemaError` if it is none."""
    try:
        return parse_json_schema(text, dict(references))
    except InvalidSchema as error:
        raise SchemaError(f"it is not a JSON Schema: {error}") from None


class ColumnType(NamedTuple):
    """A type of Spark."""

    name: str
    fields: tuple[tuple[str, "ColumnType"], ...] = ()
    """Of a STRUCT."""
    items: "tuple[ColumnType, ...]" = ()
    """One: the type of an ARRAY's items or of a MAP's values."""

    @property
    def ddl(self) -> str:
        if self.name == "STRUCT":
            return f"STRUCT<{', '.join(f'{_quoted(name)}: {each.ddl}' for name, each in self.fields)}>"
        if self.name == "ARRAY":
            return f"ARRAY<{self.items[0].ddl}>"
        return f"MAP<STRING, {self.items[0].ddl}>" if self.name == "MAP" else self.name


_STRING = ColumnType("STRING")


def columns_of_document(document: JsonSchemaDocument) -> ColumnType:
    """The columns of objects of this schema, as a struct; `SchemaError` if it is not about objects."""
    found = _properties(document.root, 0)
    if not found:
        raise SchemaError("the JSON Schema has no properties: values must be objects with named properties")
    return _struct(found, 0)


def columns_ddl(columns: ColumnType) -> str:
    return ", ".join(f"{_quoted(name)} {each.ddl}" for name, each in columns.fields)


def narrowed(reader: ColumnType, writer: ColumnType, path: str = "") -> str:
    """The first column of `writer` that has a narrower type in `reader`; empty if there is none."""
    if reader.name == "STRING" or (reader.name, writer.name) == ("DOUBLE", "BIGINT"):
        return ""
    if reader.name != writer.name:
        return path
    known = dict(reader.fields)
    inner = [(known[name], each, f"{path}.{name}".lstrip(".")) for name, each in writer.fields if name in known]
    inner += [(one, other, f"{path}[]") for one, other in zip(reader.items, writer.items, strict=True)]
    return next((found for one, other, where in inner if (found := narrowed(one, other, where))), "")


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def _struct(properties: Mapping[str, JsonNode], depth: int) -> ColumnType:
    return ColumnType("STRUCT", tuple((name, _type(each, depth + 1)) for name, each in properties.items()))


def _properties(node: JsonNode, depth: int) -> dict[str, JsonNode]:
    """The properties of an object, those of all parts of an `allOf` included."""
    node = resolved(node)
    if node.kind == "object":
        return dict(node.properties)
    if node.kind == "combined" and depth < _MAX_DEPTH:
        parts = [each for each in node.parts if resolved(each).kind != "null"]
        if node.criterion == "allOf" or len(parts) == 1:
            return {name: each for part in parts for name, each in _properties(part, depth + 1).items()}
    return {}


def _type(node: JsonNode, depth: int) -> ColumnType:
    node = resolved(node)
    if depth > _MAX_DEPTH:
        return _STRING
    match node.kind:
        case "string":
            return ColumnType(_TIMES.get(str(node.keywords.get("format", "")), "STRING"))
        case "number":
            return ColumnType("BIGINT" if node.is_integer else "DOUBLE")
        case "boolean":
            return ColumnType("BOOLEAN")
        case "array" if node.items is not None:
            return ColumnType("ARRAY", items=(_type(node.items, depth + 1),))
        case "object" if node.properties:
            return _struct(node.properties, depth)
        case "object":
            more = _type(node.more, depth + 1) if node.more is not None else _STRING
            return ColumnType("MAP", items=(more,))
        case "combined":
            return _combined(node, depth)
    return _STRING


def _combined(node: JsonNode, depth: int) -> ColumnType:
    if properties := _properties(node, depth):
        return _struct(properties, depth)
    parts = [each for each in node.parts if resolved(each).kind != "null"]
    if node.criterion == "allOf":
        # Such as a type beside an enum of its values.
        parts = [each for each in parts if resolved(each).kind not in ("enum", "const", "not", "conditional", "any")]
    kinds = {_type(each, depth + 1) for each in parts}
    return kinds.pop() if len(kinds) == 1 else _STRING
