"""Avro: the rules of "Schema Resolution" in the specification 1.12, as Avro for Java applies them."""

import json
from itertools import combinations
from typing import Any

from tests.unit.schemas.cases.table import CompatibilityCase

_PRIMITIVES = ("null", "boolean", "int", "long", "float", "double", "bytes", "string")
_PROMOTED = {
    ("int", "long"): "int is promotable to long",
    ("int", "float"): "int is promotable to float",
    ("int", "double"): "int is promotable to double",
    ("long", "float"): "long is promotable to float",
    ("long", "double"): "long is promotable to double",
    ("float", "double"): "float is promotable to double",
    ("string", "bytes"): "string is promotable to bytes",
    ("bytes", "string"): "bytes is promotable to string",
}
_TYPE, _NAME, _BRANCH = "TYPE_MISMATCH", "NAME_MISMATCH", "MISSING_UNION_BRANCH"
_FIELD, _SYMBOLS, _SIZE = "READER_FIELD_MISSING_DEFAULT_VALUE", "MISSING_ENUM_SYMBOLS", "FIXED_SIZE_MISMATCH"


def _case(reason: str, old: Any, new: Any, backward: str = "", forward: str = "") -> CompatibilityCase:
    return CompatibilityCase(reason, json.dumps(old), json.dumps(new), backward, forward)


def _record(*fields: dict[str, Any], name: str = "R", **more: Any) -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": list(fields), **more}


def _field(name: str, type_: Any = "int", **more: Any) -> dict[str, Any]:
    return {"name": name, "type": type_, **more}


def _enum(*symbols: str, name: str = "E", **more: Any) -> dict[str, Any]:
    return {"type": "enum", "name": name, "symbols": list(symbols), **more}


def _fixed(size: int, name: str = "F", **more: Any) -> dict[str, Any]:
    return {"type": "fixed", "name": name, "size": size, **more}


def _array(items: Any) -> dict[str, Any]:
    return {"type": "array", "items": items}


def _map(values: Any) -> dict[str, Any]:
    return {"type": "map", "values": values}


def _between_primitives(wrap: Any = lambda type_: type_, where: str = "") -> list[CompatibilityCase]:
    """Each pair of primitive types: the specification lists the promotions, and allows no other change."""
    found = []
    for old, new in combinations(_PRIMITIVES, 2):
        back, forth = _PROMOTED.get((old, new)), _PROMOTED.get((new, old))
        reason = " and ".join(filter(None, (back, forth))) or f"neither {old} nor {new} is promotable to the other"
        sides = ("" if back else _TYPE, "" if forth else _TYPE)
        found.append(_case(reason + where, wrap(old), wrap(new), *sides))
    return found


_SAME = [_case(f"schemas match if both are the same primitive type: {each}", each, each) for each in _PRIMITIVES] + [
    _case("an object with a type is that type", "int", {"type": "int"})
]

_AB = _record(_field("a"), _field("b"))
_A = _record(_field("a"))
_POINT = _record(_field("x"), name="Point")
_PLACE = _record(_field("x"), name="Place")

_RECORDS = [
    _case("the ordering of fields may be different: they are matched by name", _AB, _record(_field("b"), _field("a"))),
    _case(
        "a writer's field that the reader lacks is ignored; a reader's without a default is an error",
        _AB,
        _A,
        "",
        _FIELD,
    ),
    _case("a reader's field without a default that the writer lacks is an error", _A, _AB, _FIELD, ""),
    _case(
        "a reader's field with a default takes it where the writer lacks it",
        _A,
        _record(_field("a"), _field("b", default=0)),
    ),
    _case(
        "a removed field with a default: the old schema has a value for it",
        _record(_field("a"), _field("b", default=1)),
        _A,
    ),
    _case("a default of null is a default", _A, _record(_field("a"), _field("b", ["null", "int"], default=None))),
    _case(
        "a nullable field without a default is missing all the same",
        _A,
        _record(_field("a"), _field("b", ["null", "int"])),
        _FIELD,
        "",
    ),
    _case("an empty string is a default", _A, _record(_field("a"), _field("b", "string", default=""))),
    _case("an empty list is a default of an array", _A, _record(_field("a"), _field("b", _array("int"), default=[]))),
    _case("an empty object is a default of a map", _A, _record(_field("a"), _field("b", _map("int"), default={}))),
    _case("a record can be a default", _A, _record(_field("a"), _field("b", _POINT, default={"x": 1}))),
    _case(
        "an enum's default is for symbols that the reader lacks, not for a field that the writer lacks",
        _A,
        _record(_field("a"), _field("b", _enum("X", "Y", default="X"))),
        _FIELD,
        "",
    ),
    _case("a field of an enum without a default", _A, _record(_field("a"), _field("b", _enum("X", "Y"))), _FIELD, ""),
    _case(
        "a default that changes is the reader's business",
        _record(_field("a", default=1)),
        _record(_field("a", default=2)),
    ),
    _case("a default that is removed matters to no data that has the field", _record(_field("a", default=1)), _A),
    _case("a field is renamed: to both sides one is missing", _A, _record(_field("b")), _FIELD, _FIELD),
    _case(
        "a reader's alias finds the writer's field; the old schema knows none",
        _A,
        _record(_field("b", aliases=["a"])),
        "",
        _FIELD,
    ),
    _case(
        "an alias and a default serve both directions",
        _record(_field("a", default=0)),
        _record(_field("b", default=0, aliases=["a"])),
    ),
    _case("the own name comes before an alias", _AB, _record(_field("a"), _field("b", aliases=["a"]))),
    _case(
        "an alias does not find a field that the reader has under its own name",
        _A,
        _record(_field("a"), _field("b", aliases=["a"])),
        _FIELD,
    ),
    _case("an alias that no writer has finds nothing", _A, _record(_field("c", aliases=["z"])), _FIELD, _FIELD),
    _case("a field of the promoted type", _record(_field("a", "int")), _record(_field("a", "long")), "", _TYPE),
    _case(
        "an aliased field of the promoted type",
        _record(_field("a", "int", default=0)),
        _record(_field("b", "double", default=0, aliases=["a"])),
    ),
    _case(
        "an aliased field of another type",
        _record(_field("a", "int", default=0)),
        _record(_field("b", "string", default="", aliases=["a"])),
        _TYPE,
        "",
    ),
    _case("doc is no part of resolution", _A, _record(_field("a", doc="An a."), doc="A record.")),
    _case("order is no part of resolution", _A, _record(_field("a", order="descending"))),
    _case("properties are no part of resolution", _A, _record(_field("a", unit="m"), owner="me")),
    _case(
        "records match by their unqualified name: the namespace may change",
        _A,
        _record(_field("a"), namespace="org.other"),
    ),
    _case("a record with another name does not match", _POINT, _PLACE, _NAME, _NAME),
    _case(
        "an alias of the reader's record; the old schema has none", _POINT, {**_PLACE, "aliases": ["Point"]}, "", _NAME
    ),
    _case(
        "an alias is relative to the namespace of its type",
        {**_POINT, "namespace": "n"},
        {**_PLACE, "namespace": "n", "aliases": ["Point"]},
        "",
        _NAME,
    ),
    _case(
        "an alias of another namespace is another type",
        {**_POINT, "namespace": "n"},
        {**_PLACE, "namespace": "m", "aliases": ["Point"]},
        _NAME,
        _NAME,
    ),
    _case(
        "an alias may be a full name",
        {**_POINT, "namespace": "n"},
        {**_PLACE, "namespace": "m", "aliases": ["n.Point"]},
        "",
        _NAME,
    ),
    _case("a record becomes a primitive", _A, "int", _TYPE, _TYPE),
    _case("a record becomes a map", _record(_field("a", "string")), _map("string"), _TYPE, _TYPE),
    _case("an empty record reads every record of its name", _A, _record(), "", _FIELD),
    _case("an error is a record", {**_A, "type": "error"}, _A),
]

_NESTED = [
    _case(
        "a nested record resolves recursively",
        _record(_field("p", _POINT)),
        _record(_field("p", _record(_field("x", "long"), name="Point"))),
        "",
        _TYPE,
    ),
    _case(
        "a nested field without a default",
        _record(_field("p", _POINT)),
        _record(_field("p", _record(_field("x"), _field("y"), name="Point"))),
        _FIELD,
        "",
    ),
    _case(
        "a nested field with a default",
        _record(_field("p", _POINT)),
        _record(_field("p", _record(_field("x"), _field("y", default=0), name="Point"))),
    ),
    _case(
        "a nested record with another name", _record(_field("p", _POINT)), _record(_field("p", _PLACE)), _NAME, _NAME
    ),
    _case(
        "a type that is used twice is defined once",
        _record(_field("p", _POINT), _field("q", "Point")),
        _record(_field("q", _POINT), _field("p", "Point")),
    ),
    _case(
        "a recursive type with itself", _record(_field("next", ["null", "R"])), _record(_field("next", ["null", "R"]))
    ),
    _case(
        "a recursive type that gains a field",
        _record(_field("next", ["null", "R"])),
        _record(_field("next", ["null", "R"]), _field("n", default=0)),
    ),
    _case(
        "a recursive type whose value changes",
        _record(_field("v", "int"), _field("next", ["null", "R"])),
        _record(_field("v", "string"), _field("next", ["null", "R"])),
        _TYPE,
        _TYPE,
    ),
    _case(
        "two types that refer to each other",
        _record(_field("p", ["null", _record(_field("r", ["null", "R"]), name="P")])),
        _record(_field("p", ["null", _record(_field("r", ["null", "R"]), _field("n", default=0), name="P")])),
    ),
]

_ENUMS = [
    _case("the same symbols", _enum("A", "B"), _enum("A", "B")),
    _case("the order of symbols does not matter: they are matched by name", _enum("A", "B"), _enum("B", "A")),
    _case("a symbol is added: old readers do not know it", _enum("A"), _enum("A", "B"), "", _SYMBOLS),
    _case("a symbol is removed, and the reader has no default", _enum("A", "B"), _enum("A"), _SYMBOLS, ""),
    _case("a reader's default stands for a symbol that it lacks", _enum("A", "B"), _enum("A", default="A")),
    _case("a symbol is added to an enum with a default", _enum("A", default="A"), _enum("A", "B", default="A")),
    _case("a default of the writer does not help the reader", _enum("A", "B", default="A"), _enum("A"), _SYMBOLS, ""),
    _case("a symbol is renamed", _enum("A", "B"), _enum("A", "C"), _SYMBOLS, _SYMBOLS),
    _case("a default that changes", _enum("A", "B", default="A"), _enum("A", "B", default="B")),
    _case("enums match by their unqualified name", _enum("A"), _enum("A", namespace="n")),
    _case("an enum with another name", _enum("A"), _enum("A", name="G"), _NAME, _NAME),
    _case("an enum with an alias", _enum("A"), _enum("A", name="G", aliases=["E"]), "", _NAME),
    _case("an enum becomes a string", _enum("A"), "string", _TYPE, _TYPE),
    _case("an enum becomes an int", _enum("A"), "int", _TYPE, _TYPE),
]

_FIXED = [
    _case("the same size", _fixed(4), _fixed(4)),
    _case("both sizes must match", _fixed(4), _fixed(8), _SIZE, _SIZE),
    _case("a fixed with another name", _fixed(4), _fixed(4, name="G"), _NAME, _NAME),
    _case("a fixed with an alias", _fixed(4), _fixed(4, name="G", aliases=["F"]), "", _NAME),
    _case("a fixed in another namespace", _fixed(4), _fixed(4, namespace="n")),
    _case("a fixed becomes bytes", _fixed(4), "bytes", _TYPE, _TYPE),
    _case("a fixed becomes an enum", _fixed(4), _enum("A", name="F"), _TYPE, _TYPE),
    _case("a record becomes a fixed of the same name", _record(_field("a"), name="F"), _fixed(4), _TYPE, _TYPE),
]

_COLLECTIONS = [
    _case("arrays match if their items do", _array("int"), _array("long"), "", _TYPE),
    _case("arrays of other items", _array("int"), _array("boolean"), _TYPE, _TYPE),
    _case("maps match if their values do", _map("float"), _map("double"), "", _TYPE),
    _case("maps of other values", _map("int"), _map("boolean"), _TYPE, _TYPE),
    _case("an array becomes a map", _array("int"), _map("int"), _TYPE, _TYPE),
    _case("an array becomes its item", _array("int"), "int", _TYPE, _TYPE),
    _case("arrays within maps", _map(_array("int")), _map(_array("long")), "", _TYPE),
    _case("maps within arrays", _array(_map("string")), _array(_map("bytes"))),
    _case("items become nullable", _array("int"), _array(["null", "int"]), "", _TYPE),
    _case("records in arrays", _array(_A), _array(_AB), _FIELD, ""),
    _case("enums in maps", _map(_enum("A")), _map(_enum("A", "B")), "", _SYMBOLS),
    _case("bytes in maps of strings", _map("bytes"), _map("string")),
]

_UNIONS = [
    _case("a type becomes nullable: the first branch that matches is used", "int", ["null", "int"], "", _TYPE),
    _case("a nullable type becomes required", ["null", "int"], "int", _TYPE, ""),
    _case("the order of branches does not matter", ["null", "int"], ["int", "null"]),
    _case("a branch is added", ["null", "int"], ["null", "int", "string"], "", _BRANCH),
    _case("a branch is removed", ["null", "int", "string"], ["null", "int"], _BRANCH, ""),
    _case("a branch is replaced", ["null", "int"], ["null", "boolean"], _BRANCH, _BRANCH),
    _case("a branch is promoted", ["null", "int"], ["null", "long"], "", _BRANCH),
    _case("a writer's type is promoted into a branch", "int", ["null", "double"], "", _TYPE),
    _case("no branch for the writer's type", "int", ["null", "string"], _BRANCH, _TYPE),
    _case("a union of one type is that type", "int", ["int"]),
    _case("each branch of the writer must be read by the reader's type", ["int", "long"], "long", "", ""),
    _case("a union of promotable types", ["int", "float"], "double", "", _BRANCH),
    _case("one branch cannot be read", ["int", "string"], "long", _TYPE, _BRANCH),
    _case("the empty union has no data", [], "int", "", _BRANCH),
    _case("string and bytes are promotable to each other in branches", ["null", "string"], ["null", "bytes"]),
    _case("a record in a union", ["null", _A], ["null", _record(_field("a"), _field("b", default=0))]),
    _case("a record in a union that gains a required field", ["null", _A], ["null", _AB], _BRANCH, ""),
    _case("a record in a union with another name", ["null", _POINT], ["null", _PLACE], _BRANCH, _BRANCH),
    _case(
        "a second record in a union",
        ["null", _POINT],
        ["null", _POINT, _record(_field("y"), name="Other")],
        "",
        _BRANCH,
    ),
    _case("an enum in a union gains a symbol", ["null", _enum("A")], ["null", _enum("A", "B")], "", _BRANCH),
    _case("a fixed in a union changes its size", ["null", _fixed(4)], ["null", _fixed(8)], _BRANCH, _BRANCH),
    _case("an array in a union", ["null", _array("int")], ["null", _array("long")], "", _BRANCH),
    _case("a map becomes a branch", _map("int"), ["null", _map("int")], "", _TYPE),
    _case("a nullable field loses null", _record(_field("a", ["null", "int"])), _record(_field("a", "int")), _TYPE, ""),
    _case(
        "a nullable field with a default gains a type",
        _record(_field("a", ["null", "int"], default=None)),
        _record(_field("a", ["null", "int", "string"], default=None)),
        "",
        _BRANCH,
    ),
]

_LOGICAL = [
    _case("a logical type is its underlying type", "long", {"type": "long", "logicalType": "timestamp-millis"}),
    _case(
        "another logical type of the same underlying type",
        {"type": "int", "logicalType": "date"},
        {"type": "int", "logicalType": "time-millis"},
    ),
    _case(
        "a logical type of another underlying type",
        {"type": "int", "logicalType": "date"},
        {"type": "long", "logicalType": "timestamp-micros"},
        "",
        _TYPE,
    ),
    _case("uuid is a string", {"type": "string", "logicalType": "uuid"}, "string"),
    _case("an unknown logical type is ignored", "int", {"type": "int", "logicalType": "colour"}),
    _case(
        "a decimal in bytes and one in a string", {"type": "bytes", "logicalType": "decimal", "precision": 4}, "string"
    ),
]

CASES = [
    *_SAME,
    *_between_primitives(),
    *_between_primitives(lambda type_: _record(_field("a", type_)), ", in a field"),
    *_RECORDS,
    *_NESTED,
    *_ENUMS,
    *_FIXED,
    *_COLLECTIONS,
    *_UNIONS,
    *_LOGICAL,
]
