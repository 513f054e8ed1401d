"""Laws of the levels of compatibility, for schemas of each type."""

import json
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.property.profile import examples
from tests.property.schemas.avro_schemas import avro_pairs
from tests.property.schemas.json_schemas import json_pairs
from tests.property.schemas.proto_schemas import proto_pairs

from headrace.schemas.compatibility import (
    COMPATIBILITY_LEVELS,
    CompatibilityLevel,
    VersionToCompare,
    check_compatibility,
)
from headrace.schemas.parsed import ParsedSchema, parse_any

PAIRS: dict[str, st.SearchStrategy[Any]] = {
    "AVRO": avro_pairs().map(lambda pair: tuple(map(json.dumps, pair))),
    "JSON": json_pairs().map(lambda pair: tuple(map(json.dumps, pair))),
    "PROTOBUF": proto_pairs().map(lambda pair: tuple(each.text for each in pair)),
}


def _versions(schemas: Sequence[ParsedSchema]) -> list[VersionToCompare]:
    return [VersionToCompare(number, each, each.canonical) for number, each in enumerate(schemas, 1)]


def _allows(level: CompatibilityLevel, new: ParsedSchema, *earlier: ParsedSchema) -> bool:
    return check_compatibility(level, new, _versions(earlier)).is_compatible


@pytest.mark.parametrize("kind", PAIRS)
@settings(max_examples=examples(25), deadline=None)
@given(data=st.data())
def test_laws_of_levels(kind: str, data: st.DataObject) -> None:
    first, second = (parse_any(kind, text) for text in data.draw(PAIRS[kind]))
    third = parse_any(kind, data.draw(PAIRS[kind])[1])
    for level in COMPATIBILITY_LEVELS:
        assert _allows(level, first, first), "a schema is compatible with itself"
        assert _allows(level, first, parse_any(kind, first.canonical)), "and with its canonical text"
        assert _allows(level, first), "the first version is always allowed"
    assert _allows("NONE", second, first)
    both = _allows("BACKWARD", second, first) and _allows("FORWARD", second, first)
    assert _allows("FULL", second, first) is both
    assert _allows("BACKWARD", second, first) is _allows("FORWARD", first, second), "one is the other turned round"
    for level in ("BACKWARD", "FORWARD", "FULL"):
        transitive = _allows(f"{level}_TRANSITIVE", third, first, second)  # type: ignore[arg-type]
        each_one = _allows(level, third, first) and _allows(level, third, second)
        assert transitive is each_one
        assert not transitive or _allows(level, third, first, second), "transitive is the stricter one"
