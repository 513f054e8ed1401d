"""Messages of Protobuf as values, by the parsed file alone: no generated code."""

import datetime
from typing import Any

import pytest
from google.protobuf import timestamp_pb2
from hypothesis import given
from hypothesis import strategies as st

from headrace.schemas.errors import InvalidSchema
from headrace.schemas.parsed import parse_any
from headrace.schemas.payload.codecs import codec_of
from headrace.schemas.payload.errors import InvalidPayload
from headrace.schemas.payload.protobuf_codec import ProtobufCodec

SHOP = """
syntax = "proto3";
package shop;
import "google/protobuf/timestamp.proto";
import "google/protobuf/wrappers.proto";
import "google/protobuf/struct.proto";
import "line.proto";
message Order {
  int64 id = 1;
  optional string note = 2;
  repeated Line lines = 3;
  map<string, sint32> counts = 4;
  enum State { NEW = 0; PAID = 1; }
  State state = 5;
  google.protobuf.Timestamp at = 6;
  oneof payment { string card = 7; bytes token = 8; }
  Order parent = 9;
  message Part { fixed32 size = 1; }
  google.protobuf.StringValue city = 10;
  google.protobuf.Struct more = 11;
}
message Other { double x = 1; }
"""
LINE = 'syntax = "proto3"; package shop; message Line { string item = 1; uint64 price = 2; }'
AT = datetime.datetime(2026, 11, 18, 1, 2, 3, tzinfo=datetime.UTC)


def codec(text: str = SHOP, **references: str) -> ProtobufCodec:
    made = codec_of(parse_any("PROTOBUF", text, [("line.proto", LINE), *references.items()]))
    assert isinstance(made, ProtobufCodec)
    return made


def test_a_message_comes_back() -> None:
    value = {
        "id": 2**60,
        "note": "",
        "lines": [{"item": "tea", "price": 3}],
        "counts": {"a": -1},
        "state": "PAID",
        "at": AT,
        "token": b"\x00\x01",
        "parent": {"id": 1, "lines": [], "counts": {}, "state": "NEW"},
        "city": "York",
        "more": {"deep": [1.5, None]},
    }
    made = codec()
    assert made.decode(made.encode(value)) == value
    assert made.decode(b"") == {"id": 0, "lines": [], "counts": {}, "state": "NEW"}


def test_values_of_protobuf_s_json_are_taken() -> None:
    made = codec()
    found = made.decode(made.encode({"id": "7", "at": "2026-11-18T01:02:03Z", "token": "AAE=", "state": 1}))
    assert (found["id"], found["at"], found["token"], found["state"]) == (7, AT, b"\x00\x01", "PAID")


def test_other_messages_of_the_file() -> None:
    made = codec()
    assert made.place("shop.Order.Part") == made.place("Part") == (0, 0)
    assert made.decode(made.encode({"size": 5}, (0, 0)), (0, 0)) == {"size": 5}
    assert made.decode(made.encode({"x": 1.5}, made.place("Other")), (1,)) == {"x": 1.5}
    with pytest.raises(InvalidPayload, match=r"no message at \[7\]"):
        made.check(b"", (7,))
    with pytest.raises(InvalidPayload, match=r"no message Missing: it has shop\.Order"):
        made.place("Missing")


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ({"id": 2**63}, "id: .*out of range"),
        ({"id": "x"}, "id: 'x' is not a number"),
        ({"id": 1.5}, "id: 1.5 is a value of float, not of whole number"),
        ({"id": True}, "id: True is a value of bool"),
        ({"lines": [{"item": "a"}, {"item": 5}]}, r"lines\[1\]\.item: 5 is a value of int, not of string"),
        ({"counts": {"a": "b"}}, "counts.a: 'b' is not a number"),
        ({"state": "LOST"}, "state: 'LOST' is none of NEW, PAID"),
        ({"amount": 1}, "amount: shop.Order has no such field"),
        ({"at": datetime.datetime(2026, 1, 1)}, "at: .*has no time zone"),
        ({"parent": 5}, "parent: 5 is a value of int, not of shop.Order"),
        ({"parent": timestamp_pb2.Timestamp()}, "parent: the message is a google.protobuf.Timestamp"),
        (5, "not of shop.Order"),
    ],
)
def test_a_value_that_does_not_fit_is_refused_with_its_path(value: Any, message: str) -> None:
    with pytest.raises(InvalidPayload, match=message):
        codec().encode(value)


def test_proto2_and_its_required_fields_and_groups() -> None:
    made = codec(
        'syntax = "proto2"; message R { required int32 a = 1; optional string s = 2 [default = "x"];'
        " repeated group G = 3 { optional int32 y = 4; } extensions 100 to 200; }"
    )
    assert made.decode(made.encode({"a": 1, "g": [{"y": 2}]})) == {"a": 1, "g": [{"y": 2}]}
    with pytest.raises(InvalidPayload, match="a: the field is required"):
        made.check(b"")
    with pytest.raises(InvalidPayload, match="a: the field is required"):
        made.encode({})


def test_a_field_that_is_new_to_the_reader_is_no_error() -> None:
    old = codec('syntax = "proto3"; message M { int32 a = 1; }')
    new = codec('syntax = "proto3"; message M { int32 a = 1; string b = 2; }')
    assert old.decode(new.encode({"a": 1, "b": "x"})) == {"a": 1}
    assert new.decode(old.encode({"a": 1})) == {"a": 1, "b": ""}


def test_messages_of_an_edition() -> None:
    made = codec('edition = "2023"; message M { int32 a = 1; }')
    assert [made.decode(made.encode(each)) for each in ({}, {"a": 0})] == [{}, {"a": 0}]


def test_files_that_every_client_of_the_registry_has() -> None:
    names = ("date", "datetime", "dayofweek", "money", "month", "calendar_period", "color", "interval", "timeofday")
    imports = " ".join(f'import "google/type/{name}.proto";' for name in names)
    made = codec(
        f'syntax = "proto3"; {imports} import "confluent/type/decimal.proto"; import "confluent/meta.proto";'
        "message M { google.type.Date date = 1; google.type.Month month = 2; confluent.type.Decimal price = 3; }"
    )
    value = {"date": {"year": 2026, "month": 11, "day": 18}, "month": "MAY", "price": {"value": b"\x01", "scale": 2}}
    found = made.decode(made.encode(value))
    assert found == {**value, "price": {"value": b"\x01", "precision": 0, "scale": 2}}
    with pytest.raises(InvalidSchema, match="cannot be read"):
        codec('syntax = "proto3"; import "google/type/no.proto"; message M { google.type.No a = 1; }')


def test_deep_nesting_is_refused() -> None:
    body = b""
    for _ in range(120):
        size = len(body)
        body = b"\x4a" + (bytes([size]) if size < 128 else bytes([size & 0x7F | 0x80, size >> 7])) + body
    with pytest.raises(InvalidPayload, match=r"not a message shop\.Order"):
        codec().check(body)


@given(st.binary(max_size=60))
def test_no_bytes_cause_another_error(data: bytes) -> None:
    made = codec()
    try:
        made.decode(data)
    except InvalidPayload:
        return
    made.check(data)


def test_defaults_of_many_empty_messages_are_not_written_out() -> None:
    fields = " ".join(f"int32 f{each} = {each};" for each in range(1, 1001))
    text = f'syntax = "proto3"; message All {{ repeated One all = 1; }} message One {{ {fields} }}'
    made = codec_of(parse_any("PROTOBUF", text))
    assert len(made.decode(b"\x0a\x00" * 10)["all"][9]) == 1000
    made.check(b"\x0a\x00" * 2_000)
    with pytest.raises(InvalidPayload, match="more than 1000000 fields"):
        made.decode(b"\x0a\x00" * 2_000)
