"""Hostile schemas cost a bounded number of steps."""

import json

import pytest

from headrace.schemas.errors import InvalidSchema
from headrace.schemas.parsed import MAX_SCHEMA_BYTES, incompatibilities, parse_any


def test_a_schema_that_is_too_long_is_not_parsed() -> None:
    with pytest.raises(InvalidSchema, match="longer than"):
        parse_any("AVRO", " " * MAX_SCHEMA_BYTES + '"int"')


@pytest.mark.parametrize("depth", [300, 5_000, 40_000])
def test_deep_nesting_is_refused(depth: int) -> None:
    avro = '{"type":"array","items":' * depth + '"int"' + "}" * depth
    json_schema = '{"items":' * depth + "{}" + "}" * depth
    proto = "message M {" * depth + "}" * depth
    for kind, text in (("AVRO", avro), ("JSON", json_schema), ("PROTOBUF", proto)):
        with pytest.raises(InvalidSchema, match="nested"):
            parse_any(kind, text)


def test_references_that_double_at_every_level_are_compared_once_each() -> None:
    levels = 60
    definitions = {
        f"d{level}": {
            "anyOf": [{"$ref": f"#/definitions/d{level + 1}"}, {"$ref": f"#/definitions/d{level + 1}", "a": 1}]
        }
        for level in range(levels)
    }
    definitions[f"d{levels}"] = {"type": "string"}  # type: ignore[dict-item]
    text = json.dumps({"$ref": "#/definitions/d0", "definitions": definitions})
    schema = parse_any("JSON", text)
    assert incompatibilities(schema, parse_any("JSON", text)) == []


def test_a_schema_that_refers_to_itself_is_compared_with_itself() -> None:
    for kind, text in (
        ("AVRO", '{"type":"record","name":"N","fields":[{"name":"next","type":["null","N"]}]}'),
        ("JSON", '{"type":"object","properties":{"next":{"$ref":"#"}}}'),
        ("JSON", '{"$ref":"#"}'),
        ("PROTOBUF", 'syntax = "proto3"; message N { N next = 1; map<string, N> all = 2; }'),
    ):
        schema = parse_any(kind, text)
        assert incompatibilities(schema, parse_any(kind, text)) == []


def test_nothing_remote_is_ever_fetched() -> None:
    for ref in ("http://127.0.0.1:9/schema.json", "https://example.org/x", "file:///etc/passwd", "other.json#/a"):
        with pytest.raises(InvalidSchema, match="remote documents are not fetched"):
            parse_any("JSON", json.dumps({"$ref": ref}))


def test_a_pattern_that_could_run_for_ever_is_not_run() -> None:
    closed = {"type": "object", "additionalProperties": False, "patternProperties": {"(a+)+$": {"type": "string"}}}
    wider = {**closed, "properties": {"a" * 40 + "!": {"type": "string"}}}
    reader, writer = parse_any("JSON", json.dumps(wider)), parse_any("JSON", json.dumps(closed))
    assert [each.kind for each in incompatibilities(reader, writer)] == []
