"""JSON Schema: objects and arrays, by the content models that Confluent documents."""

from tests.unit.schemas.cases.json_parts import INTEGER, NUMBER, STRING, closed_object, json_case, json_object

_TYPE = "TYPE_CHANGED"
_NARROWED = "TYPE_NARROWED"
_OPEN = "OPTIONAL_PROPERTY_ADDED_TO_OPEN_CONTENT_MODEL"
_OPEN_DEFAULT = "REQUIRED_PROPERTY_WITH_DEFAULT_ADDED_TO_OPEN_CONTENT_MODEL"
_OPEN_REQUIRED = "REQUIRED_PROPERTY_ADDED_TO_OPEN_CONTENT_MODEL"
_UNOPEN_REQUIRED = "REQUIRED_PROPERTY_ADDED_TO_UNOPEN_CONTENT_MODEL"
_CLOSED = "PROPERTY_REMOVED_FROM_CLOSED_CONTENT_MODEL"
_COVER_REMOVED = "PROPERTY_REMOVED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL"
_COVER_ADDED = "PROPERTY_ADDED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL"
_REQUIRED = "REQUIRED_ATTRIBUTE_ADDED"
_MORE_GONE = "ADDITIONAL_PROPERTIES_REMOVED"
_MORE_NARROWED = "ADDITIONAL_PROPERTIES_NARROWED"
_ITEMS_GONE = "ADDITIONAL_ITEMS_REMOVED"
_ITEMS_NARROWED = "ADDITIONAL_ITEMS_NARROWED"

_A, _AB = {"a": STRING}, {"a": STRING, "b": NUMBER}
_B_DEFAULT = {"a": STRING, "b": {**NUMBER, "default": 0}}

_OBJECTS = [
    json_case(
        "open: a typed property is added; others may have used the name", json_object(_A), json_object(_AB), _OPEN, ""
    ),
    json_case("open: a property that can be anything is added", json_object(_A), json_object({**_A, "b": {}})),
    json_case("open: a property that is true is added", json_object(_A), json_object({**_A, "b": True})),
    json_case(
        "open: a required property is added", json_object(_A), json_object(_AB, required=["b"]), _OPEN_REQUIRED, ""
    ),
    json_case(
        "open: a required property with a default is added",
        json_object(_A),
        json_object(_B_DEFAULT, required=["b"]),
        _OPEN_DEFAULT,
        "",
    ),
    json_case(
        "open, said so: a typed property is added",
        json_object(_A, additionalProperties=True),
        json_object(_AB, additionalProperties=True),
        _OPEN,
        "",
    ),
    json_case("open: the only property is removed", json_object(_A), json_object(), "", _OPEN),
    json_case(
        "closed: an optional property is added; old readers refuse it",
        closed_object(_A),
        closed_object(_AB),
        "",
        _CLOSED,
    ),
    json_case(
        "closed: a required property is added",
        closed_object(_A),
        closed_object(_AB, required=["b"]),
        _UNOPEN_REQUIRED,
        _CLOSED,
    ),
    json_case(
        "closed: a required property with a default is added",
        closed_object(_A),
        closed_object(_B_DEFAULT, required=["b"]),
        "",
        _CLOSED,
    ),
    json_case(
        "closed: a property that is false is added and removed", closed_object(_A), closed_object({**_A, "b": False})
    ),
    json_case("an open object is closed", json_object(_A), closed_object(_A), _MORE_GONE, ""),
    json_case("an open object is closed with a new property", json_object(_A), closed_object(_AB), _OPEN, ""),
    json_case("a closed object is opened and loses a property", closed_object(_AB), json_object(_A), "", _MORE_GONE),
    json_case("a property changes its type", json_object(_A), json_object({"a": NUMBER}), _TYPE, _TYPE),
    json_case("a property is widened", json_object({"a": INTEGER}), json_object({"a": NUMBER}), "", _NARROWED),
    json_case("a property becomes required", json_object(_A), json_object(_A, required=["a"]), _REQUIRED, ""),
    json_case(
        "a property with a default becomes required",
        json_object({"a": {**STRING, "default": ""}}),
        json_object({"a": {**STRING, "default": ""}}, required=["a"]),
    ),
    json_case(
        "a nested property is added to a closed object",
        json_object({"o": closed_object(_A)}),
        json_object({"o": closed_object(_AB)}),
        "",
        _CLOSED,
    ),
    json_case(
        "a nested property is added to an open object",
        json_object({"o": json_object(_A)}),
        json_object({"o": json_object(_AB)}),
        _OPEN,
        "",
    ),
    json_case(
        "the order of properties does not matter",
        json_object({"a": STRING, "b": NUMBER}),
        json_object({"b": NUMBER, "a": STRING}),
    ),
    json_case("no properties at all", json_object(), json_object()),
    json_case(
        "other properties get a schema",
        json_object(_A),
        json_object(_A, additionalProperties=STRING),
        _MORE_NARROWED,
        "",
    ),
    json_case(
        "the schema of other properties is widened",
        json_object(additionalProperties=INTEGER),
        json_object(additionalProperties=NUMBER),
        "",
        _NARROWED,
    ),
    json_case(
        "the schema of other properties changes",
        json_object(additionalProperties=STRING),
        json_object(additionalProperties=NUMBER),
        _TYPE,
        _TYPE,
    ),
    json_case(
        "other properties with a schema are no longer allowed",
        json_object(additionalProperties=STRING),
        closed_object(),
        _MORE_GONE,
        "",
    ),
    json_case(
        "partly open: a property that the schema of others covers is added",
        json_object(_A, additionalProperties=STRING),
        json_object({**_A, "b": STRING}, additionalProperties=STRING),
    ),
    json_case(
        "partly open: a property that it does not cover is added",
        json_object(_A, additionalProperties=STRING),
        json_object(_AB, additionalProperties=STRING),
        _COVER_ADDED,
        _COVER_REMOVED,
    ),
    json_case(
        "partly open: a wider property than that of others is added",
        json_object(additionalProperties=INTEGER),
        json_object({"b": NUMBER}, additionalProperties=INTEGER),
        "",
        _COVER_REMOVED,
    ),
    json_case(
        "partly open: a required property that is covered is added",
        json_object(additionalProperties=STRING),
        json_object(_A, additionalProperties=STRING, required=["a"]),
        _UNOPEN_REQUIRED,
        "",
    ),
    json_case(
        "a pattern covers a new property",
        closed_object(patternProperties={"^x": STRING}),
        closed_object({"x1": STRING}, patternProperties={"^x": STRING}),
    ),
    json_case(
        "a pattern covers a new property of another type",
        closed_object(patternProperties={"^x": STRING}),
        closed_object({"x1": NUMBER}, patternProperties={"^x": STRING}),
        _COVER_ADDED,
        _COVER_REMOVED,
    ),
    json_case(
        "a pattern does not cover a new property",
        closed_object(patternProperties={"^x": STRING}),
        closed_object({"y": STRING}, patternProperties={"^x": STRING}),
        "",
        _CLOSED,
    ),
    json_case(
        "a dependency is added", json_object(), json_object(dependencies={"a": ["b"]}), "DEPENDENCY_ARRAY_ADDED", ""
    ),
    json_case(
        "a dependency needs more",
        json_object(dependencies={"a": ["b"]}),
        json_object(dependencies={"a": ["b", "c"]}),
        "DEPENDENCY_ARRAY_EXTENDED",
        "",
    ),
    json_case(
        "a dependency needs another property",
        json_object(dependencies={"a": ["b"]}),
        json_object(dependencies={"a": ["c"]}),
        "DEPENDENCY_ARRAY_CHANGED",
        "DEPENDENCY_ARRAY_CHANGED",
    ),
    json_case(
        "a dependent schema is added",
        json_object(),
        json_object(dependencies={"a": json_object(_A)}),
        "DEPENDENCY_SCHEMA_ADDED",
        "",
    ),
    json_case(
        "a dependent schema is widened",
        json_object(dependencies={"a": json_object({"b": INTEGER})}),
        json_object(dependencies={"a": json_object({"b": NUMBER})}),
        "",
        _NARROWED,
    ),
    json_case(
        "unevaluated properties are forbidden",
        json_object(_A),
        json_object(_A, unevaluatedProperties=False),
        "UNEVALUATED_PROPERTIES_REMOVED",
        "",
    ),
    json_case(
        "unevaluated properties get a schema",
        json_object(_A, unevaluatedProperties=True),
        json_object(_A, unevaluatedProperties=STRING),
        "UNEVALUATED_PROPERTIES_NARROWED",
        "",
    ),
    json_case(
        "the schema of unevaluated properties is widened",
        json_object(unevaluatedProperties=INTEGER),
        json_object(unevaluatedProperties=NUMBER),
        "",
        _NARROWED,
    ),
    json_case("properties without a type make an object", {"properties": _A}, json_object(_A)),
]

_ARRAYS = [
    json_case(
        "items are widened", {"type": "array", "items": INTEGER}, {"type": "array", "items": NUMBER}, "", _NARROWED
    ),
    json_case("items change", {"type": "array", "items": STRING}, {"type": "array", "items": NUMBER}, _TYPE, _TYPE),
    json_case("items get a schema", {"type": "array"}, {"type": "array", "items": STRING}, "SCHEMA_ADDED", ""),
    json_case(
        "items must be unique", {"type": "array"}, {"type": "array", "uniqueItems": True}, "UNIQUE_ITEMS_ADDED", ""
    ),
    json_case("uniqueItems: false is the default", {"type": "array"}, {"type": "array", "uniqueItems": False}),
    json_case(
        "open tuple: an item is added",
        {"type": "array", "items": [STRING]},
        {"type": "array", "items": [STRING, NUMBER]},
        "ITEM_ADDED_TO_OPEN_CONTENT_MODEL",
        "",
    ),
    json_case(
        "open tuple: an item that can be anything is added",
        {"type": "array", "items": [STRING]},
        {"type": "array", "items": [STRING, {}]},
    ),
    json_case(
        "closed tuple: an item is added",
        {"type": "array", "items": [STRING], "additionalItems": False},
        {"type": "array", "items": [STRING, NUMBER], "additionalItems": False},
        "",
        "ITEM_REMOVED_FROM_CLOSED_CONTENT_MODEL",
    ),
    json_case(
        "an item of a tuple changes",
        {"type": "array", "items": [STRING]},
        {"type": "array", "items": [NUMBER]},
        _TYPE,
        _TYPE,
    ),
    json_case(
        "a tuple is closed",
        {"type": "array", "items": [STRING]},
        {"type": "array", "items": [STRING], "additionalItems": False},
        _ITEMS_GONE,
        "",
    ),
    json_case(
        "other items of a tuple get a schema",
        {"type": "array", "items": [STRING]},
        {"type": "array", "items": [STRING], "additionalItems": STRING},
        _ITEMS_NARROWED,
        "",
    ),
    json_case(
        "the schema of other items is widened",
        {"type": "array", "items": [STRING], "additionalItems": INTEGER},
        {"type": "array", "items": [STRING], "additionalItems": NUMBER},
        "",
        _NARROWED,
    ),
    json_case(
        "partly open tuple: a covered item is added",
        {"type": "array", "items": [STRING], "additionalItems": STRING},
        {"type": "array", "items": [STRING, STRING], "additionalItems": STRING},
    ),
    json_case(
        "partly open tuple: an item that is not covered",
        {"type": "array", "items": [STRING], "additionalItems": STRING},
        {"type": "array", "items": [STRING, NUMBER], "additionalItems": STRING},
        "ITEM_ADDED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL",
        "ITEM_REMOVED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL",
    ),
    json_case(
        "prefixItems are the tuple of draft 2020-12",
        {
            "$schema": "https://json-schema.org/draft/2020-12/schema",
            "type": "array",
            "prefixItems": [INTEGER],
            "items": False,
        },
        {
            "$schema": "https://json-schema.org/draft/2020-12/schema",
            "type": "array",
            "prefixItems": [NUMBER],
            "items": False,
        },
        "",
        _NARROWED,
    ),
    json_case(
        "unevaluated items are forbidden",
        {"type": "array"},
        {"type": "array", "unevaluatedItems": False},
        "UNEVALUATED_ITEMS_REMOVED",
        "",
    ),
    json_case(
        "arrays of objects",
        {"type": "array", "items": closed_object(_A)},
        {"type": "array", "items": closed_object(_AB)},
        "",
        _CLOSED,
    ),
]

CASES = [*_OBJECTS, *_ARRAYS]
