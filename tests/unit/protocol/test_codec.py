from struct import pack

import pytest

from headrace.model.errors import ProtocolError
from headrace.protocol.codec import is_flexible, peek_api, read_request, read_request_header


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
