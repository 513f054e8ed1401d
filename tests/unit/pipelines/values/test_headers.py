"""Values whose schema is named in a header, the wire format v1: the same verdicts as of ids before the value."""

import json
import pickle
from collections.abc import Sequence
from typing import Any
from uuid import UUID

import pyarrow as pa
import pytest

from headrace.client.message import Message
from headrace.pipelines.avro.values import AvroValues
from headrace.pipelines.json_schema.values import JsonSchemaValues
from headrace.pipelines.protobuf.values import ProtobufValues
from headrace.pipelines.values.framed import FramedValues, schema_keys
from headrace.pipelines.values.pinned import NewSchemaIds, PinnedSchemas, new_ids_in
from headrace.pipelines.values.schemas import SchemaFiles, WriterSchema
from headrace.records.schema import HEADERS
from headrace.schemas.payload.frames import VALUE_HEADER, SchemaKey, header_value, prefix

OLD, NEW, GONE, PROTO, DOCUMENT = (UUID(int=number) for number in range(1, 6))
ID = {"name": "id", "type": "string"}
COUNT = {"name": "count", "type": "long", "default": 7}
FILE = 'syntax = "proto3"; package shop; message Other { int64 n = 1; } message Order { string id = 1; }'
CHECKED = json.dumps({"type": "object", "properties": {"id": {"type": "string"}}, "required": ["id"]})

Row = tuple[bytes | None, Sequence[tuple[str, bytes | None]]]


def record(*fields: Any) -> WriterSchema:
    return WriterSchema(json.dumps({"type": "record", "name": "Order", "fields": fields}))


KNOWN: list[tuple[SchemaKey, WriterSchema | None]] = [
    (1, record(ID)),
    (OLD, record(ID)),
    (NEW, record(ID, COUNT)),
    (GONE, None),
    (PROTO, WriterSchema(FILE, kind="PROTOBUF")),
    (DOCUMENT, WriterSchema(CHECKED, kind="JSON")),
]
WRITERS = PinnedSchemas("orders", KNOWN)


def named(guid: UUID, indexes: tuple[int, ...] | None = None) -> list[tuple[str, bytes | None]]:
    return [("trace", b"x"), (VALUE_HEADER, header_value(guid, indexes))]


def read(values: FramedValues, rows: Sequence[Row]) -> list[Any]:
    """The value of each row, or the reason why there is none; also if the block is a slice of another."""
    pairs = [[{"key": key, "value": value} for key, value in headers] or None for _, headers in rows]
    column, headers = pa.array([value for value, _ in rows], pa.binary()), pa.array(pairs, HEADERS)
    block = pa.RecordBatch.from_arrays([column, headers], names=["value", "headers"])
    around = pa.concat_batches([block, block, block]).slice(len(rows), len(rows))
    whole, part = (next(iter(values.appended(iter([each])))) for each in (block, around))
    assert whole.equals(part)
    found, reasons = whole.column("_v"), whole.column("_reason").to_pylist()
    found.validate(full=True)
    return [reason or value for value, reason in zip(found.to_pylist(), reasons, strict=True)]


def test_avro_values_by_guid_beside_others_by_id() -> None:
    values: AvroValues = pickle.loads(pickle.dumps(AvroValues(record(ID, COUNT).text, writers=WRITERS)))
    no_key = f"the header {VALUE_HEADER} does not begin with the GUID or the id of a schema"
    assert read(
        values,
        [
            (b"\x02a", named(OLD)),
            (prefix(1) + b"\x02b", []),
            (b"\x02c\x04", named(NEW)),
            (prefix(1) + b"\x02d", [("trace", b"x")]),
            (b"\x02e", [(VALUE_HEADER, prefix(1))]),
            (b"\x02f\x04", [*named(OLD), *named(NEW)]),
            (prefix(1) + b"\x02g", [(VALUE_HEADER, None)]),
            (None, named(OLD)),
            (b"\x02a", named(GONE)),
            (b"\x02a", named(DOCUMENT)),
            (b"\x04a", named(OLD)),
            (b"\x02ab", named(OLD)),
            (b"", named(OLD)),
            (b"\x02a", [(VALUE_HEADER, b"\x01short")]),
            (b"\x02a", [(VALUE_HEADER, b"")]),
            (b"\x01" + OLD.bytes + b"\x02a", []),
            (b"\x02a", [("__key_schema_id", header_value(OLD))]),
        ],
    ) == [
        {"id": "a", "count": 7},
        {"id": "b", "count": 7},
        {"id": "c", "count": 2},
        {"id": "d", "count": 7},
        {"id": "e", "count": 7},
        {"id": "f", "count": 2},
        {"id": "g", "count": 7},
        None,
        f"there is no schema of GUID {GONE}",
        f"the schema of GUID {DOCUMENT} cannot be used: it is of type JSON, not Avro",
        "id is cut off",
        "bytes follow the value",
        "the value is empty",
        no_key,
        no_key,
        "the value does not begin with a schema id (a zero byte and four more)",
        "the value does not begin with a schema id (a zero byte and four more)",
    ]


def test_the_place_of_a_protobuf_message_is_in_the_header() -> None:
    values = ProtobufValues(FILE, message="shop.Order", writers=WRITERS)
    other = "the value is another message than shop.Order"
    assert read(
        values,
        [
            (b"\x0a\x01a", named(PROTO, (1,))),
            (b"", named(PROTO, (1,))),
            (b"\x0a\x01a", named(PROTO, (0,))),
            (b"\x0a\x01a", named(PROTO)),
            (b"\x02\x02\x0a\x01a", named(PROTO)),
        ],
    ) == [{"id": "a"}, {"id": ""}, other, other, other]


def test_a_message_that_is_read_on_its_own() -> None:
    """One with so many fields that it is not read by columns."""
    values = ProtobufValues(FILE, message="shop.Order", writers=WRITERS)
    many = b"\x0a\x01z" * 50_000
    found = read(values, [(many, named(PROTO, (1,))), (b"\x0a\x01a", named(PROTO, (1,)))])
    assert found == [{"id": "z"}, {"id": "a"}]


def test_json_values_are_checked_by_the_schema_of_the_header() -> None:
    values = JsonSchemaValues(CHECKED, writers=WRITERS)
    good, bad = read(values, [(b'{"id": "a"}', named(DOCUMENT)), (b"{}", named(DOCUMENT))])
    assert good == {"text": '{"id": "a"}'}
    assert "id" in bad


def test_plain_values_and_files_know_no_guids() -> None:
    assert read(AvroValues(record(ID).text), [(b"\x02a", named(GONE))]) == [{"id": "a"}]
    files = SchemaFiles({1: record(ID)})
    found = read(AvroValues(record(ID).text, writers=files), [(b"\x02a", named(OLD)), (prefix(1) + b"\x02b", [])])
    assert found == [f"there is no schema of GUID {OLD}", {"id": "b"}]


def test_guids_that_are_not_decided_about_are_named_with_the_ids() -> None:
    values = AvroValues(record(ID).text, writers=WRITERS)
    fresh = UUID("0e44fbd2-7c2a-4f0e-9d0a-0123456789ab")
    with pytest.raises(NewSchemaIds) as failed:
        read(values, [(b"\x02a", named(fresh)), (prefix(9) + b"\x02b", [])])
    assert new_ids_in(f"in a worker: {failed.value} and at line 1") == ("orders", [9, fresh])


def test_schemas_of_messages() -> None:
    def message(payload: bytes | None, *headers: tuple[str, bytes | None]) -> Message:
        return Message(topic="t", partition=0, offset=0, payload=payload, headers=headers)

    guid_before_the_value = message(b"\x01" + NEW.bytes)
    messages = [message(prefix(3)), message(b"a", *named(OLD)), message(b"plain"), message(None), guid_before_the_value]
    assert schema_keys(messages) == {3, OLD}
