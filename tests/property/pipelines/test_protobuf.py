"""Protobuf messages are read as google.protobuf reads them; damaged ones get a reason or are what it reads, too."""

from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.pipelines.protobuf.schema import MessageType, message_type, parse_protobuf
from headrace.pipelines.protobuf.single import read_message
from headrace.pipelines.protobuf.values import ProtobufValues
from headrace.pipelines.values.nodes import UnreadableValue
from headrace.schemas.payload.protobuf_codec import ProtobufCodec

pytestmark = pytest.mark.timeout(900)

TEXT = """
syntax = "proto3";
package shop;
import "google/protobuf/timestamp.proto";
import "google/protobuf/wrappers.proto";
enum Color { NONE = 0; RED = 1; BLUE = -5; }
message Inner { sint32 a = 1; string b = 2; repeated sint64 c = 3; }
message Whole {
  double f1 = 1; float f2 = 2; int32 f3 = 3; int64 f4 = 4; uint32 f5 = 5; uint64 f6 = 6; sint32 f7 = 7; sint64 f8 = 8;
  fixed32 f9 = 9; fixed64 f10 = 10; sfixed32 f11 = 11; sfixed64 f12 = 12; bool f13 = 13; string f14 = 14;
  bytes f15 = 15; Color f16 = 16; Inner f17 = 17; optional int32 f18 = 18; repeated int32 f19 = 19;
  repeated string f20 = 2000;
  repeated Inner f21 = 21; map<string, Inner> f22 = 22; map<sint32, double> f23 = 23;
  repeated int32 f24 = 24 [packed = false]; repeated fixed32 f25 = 25; repeated Color f26 = 26; repeated bool f27 = 27;
  oneof choice { string f28 = 28; Inner f29 = 29; int32 f30 = 30; }
  google.protobuf.Timestamp f31 = 31; google.protobuf.StringValue f32 = 32;
  repeated google.protobuf.Int64Value f33 = 33;
}
"""
SCHEMA = parse_protobuf(TEXT)
CODEC = ProtobufCodec(SCHEMA)
PLACE = CODEC.place("shop.Whole")
VALUES = ProtobufValues(TEXT, message="Whole")
TYPE = message_type(SCHEMA, "shop.Whole")

int32s = st.integers(-(2**31), 2**31 - 1) | st.integers(-3, 200)
int64s = st.integers(-(2**63), 2**63 - 1) | st.integers(-3, 200)
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
inners = st.fixed_dictionaries({}, optional={"a": int32s, "b": texts, "c": st.lists(int64s, max_size=3)})
floats = st.floats(allow_nan=False)
scalars = {
    "double": floats,
    "float": st.floats(width=32, allow_nan=False),
    "uint32": st.integers(0, 2**32 - 1),
    "fixed32": st.integers(0, 2**32 - 1),
    "uint64": st.integers(0, 2**64 - 1),
    "fixed64": st.integers(0, 2**64 - 1),
    "bool": st.booleans(),
    "string": texts,
    "bytes": st.binary(max_size=8),
    "enum": st.sampled_from([0, 1, -5, 77]),
} | {name: int32s if name.endswith("32") else int64s for name in ("int32", "int64", "sint32", "sint64")}
scalars |= {"sfixed32": int32s, "sfixed64": int64s}


def _strategy(field: Any) -> st.SearchStrategy[Any]:
    message = field.message
    if message is None:
        one = scalars[field.kind]
    elif pa.types.is_map(field.arrow):
        key, value = message.fields
        return st.dictionaries(_strategy(key), _strategy(value), max_size=3)
    elif message.is_time:
        one = st.fixed_dictionaries({"seconds": st.integers(-(10**11), 10**11), "nanos": st.integers(0, 999_999_999)})
    elif message.is_wrapper:
        one = st.fixed_dictionaries({"value": scalars[message.fields[0].kind]})
    else:
        one = inners
    return st.lists(one, max_size=4) if field.is_repeated else one


fields = {field.name: _strategy(field) for field in TYPE.fields}
in_oneof = ("f28", "f29", "f30")


@st.composite
def messages(draw: st.DrawFn) -> dict[str, Any]:
    chosen = draw(st.sets(st.sampled_from(sorted(fields)), max_size=12))
    only = [each for each in in_oneof if each in chosen][:1]
    return {name: draw(fields[name]) for name in sorted(chosen) if name not in in_oneof or name in only}


def _filled(made: Any, row: dict[str, Any]) -> Any:
    for name, value in row.items():
        target = getattr(made, name)
        if isinstance(value, list):
            for each in value:
                if isinstance(each, dict):
                    _filled(target.add(), each)
                else:
                    target.append(each)
        elif isinstance(value, dict) and name in ("f22", "f23"):
            for key, each in value.items():
                if name == "f22":
                    target[key].SetInParent()
                    _filled(target[key], each)
                else:
                    target[key] = each
        elif isinstance(value, dict):
            target.SetInParent()
            _filled(target, value)
        else:
            setattr(made, name, value)
    return made


def _written(row: dict[str, Any]) -> bytes:
    return bytes(_filled(CODEC.message(b"", PLACE), row).SerializeToString())


def _expected(type_: MessageType, made: Any) -> Any:
    """The message as google.protobuf has read it, in Arrow's terms."""
    if type_.is_time:
        return made.seconds * 1_000_000 + made.nanos // 1000
    if type_.is_wrapper:
        return _value(type_.fields[0], made.value)
    found: dict[str, Any] = {}
    for field in type_.fields:
        value = getattr(made, field.name)
        if pa.types.is_map(field.arrow):
            assert field.message is not None
            key, of = field.message.fields
            found[field.name] = sorted(((_value(key, each), _value(of, value[each])) for each in value), key=str)
        elif field.is_repeated:
            found[field.name] = [_value(field, each) for each in value]
        elif field.has_presence and not made.HasField(field.name):
            found[field.name] = None
        else:
            found[field.name] = _value(field, value)
    return found


def _value(field: Any, value: Any) -> Any:
    if field.message is not None:
        return _expected(field.message, value)
    if field.kind == "enum":
        return dict(field.symbols).get(value, str(value))
    return Decimal(value) if field.kind in ("uint64", "fixed64") else value


def _sorted_maps(row: Any) -> Any:
    if row is None:
        return None
    return {**row, **{name: sorted(row[name], key=str) for name in ("f22", "f23")}}


def _plain(column: pa.Array) -> list[Any]:
    """Rows, with times as numbers: Python has no datetime that is far away."""
    place = column.type.get_field_index("f31")
    parts = column.flatten()
    parts[place] = parts[place].cast(pa.int64())
    names = [each.name for each in column.type]
    return [_sorted_maps(row) for row in pa.StructArray.from_arrays(parts, names, mask=column.is_null()).to_pylist()]


@given(st.lists(messages(), min_size=1, max_size=6))
def test_messages_are_read_as_google_protobuf_reads_them(rows: list[dict[str, Any]]) -> None:
    encoded = [_written(row) for row in rows]
    found = VALUES.decode(pa.array(encoded, pa.binary()))
    found.columns.validate(full=True)
    assert found.reasons.to_pylist() == [None] * len(rows)
    assert _plain(found.columns) == [_expected(TYPE, CODEC.message(each, PLACE)) for each in encoded]
    alone = [_sorted_maps(read_message(TYPE, [each], "the value")) for each in encoded]
    assert alone == _plain(found.columns)


@settings(max_examples=settings().max_examples // 2)
@given(st.lists(messages(), min_size=2, max_size=4), st.data())
def test_a_damaged_message_spoils_no_other(rows: list[dict[str, Any]], data: st.DataObject) -> None:
    encoded = [_written(row) for row in rows]
    place = data.draw(st.integers(0, len(rows) - 1))
    whole = bytearray(encoded[place])
    if data.draw(st.booleans()) or not whole:
        whole = whole[: data.draw(st.integers(0, len(whole)))]
    else:
        whole[data.draw(st.integers(0, len(whole) - 1))] = data.draw(st.integers(0, 255))
    encoded[place] = bytes(whole)
    found = VALUES.decode(pa.array(encoded, pa.binary()))
    found.columns.validate(full=True)
    reasons = found.reasons.to_pylist()
    try:
        alone = read_message(TYPE, [encoded[place]], "the value")
    except UnreadableValue:
        alone = None
    assert (reasons[place] is None) == (alone is not None)
    # As texts: a damaged number may be none.
    assert str(_plain(found.columns)[place]) == str(_plain(pa.array([alone], TYPE.arrow))[0])
    for at, each in enumerate(encoded):
        if at != place:
            assert reasons[at] is None, each


@given(messages(), messages())
def test_messages_one_behind_the_other_are_merged(one: dict[str, Any], other: dict[str, Any]) -> None:
    value = _written(one) + _written(other)
    found = VALUES.decode(pa.array([b"", value, value], pa.binary()))
    assert found.reasons.to_pylist() == [None] * 3
    assert _plain(found.columns)[1:] == [_expected(TYPE, CODEC.message(value, PLACE))] * 2
