"""The quick check of JSON values accepts nothing that jsonschema does not."""

import json
from contextlib import suppress
from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from headrace.pipelines.json_schema.check import JsonCheck, NotExpressible, parser_type
from headrace.pipelines.values.nodes import UnreadableValue
from headrace.pipelines.values.schemas import WriterSchema
from headrace.schemas.json_schema.document import parse_json_schema
from headrace.schemas.payload.errors import InvalidPayload
from headrace.schemas.payload.json_codec import JsonSchemaCodec

names = st.sampled_from(["a", "b", "c d"])
simple = st.sampled_from(
    [
        {"type": "string"},
        {"type": "integer"},
        {"type": "number", "description": "any"},
        {"type": "boolean"},
        {"type": "null"},
        {"type": ["integer", "null"]},
        {"type": "string", "enum": ["x", "y"]},
        {"type": "string", "format": "date-time"},
        {"type": "string", "minLength": 2},
        {"$ref": "#/definitions/word"},
        {"oneOf": [{"type": "null"}, {"type": "string"}]},
        {"anyOf": [{"type": "string"}, {"type": "integer"}]},
        {},
    ]
)


def objects(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    properties = st.dictionaries(names, inner, max_size=3)
    return st.fixed_dictionaries(
        {"type": st.just("object"), "properties": properties},
        optional={"required": st.lists(names, max_size=2, unique=True), "additionalProperties": st.booleans() | inner},
    )


schemas = st.recursive(
    simple, lambda inner: objects(inner) | inner.map(lambda each: {"type": "array", "items": each}), max_leaves=6
)
values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-5, 5)
    | st.sampled_from([1.0, 1.5, 2**70])
    | st.sampled_from(["", "x", "yy"]),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(names, inner, max_size=3),
    max_leaves=6,
)


@given(schemas, st.lists(values, min_size=1, max_size=8))
def test_a_value_is_accepted_exactly_if_it_is_valid(schema: Any, examples: list[Any]) -> None:
    document = {**schema, "definitions": {"word": {"type": "string"}}}
    parsed = parse_json_schema(json.dumps(document))
    codec, check = JsonSchemaCodec(parsed), JsonCheck(WriterSchema(json.dumps(document), kind="JSON"))
    quick: Any = None
    with suppress(NotExpressible):
        quick = parser_type(document)
    for value in examples:
        data = json.dumps(value).encode()
        is_valid = _accepts(codec.check, data)
        assert _accepts(check.check, data) == is_valid
        if quick is not None and not is_valid:
            with suppress(msgspec.ValidationError):
                raise AssertionError(f"{msgspec.json.decode(data, type=quick)} is not valid")


def _accepts(check: Any, data: bytes) -> bool:
    try:
        check(data)
    except (InvalidPayload, UnreadableValue):
        return False
    return True
