"""JSON Schemas, schemas that were made of them by a few changes, and values of them.

Without keywords whose comparison is by text (`pattern`) or not done at all (`format`), and without defaults, which the
rules take for values that a reader fills in.
"""

from typing import Any

from hypothesis import strategies as st

JsonSchema = dict[str, Any]

_NAMES = ("a", "b", "c")
_LIMITS = {
    "string": ("minLength", "maxLength"),
    "number": ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"),
    "integer": ("minimum", "maximum", "multipleOf"),
    "array": ("minItems", "maxItems", "uniqueItems"),
    "object": ("minProperties", "maxProperties"),
}
_TYPES = ("string", "number", "integer", "boolean", "null", "object", "array")


@st.composite
def json_schemas(draw: Any, depth: int = 0) -> JsonSchema:
    kind = draw(st.sampled_from(_TYPES if depth < 2 else _TYPES[:5]))
    schema: JsonSchema = {"type": kind}
    for keyword in _LIMITS.get(kind, ()):
        if draw(st.integers(0, 3)) == 0:
            schema[keyword] = True if keyword == "uniqueItems" else draw(st.integers(1, 4))
    if kind == "object":
        names = draw(st.lists(st.sampled_from(_NAMES), max_size=2, unique=True))
        schema["properties"] = {name: draw(json_schemas(depth + 1)) for name in names}
        schema["required"] = [name for name in names if draw(st.booleans())]
        more = draw(st.sampled_from(("open", "closed", "schema")))
        if more != "open":
            schema["additionalProperties"] = False if more == "closed" else draw(json_schemas(2))
    elif kind == "array" and draw(st.booleans()):
        schema["items"] = draw(json_schemas(depth + 1))
    return schema


@st.composite
def json_pairs(draw: Any) -> tuple[JsonSchema, JsonSchema]:
    """A schema, and one that was made of it by up to three changes."""
    old = new = draw(json_schemas())
    for _ in range(draw(st.integers(0, 3))):
        new = _changed(draw, new)
    return old, new


def _changed(draw: Any, schema: JsonSchema) -> JsonSchema:
    kind = schema.get("type", "")
    change = draw(st.sampled_from(("limit", "inner", "type", "model", "required", "drop", "add", "list")))
    if change == "limit" and kind in _LIMITS:
        keyword = draw(st.sampled_from(_LIMITS[kind]))
        changed = {key: value for key, value in schema.items() if key != keyword}
        if draw(st.booleans()):
            changed[keyword] = True if keyword == "uniqueItems" else draw(st.integers(1, 4))
        return changed
    if change == "type":
        return draw(st.one_of(st.just({}), st.just({"type": "number"}), json_schemas(2)))
    if change == "inner" and kind == "array" and "items" in schema:
        return schema | {"items": _changed_typed(draw, schema["items"])}
    if kind == "object":
        return _changed_object(draw, schema, change)
    return schema


def _changed_typed(draw: Any, schema: JsonSchema) -> JsonSchema:
    changed = _changed(draw, schema)
    return changed if "type" in changed else schema


def _changed_object(draw: Any, schema: JsonSchema, change: str) -> JsonSchema:
    properties, required = dict(schema["properties"]), list(schema["required"])
    if change == "model":
        return {key: value for key, value in schema.items() if key != "additionalProperties"} | draw(
            st.sampled_from(({}, {"additionalProperties": False}, {"additionalProperties": {"type": "string"}}))
        )
    if change == "add":
        properties.setdefault(draw(st.sampled_from(_NAMES)), draw(json_schemas(2)))
    elif properties:
        name = draw(st.sampled_from(sorted(properties)))
        if change == "drop":
            del properties[name]
            required = [each for each in required if each != name]
        elif change == "required":
            required = [each for each in required if each != name] if name in required else [*required, name]
        else:
            properties[name] = _changed_typed(draw, properties[name])
    return schema | {"properties": properties, "required": required}


def json_values() -> st.SearchStrategy[Any]:
    """Any value of the size that the schemas speak of."""
    numbers = st.one_of(st.integers(-1, 6), st.sampled_from((0.5, 1.0, 2.5)))
    simple = st.one_of(st.none(), st.booleans(), numbers, st.text("xyz", max_size=5))
    return st.recursive(
        simple,
        lambda inner: st.one_of(
            st.lists(inner, max_size=4), st.dictionaries(st.sampled_from((*_NAMES, "z")), inner, max_size=4)
        ),
        max_leaves=6,
    )
