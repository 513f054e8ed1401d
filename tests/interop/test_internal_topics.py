"""`__consumer_offsets` and `__transaction_state` as other programs read them: with a consumer, by Kafka's schemas.

The schemas are put down here in the types of aiokafka, after those of Kafka 4.1, so that nothing of the broker's own
code is used to read what the broker wrote.
"""

import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from io import BytesIO
from typing import Any, NamedTuple

import pytest
from aiokafka.protocol.types import (
    Array,
    Bytes,
    CompactArray,
    CompactString,
    Int8,
    Int16,
    Int32,
    Int64,
    Schema,
    String,
    TaggedFields,
)
from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition

from .group_clients import QUICK, TIMEOUT_S, consumer, produce, until
from .group_clients import read as read_values
from .subject import Subject

TEXT = String("utf-8")
OFFSET_KEY = Schema(("version", Int16), ("group", TEXT), ("topic", TEXT), ("partition", Int32))
OFFSET_VALUE = Schema(
    ("version", Int16), ("offset", Int64), ("leader_epoch", Int32), ("metadata", TEXT), ("commit_ms", Int64)
)
GROUP_KEY = Schema(("version", Int16), ("group", TEXT))
GROUP_VALUE = Schema(
    ("version", Int16),
    ("protocol_type", TEXT),
    ("generation", Int32),
    ("protocol", TEXT),
    ("leader", TEXT),
    ("since_ms", Int64),
    (
        "members",
        Array(
            ("member_id", TEXT),
            ("instance_id", TEXT),
            ("client_id", TEXT),
            ("client_host", TEXT),
            ("rebalance_timeout", Int32),
            ("session_timeout", Int32),
            ("subscription", Bytes),
            ("assignment", Bytes),
        ),
    ),
)
MEMBER_KEY = Schema(("version", Int16), ("group", TEXT), ("member", TEXT))
EPOCH_VALUE = Schema(("version", Int16), ("epoch", Int32), ("tags", TaggedFields))
TRANSACTION_VALUE = Schema(
    ("version", Int16),
    ("producer_id", Int64),
    ("epoch", Int16),
    ("timeout_ms", Int32),
    ("status", Int8),
    (
        "partitions",
        CompactArray(("topic", CompactString("utf-8")), ("partitions", CompactArray(Int32)), ("tags", TaggedFields)),
    ),
    ("updated_ms", Int64),
    ("started_ms", Int64),
    ("tags", TaggedFields),
)
EMPTY, ONGOING, PREPARE_COMMIT, COMPLETE_COMMIT = 0, 1, 2, 4


class Message(NamedTuple):
    key: bytes
    value: bytes | None

    @property
    def kind(self) -> int:
        return int.from_bytes(self.key[:2])


def read(schema: Schema, data: bytes | None) -> dict[str, Any]:
    """All of the bytes must be what the schema says."""
    assert data is not None
    stream = BytesIO(data)
    fields = schema.decode(stream)
    assert stream.read() == b""
    return dict(zip(schema.names, fields, strict=True))


def messages(bootstrap: str, topic: str) -> Iterator[Message]:
    """Everything in a topic now, read by an ordinary consumer."""
    reader = Consumer({"bootstrap.servers": bootstrap, "group.id": uuid.uuid4().hex, "enable.auto.commit": False})
    try:
        partitions = reader.list_topics(topic, timeout=TIMEOUT_S).topics[topic].partitions
        ends = {}
        for partition in partitions:
            low, high = reader.get_watermark_offsets(TopicPartition(topic, partition), timeout=TIMEOUT_S)
            if high > low:
                ends[partition] = high
        reader.assign([TopicPartition(topic, partition, OFFSET_BEGINNING) for partition in ends])
        until_s = time.monotonic() + TIMEOUT_S
        while any(at.offset < ends[at.partition] for at in reader.position(reader.assignment())):
            assert time.monotonic() < until_s, "not everything could be read"
            got = reader.poll(0.2)
            if got is not None:
                assert got.error() is None, got.error()
                yield Message(got.key(), got.value())
    finally:
        reader.close()


@pytest.fixture
def started(own_broker: Callable[..., Subject]) -> Subject:
    return own_broker(offsets_topic_num_partitions="3", transaction_state_log_num_partitions="3", **QUICK)


@contextmanager
def member(bootstrap: str, **settings: object) -> Iterator[Consumer]:
    """A member of the group `g` that has read what there is in the topic `t`."""
    produce(bootstrap, "t", range(10), partitions=1)
    one = consumer(bootstrap, "g", **settings)
    try:
        one.subscribe(["t"])
        assert read_values(one, 10) == list(range(10))
        yield one
    finally:
        one.close()


def test_offsets_and_classic_groups_are_kafkas_records(started: Subject) -> None:
    with member(started.bootstrap, client_id="reader", group_instance_id="i") as one:
        one.commit(offsets=[TopicPartition("t", 0, 4, metadata="mark")], asynchronous=False)
        found = list(messages(started.bootstrap, "__consumer_offsets"))
        member_id = one.memberid()
    (offset,) = [message for message in found if message.kind == 1]
    assert read(OFFSET_KEY, offset.key) == {"version": 1, "group": "g", "topic": "t", "partition": 0}
    value = read(OFFSET_VALUE, offset.value)
    # confluent-kafka sends the zero at the end of a C string, too.
    assert (value["version"], value["offset"], value["metadata"].rstrip("\0")) == (3, 4, "mark")
    assert abs(value["commit_ms"] - time.time() * 1000) < 600_000
    described = [message for message in found if message.kind == 2]
    assert {read(GROUP_KEY, message.key)["group"] for message in described} == {"g"}
    group = read(GROUP_VALUE, described[-1].value)
    assert [group[name] for name in ("version", "protocol_type", "protocol", "leader")] == [
        3, "consumer", "range", member_id,
    ]  # fmt: skip
    ((found_id, instance_id, client_id, host, _, session_ms, subscription, assignment),) = group["members"]
    assert (found_id, instance_id, client_id, session_ms) == (member_id, "i", "reader", 6000)
    assert "127.0.0.1" in host
    assert b"\x00\x01t" in subscription
    assert b"\x00\x01t" in assignment
    assert len(found) == len(described) + 1


def test_consumer_groups_are_kafkas_records(started: Subject) -> None:
    produce(started.bootstrap, "t", range(10), partitions=1)
    one = Consumer(
        {
            "bootstrap.servers": started.bootstrap,
            "group.id": "g",
            "group.protocol": "consumer",
            "auto.offset.reset": "earliest",
        }
    )
    try:
        one.subscribe(["t"])
        assert read_values(one, 10) == list(range(10))
        found = list(messages(started.bootstrap, "__consumer_offsets"))
    finally:
        one.close()
    last = {message.kind: message for message in found}
    assert last.keys() >= {3, 5, 6, 7, 8}
    group, target = (read(EPOCH_VALUE, last[kind].value) for kind in (3, 6))
    assert group["epoch"] == target["epoch"] > 0
    for kind in (5, 7, 8):
        key = read(MEMBER_KEY, last[kind].key)
        assert (key["group"], bool(key["member"])) == ("g", True)


def test_transactions_are_kafkas_records(started: Subject) -> None:
    produce(started.bootstrap, "t", range(1), partitions=1)
    producer = Producer({"bootstrap.servers": started.bootstrap, "transactional.id": "billing"})
    producer.init_transactions(TIMEOUT_S)
    producer.begin_transaction()
    producer.produce("t", b"x", partition=0)
    producer.commit_transaction(TIMEOUT_S)
    seen: list[dict[str, Any]] = []

    def has_ended() -> bool:
        found = list(messages(started.bootstrap, "__transaction_state"))
        assert {tuple(read(GROUP_KEY, message.key).values()) for message in found} == {(0, "billing")}
        seen[:] = [read(TRANSACTION_VALUE, message.value) for message in found]
        return seen[-1]["status"] == COMPLETE_COMMIT

    until(has_ended)
    assert {state["version"] for state in seen} == {1}
    assert [state["status"] for state in seen] == [EMPTY, ONGOING, PREPARE_COMMIT, COMPLETE_COMMIT]
    assert [(topic, partitions) for topic, partitions, _ in seen[1]["partitions"]] == [("t", [0])]
