"""Avro values of any schema are read as fastavro reads them; damaged ones get a reason and spoil no other."""

import io
import json
from datetime import UTC
from typing import Any, NamedTuple

import fastavro
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.pipelines.avro.resolution import reading
from headrace.pipelines.avro.schema import columns_of, parse_schema
from headrace.pipelines.avro.values import AvroValues
from headrace.pipelines.values.nodes import UnreadableValue, ValueCursor

pytestmark = pytest.mark.timeout(900)
"""The long profile has many examples, and each makes a schema."""

fewer = settings(max_examples=settings().max_examples // 2)


class Kind(NamedTuple):
    schema: Any
    values: st.SearchStrategy[Any]


texts = st.text(max_size=12)
longs = st.integers(-(2**63), 2**63 - 1) | st.integers(-100, 100)
prices = st.decimals(-(10**17) + 1, 10**17 - 1, places=3)
leaves = st.sampled_from(
    [
        Kind("null", st.none()),
        Kind("boolean", st.booleans()),
        Kind("int", st.integers(-(2**31), 2**31 - 1)),
        Kind("long", longs),
        Kind("float", st.floats(width=32, allow_nan=False)),
        Kind("double", st.floats(allow_nan=False)),
        Kind("bytes", st.binary(max_size=80)),
        Kind("string", texts),
        Kind({"type": "enum", "symbols": ["A", "B", "C"]}, st.sampled_from("ABC")),
        Kind({"type": "fixed", "size": 3}, st.binary(min_size=3, max_size=3)),
        Kind({"type": "bytes", "logicalType": "decimal", "precision": 20, "scale": 3}, prices),
        Kind({"type": "fixed", "size": 20, "logicalType": "decimal", "precision": 20, "scale": 3}, prices),
    ]
)

times = st.sampled_from(
    [
        Kind({"type": "int", "logicalType": "date"}, st.dates()),
        Kind({"type": "long", "logicalType": "timestamp-micros"}, st.datetimes(timezones=st.just(UTC))),
    ]
)
"""Only where nothing is damaged: Python has no name for a day that is a million years away."""


def _nullable(kind: Kind) -> Kind:
    if kind.schema == "null" or isinstance(kind.schema, list):
        return kind
    return Kind(["null", kind.schema], st.none() | kind.values)


def _array(kind: Kind) -> Kind:
    if not parse_schema(json.dumps(named(kind.schema))).least_bytes:
        return kind
    return Kind({"type": "array", "items": kind.schema}, st.lists(kind.values, max_size=4))


def _map(kind: Kind) -> Kind:
    return Kind({"type": "map", "values": kind.schema}, st.dictionaries(texts, kind.values, max_size=3))


def _record(kinds: list[Kind]) -> Kind:
    fields = [{"name": f"f{number}", "type": kind.schema} for number, kind in enumerate(kinds)]
    values = st.fixed_dictionaries({f"f{number}": kind.values for number, kind in enumerate(kinds)})
    return Kind({"type": "record", "fields": fields}, values)


def named(schema: Any, counter: list[int] | None = None) -> Any:
    """A copy in which every type that needs a name has its own."""
    counter = [0] if counter is None else counter
    if isinstance(schema, list):
        return [named(each, counter) for each in schema]
    if not isinstance(schema, dict):
        return schema
    made = {key: named(part, counter) for key, part in schema.items() if key in ("type", "items", "values")}
    made |= {key: part for key, part in schema.items() if key not in made and key != "fields"}
    if "fields" in schema:
        made["fields"] = [{"name": each["name"], "type": named(each["type"], counter)} for each in schema["fields"]]
    if schema.get("type") in ("record", "enum", "fixed"):
        counter[0] += 1
        made["name"] = f"N{counter[0]}"
    return made


def records(simple: st.SearchStrategy[Kind]) -> st.SearchStrategy[Kind]:
    kinds = st.recursive(
        simple,
        lambda inner: (
            inner.map(_nullable) | inner.map(_array) | inner.map(_map) | st.lists(inner, max_size=4).map(_record)
        ),
        max_leaves=6,
    )
    return st.lists(kinds, min_size=1, max_size=5).map(_record)


@st.composite
def columns(draw: st.DrawFn, simple: st.SearchStrategy[Kind]) -> tuple[Any, list[Any], list[bytes]]:
    """A schema, values of it, and how they are written."""
    kind = draw(records(simple))
    schema = named(kind.schema)
    values = draw(st.lists(kind.values, min_size=1, max_size=6))
    parsed = fastavro.parse_schema(schema)
    encoded = []
    for value in values:
        out = io.BytesIO()
        fastavro.schemaless_writer(out, parsed, value)
        encoded.append(out.getvalue())
    return schema, values, encoded


def with_pairs(schema: Any, value: Any) -> Any:
    if isinstance(schema, list):
        return None if value is None else with_pairs(schema[1], value)
    if isinstance(schema, dict):
        if schema["type"] == "record":
            return {each["name"]: with_pairs(each["type"], value[each["name"]]) for each in schema["fields"]}
        if schema["type"] == "array":
            return [with_pairs(schema["items"], each) for each in value]
        if schema["type"] == "map":
            return [(key, with_pairs(schema["values"], each)) for key, each in value.items()]
    return value


def decoded(schema: Any, encoded: list[bytes]) -> tuple[list[Any], list[str | None]]:
    found = AvroValues(json.dumps(schema)).decode(pa.array(encoded, pa.binary()))
    found.columns.validate(full=True)
    return found.columns.to_pylist(), found.reasons.to_pylist()


def alone(schema: Any, data: bytes) -> Any:
    """The value as it is read one by one, or why it cannot be."""
    type_ = columns_of(parse_schema(json.dumps(schema)))
    value = ValueCursor(data)
    try:
        made = reading(type_, type_).one(value)
    except UnreadableValue as error:
        return str(error)
    if value.at < len(data):
        return "bytes follow the value"
    return pa.array([made], type_.arrow).to_pylist()[0]


@fewer
@given(columns(leaves | times))
def test_values_are_what_fastavro_reads(made: tuple[Any, list[Any], list[bytes]]) -> None:
    schema, _, encoded = made
    parsed = fastavro.parse_schema(schema)
    expected = [with_pairs(schema, fastavro.schemaless_reader(io.BytesIO(each), parsed)) for each in encoded]
    if not any(encoded):
        return
    found, reasons = decoded(schema, [each for each in encoded if each])
    assert reasons == [None] * len(found)
    assert found == [each for each, data in zip(expected, encoded, strict=True) if data]
    assert [alone(schema, each) for each in encoded] == expected


@fewer
@given(columns(leaves), st.data())
def test_damage_is_noticed_where_it_is_and_nowhere_else(
    made: tuple[Any, list[Any], list[bytes]], data: st.DataObject
) -> None:
    schema, _, encoded = made
    encoded = [each for each in encoded if each] or [b"\x00"]
    victim = data.draw(st.integers(0, len(encoded) - 1))
    damaged = bytearray(encoded[victim])
    for _ in range(data.draw(st.integers(1, 3))):
        position = data.draw(st.integers(0, len(damaged)))
        change = data.draw(st.integers(0, 2))
        if change == 0:
            damaged[position : position + 1] = bytes([data.draw(st.integers(0, 255))])
        elif change == 1:
            damaged[position:position] = data.draw(st.binary(min_size=1, max_size=4))
        else:
            del damaged[position : position + 2]
    column = [*encoded[:victim], bytes(damaged), *encoded[victim + 1 :]]
    found, reasons = decoded(schema, column)
    for row, each in enumerate(column):
        if not each:
            continue
        expected = alone(schema, each)
        if isinstance(expected, str):
            assert found[row] is None
            assert reasons[row]
        else:
            assert reasons[row] is None
            assert repr(found[row]) == repr(expected)
