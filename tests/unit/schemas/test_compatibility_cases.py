"""Verdicts of compatibility against tables written from the specifications of Avro, Protobuf and JSON Schema."""

from collections.abc import Iterator, Sequence

import pytest

from headrace.schemas.compatibility import CompatibilityLevel, VersionToCompare, check_compatibility
from headrace.schemas.parsed import ParsedSchema, incompatibilities, parse_any
from tests.unit.schemas.cases import avro, json_schema, json_structures, protobuf
from tests.unit.schemas.cases.table import CompatibilityCase

TABLES: dict[str, Sequence[CompatibilityCase]] = {
    "AVRO": avro.CASES,
    "JSON": [*json_schema.CASES, *json_structures.CASES],
    "PROTOBUF": protobuf.CASES,
}


def _rows() -> Iterator[object]:
    for kind, cases in TABLES.items():
        for place, case in enumerate(cases):
            yield pytest.param(kind, case, id=f"{kind}-{place}-{case.reason}")


def _earlier(*schemas: ParsedSchema) -> list[VersionToCompare]:
    return [VersionToCompare(place, each, each.canonical) for place, each in enumerate(schemas, 1)]


@pytest.mark.parametrize(("kind", "case"), [*_rows()])
def test_verdict(kind: str, case: CompatibilityCase) -> None:
    old, new = parse_any(kind, case.old), parse_any(kind, case.new)
    for reader, writer, expected in ((new, old, case.backward), (old, new, case.forward)):
        found = {each.kind for each in incompatibilities(reader, writer)}
        assert (expected in found) if expected else not found, found
    earlier = _earlier(old)
    assert check_compatibility("BACKWARD", new, earlier).is_compatible is not bool(case.backward)
    assert check_compatibility("FORWARD", new, earlier).is_compatible is not bool(case.forward)
    assert check_compatibility("FULL", new, earlier).is_compatible is not bool(case.backward or case.forward)
    assert check_compatibility("NONE", new, earlier).is_compatible


def test_the_tables_have_three_hundred_cases_and_each_its_own_reason() -> None:
    reasons = [(kind, case.reason) for kind, cases in TABLES.items() for case in cases]
    assert len(reasons) >= 300
    assert len(set(reasons)) == len(reasons)


_CHAINS = {
    "AVRO": (
        '{"type":"record","name":"R","fields":[]}',
        '{"type":"record","name":"R","fields":[{"name":"a","type":"int","default":0}]}',
        '{"type":"record","name":"R","fields":[{"name":"a","type":"int"}]}',
    ),
    "JSON": (
        '{"type":"object","properties":{"a":{"type":"string"}}}',
        '{"type":"object"}',
        '{"type":"object","properties":{"a":{}}}',
    ),
    "PROTOBUF": (
        'syntax = "proto3"; message M { int32 a = 1; }',
        'syntax = "proto3"; message M { }',
        'syntax = "proto3"; message M { string a = 1; }',
    ),
}
"""Three versions, of which each reads the one before."""


@pytest.mark.parametrize(
    ("kind", "level", "is_compatible"),
    [
        ("AVRO", "BACKWARD", True),  # The second version has the field always.
        ("AVRO", "BACKWARD_TRANSITIVE", False),  # The first one lacks it, and the third has no default.
        ("AVRO", "FORWARD_TRANSITIVE", True),
        ("AVRO", "FULL_TRANSITIVE", False),
        ("JSON", "BACKWARD_TRANSITIVE", True),
        ("JSON", "FORWARD", True),  # The second version allows anything.
        ("JSON", "FORWARD_TRANSITIVE", False),  # The first one wants a string.
        ("JSON", "FULL_TRANSITIVE", False),
        ("PROTOBUF", "FULL", True),  # A number may be used again once the version before does not have it.
        ("PROTOBUF", "BACKWARD_TRANSITIVE", False),
        ("PROTOBUF", "FORWARD_TRANSITIVE", False),
        ("PROTOBUF", "FULL_TRANSITIVE", False),
    ],
)
def test_transitive_levels_compare_with_all_versions(kind: str, level: CompatibilityLevel, is_compatible: bool) -> None:
    first, second, third = (parse_any(kind, text) for text in _CHAINS[kind])
    verdict = check_compatibility(level, third, _earlier(first, second))
    assert verdict.is_compatible is is_compatible
    if not is_compatible:
        assert f"{{compatibility: '{level}'}}" in verdict.messages
        assert "{oldSchemaVersion: 1}" in verdict.messages


def test_the_lenient_policy_allows_new_properties_of_open_objects() -> None:
    old, new = parse_any("JSON", '{"type":"object"}'), parse_any("JSON", _CHAINS["JSON"][0])
    assert not check_compatibility("BACKWARD", new, _earlier(old)).is_compatible
    assert check_compatibility("BACKWARD", new, _earlier(old), is_lenient=True).is_compatible
    narrower = parse_any("JSON", '{"type":"object","maxProperties":1}')
    assert not check_compatibility("BACKWARD", narrower, _earlier(old), is_lenient=True).is_compatible


def test_a_schema_of_another_type_is_never_compatible() -> None:
    avro_schema, json_document = parse_any("AVRO", '"string"'), parse_any("JSON", '{"type":"string"}')
    assert [each.kind for each in incompatibilities(avro_schema, json_document)] == ["SCHEMA_TYPE_CHANGED"]
