import subprocess
import sys
from datetime import timedelta
from io import BytesIO
from struct import pack
from typing import Any

import pytest
from kio.index import load_request_schema
from kio.serial import entity_writer

from headrace.model.errors import ProtocolError
from headrace.protocol.codec import RequestHeader, is_flexible, peek_api, read_request, read_request_header
from tests.entities import build


def test_header_without_tags() -> None:
    header = read_request_header(pack(">hhih", 3, 1, 77, 3) + b"appBODY", flexible=False)
    assert header == (3, 1, 77, "app", 13)


def test_header_with_null_client_and_unknown_tags() -> None:
    tags = b"\x02" + b"\x00\x03abc" + b"\x07\x00"
    header = read_request_header(pack(">hhih", 18, 3, 5, -1) + tags + b"BODY", flexible=True)
    assert header.client_id is None
    assert header.body_at == 10 + len(tags)


@pytest.mark.parametrize(
    "frame",
    [
        b"",
        b"\x00\x03",
        pack(">hhih", 3, 1, 77, 30) + b"short",
        pack(">hhih", 3, 1, 77, -2),
        pack(">hhih", 3, 1, 77, 2) + b"\xff\xfe",
    ],
)
def test_malformed_headers_are_protocol_errors(frame: bytes) -> None:
    with pytest.raises(ProtocolError):
        read_request_header(frame, flexible=False)


@pytest.mark.parametrize("tags", [b"", b"\xff\xff\xff\xff\xff\xff", b"\x01\x00\x7f", b"\xff\xff\xff\xff\x0f"])
def test_malformed_tags_are_protocol_errors(tags: bytes) -> None:
    with pytest.raises(ProtocolError):
        read_request_header(pack(">hhih", 3, 12, 77, -1) + tags, flexible=True)


def test_bytes_behind_a_request_are_ignored_as_kafka_does() -> None:
    frame = pack(">hhih", 18, 0, 1, -1) + b"extra"
    assert read_request(frame, read_request_header(frame, flexible=False)).__version__ == 0


def test_peek_needs_a_whole_header() -> None:
    with pytest.raises(ProtocolError):
        peek_api(b"\x00\x00\x00")


def test_flexibility_follows_the_schema() -> None:
    assert not is_flexible(0, 8)
    assert is_flexible(0, 9)


@pytest.mark.parametrize("time_ms", [2**63 - 1, -(2**63), -1, 5])
@pytest.mark.parametrize(
    ("key", "version", "field", "others"),
    [
        *((8, version, "retention_time", {"group_id": "g", "topics": [{"name": "t"}]}) for version in (2, 3, 4)),
        *((38, version, "max_lifetime", {"renewers": [{"principal_type": "User"}]}) for version in (1, 2, 3)),
        (39, 2, "renew_period", {"hmac": b"abc"}),
        (40, 1, "expiry_time_period", {"hmac": b"abc"}),
    ],
)
def test_a_time_of_any_length_can_be_read(
    key: int, version: int, field: str, others: dict[str, Any], time_ms: int
) -> None:
    """Clients mean "for ever" by the largest number, which is longer than any `timedelta`."""
    schema = load_request_schema(key, version)
    marker = timedelta(milliseconds=0x0102030405)
    body = BytesIO()
    entity_writer(schema)(body, build(schema, {**others, field: marker}))
    frame = body.getvalue()
    written = (0x0102030405).to_bytes(8, "big")
    assert frame.count(written) == 1
    found = read_request(frame.replace(written, time_ms.to_bytes(8, "big", signed=True)), _header(key, version))
    bounded = max(-(10**15), min(time_ms, 10**15))
    assert getattr(found, field) == timedelta(milliseconds=bounded)


def _header(key: int, version: int) -> RequestHeader:
    return RequestHeader(key, version, 7, "test", 0)


@pytest.mark.parametrize("version", range(3, 14))
def test_versions_of_produce_are_flexible_as_kio_has_them(version: int) -> None:
    assert is_flexible(0, version) == load_request_schema(0, version).__flexible__


def test_a_produce_does_not_load_the_classes_of_kio() -> None:
    """It is read and written by hand, and the first one of a version must not wait for them."""
    code = """
import sys
import headrace.kafka.handlers
from headrace.kafka.dispatch import route
assert route(0, 12).flexible
print([name for name in sys.modules if name.startswith("kio.schema.produce.v12")])
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout == "[]\n"
