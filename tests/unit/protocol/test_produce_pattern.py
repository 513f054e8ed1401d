"""Requests that repeat an earlier one are recognized by their bytes, and what is read from them is what is there."""

from struct import pack
from typing import Any
from uuid import UUID

import pytest

from headrace.protocol.codec import read_request_header, response_header
from headrace.protocol.fast import ProducedPartition, TopicKey, produce_response
from headrace.protocol.frames import framed
from headrace.protocol.produce_pattern import pattern_of
from headrace.protocol.produce_request import read_produce_request
from headrace.records.builder import build_batch
from headrace.records.reader import Record
from headrace.runtime.varint import encode_uvarint

BATCH = build_batch([Record(0, 1, None, b"value")])
LARGER = build_batch([Record(0, 1, None, b"v" * 20_000)])
TOPIC_ID = UUID(int=77)


def compact(data: bytes | None) -> bytes:
    return b"\x00" if data is None else encode_uvarint(len(data) + 1) + data


def request(
    version: int = 10,
    records: bytes | None = BATCH,
    *,
    correlation_id: int = 7,
    client_id: bytes = b"client",
    transactional_id: bytes | None = None,
    acks: int = -1,
    topic: bytes = b"orders",
    partition: int = 3,
    header_tags: bytes = b"\x00",
    tail: bytes = b"\x00\x00\x00",
    partitions: int = 1,
) -> bytes:
    name = TOPIC_ID.bytes if version >= 13 else compact(topic)
    part = pack(">i", partition) + compact(records)
    return (
        pack(">hhih", 0, version, correlation_id, len(client_id)) + client_id + header_tags
        + compact(transactional_id) + pack(">hi", acks, 30_000)
        + b"\x02" + name + encode_uvarint(partitions + 1) + (part + b"\x00") * (partitions - 1) + part + tail
    )  # fmt: skip


@pytest.mark.parametrize("version", range(9, 14))
@pytest.mark.parametrize("acks", [-1, 1])
@pytest.mark.parametrize("header_tags", [b"\x00", b"\x01\x05\x02ab"])
def test_a_request_that_repeats_another_is_read_and_answered_as_by_itself(
    version: int, acks: int, header_tags: bytes
) -> None:
    same: Any = {"version": version, "acks": acks, "header_tags": header_tags}
    pattern = pattern_of(request(**same))
    assert pattern is not None
    for records, correlation_id in ((BATCH, 8), (LARGER, -1), (BATCH, 2**31 - 1)):
        frame = request(records=records, correlation_id=correlation_id, **same)
        header = read_request_header(frame, flexible=True)
        decoded = read_produce_request(frame, header)
        ((topic, ((partition, data),)),) = decoded.topics
        assert pattern.records(frame) == data == records
        assert (pattern.topic, pattern.partition, pattern.acks, pattern.timeout_ms) == (topic, partition, acks, 30_000)
        assert (pattern.api_version, pattern.client_id) == (version, header.client_id)
        parts: list[tuple[TopicKey, list[ProducedPartition]]] = [(topic, [ProducedPartition(3, 0, 40, -1, 12)])]
        assert pattern.answer(frame, 40, 12) == framed(produce_response(version, response_header(header), parts))


def test_a_request_that_differs_in_any_other_byte_does_not_repeat_it() -> None:
    frame = request()
    pattern = pattern_of(frame)
    assert pattern is not None
    records_at = frame.index(BATCH)
    for at in range(len(frame)):
        changed = frame[:at] + bytes((frame[at] ^ 1,)) + frame[at + 1 :]
        is_free = 4 <= at < 8 or records_at <= at < records_at + len(BATCH)
        assert (pattern.records(changed) is not None) is is_free, at
    for size in range(len(frame)):
        assert pattern.records(frame[:size]) is None
    assert pattern.records(frame + b"\x00") is None


@pytest.mark.parametrize(
    "frame",
    [
        request(8),
        request(transactional_id=b"tx"),
        request(acks=0),
        request(acks=2),
        request(partitions=2),
        request(client_id=b"c" * 2000),
        request(topic=b"\xff\xfe"),
        pack(">hhih", 1, 12, 7, -1) + request()[10:],
    ],
)
def test_what_needs_more_than_an_append_has_no_pattern(frame: bytes) -> None:
    assert pattern_of(frame) is None


def test_tagged_fields_after_the_records_are_read_by_the_decoder() -> None:
    for tail in (b"\x01\x05\x01x\x00\x00", b"\x00\x01\x05\x01x\x00", b"\x00\x00\x01\x05\x01\x00"):
        frame = request(tail=tail)
        assert read_produce_request(frame, read_request_header(frame, flexible=True)).topics
        pattern = pattern_of(frame)
        assert pattern is not None
        assert pattern.records(frame) is None


@pytest.mark.parametrize("version", [9, 13])
def test_no_records_and_empty_ones_are_told_apart(version: int) -> None:
    pattern = pattern_of(request(version))
    assert pattern is not None
    assert pattern.records(request(version, None)) is None
    assert pattern.records(request(version, b"")) == b""


def test_bytes_that_end_anywhere_do_no_harm() -> None:
    for version in (9, 13):
        frame = request(version)
        for size in range(len(frame)):
            pattern = pattern_of(frame[:size])
            assert pattern is None or pattern.records(frame[:size]) is None
