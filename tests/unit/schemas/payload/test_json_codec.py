"""JSON values by their schema: refusals with the path, references are not fetched, patterns and steps are bounded."""

import datetime
import json
import time
from typing import Any

import pytest

from headrace.schemas.errors import InvalidSchema
from headrace.schemas.parsed import parse_any
from headrace.schemas.payload.codecs import PayloadCodec, codec_of
from headrace.schemas.payload.errors import InvalidPayload

DRAFTS = [
    "http://json-schema.org/draft-04/schema#",
    "http://json-schema.org/draft-06/schema#",
    "http://json-schema.org/draft-07/schema#",
    "https://json-schema.org/draft/2019-09/schema",
    "https://json-schema.org/draft/2020-12/schema",
]


def codec(schema: Any, *references: tuple[str, Any], allows_any_pattern: bool = False) -> PayloadCodec:
    names = [(name, json.dumps(each)) for name, each in references]
    return codec_of(parse_any("JSON", json.dumps(schema), names), allows_any_pattern=allows_any_pattern)


@pytest.mark.parametrize("draft", DRAFTS)
def test_values_of_each_draft(draft: str) -> None:
    schema = {
        "$schema": draft,
        "type": "object",
        "properties": {
            "id": {"type": "integer"},
            "lines": {"type": "array", "items": {"type": "object", "properties": {"price": {"type": "number"}}}},
            "parent": {"$ref": "#"},
        },
        "patternProperties": {"^x-": {"type": "string"}},
        "additionalProperties": False,
        "required": ["id"],
    }
    made = codec(schema)
    value = {"id": 1, "lines": [{"price": 1.5}], "parent": {"id": 2, "x-a": "text"}}
    assert made.decode(made.encode(value)) == value
    for wrong, message in [
        ({}, "'id' is a required property"),
        ({"id": 1, "lines": [{}, {"price": "1"}]}, r"lines\[1\]\.price: '1' is not of type 'number'"),
        ({"id": 1, "parent": {"id": 2, "other": 3}}, "parent: the property 'other' is not allowed"),
        ({"id": 1, "parent": {"id": 2, "x-a": 3}}, "parent.x-a: 3 is not of type 'string'"),
    ]:
        with pytest.raises(InvalidPayload, match=message):
            made.check(json.dumps(wrong).encode())
        with pytest.raises(InvalidPayload, match=message):
            made.encode(wrong)


def test_documents_that_a_schema_refers_to() -> None:
    made = codec({"properties": {"at": {"$ref": "place.json"}}}, ("place.json", {"type": "string", "minLength": 2}))
    made.check(b'{"at": "York"}')
    with pytest.raises(InvalidPayload, match="at: 'Y' is too short"):
        made.check(b'{"at": "Y"}')
    with pytest.raises(InvalidSchema, match="not fetched"):
        codec({"$ref": "http://localhost:1/x.json"})


@pytest.mark.parametrize(
    "body", [b"", b"{", b'{"a": NaN}', b"\xff", b"[" * 100_000, b'{"a":' * 5_000 + b"1" + b"}" * 5_000]
)
def test_what_is_not_json(body: bytes) -> None:
    with pytest.raises(InvalidPayload):
        codec({"additionalProperties": {"$ref": "#"}}).check(body)


def test_values_of_python_are_written_as_json() -> None:
    made = codec({"properties": {"at": {"type": "string"}}})
    assert made.encode({"at": datetime.date(2026, 1, 2)}) == b'{"at":"2026-01-02"}'
    with pytest.raises(InvalidPayload, match="cannot be written as JSON"):
        made.encode({"at": object()})


def test_patterns_take_linear_time() -> None:
    made = codec({"type": "string", "pattern": "^(a+)+$", "$schema": DRAFTS[2]})
    started = time.process_time()
    with pytest.raises(InvalidPayload, match="does not match"):
        made.check(b'"' + b"a" * 100_000 + b'!"')
    assert time.process_time() - started < 2


def test_a_pattern_that_re2_does_not_support_is_refused_unless_it_is_allowed() -> None:
    schema = {"type": "string", "pattern": "^(?=a)ab$"}
    with pytest.raises(InvalidSchema, match="linear time"):
        codec(schema)
    made = codec(schema, allows_any_pattern=True)
    made.check(b'"ab"')
    with pytest.raises(InvalidPayload):
        made.check(b'"bb"')


def test_a_schema_that_takes_exponential_time_is_given_up() -> None:
    names = {f"d{i}": {"allOf": [{"$ref": f"#/definitions/d{i + 1}"}] * 2} for i in range(40)}
    made = codec({"definitions": {**names, "d40": {"type": "integer"}}, "$ref": "#/definitions/d0"})
    started = time.process_time()
    with pytest.raises(InvalidPayload, match="too many steps"):
        made.check(b"1")
    assert time.process_time() - started < 5


def test_a_large_value_is_within_the_steps() -> None:
    made = codec({"type": "array", "items": {"$ref": "#/definitions/a"}, "definitions": {"a": {"type": "integer"}}})
    made.check(b"[" + b",".join([b"12345"] * 3_000) + b"]")


@pytest.mark.parametrize(
    ("body", "is_unique"), [(b"[1,1.0]", False), (b"[1,true]", True), (b'[{"a":1},{"a":2}]', True)]
)
def test_unique_items(body: bytes, is_unique: bool) -> None:
    made = codec({"uniqueItems": True})
    if is_unique:
        made.check(body)
    else:
        with pytest.raises(InvalidPayload, match="twice"):
            made.check(body)


def test_many_unique_items_take_linear_time() -> None:
    items = [{"a": n} for n in range(20_000)]
    started = time.process_time()
    codec({"uniqueItems": True}).check(json.dumps(items).encode())
    assert time.process_time() - started < 5


def test_many_patterns_for_many_names_are_given_up() -> None:
    patterns: dict[str, object] = {f"^x{each}$": {} for each in range(2_000)}
    body = json.dumps({f"n{each}": 0 for each in range(500)}).encode()
    for schema in ({"patternProperties": patterns}, {"patternProperties": patterns, "additionalProperties": False}):
        with pytest.raises(InvalidPayload, match="too many steps"):
            codec(schema).check(body)
    codec({"patternProperties": dict([*patterns.items()][:20])}).check(body)
