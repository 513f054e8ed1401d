"""Avro schemas, schemas that were made of them by a few changes, and values of them."""

import copy
from collections.abc import Callable
from typing import Any

from hypothesis import strategies as st

AvroJson = Any

_PRIMITIVES = ("null", "boolean", "int", "long", "float", "double", "bytes", "string")
_DEFAULTS = {
    "null": None,
    "boolean": True,
    "int": 1,
    "long": 2,
    "float": 0.5,
    "double": 1.5,
    "bytes": "b",
    "string": "s",
}
_NAMES = ("a", "b", "c", "d")
_SYMBOLS = ("A", "B", "C", "D")


class _Drawn:
    """Draws a schema; each named type has its own name, so that no two are confused."""

    def __init__(self, draw: Callable[[Any], Any]) -> None:
        self._draw = draw
        self._count = 0

    def one_of(self, choices: Any) -> Any:
        return self._draw(st.sampled_from(choices))

    def flag(self) -> bool:
        return bool(self._draw(st.booleans()))

    def _name(self, prefix: str) -> str:
        self._count += 1
        return f"{prefix}{self._count}"

    def type(self, depth: int = 0) -> AvroJson:
        kinds = ["primitive"] * 3 + ["enum", "fixed"] + (["record", "array", "map", "union"] if depth < 2 else [])
        match self.one_of(kinds):
            case "enum":
                return self.enum()
            case "fixed":
                return {"type": "fixed", "name": self._name("F"), "size": self.one_of((1, 2))}
            case "record":
                return self.record(depth)
            case "array":
                return {"type": "array", "items": self.type(depth + 1)}
            case "map":
                return {"type": "map", "values": self.type(depth + 1)}
            case "union":
                others = self._draw(st.lists(st.sampled_from(_PRIMITIVES[1:]), max_size=2, unique=True))
                return ["null", *others]
        return self.one_of(_PRIMITIVES)

    def enum(self) -> AvroJson:
        symbols = self._draw(st.lists(st.sampled_from(_SYMBOLS), min_size=1, max_size=3, unique=True))
        made = {"type": "enum", "name": self._name("E"), "symbols": symbols}
        return made | ({"default": symbols[0]} if self.flag() else {})

    def record(self, depth: int = 0) -> AvroJson:
        names = self._draw(st.lists(st.sampled_from(_NAMES), max_size=3, unique=True))
        return {"type": "record", "name": self._name("R"), "fields": [self.field(name, depth) for name in names]}

    def field(self, name: str, depth: int) -> AvroJson:
        made = {"name": name, "type": self.type(depth + 1)}
        return made | (_default(made["type"]) if self.flag() else {})

    def change(self, schema: AvroJson) -> AvroJson:
        """One change somewhere in a schema, compatible or not."""
        if isinstance(schema, list):
            return self._change_union(schema)
        if not isinstance(schema, dict):
            return self.one_of((*_PRIMITIVES, ["null", schema] if schema != "null" else ["null", "int"]))
        match schema["type"]:
            case "record":
                return self._change_record(schema)
            case "enum":
                symbols = self._draw(st.lists(st.sampled_from(_SYMBOLS), min_size=1, max_size=4, unique=True))
                has_default = schema.get("default") in symbols
                return {key: value for key, value in schema.items() if key != "default" or has_default} | {
                    "symbols": symbols
                }
            case "fixed":
                return schema | {"size": self.one_of((1, 2, 3))}
            case "array":
                return schema | {"items": self.change(schema["items"])}
            case "map":
                return schema | {"values": self.change(schema["values"])}
        return schema

    def _change_union(self, schema: list[Any]) -> AvroJson:
        match self.one_of(("add", "remove", "single", "reverse")):
            case "add":
                return [*schema, *([each] if (each := self.one_of(_PRIMITIVES)) not in schema else [])]
            case "remove":
                return schema[:-1] or ["null"]
            case "single":
                return schema[-1]
        return schema[::-1]

    def _change_record(self, schema: AvroJson) -> AvroJson:
        fields = copy.deepcopy(schema["fields"])
        place = self._draw(st.integers(0, max(0, len(fields) - 1)))
        match self.one_of(("add", "remove", "type", "default", "rename", "order")) if fields else "add":
            case "add":
                free = [name for name in _NAMES if name not in {each["name"] for each in fields}]
                fields += [self.field(self.one_of(free), 1)] if free else []
            case "remove":
                del fields[place]
            case "type":
                changed = self.change(fields[place]["type"])
                fields[place] = {"name": fields[place]["name"], "type": changed} | _kept(fields[place], changed)
            case "default":
                fields[place].pop("default", None)
            case "rename":
                old = fields[place]["name"]
                fields[place] |= {"name": f"{old}_", "aliases": [old]} if len(old) == 1 else {}
            case "order":
                fields.reverse()
        return schema | {"fields": fields}


def _kept(field: AvroJson, type_: AvroJson) -> AvroJson:
    return _default(type_) if "default" in field else {}


def _default(type_: AvroJson) -> dict[str, Any]:
    """A default of a type, as an attribute of a field; nothing where it would be long."""
    if isinstance(type_, list):
        return _default(type_[0])
    if isinstance(type_, str):
        # fastavro gives a default of bytes as the text that it is in JSON.
        return {"default": _DEFAULTS[type_]} if type_ != "bytes" else {}
    match type_["type"]:
        case "enum":
            return {"default": type_["symbols"][0]}
        case "array":
            return {"default": []}
        case "map":
            return {"default": {}}
    return {}


@st.composite
def avro_schemas(draw: Any) -> AvroJson:
    return _Drawn(draw).record()


@st.composite
def avro_pairs(draw: Any) -> tuple[AvroJson, AvroJson]:
    """A schema, and one that was made of it by up to three changes."""
    drawn = _Drawn(draw)
    old = new = drawn.record()
    for _ in range(draw(st.integers(0, 3))):
        new = drawn.change(new)
    return old, new


def avro_values(schema: AvroJson) -> st.SearchStrategy[Any]:
    """Values of a schema."""
    if isinstance(schema, list):
        return st.one_of([avro_values(each) for each in schema])
    if isinstance(schema, dict):
        match schema["type"]:
            case "record":
                return st.fixed_dictionaries({each["name"]: avro_values(each["type"]) for each in schema["fields"]})
            case "enum":
                return st.sampled_from(schema["symbols"])
            case "fixed":
                return st.binary(min_size=schema["size"], max_size=schema["size"])
            case "array":
                return st.lists(avro_values(schema["items"]), max_size=2)
            case "map":
                return st.dictionaries(st.text(max_size=2), avro_values(schema["values"]), max_size=2)
    return {
        "null": st.none(),
        "boolean": st.booleans(),
        "int": st.integers(-(2**31), 2**31 - 1),
        "long": st.integers(-(2**63), 2**63 - 1),
        "float": st.floats(width=32, allow_nan=False),
        "double": st.floats(allow_nan=False),
        "bytes": st.text(max_size=3).map(str.encode),
        "string": st.text(max_size=3),
    }[schema]
