"""Protobuf values as columns: framed by a registry, several messages in a file, what is skipped and what is refused."""

import pickle
from collections.abc import Sequence

import pyarrow as pa
import pytest

from headrace.pipelines.protobuf.values import ProtobufValues
from headrace.pipelines.values.pinned import NewSchemaIds, PinnedSchemas
from headrace.pipelines.values.schemas import WriterSchema
from headrace.pipelines.values.types import SchemaError
from headrace.schemas.payload.frames import prefix
from headrace.schemas.payload.protobuf_codec import ProtobufCodec

ORDER = 'syntax = "proto3"; package shop; message Order { string id = 1; int32 count = 2; repeated Line lines = 3; }'
ORDER += " message Line { string item = 1; message Price { int64 cents = 1; } Price price = 2; }"
NEWER = ORDER.replace("int32 count = 2;", "int32 count = 2; string note = 9;")


def known(**texts: str) -> PinnedSchemas:
    found = [(int(name[3:]), WriterSchema(text, kind="PROTOBUF")) for name, text in texts.items()]
    return PinnedSchemas("orders", [*found, (4, None), (5, WriterSchema('"string"'))])


def read(values: ProtobufValues, column: Sequence[bytes | None]) -> tuple[list[object], list[str | None]]:
    found = values.decode(pa.array(column, pa.binary()))
    found.columns.validate(full=True)
    return found.columns.to_pylist(), found.reasons.to_pylist()


def test_values_of_several_schemas_and_each_fault() -> None:
    from headrace.pipelines.protobuf.schema import parse_protobuf

    values = ProtobufValues(ORDER, writers=known(id_1=ORDER, id_2=NEWER))
    order = {"id": "a", "count": -2, "lines": [{"item": "x", "price": {"cents": 5}}, {"item": "y"}]}
    body = ProtobufCodec(parse_protobuf(ORDER)).encode(order)
    newer = ProtobufCodec(parse_protobuf(NEWER)).encode({**order, "note": "n"})
    rows, reasons = read(
        values,
        [
            prefix(1, (0,)) + body,
            prefix(2, (0,)) + newer,
            prefix(1) + b"\x02\x00" + body,
            prefix(1, (1,)) + body,
            prefix(4, (0,)) + body,
            prefix(5, (0,)) + body,
            prefix(1, (0,)) + body[:-1],
            prefix(1, (0,)) + b"\x08\x01",
            prefix(1),
            b"\x00\x00",
            b"",
            None,
        ],
    )
    whole = {**order, "lines": [order["lines"][0], {"item": "y", "price": None}]}  # type: ignore[index]
    assert rows == [whole] * 3 + [None] * 9
    assert reasons == [
        None,
        None,
        None,
        "the value is another message than shop.Order",
        "there is no schema of id 4",
        "the schema of id 5 cannot be used: it is of type AVRO, not Protobuf",
        "lines[] is cut off",
        "the field number 1 was written with another type",
        "the value is another message than shop.Order",
        "the value does not begin with a schema id (a zero byte and four more)",
        "the value is empty",
        None,
    ]


def test_ids_that_are_not_decided_about_are_named_together() -> None:
    values: ProtobufValues = pickle.loads(pickle.dumps(ProtobufValues(ORDER, writers=known(id_1=ORDER))))
    with pytest.raises(NewSchemaIds, match="orders have new schema ids: 7, 9"):
        values.decode(pa.array([prefix(9, (0,)), prefix(1, (0,)), prefix(7, (0,))]))
    far = values.decode(pa.array([prefix(2**31, (0,))]))
    assert far.reasons.to_pylist() == [f"there is no schema of id {2**31}"]


@pytest.mark.parametrize(
    ("tail", "expected"),
    [
        (b"\x0a\x01\x08\x10\x05", None),  # a damaged member of a oneof, which another replaces
        (b"\x22\x01\x08\x22\x01\x05", None),  # a message in two parts, neither of which is whole
        (b"\x0a\x02\x08\x01\x10\x05\x0a\x02\x10\x07", {"x": 0, "y": 7}),  # what was replaced is not merged
        (b"\x0a\x02\x08\x01\x0a\x02\x10\x07", {"x": 1, "y": 7}),
        (b"\x2a\x0b\x08\xff\xff\xff\xff\xff\xff\xff\xff\x7f\x10\x01\x2a\x02\x08\x01", None),  # a time too far away
    ],
)
def test_a_value_is_judged_the_same_alone_and_among_others(tail: bytes, expected: object) -> None:
    """Queries read a record in different blocks."""
    values = ProtobufValues(
        'syntax = "proto3"; import "google/protobuf/timestamp.proto"; message M {'
        " message A { int32 x = 1; int32 y = 2; }"
        " oneof o { A a = 1; int32 b = 2; } repeated int32 r = 3; A m = 4; google.protobuf.Timestamp t = 5; }"
    )
    long = b"\x18\x01" * 200 + tail
    for block in ([tail], [long], [long] * 40):
        rows, reasons = read(values, block)
        for row, reason in zip(rows, reasons, strict=True):
            assert (row is None) == (reason is not None) == (expected is None)
            assert row is None or row["a"] == expected  # type: ignore[index]


def test_a_message_with_very_many_items_costs_no_round_for_each() -> None:
    values = ProtobufValues(
        'syntax = "proto3"; message M { repeated string a = 1; repeated int32 b = 2 [packed = false]; }'
    )
    long = b"\x0a\x01x" * 50_000 + b"\x10\x07" * 50_000
    rows, reasons = read(values, [b"\x0a\x01y", long, b""])
    assert rows == [{"a": ["y"], "b": []}, {"a": ["x"] * 50_000, "b": [7] * 50_000}, {"a": [], "b": []}]
    assert reasons == [None] * 3


@pytest.mark.parametrize(
    ("text", "message", "reason"),
    [
        ('syntax = "proto3"; message A { A a = 1; }', "", "contains itself"),
        ('syntax = "proto3"; message A { int32 a = 1; }', "B", "has no message B; it has A"),
        ('syntax = "proto3"; enum E { X = 0; }', "", "has no message"),
        ("message A {", "", "not a Protobuf schema"),
        ('syntax = "proto3"; import "google/protobuf/struct.proto"; message A { google.protobuf.Struct a = 1; }', "",
         "google.protobuf.Struct, which is not read"),
    ],
)  # fmt: skip
def test_schemas_that_cannot_be_columns(text: str, message: str, reason: str) -> None:
    with pytest.raises(SchemaError, match=reason):
        ProtobufValues(text, message=message)
