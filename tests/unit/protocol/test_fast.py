"""The responses written by hand are read back by kio's own reader, in every version."""

from typing import Any
from uuid import UUID

import pytest
from kio.index import load_response_schema
from kio.serial import entity_reader

from headrace.protocol.fast import FetchedPartition, NodeEndpoint, ProducedPartition, fetch_response, produce_response

TOPIC_ID = UUID("0f1e2d3c-4b5a-6978-8796-a5b4c3d2e1f0")


@pytest.mark.parametrize("version", range(3, 14))
def test_produce_response_reads_back(version: int) -> None:
    topic = TOPIC_ID if version >= 13 else "orders"
    parts = [
        ProducedPartition(0, 0, 42, 1_700_000_000_000, 7),
        ProducedPartition(3, 87, record_errors=((2, "no key"), (5, None)), error_message="bad"),
    ]
    body = produce_response(version, b"", [(topic, parts)], throttle_ms=11)
    response: Any
    response, size = entity_reader(load_response_schema(0, version))(body, 0)
    assert size == len(body)
    assert response.throttle_time.total_seconds() == 0.011
    (read,) = response.responses
    assert (read.topic_id if version >= 13 else read.name) == topic
    good, bad = read.partition_responses
    assert (good.index, good.error_code, good.base_offset) == (0, 0, 42)
    assert (bad.index, bad.error_code, bad.base_offset) == (3, 87, -1)
    if version >= 5:
        assert good.log_start_offset == 7
    if version >= 8:
        assert [(e.batch_index, e.batch_index_error_message) for e in bad.record_errors] == [(2, "no key"), (5, None)]
        assert bad.error_message == "bad"
        assert good.error_message is None


@pytest.mark.parametrize("version", range(4, 19))
def test_fetch_response_reads_back(version: int) -> None:
    topic = TOPIC_ID if version >= 13 else "orders"
    parts = [
        FetchedPartition(0, 0, 100, 90, 5, [(9, 50), (10, 60)], (b"abc", memoryview(b"defg"))),
        FetchedPartition(1, 0, 8, 8, 0, None, (b"x" * 300,)),
        FetchedPartition(2, 1),
        FetchedPartition(3, 0, 8, 8, 0, (), (), diverging=(4, 77) if version >= 12 else None),
    ]
    body = b"".join(fetch_response(version, b"", [(topic, parts)], error_code=0, session_id=123, throttle_ms=7))
    response: Any
    response, size = entity_reader(load_response_schema(1, version))(body, 0)
    assert size == len(body)
    assert response.throttle_time.total_seconds() == 0.007
    if version >= 7:
        assert (response.error_code, response.session_id) == (0, 123)
    (read,) = response.responses
    assert (read.topic_id if version >= 13 else read.topic) == topic
    first, second, third, fourth = read.partitions
    assert (first.partition_index, first.high_watermark, first.last_stable_offset) == (0, 100, 90)
    assert [(a.producer_id, a.first_offset) for a in first.aborted_transactions] == [(9, 50), (10, 60)]
    assert first.records == b"abcdefg"
    assert second.aborted_transactions is None
    assert second.records == b"x" * 300
    assert (third.error_code, third.high_watermark) == (1, -1)
    assert not third.records
    if version >= 5:
        assert first.log_start_offset == 5
    if version >= 11:
        assert first.preferred_read_replica == -1
    if version >= 12:
        assert (fourth.diverging_epoch.epoch, fourth.diverging_epoch.end_offset) == (4, 77)


NODES = (NodeEndpoint(3, "three.example", 9093, "rack-c"), NodeEndpoint(4, "::1", 9094, None))


def _nodes(response: Any) -> list[tuple[int, str, int, str | None]]:
    return [(node.node_id, node.host, node.port, node.rack) for node in response.node_endpoints]


@pytest.mark.parametrize("version", range(3, 14))
def test_a_refused_produce_names_the_leader(version: int) -> None:
    topic = TOPIC_ID if version >= 13 else "orders"
    parts = [ProducedPartition(0, 6, error_message="elsewhere", current_leader=(3, 17)), ProducedPartition(1, 0, 5)]
    body = produce_response(version, b"", [(topic, parts)], endpoints=NODES)
    response: Any
    response, size = entity_reader(load_response_schema(0, version))(body, 0)
    assert size == len(body)
    refused, fine = response.responses[0].partition_responses
    assert (refused.error_code, fine.error_code) == (6, 0)
    if version >= 10:
        assert (refused.current_leader.leader_id, refused.current_leader.leader_epoch) == (3, 17)
        assert fine.current_leader.leader_id == -1
        assert _nodes(response) == list(map(tuple, NODES))


@pytest.mark.parametrize("version", range(4, 19))
def test_a_refused_fetch_names_the_leader_or_another_replica(version: int) -> None:
    topic = TOPIC_ID if version >= 13 else "orders"
    leader = (3, 17) if version >= 12 else None
    parts = [
        FetchedPartition(0, 6, current_leader=leader),
        FetchedPartition(1, 0, diverging=(2, 9) if leader else None, current_leader=leader),
        FetchedPartition(2, 0, preferred_replica=4),
    ]
    body = b"".join(fetch_response(version, b"", [(topic, parts)], endpoints=NODES))
    response: Any
    response, size = entity_reader(load_response_schema(1, version))(body, 0)
    assert size == len(body)
    refused, both, moved = response.responses[0].partitions
    assert refused.error_code == 6
    if version >= 11:
        assert (refused.preferred_read_replica, moved.preferred_read_replica) == (-1, 4)
    if version >= 12:
        assert (refused.current_leader.leader_id, refused.current_leader.leader_epoch) == (3, 17)
        assert (both.diverging_epoch.epoch, both.diverging_epoch.end_offset) == (2, 9)
        assert both.current_leader.leader_id == 3
        assert moved.current_leader.leader_id == -1
    if version >= 16:
        assert _nodes(response) == list(map(tuple, NODES))
