"""JSON Schema: the meaning of its keywords in the drafts 4 to 2020-12."""

from tests.unit.schemas.cases.json_parts import BOOLEAN, INTEGER, NUMBER, STRING, closed_object, json_case, json_object
from tests.unit.schemas.cases.table import CompatibilityCase

_TYPE = "TYPE_CHANGED"
_NARROWED = "TYPE_NARROWED"
_CLOSED = "PROPERTY_REMOVED_FROM_CLOSED_CONTENT_MODEL"
_SUM = "SUM_TYPE_NARROWED"
_PRODUCT = "PRODUCT_TYPE_EXTENDED"
_PARTS = "COMBINED_TYPE_SUBSCHEMAS_CHANGED"
_COMBINED = "COMBINED_TYPE_CHANGED"


def _limits(type_: str, keyword: str, low: float, high: float) -> list[CompatibilityCase]:
    """A limit that is added, removed, and moved: widening is fine, narrowing is not."""
    name = "".join(f"_{each}" if each.isupper() else each.upper() for each in keyword)
    plain, lower, higher = {"type": type_}, {"type": type_, keyword: low}, {"type": type_, keyword: high}
    moved = (f"{name}_DECREASED", "") if "max" in keyword.lower() else ("", f"{name}_INCREASED")
    return [
        json_case(f"{keyword} is added: old values need not keep it", plain, lower, f"{name}_ADDED", ""),
        json_case(f"{keyword} moves: only the wider one accepts all values of the other", higher, lower, *moved),
        json_case(f"{keyword} is the same", lower, lower),
    ]


_LIMITS = [
    *_limits("string", "maxLength", 5, 9),
    *_limits("string", "minLength", 5, 9),
    *_limits("number", "maximum", 5, 9.5),
    *_limits("number", "minimum", 5, 9.5),
    *_limits("number", "exclusiveMaximum", 5, 9),
    *_limits("number", "exclusiveMinimum", 5, 9),
    *_limits("object", "maxProperties", 5, 9),
    *_limits("object", "minProperties", 5, 9),
    *_limits("array", "maxItems", 5, 9),
    *_limits("array", "minItems", 5, 9),
    *_limits("array", "maxContains", 5, 9),
    *_limits("array", "minContains", 5, 9),
]

_TYPES = [
    json_case("the same type", STRING, STRING),
    json_case("another type", STRING, NUMBER, _TYPE, _TYPE),
    json_case("an object becomes an array", {"type": "object"}, {"type": "array"}, _TYPE, _TYPE),
    json_case("a boolean becomes null", BOOLEAN, {"type": "null"}, _TYPE, _TYPE),
    json_case("every integer is a number", INTEGER, NUMBER, "", _NARROWED),
    json_case("anything accepts a string", STRING, {}, "", _TYPE),
    json_case("true is the empty schema", STRING, True, "", _TYPE),
    json_case("true and the empty schema are the same", True, {}),
    json_case("false accepts nothing, so that anything accepts its values", False, STRING, "", _TYPE),
    json_case(
        "a type is added to the list", {"type": ["string", "null"]}, {"type": ["string", "null", "number"]}, "", _SUM
    ),
    json_case("a type becomes a list with it", STRING, {"type": ["string", "null"]}, "", _TYPE),
    json_case("the order of the list does not matter", {"type": ["string", "null"]}, {"type": ["null", "string"]}),
    json_case("a list of one type is that type", STRING, {"type": ["string"]}),
    json_case(
        "an integer in the list becomes a number",
        {"type": ["integer", "null"]},
        {"type": ["number", "null"]},
        "",
        _PARTS,
    ),
    json_case(
        "title, description and comment do not matter",
        STRING,
        {**STRING, "title": "T", "description": "D", "$comment": "C"},
    ),
    json_case("a default does not matter", {**STRING, "default": "a"}, {**STRING, "default": "b"}),
    json_case("examples do not matter", STRING, {**STRING, "examples": ["a"]}),
    json_case("a format is not compared", STRING, {**STRING, "format": "date"}),
    json_case("unknown keywords do not matter", STRING, {**STRING, "x-owner": "me"}),
    json_case("$id does not matter", {**STRING, "$id": "http://a/1"}, {**STRING, "$id": "http://a/2"}),
    json_case(
        "bytes of Kafka Connect may change their type",
        {"type": "string", "connect.type": "bytes"},
        {"type": "number", "connect.type": "bytes"},
    ),
]

STRINGS = [
    json_case("a pattern is added", STRING, {**STRING, "pattern": "^a"}, "PATTERN_ADDED", ""),
    json_case("a pattern is the same", {**STRING, "pattern": "^a"}, {**STRING, "pattern": "^a"}),
    json_case(
        "patterns are not compared with each other",
        {**STRING, "pattern": "^a"},
        {**STRING, "pattern": "^[ab]"},
        "PATTERN_CHANGED",
        "PATTERN_CHANGED",
    ),
    json_case(
        "one limit is widened, another one narrowed",
        {**STRING, "minLength": 2, "maxLength": 5},
        {**STRING, "minLength": 1, "maxLength": 4},
        "MAX_LENGTH_DECREASED",
        "MIN_LENGTH_INCREASED",
    ),
]

NUMBERS = [
    json_case("multipleOf is added", NUMBER, {**NUMBER, "multipleOf": 2}, "MULTIPLE_OF_ADDED", ""),
    json_case(
        "every multiple of 10 is one of 5",
        {**NUMBER, "multipleOf": 10},
        {**NUMBER, "multipleOf": 5},
        "",
        "MULTIPLE_OF_EXPANDED",
    ),
    json_case(
        "multiples of 6 and of 4",
        {**NUMBER, "multipleOf": 6},
        {**NUMBER, "multipleOf": 4},
        "MULTIPLE_OF_CHANGED",
        "MULTIPLE_OF_CHANGED",
    ),
    json_case(
        "decimal fractions are compared exactly",
        {**NUMBER, "multipleOf": 0.3},
        {**NUMBER, "multipleOf": 0.1},
        "",
        "MULTIPLE_OF_EXPANDED",
    ),
    json_case("equal numbers that are written differently", {**NUMBER, "multipleOf": 1}, {**NUMBER, "multipleOf": 1.0}),
    json_case("integer and limit change together", {**INTEGER, "maximum": 5}, {**NUMBER, "maximum": 9}, "", _NARROWED),
    json_case(
        "the exclusiveMaximum of draft 4 is a flag",
        {"$schema": "http://json-schema.org/draft-04/schema#", **NUMBER, "maximum": 5},
        {"$schema": "http://json-schema.org/draft-04/schema#", **NUMBER, "maximum": 5, "exclusiveMaximum": True},
        "EXCLUSIVE_MAXIMUM_ADDED",
        "",
    ),
]

_ENUMS = [
    json_case("a value is added", {"enum": ["a"]}, {"enum": ["a", "b"]}, "", "ENUM_ARRAY_NARROWED"),
    json_case(
        "a value is replaced", {"enum": ["a", "b"]}, {"enum": ["a", "c"]}, "ENUM_ARRAY_CHANGED", "ENUM_ARRAY_CHANGED"
    ),
    json_case("the order of values does not matter", {"enum": ["a", "b"]}, {"enum": ["b", "a"]}),
    json_case(
        "values may be of any type", {"enum": [1, None]}, {"enum": [1, None, {"a": [True]}]}, "", "ENUM_ARRAY_NARROWED"
    ),
    json_case(
        '1 and "1" are different values', {"enum": [1]}, {"enum": ["1"]}, "ENUM_ARRAY_CHANGED", "ENUM_ARRAY_CHANGED"
    ),
    json_case("a constant is the same", {"const": 1}, {"const": 1}),
    json_case("a constant changes", {"const": 1}, {"const": 2}, "ENUM_ARRAY_CHANGED", "ENUM_ARRAY_CHANGED"),
    json_case("an enum becomes anything", {"enum": ["a"]}, {}, "", _TYPE),
    json_case(
        "an enum with a type becomes the type: one of its conditions is left",
        {**STRING, "enum": ["a"]},
        STRING,
        "",
        _TYPE,
    ),
]


_COMBINATIONS = [
    json_case("oneOf is extended", {"oneOf": [STRING, NUMBER]}, {"oneOf": [STRING, NUMBER, BOOLEAN]}, "", _SUM),
    json_case("anyOf is extended", {"anyOf": [STRING, NUMBER]}, {"anyOf": [STRING, NUMBER, BOOLEAN]}, "", _SUM),
    json_case(
        "allOf is extended: one more condition",
        {"allOf": [{"maxLength": 5}, {"minLength": 1}]},
        {"allOf": [{"maxLength": 5}, {"minLength": 1}, {"pattern": "^a"}]},
        _PRODUCT,
        "",
    ),
    json_case("a part of oneOf is widened", {"oneOf": [STRING, INTEGER]}, {"oneOf": [STRING, NUMBER]}, "", _PARTS),
    json_case("a part of anyOf is replaced", {"anyOf": [STRING, NUMBER]}, {"anyOf": [STRING, BOOLEAN]}, _PARTS, _PARTS),
    json_case("the order of parts does not matter", {"oneOf": [STRING, NUMBER]}, {"oneOf": [NUMBER, STRING]}),
    json_case(
        "oneOf becomes anyOf, which allows more",
        {"oneOf": [STRING, NUMBER]},
        {"anyOf": [STRING, NUMBER]},
        "",
        _COMBINED,
    ),
    json_case(
        "allOf becomes anyOf, which allows more",
        {"allOf": [{"maxLength": 5}, {"minLength": 1}]},
        {"anyOf": [{"maxLength": 5}, {"minLength": 1}]},
        "",
        _COMBINED,
    ),
    json_case(
        "allOf becomes oneOf",
        {"allOf": [{"maxLength": 5}, {"minLength": 1}]},
        {"oneOf": [{"maxLength": 5}, {"minLength": 1}]},
        _COMBINED,
        _COMBINED,
    ),
    json_case("a schema becomes one of several", STRING, {"oneOf": [STRING, NUMBER]}, "", _TYPE),
    json_case("a schema becomes any of several", STRING, {"anyOf": [NUMBER, STRING]}, "", _TYPE),
    json_case("a schema becomes one of others", BOOLEAN, {"oneOf": [STRING, NUMBER]}, _TYPE, _TYPE),
    json_case("a combination of one part is the part", STRING, {"oneOf": [STRING]}),
    json_case("allOf of one part is the part", STRING, {"allOf": [STRING]}),
    json_case(
        "one condition of allOf is left", {"allOf": [{"maxLength": 5}, {"minLength": 1}]}, {"maxLength": 5}, "", _TYPE
    ),
    json_case("a part that is listed twice is one", {"anyOf": [STRING, STRING, NUMBER]}, {"anyOf": [STRING, NUMBER]}),
    json_case("a combination becomes anything", {"oneOf": [STRING, NUMBER]}, {}, "", _TYPE),
    json_case(
        "objects in oneOf",
        {"oneOf": [closed_object({"a": STRING}), STRING]},
        {"oneOf": [closed_object({"a": STRING, "b": NUMBER}), STRING]},
        "",
        _PARTS,
    ),
    json_case(
        "a combination within a property",
        json_object({"a": {"oneOf": [STRING]}}),
        json_object({"a": {"oneOf": [STRING, NUMBER]}}),
        "",
        _SUM,
    ),
    json_case("not: less is excluded", {"not": NUMBER}, {"not": INTEGER}, "", "NOT_TYPE_EXTENDED"),
    json_case("not: the same is excluded", {"not": STRING}, {"not": STRING}),
    json_case(
        "not: something else is excluded", {"not": STRING}, {"not": BOOLEAN}, "NOT_TYPE_EXTENDED", "NOT_TYPE_EXTENDED"
    ),
]

_REFERENCES = [
    json_case("a reference is what it leads to", {"$ref": "#/definitions/a", "definitions": {"a": STRING}}, STRING),
    json_case(
        "the name of a definition does not matter",
        {"$ref": "#/definitions/a", "definitions": {"a": STRING}},
        {"$ref": "#/definitions/b", "definitions": {"b": STRING}},
    ),
    json_case(
        "a definition is widened",
        {"$ref": "#/definitions/a", "definitions": {"a": INTEGER}},
        {"$ref": "#/definitions/a", "definitions": {"a": NUMBER}},
        "",
        _NARROWED,
    ),
    json_case(
        "a definition that nothing refers to changes",
        {**STRING, "definitions": {"a": STRING}},
        {**STRING, "definitions": {"a": NUMBER}},
    ),
    json_case(
        "$defs of draft 2019-09",
        {"$schema": "https://json-schema.org/draft/2019-09/schema", "$ref": "#/$defs/a", "$defs": {"a": STRING}},
        {"$schema": "https://json-schema.org/draft/2019-09/schema", **STRING},
    ),
    json_case(
        "a recursive schema with itself", json_object({"next": {"$ref": "#"}}), json_object({"next": {"$ref": "#"}})
    ),
    json_case(
        "a recursive closed schema gains a property",
        closed_object({"next": {"$ref": "#"}}),
        closed_object({"next": {"$ref": "#"}, "a": STRING}),
        "",
        _CLOSED,
    ),
    json_case(
        "a recursive schema changes deep inside",
        json_object({"v": STRING, "next": {"$ref": "#"}}),
        json_object({"v": NUMBER, "next": {"$ref": "#"}}),
        _TYPE,
        _TYPE,
    ),
    json_case(
        "an anchor",
        {
            "$schema": "https://json-schema.org/draft/2020-12/schema",
            "$ref": "#x",
            "$defs": {"a": {"$anchor": "x", **STRING}},
        },
        {"$schema": "https://json-schema.org/draft/2020-12/schema", **STRING},
    ),
    json_case(
        "two references to one definition",
        json_object({"a": {"$ref": "#/definitions/d"}, "b": {"$ref": "#/definitions/d"}}, definitions={"d": INTEGER}),
        json_object({"a": {"$ref": "#/definitions/d"}, "b": {"$ref": "#/definitions/d"}}, definitions={"d": NUMBER}),
        "",
        _NARROWED,
    ),
    json_case(
        "the siblings of $ref are ignored up to draft 7",
        {"$ref": "#/definitions/a", "definitions": {"a": STRING}},
        {"$ref": "#/definitions/a", "maxLength": 5, "definitions": {"a": STRING}},
    ),
    json_case(
        "another draft of the same schema",
        {"$schema": "http://json-schema.org/draft-07/schema#", **STRING},
        {"$schema": "https://json-schema.org/draft/2020-12/schema", **STRING},
    ),
]

CASES = [*_LIMITS, *_TYPES, *STRINGS, *NUMBERS, *_ENUMS, *_COMBINATIONS, *_REFERENCES]
