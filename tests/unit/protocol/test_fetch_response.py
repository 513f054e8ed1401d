"""What `fast.py` writes is read as it was, and every byte that is missing is noticed."""

from collections.abc import Sequence
from uuid import UUID

import pytest

from headrace.model.errors import ProtocolError
from headrace.protocol.fast import FetchedPartition, TopicKey, fetch_response
from headrace.protocol.fetch_response import read_fetch_response

HEAD = b"\x00\x00\x00\x07\x00"
TOPICS = [
    (
        "orders",
        [
            FetchedPartition(0, 0, 10, 9, 1, ((5, 2), (6, 3)), (b"abc", b"defg")),
            FetchedPartition(1, 1, records=(), diverging=(3, 4)),
        ],
    ),
    ("händler", [FetchedPartition(3, 0, 200, 200, 0, None, (b"x" * 300,))]),
]


IDS = {"orders": UUID(int=2**127 + 5), "händler": UUID(int=6)}


def written(version: int) -> bytes:
    topics: Sequence[tuple[TopicKey, Sequence[FetchedPartition]]] = TOPICS
    if version >= 13:
        topics = [(IDS[name], parts) for name, parts in TOPICS]
    return b"".join(fetch_response(version, HEAD, topics, error_code=0, session_id=77))


@pytest.mark.parametrize("version", range(7, 13))
def test_what_is_written_is_read(version: int) -> None:
    answer = read_fetch_response(version, written(version), len(HEAD))
    assert (answer.error_code, answer.session_id) == (0, 77)
    first, second, third = answer.parts
    assert first[:6] == ("orders", 0, 0, 10, 9, 1)
    assert first.aborted == ((5, 2), (6, 3))
    assert bytes(first.records) == b"abcdefg"
    assert (second.partition, second.error_code, bytes(second.records), second.aborted) == (1, 1, b"", ())
    assert (third.topic, third.partition, bytes(third.records)) == ("händler", 3, b"x" * 300)
    assert second.diverging == ((3, 4) if version >= 12 else None)


@pytest.mark.parametrize("version", range(13, 18))
def test_topics_are_told_apart_by_their_ids(version: int) -> None:
    first, second, third = read_fetch_response(version, written(version), len(HEAD)).parts
    assert (first.topic_id, first.partition, bytes(first.records)) == (IDS["orders"], 0, b"abcdefg")
    assert first.diverging is None
    assert (second.topic_id, second.partition, second.diverging) == (IDS["orders"], 1, (3, 4))
    assert (third.topic_id, third.partition, bytes(third.records)) == (IDS["händler"], 3, b"x" * 300)


@pytest.mark.parametrize("version", [11, 12, 17])
def test_whatever_is_missing_is_noticed(version: int) -> None:
    whole = written(version)
    for size in range(len(HEAD), len(whole)):
        with pytest.raises(ProtocolError):
            read_fetch_response(version, whole[:size], len(HEAD))


def test_counts_are_not_believed() -> None:
    with pytest.raises(ProtocolError, match="do not fit"):
        read_fetch_response(12, b"\x00" * 10 + b"\xff\xff\xff\xff\x0f", 0)


def test_versions_that_nobody_has_seen_are_not_read() -> None:
    with pytest.raises(ValueError, match="not 18"):
        read_fetch_response(18, b"", 0)
