"""The walk over a request agrees with kio about every version of every API, and stops every lie about a length."""

import random
from dataclasses import fields
from datetime import UTC, datetime, timedelta
from io import BytesIO
from struct import pack
from typing import Any
from uuid import UUID

import pytest
from kio.index import load_request_schema
from kio.schema.errors import ErrorCode
from kio.schema.index import api_key_map, schema_name_map
from kio.serial import entity_writer
from kio.static.constants import EntityType

from headrace.model.errors import ProtocolError
from headrace.protocol import bounds
from headrace.protocol.bounds import check_lengths
from headrace.protocol.codec import RequestHeader, read_request
from headrace.protocol.shapes import Shape, layout

EVERY_REQUEST = [
    (key, version)
    for key, name in sorted(api_key_map.items())
    for version, kinds in schema_name_map[name].items()
    if EntityType.request in kinds
]


def random_entity(entity: type, chance: random.Random, *, many: int = 130) -> Any:
    values: dict[str, Any] = {}
    plain, tagged = (iter(part) for part in (layout(entity).plain, layout(entity).tagged.values()))
    for field in fields(entity):
        shape = next(tagged if "tag" in field.metadata else plain)
        if shape.is_nullable and shape.primitive != "uuid" and chance.random() < 0.3:
            values[field.name] = None
        elif shape.is_array:
            values[field.name] = tuple(random_value(shape, chance) for _ in range(chance.choice([0, 1, many])))
        else:
            values[field.name] = random_value(shape, chance)
    return entity(**values)


def random_value(shape: Shape, chance: random.Random) -> Any:
    size = chance.choice([0, 1, 126, 127, 300])
    if shape.entity is not None:
        return random_entity(shape.entity, chance, many=2)
    values: dict[str, Any] = {
        "bool": True,
        "float64": 1.5,
        "string": "x" * size,
        "bytes": b"\xff" * size,
        "records": b"\xff" * size,
        "uuid": UUID(int=chance.randrange(1, 2**128)),
        "timedelta_i32": timedelta(milliseconds=5),
        "timedelta_i64": timedelta(milliseconds=5),
        "datetime_i64": datetime(2026, 1, 2, tzinfo=UTC),
        "error_code": ErrorCode.not_leader_or_follower,
    }
    return values.get(shape.primitive, chance.randrange(100))


def encode(entity: Any) -> bytes:
    buffer = BytesIO()
    entity_writer(type(entity))(buffer, entity)
    return buffer.getvalue()


@pytest.mark.parametrize(("key", "version"), EVERY_REQUEST)
def test_every_request_is_walked_to_its_end(key: int, version: int) -> None:
    for seed in range(3):
        data = encode(random_entity(load_request_schema(key, version), random.Random(seed)))
        assert check_lengths(key, version, data, 0) is False
        assert check_lengths(key, version, memoryview(b"head" + data), 4) is False
        # What is behind the request is nobody's business: librdkafka 2.16 sends such bytes.
        assert check_lengths(key, version, data + b"\x80", 0) is False
        if data:
            with pytest.raises(ProtocolError):
                check_lengths(key, version, data[:-1], 0)


def compact(number: int) -> bytes:
    out = bytearray()
    while number >= 0x80:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*out, number])


@pytest.mark.parametrize(
    ("key", "version", "body"),
    [
        # Each of these would make kio ask the system for gigabytes, and end the process where it does not get them.
        (75, 0, compact(2**35 - 1) + b"\x00" * 8),
        (75, 0, compact(2**32 - 1) + b"\x00" * 8),
        (3, 1, pack(">i", 2**31 - 1) + b"\x00" * 8),
        (20, 1, pack(">i", 2**31 - 1)),
        (3, 1, pack(">i", -2)),
        (3, 1, pack(">ih", 1, -2)),
        (3, 12, compact(2) + b"\x00" * 16 + compact(2**30) + b"\x00" * 8),
        (60, 1, b"\x00\x01" + compact(2**30)),
        (60, 1, b"\x00\x01\xff\xff\xff\xff\xff\xff\x01"),
        (0, 7, pack(">hhiiHii", -1, 1, 1, 1, 0, 1, 0) + pack(">i", -5)),
        (0, 7, pack(">hhiiHii", -1, 1, 1, 1, 0, 1, 0) + pack(">i", 2**31 - 1)),
        (1, 17, b""),
        # A null in more bytes than it needs: walked in another way than it is read, it would hide what comes behind it.
        (35, 2, compact(2) + b"\x06ab\x00\x01\x00" + b"\x80\x00" + b"\x00\x00"),
    ],
)
def test_lies_about_lengths(key: int, version: int, body: bytes) -> None:
    with pytest.raises(ProtocolError):
        read_request(body, RequestHeader(key, version, 1, None, 0))


@pytest.mark.parametrize(
    ("key", "version", "body"),
    [
        (2, 5, pack(">ib", -1, 0) + pack(">i", -1)),
        (2, 5, pack(">ib", -1, 0) + pack(">i", 1) + pack(">h", -1) + pack(">i", 0)),
        (2, 5, pack(">ib", -1, 0) + pack(">i", 1) + pack(">h", 1) + b"t" + pack(">i", -1)),
        (2, 6, pack(">ib", -1, 0) + b"\x00\x00"),
        (2, 6, pack(">ib", -1, 0) + b"\x02\x00\x01\x00\x00"),
        (2, 6, pack(">ib", -1, 0) + b"\x02\x02t\x00\x00\x00"),
        (35, 2, b"\x02\x02t\x80\x00\x00\x00"),
    ],
)
def test_what_must_be_there_is_not_null(key: int, version: int, body: bytes) -> None:
    """kio hands it on as None, which no handler expects, and which cannot be written into an answer."""
    with pytest.raises(ProtocolError, match="null"):
        read_request(body, RequestHeader(key, version, 1, None, 0))


def test_elements_are_limited_in_total(monkeypatch: pytest.MonkeyPatch) -> None:
    """Elements of one byte are cheap to send and expensive to keep."""
    monkeypatch.setattr(bounds, "MAX_ELEMENTS", 10)
    names = pack(">i", 10) + pack(">h", 0) * 10
    assert len(read_request(names, RequestHeader(3, 1, 1, None, 0)).topics) == 10
    names = pack(">i", 11) + pack(">h", 0) * 11
    with pytest.raises(ProtocolError, match="claims 11 elements"):
        read_request(names, RequestHeader(3, 1, 1, None, 0))
