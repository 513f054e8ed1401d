"""Avro values: round trips, evolution, refusals with the path, and bytes that are made to do harm."""

import datetime
import json
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.schemas.parsed import parse_any
from headrace.schemas.payload.codecs import PayloadCodec, codec_of
from headrace.schemas.payload.errors import InvalidPayload

ORDER = {
    "type": "record",
    "name": "Order",
    "namespace": "shop",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "note", "type": ["null", "string"], "default": None},
        {"name": "counts", "type": {"type": "array", "items": "int"}, "default": []},
        {"name": "tags", "type": {"type": "map", "values": "bytes"}, "default": {}},
        {"name": "state", "type": {"type": "enum", "name": "State", "symbols": ["NEW", "PAID"]}, "default": "NEW"},
        {"name": "paid", "type": "boolean", "default": False},
    ],
}
LIST = {"type": "record", "name": "L", "fields": [{"name": "next", "type": ["null", "L"], "default": None}]}


def codec(schema: Any, *references: tuple[str, Any], reader: Any = None) -> PayloadCodec:
    names = [(name, json.dumps(each)) for name, each in references]
    old = None if reader is None else parse_any("AVRO", json.dumps(reader))
    return codec_of(parse_any("AVRO", json.dumps(schema), names), old)


def test_a_record_comes_back_with_its_defaults() -> None:
    found = codec(ORDER).decode(codec(ORDER).encode({"id": 7, "tags": {"a": b"\x00"}, "state": "PAID"}))
    assert found == {"id": 7, "note": None, "counts": [], "tags": {"a": b"\x00"}, "state": "PAID", "paid": False}


@pytest.mark.parametrize(
    ("type_", "value", "as_json"),
    [
        ({"type": "int", "logicalType": "date"}, datetime.date(2026, 11, 18), "2026-11-18"),
        ({"type": "int", "logicalType": "time-millis"}, datetime.time(10, 0, 1), "10:00:01"),
        ({"type": "long", "logicalType": "time-micros"}, datetime.time(10, 0, 1), "10:00:01"),
        (
            {"type": "long", "logicalType": "timestamp-millis"},
            datetime.datetime(2026, 1, 2, 3, tzinfo=datetime.UTC),
            "2026-01-02T03:00:00Z",
        ),
        (
            {"type": "long", "logicalType": "local-timestamp-micros"},
            datetime.datetime(2026, 1, 2, 3),
            "2026-01-02T03:00:00",
        ),
        ({"type": "bytes", "logicalType": "decimal", "precision": 6, "scale": 2}, Decimal("12.50"), "12.50"),
        ({"type": "string", "logicalType": "uuid"}, UUID(int=7), str(UUID(int=7))),
        ({"type": "fixed", "name": "F", "size": 2}, b"ab", "YWI="),
        ("bytes", b"ab", "YWI="),
    ],
)
def test_logical_types_and_their_json(type_: Any, value: Any, as_json: str) -> None:
    made = codec(type_)
    assert made.decode(made.encode(value)) == value
    assert made.decode(made.encode(as_json)) == value


@pytest.mark.parametrize(
    ("branches", "value"),
    [
        (["float", "double"], 0.1),
        (["double", "long"], 2**60 + 1),
        (["bytes", "string"], "YWI="),
        (["string", "bytes"], b"ab"),
        (["string", {"type": "long", "logicalType": "timestamp-micros"}], datetime.datetime.now(datetime.UTC)),
        ([{"type": "string", "logicalType": "uuid"}, "long"], 5),
        ([{"type": "map", "values": "long"}, {"type": "array", "items": "long"}, "null"], [1]),
    ],
)
def test_a_union_keeps_the_type_of_a_value(branches: list[Any], value: Any) -> None:
    for each in (branches, branches[::-1]):
        made = codec(each)
        assert made.decode(made.encode(value)) == value


def test_branches_of_a_union() -> None:
    made = codec(["null", "long", "string", ORDER])
    for value in (None, 3, "text"):
        assert made.decode(made.encode(value)) == value
    assert made.decode(made.encode({"string": "tagged"})) == "tagged"
    assert made.decode(made.encode({"id": 1}))["id"] == 1
    with pytest.raises(InvalidPayload, match="null or long or string or shop"):
        made.encode(1.5)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"id": "7"}, "id: '7' is a value of str, not of long"),
        ({"id": True}, "id: True is a value of bool, not of long"),
        ({"id": 2**63}, "id: 9223372036854775808 does not fit the type long"),
        ({"counts": [1, 1.5]}, r"counts\[1\]: 1.5 is a value of float, not of int"),
        ({"counts": [2**31]}, r"counts\[0\]: 2147483648 does not fit the type int"),
        ({"state": "LOST"}, "state: 'LOST' is none of NEW, PAID"),
        ({"tags": {"a": "?"}}, "tags.a: the text is not base64"),
        ({"amount": 1}, "amount: shop.Order has no such field"),
    ],
)
def test_a_value_that_does_not_fit_is_refused_with_its_path(change: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidPayload, match=message):
        codec(ORDER).encode({"id": 1} | change)


def test_a_missing_field_and_a_time_without_a_zone_are_refused() -> None:
    with pytest.raises(InvalidPayload, match="id: the field is missing, and has no default"):
        codec(ORDER).encode({})
    with pytest.raises(InvalidPayload, match="has no time zone"):
        codec({"type": "long", "logicalType": "timestamp-millis"}).encode(datetime.datetime(2026, 1, 1))


def test_a_reader_s_schema_reads_what_an_older_or_newer_one_wrote() -> None:
    new = {**ORDER, "fields": [*ORDER["fields"], {"name": "city", "type": "string", "default": "Bath"}]}
    old = {**ORDER, "fields": ORDER["fields"][:1]}
    written = codec(new).encode({"id": 1, "city": "York"})
    assert codec(new, reader=old).decode(written) == {"id": 1}
    assert codec(old, reader=new).decode(codec(old).encode({"id": 1}))["city"] == "Bath"


def test_types_of_other_schemas() -> None:
    made = codec({"type": "array", "items": "shop.Order"}, ("order", ORDER))
    assert made.decode(made.encode([{"id": 1}]))[0]["id"] == 1


@pytest.mark.parametrize(
    ("schema", "body", "message"),
    [
        ("long", b"", "the bytes end before the value does"),
        ("long", b"\x02\x02", "1 bytes are left after the value"),
        ("long", b"\xff" * 11, "more than ten bytes"),
        ("int", b"\x80\x80\x80\x80\x80\x01", "does not fit the type int"),
        ("boolean", b"\x02", "the byte 2 is not a boolean"),
        ("string", b"\x01", "a length is negative"),
        ("string", b"\xfe\xff\xff\xff\xff\x0f", "the bytes end before the value does"),
        ("string", b"\x04\xff\xff", "not UTF-8"),
        (["null", "long"], b"\x01\x02", "no branch number -1"),
        (["null", "long"], b"\x04", "no branch number 2"),
        ({"type": "enum", "name": "E", "symbols": ["A"]}, b"\x01", "no symbol number -1"),
        ({"type": "array", "items": "null"}, b"\xfe\xff\xff\xff\xff\xff\xff\x0f\x00", "more than 10000 empty items"),
        ({"type": "map", "values": "long"}, b"\x02\x02a", r"\[0\]: the bytes end"),
        (LIST, b"\x02" * 1_000_000 + b"\x00", "nested more than 100 deep"),
        (ORDER, b"\x02\x02\x04\xff\xff", "note: a string is not UTF-8"),
    ],
)
def test_hostile_bytes_are_refused(schema: Any, body: bytes, message: str) -> None:
    made = codec(schema)
    with pytest.raises(InvalidPayload, match=message):
        made.check(body)
    with pytest.raises(InvalidPayload, match=message):
        made.decode(body)


def _doubled(levels: int) -> Any:
    """A record of two records of two records and so on, whose value takes no bytes."""
    made: Any = {"type": "record", "name": "R0", "fields": [{"name": "n", "type": "null"}]}
    for level in range(1, levels + 1):
        fields = [{"name": "a", "type": made}, {"name": "b", "type": f"R{level - 1}"}]
        made = {"type": "record", "name": f"R{level}", "fields": fields}
    return made


NULLS = {"type": "array", "items": "null"}
WITH_NULLS = {
    "type": "record",
    "name": "N",
    "fields": [{"name": "id", "type": "int"}, *({"name": f"n{each}", "type": "null"} for each in range(100))],
}


@pytest.mark.parametrize(
    ("schema", "body"),
    [
        (_doubled(60), b""),
        ({"type": "array", "items": _doubled(60)}, b"\x02\x00"),
        ({"type": "array", "items": NULLS}, b"\xc8\x01" + b"\xa0\x9c\x01\x00" * 100 + b"\x00"),
        ({"type": "array", "items": WITH_NULLS}, b"\xa0\x9c\x01" + b"\x02" * 10_000 + b"\x00"),
    ],
)
def test_values_of_almost_no_bytes_are_refused(schema: Any, body: bytes) -> None:
    made = codec(schema)
    for read in (made.check, made.decode):
        with pytest.raises(InvalidPayload, match="empty items"):
            read(body)


def test_empty_records_and_nulls_are_read() -> None:
    value = {"a": {"a": {"n": None}, "b": {"n": None}}, "b": {"a": {"n": None}, "b": {"n": None}}}
    assert codec(_doubled(2)).decode(b"") == value
    found = codec({"type": "array", "items": WITH_NULLS}).decode(b"\x04\x02\x04\x00")
    assert [(each["id"], len(each)) for each in found] == [(1, 101), (2, 101)]


@given(st.binary(max_size=60))
def test_no_bytes_cause_another_error(data: bytes) -> None:
    made = codec({"type": "array", "items": [LIST, ORDER, "double", {"type": "int", "logicalType": "date"}]})
    try:
        found = made.decode(data)
    except InvalidPayload:
        return
    made.check(data)
    assert made.decode(data) == found or "nan" in repr(found)
