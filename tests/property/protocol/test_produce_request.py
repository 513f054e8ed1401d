"""The hand-written reader of Produce agrees with kio's in every version, and refuses what kio refuses."""

from contextlib import suppress
from datetime import timedelta
from io import BytesIO
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kio.index import load_payload_module
from kio.serial import entity_writer
from kio.static.constants import EntityType

from headrace.model.errors import ProtocolError
from headrace.protocol import produce_request
from headrace.protocol.codec import RequestHeader
from headrace.protocol.produce_request import read_produce_request

VERSIONS = range(3, 14)
topics = st.lists(
    st.tuples(
        st.uuids(),
        st.text(st.characters(codec="ascii", exclude_categories=["Cc"]), max_size=20),
        st.lists(st.tuples(st.integers(0, 2**31 - 1), st.none() | st.binary(max_size=300)), max_size=4),
    ),
    max_size=3,
)


def written(version: int, transactional_id: str | None, acks: int, timeout_ms: int, wanted: Any) -> bytes:
    schema: Any = load_payload_module(0, version, EntityType.request)
    by_id = version >= 13
    request = schema.ProduceRequest(
        transactional_id=transactional_id,
        acks=acks,
        timeout=timedelta(milliseconds=timeout_ms),
        topic_data=tuple(
            schema.TopicProduceData(
                **({"topic_id": topic_id} if by_id else {"name": name}),
                partition_data=tuple(schema.PartitionProduceData(index=i, records=records) for i, records in parts),
            )
            for topic_id, name, parts in wanted
        ),
    )
    buffer = BytesIO()
    entity_writer(schema.ProduceRequest)(buffer, request)
    return buffer.getvalue()


@given(st.sampled_from(VERSIONS), st.none() | st.just("tx"), st.sampled_from([-1, 0, 1]), st.integers(0, 10**6), topics)
def test_reads_what_kio_writes(version: int, tx: str | None, acks: int, timeout_ms: int, wanted: Any) -> None:
    frame = b"HEAD" + written(version, tx, acks, timeout_ms, wanted)
    request = read_produce_request(frame, RequestHeader(0, version, 1, None, 4))
    assert (request.transactional_id, request.acks, request.timeout_ms) == (tx, acks, timeout_ms)
    got = [(topic, [(i, r if r is None else bytes(r)) for i, r in parts]) for topic, parts in request.topics]
    null_id = UUID(int=0)
    assert got == [(topic_id or null_id if version >= 13 else name, parts) for topic_id, name, parts in wanted]


@given(st.sampled_from(VERSIONS), topics, st.data())
def test_damage_is_a_protocol_error_or_another_request(version: int, wanted: Any, data: st.DataObject) -> None:
    body = bytearray(written(version, None, -1, 1000, wanted))
    for _ in range(data.draw(st.integers(1, 4))):
        body[data.draw(st.integers(0, len(body) - 1))] = data.draw(st.integers(0, 255))
    cut = bytes(body[: data.draw(st.integers(0, len(body)))])
    try:
        request = read_produce_request(cut, RequestHeader(0, version, 1, None, 0))
    except ProtocolError:
        return
    assert sum(len(r or b"") for _, parts in request.topics for _, r in parts) <= len(cut)


@given(st.sampled_from(VERSIONS), st.binary(max_size=80))
def test_garbage_is_never_another_error(version: int, body: bytes) -> None:
    with suppress(ProtocolError):
        read_produce_request(body, RequestHeader(0, version, 1, None, 0))


def test_unknown_tags_are_skipped() -> None:
    body = bytearray(written(9, None, 1, 5, []))
    assert body[-1:] == b"\x00"
    body[-1:] = b"\x02\x05\x03abc\x09\x00"
    assert read_produce_request(bytes(body), RequestHeader(0, 9, 1, None, 0)).topics == []


def test_a_count_beyond_the_bytes_left_is_refused() -> None:
    body = written(8, None, 1, 5, [])
    with pytest.raises(ProtocolError):
        read_produce_request(body[:-4] + b"\x7f\xff\xff\xff", RequestHeader(0, 8, 1, None, 0))


@pytest.mark.parametrize("version", [3, 9, 13])
def test_entries_are_limited_in_total(version: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Entries of a few bytes are cheap to send and expensive to keep, and to answer."""
    monkeypatch.setattr(produce_request, "MAX_ELEMENTS", 10)
    header = RequestHeader(0, version, 1, None, 0)
    topic = (UUID(int=5), "t", [(0, None)])
    for accepted in ([topic] * 5, [(UUID(int=5), "t", [(0, None)] * 9)]):
        assert read_produce_request(written(version, None, 1, 0, accepted), header).topics
    too_many: list[list[Any]] = [[topic] * 6, [(UUID(int=5), "t", [(0, None)] * 10)], [(UUID(int=5), "t", [])] * 11]
    for refused in too_many:
        with pytest.raises(ProtocolError, match="do not fit"):
            read_produce_request(written(version, None, 1, 0, refused), header)
