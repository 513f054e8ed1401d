"""Bytes that are no requests: that connection is closed, memory stays flat, nobody else notices."""

import random
import struct
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.faults.watch import MIB, memory_grows_at_most, undisturbed
from tests.interop import batches, raw_client
from tests.interop.subject import Subject

KEYS = {
    raw_client.PRODUCE: (3, 9, 12), raw_client.FETCH: (4, 11, 12, 16), raw_client.LIST_OFFSETS: (1, 7),
    raw_client.METADATA: (1, 8, 12),
    raw_client.FIND_COORDINATOR: (1, 4), raw_client.API_VERSIONS: (0, 3), raw_client.CREATE_TOPICS: (2, 7),
    raw_client.DELETE_TOPICS: (1, 6),
    raw_client.DELETE_RECORDS: (1, 2), raw_client.INIT_PRODUCER_ID: (1, 4), raw_client.OFFSET_FOR_LEADER_EPOCH: (3, 4),
    raw_client.DESCRIBE_CONFIGS: (1, 4), raw_client.INCREMENTAL_ALTER_CONFIGS: (0, 1),
    raw_client.DESCRIBE_LOG_DIRS: (1, 4),
    raw_client.CREATE_PARTITIONS: (0, 3), raw_client.DESCRIBE_CLUSTER: (0, 1),
    raw_client.DESCRIBE_TOPIC_PARTITIONS: (0,),
}  # fmt: skip


def valid_frames(topic: str) -> Iterator[bytes]:
    """A well-formed request of every API, in an old and in a new layout."""
    place = {"partition": 0, "partition_index": 0, "timestamp": -1, "fetch_offset": 0, "partition_max_bytes": 1000}
    setting = {"name": "retention.ms", "value": "600000000"}
    resource = {
        "resource_type": 2,
        "resource_name": topic,
        "configs": [setting],
        "configuration_keys": ["retention.ms"],
    }
    body = {
        "acks": 1, "timeout": 100, "max_wait": 10, "min_bytes": 1, "max_bytes": 1000, "replica_id": -1,
        "topic_data": [{"name": topic, "partition_data": [{"index": 0, "records": batches.batch([b"v" * 50])}]}],
        "key": "g", "coordinator_keys": ["g"], "topic_names": ["none-such"], "resources": [resource],
        "client_software_name": "fuzz", "client_software_version": "1", "response_partition_limit": 10,
    }  # fmt: skip
    many: list[dict[str, Any]] = [
        {"name": topic, "topic": topic, "partitions": [place], "num_partitions": 1, "replication_factor": 1, "count": 2}
    ]
    by_number: list[dict[str, Any]] = [{"topic": topic, "partitions": [0]}]
    for key, versions in KEYS.items():
        for version in versions:
            topics = by_number if key == raw_client.DESCRIBE_LOG_DIRS else many
            if key == raw_client.DELETE_TOPICS:
                topics = [{"name": "none-such"}]
            if key == raw_client.FETCH and version >= 13:
                topics = [{"topic_id": uuid.uuid4(), "partitions": [place]}]
            yield raw_client.encode(key, version, {**body, "topics": topics}, correlation_id=version)


def poke(broker: Subject, data: bytes, wait_s: float = 0.0) -> None:
    """Send bytes on a connection of their own, give the broker a moment to answer or to close, and hang up."""
    with raw_client.Connection(broker.bootstrap) as connection:
        try:
            connection.send_bytes(data)
            if wait_s:
                connection.wait_closed(wait_s)
        except raw_client.Closed:
            return


def is_closed_by(broker: Subject, data: bytes, seconds: float = 60) -> bool:
    with raw_client.Connection(broker.bootstrap) as connection:
        try:
            connection.send_bytes(data)
        except raw_client.Closed:
            return True
        return connection.wait_closed(seconds)


@pytest.mark.parametrize("length", [-1, -(2**31), 2**31 - 1, 100 * MIB + 1, 1_213_486_160])
def test_a_length_that_cannot_be_is_not_believed(length: int, broker: Subject) -> None:
    with undisturbed(broker), memory_grows_at_most(broker, 30 * MIB):
        assert is_closed_by(broker, struct.pack(">i", length) + bytes(1000))


@pytest.mark.parametrize("size", range(10))
def test_a_frame_too_short_for_a_header(size: int, broker: Subject) -> None:
    assert is_closed_by(broker, struct.pack(">i", size) + bytes(size))


@pytest.mark.parametrize(
    "data",
    [
        b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(500),
        b"SSH-2.0-OpenSSH_9.2\r\n" + bytes(64),
        b"*1\r\n$4\r\nPING\r\n" * 10,
        b"\xff" * 4096,
    ],
    ids=["http", "tls", "ssh", "redis", "ones"],
)
def test_another_protocol(data: bytes, broker: Subject) -> None:
    assert is_closed_by(broker, data)


def test_large_lengths_with_nothing_behind_take_no_memory(broker: Subject) -> None:
    """A length of 90 MB is allowed. A hundred clients that claim it and send little must not cost nine gigabytes."""
    frame = struct.pack(">i", 90 * MIB) + raw_client.encode(raw_client.METADATA, 9, {}, correlation_id=1)
    with undisturbed(broker), memory_grows_at_most(broker, 60 * MIB):
        connections = [raw_client.Connection(broker.bootstrap) for _ in range(100)]
        for one in connections:
            one.send_bytes(frame)
        raw_client.advertised(broker.bootstrap)
        for one in connections:
            one.close()


@pytest.mark.parametrize("count", [2**31 - 1, 2**30, -2, -(2**31), 1_000_000])
def test_a_count_that_lies(count: int, broker: Subject) -> None:
    metadata = struct.pack(">hhih", raw_client.METADATA, 4, 1, -1) + struct.pack(">i", count) + b"\x00\x01a\x01"
    produce = struct.pack(">hhih", raw_client.PRODUCE, 3, 1, -1) + struct.pack(">hhii", -1, 1, 1000, count)
    with undisturbed(broker), memory_grows_at_most(broker, 30 * MIB):
        for frame in (metadata, produce):
            assert is_closed_by(broker, struct.pack(">i", len(frame)) + frame)


@pytest.mark.parametrize("varint", [b"\xff\xff\xff\xff\x07", b"\xff\xff\xff\xff\x0f", b"\x80" * 20, b"\xff" * 20])
def test_a_variable_length_that_lies(varint: bytes, broker: Subject) -> None:
    header = struct.pack(">hhih", raw_client.METADATA, 12, 1, -1)
    with undisturbed(broker), memory_grows_at_most(broker, 30 * MIB):
        for frame in (header + varint, header + b"\x00" + varint, header + b"\x00\x02" + bytes(16) + varint):
            assert is_closed_by(broker, struct.pack(">i", len(frame)) + frame)


def test_a_frame_full_of_tiny_elements_takes_little_memory(broker: Subject) -> None:
    """Nine megabytes of one-byte names are honest in their count, and must still not become a hundred times as much."""
    names = 3_000_000
    frame = (
        struct.pack(">hhih", raw_client.METADATA, 4, 1, -1) + struct.pack(">i", names) + b"\x00\x01a" * names + b"\x00"
    )
    with memory_grows_at_most(broker, 600 * MIB):
        poke(broker, struct.pack(">i", len(frame)) + frame, wait_s=20)
    raw_client.advertised(broker.bootstrap)


def test_every_request_cut_off_anywhere(broker: Subject, topic: str) -> None:
    with undisturbed(broker), memory_grows_at_most(broker, 40 * MIB):
        for frame in valid_frames(topic):
            for size in range(8, len(frame), 1 + len(frame) // 25):
                poke(broker, struct.pack(">i", size) + frame[:size])
    raw_client.advertised(broker.bootstrap)


def mutate(frame: bytes, rng: random.Random) -> bytes:
    """Change a few bytes of a request, leaving API key and version alone so that it gets past the door."""
    data = bytearray(frame)
    for _ in range(rng.randint(1, 4)):
        at = rng.randrange(4, len(data))
        kind = rng.randrange(5)
        if kind == 0:
            data[at] ^= 1 << rng.randrange(8)
        elif kind == 1:
            data[at] = rng.choice((0, 1, 0x7F, 0x80, 0xFF))
        elif kind == 2:
            data[at : at + 4] = struct.pack(">i", rng.choice((-1, -2, 2**31 - 1, -(2**31), 1 << 20)))
        elif kind == 3:
            del data[at : at + rng.randint(1, 8)]
        else:
            data[at:at] = rng.randbytes(rng.randint(1, 8))
        if len(data) < 5:
            return bytes(frame)
    return bytes(data)


def mutations(broker: Subject, topic: str, seed: int, turns: int) -> None:
    rng = random.Random(seed)
    frames = list(valid_frames(topic))
    print(f"seed {seed}")
    with undisturbed(broker), memory_grows_at_most(broker, 80 * MIB):
        for turn in range(turns):
            frame = mutate(rng.choice(frames), rng)
            poke(broker, struct.pack(">i", len(frame)) + frame, wait_s=0.02 if turn % 10 == 0 else 0)
    raw_client.advertised(broker.bootstrap)


def test_requests_with_a_few_bytes_changed(broker: Subject, topic: str) -> None:
    mutations(broker, topic, seed=1, turns=2000)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(100, 110))
def test_many_requests_with_a_few_bytes_changed(seed: int, broker: Subject, topic: str) -> None:
    mutations(broker, topic, seed, turns=10_000)


def test_random_bytes_in_frames_of_the_right_length(broker: Subject) -> None:
    rng = random.Random(7)
    with undisturbed(broker), memory_grows_at_most(broker, 40 * MIB):
        for _ in range(500):
            body = rng.randbytes(rng.randint(0, 300))
            poke(broker, struct.pack(">i", len(body)) + body)


def test_a_malformed_request_behind_good_ones(broker: Subject, topic: str) -> None:
    """The good ones in front are answered, then the connection ends."""
    with raw_client.Connection(broker.bootstrap) as connection:
        good = [connection.send(raw_client.METADATA, 9, topics=[{"name": topic}]) for _ in range(3)]
        bad = struct.pack(">hhih", raw_client.METADATA, 4, 1, -1) + struct.pack(">i", 2**31 - 1)
        connection.send_frame(bad)
        for pending in good:
            assert connection.receive(pending).topics[0].name == topic
        assert connection.wait_closed(60)


def test_the_log_says_it_in_one_line(own_broker: Callable[..., Subject]) -> None:
    broker = own_broker()
    before = len(broker.stderr.splitlines())
    assert is_closed_by(broker, struct.pack(">i", -5) + bytes(20))
    raw_client.advertised(broker.bootstrap)
    lines = broker.stderr.splitlines()[before:]
    assert len(lines) == 1
    assert "127.0.0.1" in lines[0]
