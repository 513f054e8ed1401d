"""Unknown tagged fields are skipped wherever they stand, and nothing that pretends to be one does harm."""

import random
from contextlib import suppress
from datetime import timedelta
from io import BytesIO
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kio.index import load_payload_module
from kio.serial import entity_writer
from kio.static.constants import EntityType

from headrace.model.errors import ProtocolError
from headrace.protocol.codec import RequestHeader, read_request
from headrace.protocol.tags import without_unknown_tags

UNKNOWN = b"\x01\x63\x03abc"  # One tagged field: tag 99, three bytes.
FETCH = load_payload_module(1, 17, EntityType.request)
DESCRIBE = load_payload_module(75, 0, EntityType.request)
CREATE = load_payload_module(19, 7, EntityType.request)


def encode(entity: Any) -> bytes:
    buffer = BytesIO()
    entity_writer(type(entity))(buffer, entity)
    return buffer.getvalue()


def header(key: int, version: int) -> RequestHeader:
    return RequestHeader(key, version, 1, None, 0)


def fetch() -> Any:
    """A request with tagged fields of its own, one of them a structure, and with arrays in arrays."""
    partition = FETCH.FetchPartition(
        partition=0,
        current_leader_epoch=1,
        fetch_offset=2,
        last_fetched_epoch=3,
        log_start_offset=4,
        partition_max_bytes=300,
        replica_directory_id=UUID(int=7),
    )
    return FETCH.FetchRequest(
        cluster_id="cluster",
        replica_state=FETCH.ReplicaState(replica_id=5, replica_epoch=6),
        max_wait=timedelta(milliseconds=500),
        min_bytes=1,
        max_bytes=2**30,
        isolation_level=1,
        session_id=0,
        session_epoch=-1,
        topics=(FETCH.FetchTopic(topic_id=UUID(int=3), partitions=(partition, partition)),),
        forgotten_topics_data=(FETCH.ForgottenTopic(topic_id=UUID(int=4), partitions=(1, 2)),),
        rack_id="rack",
    )


def test_known_tags_stay_and_unknown_ones_at_the_end_go() -> None:
    request = fetch()
    data = encode(request)
    assert without_unknown_tags(FETCH.FetchRequest, data, 0) == data
    # The last section has the tags 0 and 1; a third one, unknown, goes behind them.
    section = data.rindex(b"\x02\x00\x08\x08cluster")
    more = data[:section] + b"\x03" + data[section + 1 :] + UNKNOWN[1:]
    assert read_request(more, header(1, 17)) == request
    assert read_request(memoryview(b"head" + more), RequestHeader(1, 17, 1, None, 4)) == request


def test_unknown_tags_inside_a_known_tag() -> None:
    request = fetch()
    state = encode(request.replica_state)
    longer = state[:-1] + UNKNOWN
    data = encode(request).replace(bytes([1, len(state)]) + state, bytes([1, len(longer)]) + longer)
    assert read_request(data, header(1, 17)) == request


def test_unknown_tags_in_the_elements_of_arrays() -> None:
    request = CREATE.CreateTopicsRequest(
        topics=(
            CREATE.CreatableTopic(
                name="a",
                num_partitions=1,
                replication_factor=1,
                assignments=(CREATE.CreatableReplicaAssignment(partition_index=0, broker_ids=(1, 2)),),
                configs=(CREATE.CreatableTopicConfig(name="k", value=None),),
            ),
        ),
        timeout=timedelta(milliseconds=7),
        validate_only=True,
    )
    config = encode(request.topics[0].configs[0])
    data = encode(request).replace(config, config[:-1] + UNKNOWN)
    assert read_request(data, header(19, 7)) == request


@pytest.mark.parametrize("cursor", [None, DESCRIBE.Cursor(topic_name="t", partition_index=3)])
def test_unknown_tags_beside_a_structure_that_may_be_null(cursor: Any) -> None:
    request = DESCRIBE.DescribeTopicPartitionsRequest(
        topics=(DESCRIBE.TopicRequest(name="x" * 200),), response_partition_limit=5, cursor=cursor
    )
    assert read_request(encode(request)[:-1] + UNKNOWN, header(75, 0)) == request


@pytest.mark.parametrize(
    "tail",
    [
        b"\x01\x63\x7fabc",  # The field is longer than what is left.
        b"\xff\xff\xff\xff\x0f\x63\x00",  # More tags than bytes.
        b"\x01\x63\xff\xff\xff\xff\xff\x01",  # A number without end.
        b"\x01\x63",  # Cut off.
    ],
)
def test_lies_are_refused(tail: bytes) -> None:
    request = DESCRIBE.DescribeTopicPartitionsRequest(topics=(), response_partition_limit=5, cursor=None)
    with pytest.raises(ProtocolError, match="DescribeTopicPartitions v0"):
        read_request(encode(request)[:-1] + tail, header(75, 0))


@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=60), st.integers(0, 2**32))
def test_damaged_bytes_are_refused_or_read(garbage: bytes, seed: int) -> None:
    """They raise `ProtocolError` or make a request, and nothing else happens."""
    data = bytearray(encode(fetch()))
    chance = random.Random(seed)
    for byte in garbage[:8]:
        data[chance.randrange(len(data))] = byte
    for key, version, frame in ((1, 17, bytes(data)), (75, 0, garbage), (19, 7, garbage)):
        with suppress(ProtocolError):
            read_request(frame, header(key, version))
