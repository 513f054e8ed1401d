"""Patterns of Fetch requests: what they read is what the decoder reads, and answers have the same bytes."""

from random import Random
from struct import pack
from typing import Any
from uuid import UUID

import pytest
from kio.index import load_request_schema
from kio.serial import entity_reader

from headrace.protocol.codec import RequestHeader, read_request_header, response_header
from headrace.protocol.fast import FetchedPartition, fetch_response
from headrace.protocol.fetch_pattern import FetchPattern, fetch_pattern_of

from .fetch_requests import FetchBytes, WantedPart

VERSIONS = range(7, 19)
ONE, TWO = UUID(int=1 << 80), UUID(int=2)
PLAIN = FetchBytes(13, [("orders", ONE, [WantedPart(0, 5)])])


def pattern_of(request: FetchBytes) -> FetchPattern:
    pattern = fetch_pattern_of(request.encode())
    assert pattern is not None
    return pattern


def any_request(random: Random, version: int) -> FetchBytes:
    has_session = random.random() < 0.5
    topics = [
        (
            name,
            topic_id,
            [
                WantedPart(index, random.randrange(1 << 40), random.randrange(5000), random.choice((-1, 3)))
                for index in random.sample(range(200), random.randrange(1, 5))
            ],
        )
        for name, topic_id in random.sample(
            [("orders", ONE), ("a" * 200, TWO), ("ø", UUID(int=3))], random.choice((1, 2))
        )
    ]
    return FetchBytes(
        version,
        topics,
        correlation_id=random.randrange(-(1 << 31), 1 << 31),
        client_id=random.choice((None, "", "consumer", "ø")),
        max_wait_ms=random.randrange(1000),
        min_bytes=random.randrange(1000),
        max_bytes=random.randrange(100_000),
        isolation=random.randrange(2),
        session_id=random.randrange(1, 1000) if has_session else 0,
        session_epoch=random.randrange(1, 1000) if has_session else -1,
        rack=random.choice(("", "rack")),
    )


@pytest.mark.parametrize("version", VERSIONS)
def test_it_reads_what_the_decoder_reads(version: int) -> None:
    random = Random(version)
    for _ in range(50):
        request = any_request(random, version)
        frame = request.encode()
        header = read_request_header(frame, flexible=version >= 12)
        decoded: Any = entity_reader(load_request_schema(1, version))(frame, header.body_at)[0]
        pattern = pattern_of(request)
        assert (pattern.client_id, pattern.api_version) == (header.client_id, version)
        limits = pattern.limits
        assert limits[1:] == (
            decoded.min_bytes,
            decoded.max_bytes,
            decoded.isolation_level,
            decoded.session_id,
            decoded.session_epoch,
        )
        assert limits.max_wait_ms == decoded.max_wait.total_seconds() * 1000
        assert pattern.rack == getattr(decoded, "rack_id", "")
        parts = [
            (
                topic.topic_id if version >= 13 else topic.topic,
                part.partition,
                part.partition_max_bytes,
                getattr(part, "current_leader_epoch", -1),
                part.log_start_offset,
            )
            for topic in decoded.topics
            for part in topic.partitions
        ]
        assert [tuple(each) for each in pattern.partitions] == parts
        variables = pattern.variables(frame)
        offsets = tuple(part.fetch_offset for topic in decoded.topics for part in topic.partitions)
        assert variables == (pack(">i", request.correlation_id), request.session_epoch, offsets)


@pytest.mark.parametrize("version", VERSIONS)
def test_only_requests_that_differ_in_nothing_else_repeat_it(version: int) -> None:
    request = any_request(Random(version), version)
    frame, pattern = request.encode(), pattern_of(request)
    name, topic_id, parts = request.topics[0]
    again = request._replace(
        correlation_id=99,
        session_epoch=77,
        topics=[(name, topic_id, [part._replace(offset=3) for part in parts]), *request.topics[1:]],
    ).encode()
    found = pattern.variables(again)
    assert found is not None
    assert (found[0], found[1], found[2][: len(parts)]) == (pack(">i", 99), 77, (3,) * len(parts))
    variable = {i for i in range(len(frame)) if pattern.variables(_flipped(frame, i)) is not None}
    assert len(variable) == 4 + 4 + 8 * len(pattern.partitions)


def _flipped(frame: bytes, at: int) -> bytes:
    return frame[:at] + bytes((frame[at] ^ 1,)) + frame[at + 1 :]


@pytest.mark.parametrize("version", VERSIONS)
def test_answers_have_the_bytes_of_the_encoder(version: int) -> None:
    random = Random(version)
    for _ in range(50):
        request = any_request(random, version)
        pattern = pattern_of(request)
        numbers = [
            (random.randrange(1 << 40), random.randrange(1 << 40), random.randrange(1 << 40))
            for _ in pattern.partitions
        ]
        records = [bytes(random.choice((0, 0, 1, 127, 128, 20_000))) for _ in pattern.partitions]
        topics: dict[Any, list[FetchedPartition]] = {}
        for part, each, data in zip(pattern.partitions, numbers, records, strict=True):
            aborted = () if request.isolation else None
            fetched = FetchedPartition(part.partition, 0, *each, aborted, (data,) if data else ())
            topics.setdefault(part.topic, []).append(fetched)
        header = RequestHeader(1, version, request.correlation_id, None, 0)
        expected = fetch_response(version, response_header(header), list(topics.items()), session_id=request.session_id)
        heads = pattern.heads(pack(">i", request.correlation_id), numbers, map(len, records))
        found = b"".join(head + data for head, data in zip(heads, [*records, b""], strict=True))
        assert found == b"".join(expected)


@pytest.mark.parametrize(
    "fields",
    [
        {"replica_id": 3},
        {"max_wait_ms": -1},
        {"max_bytes": -1},
        {"isolation": 2},
        {"session_epoch": 0},
        {"session_id": 5},
        {"session_id": 5, "session_epoch": 0},
        {"forgotten": [("orders", ONE, [1])]},
        {"topics": []},
        {"topics": [("orders", UUID(int=0), [WantedPart(0, 5)])]},
        {"topics": [("orders", ONE, [WantedPart(0, 5, max_bytes=-1)])]},
        {"topics": [("orders", ONE, [WantedPart(0, 5, last_fetched_epoch=2)])]},
        {"topics": [("orders", ONE, [WantedPart(index, 5) for index in range(200)])]},
        {"version": 6},
    ],
)
def test_other_requests_have_none(fields: dict[str, Any]) -> None:
    assert fetch_pattern_of(PLAIN.encode()) is not None
    assert fetch_pattern_of(PLAIN._replace(**fields).encode()) is None


@pytest.mark.parametrize("version", VERSIONS)
def test_malformed_requests_have_none(version: int) -> None:
    """Cut off anywhere, with bytes at the end, or with any byte changed it has a pattern only if it is decoded."""
    frame = any_request(Random(version), version).encode()
    for size in range(len(frame)):
        assert fetch_pattern_of(frame[:size]) is None
    assert fetch_pattern_of(frame + b"\x00") is None
    for at in range(8, len(frame)):
        for value in (0, 0x7F, 0xFF):
            changed = frame[:at] + bytes((value,)) + frame[at + 1 :]
            if fetch_pattern_of(changed) is not None:
                header = read_request_header(changed, flexible=version >= 12)
                _, size = entity_reader(load_request_schema(1, version))(changed, header.body_at)
                assert header.body_at + size == len(changed)
