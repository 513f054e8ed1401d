"""The wire format, byte for byte as Confluent's serializers write it."""

from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.schemas.payload.errors import InvalidPayload, NotFramed
from headrace.schemas.payload.frames import (
    VALUE_HEADER,
    frame_of,
    header_value,
    prefix,
    read_frame,
    read_indexes,
    write_indexes,
)

GUID = UUID("89791762-2336-4186-9674-299b90a802e2")


def test_an_id_is_before_the_value() -> None:
    assert prefix(258) == b"\x00\x00\x00\x01\x02"
    frame = read_frame(prefix(258) + b"body")
    assert (frame.schema, frame.split("AVRO")) == (258, ((0,), b"body"))


def test_a_guid_is_in_the_header_of_the_value() -> None:
    header = header_value(GUID)
    assert header == b"\x01" + GUID.bytes
    frame = frame_of(b"body", [("other", b"x"), (VALUE_HEADER, header)])
    assert (frame.schema, frame.split("JSON")) == (GUID, ((0,), b"body"))
    with pytest.raises(NotFramed):
        frame_of(b"body", [("__key_schema_id", header)])


def test_of_several_headers_the_last_one_counts() -> None:
    """As for Confluent's Java deserializers: what is checked must be what they read."""
    others = [(VALUE_HEADER, header_value(UUID(int=1))), (VALUE_HEADER, None)]
    assert frame_of(b"body", [*others, (VALUE_HEADER, header_value(GUID))]).schema == GUID


@pytest.mark.parametrize(
    ("indexes", "encoded"),
    [
        ((0,), b"\x00"),
        ((1,), b"\x02\x02"),
        ((1, 0), b"\x04\x02\x00"),
        ((0, 0), b"\x04\x00\x00"),
        ((100,), b"\x02\xc8\x01"),
    ],
)
def test_the_place_of_a_protobuf_message_follows_the_id_or_the_guid(indexes: tuple[int, ...], encoded: bytes) -> None:
    assert write_indexes(indexes) == encoded
    assert read_frame(prefix(1, indexes) + b"body").split("PROTOBUF") == (indexes, b"body")
    assert read_frame(b"body", header_value(GUID, indexes)).split("PROTOBUF") == (indexes, b"body")


def test_the_long_form_of_the_first_message_is_read_too() -> None:
    assert read_indexes(b"\x02\x00") == ((0,), 2)


@pytest.mark.parametrize("data", [b"", b"\x00", b"\x00\x00\x00\x01", b'{"a": 1}', b"\x01" * 16, b"\x02" * 20])
def test_what_is_not_framed(data: bytes) -> None:
    with pytest.raises(NotFramed, match="id of a schema"):
        read_frame(data)


@given(st.binary(max_size=80))
def test_no_bytes_cause_another_error(data: bytes) -> None:
    try:
        indexes, body = read_frame(data).split("PROTOBUF")
    except InvalidPayload:
        return
    assert len(indexes) <= 64
    assert data.endswith(body)
