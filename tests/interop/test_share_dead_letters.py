"""Dead letters of share groups (KIP-1191): what is rejected or delivered too often goes to the group's topic."""

import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewTopic, ResourceType

from headrace.testing.cluster import ClusterProcesses

from . import raw_client
from .raw_client import Connection, Error
from .share_members import (
    ACCEPT,
    GROUP_RESOURCE,
    PATIENCE_S,
    REJECT,
    RELEASE,
    Member,
    acquired,
    configure,
    part,
    until_acquired,
)
from .subject import Subject

TOPIC_NAME = "errors.deadletterqueue.topic.name"
COPY = "errors.deadletterqueue.copy.record.enable"
ENABLE = "errors.deadletterqueue.group.enable"
REJECTED = "Offset rejected by client."
TOO_OFTEN = "Offset delivery count exceeded the threshold."

Letter = tuple[bytes | None, bytes | None, dict[str, str], int]
"""Key, value, headers and partition."""


@pytest.fixture
def group(connection: Connection) -> str:
    name = f"share-{uuid.uuid4().hex[:8]}"
    raw_client.until_coordinated(connection, name=name)
    assert configure(connection, name, "share.auto.offset.reset", "earliest") is Error.none
    return name


@pytest.fixture
def member(broker: Subject, connection: Connection, group: str, topic: str) -> Iterator[Callable[[], Member]]:
    topic_id = raw_client.wait_topic(connection, topic, 1)
    with ExitStack() as stack:

        def make() -> Member:
            one = Member(broker.bootstrap, group, topic_id)
            stack.callback(one.close)
            return one

        yield make


def dead_letter_topic(broker: Subject, partitions: int = 1, **settings: str) -> str:
    name = f"dlq.{uuid.uuid4().hex[:8]}"
    own = {key.replace("_", "."): value for key, value in settings.items()}
    raw_client.create_topic(broker.bootstrap, name, partitions, {ENABLE: "true"} | own)
    return name


def send(bootstrap: str, topic: str, *values: str) -> None:
    """One compressed batch."""
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 100, "compression.type": "zstd"})
    for value in values:
        producer.produce(topic, value, key=f"key of {value}", headers={"mine": b"1"})
    assert producer.flush(PATIENCE_S) == 0


def letters(bootstrap: str, topic: str, count: int) -> list[Letter]:
    """The first of a topic, when that many are there; sorted by where their records were."""
    found: list[Letter] = []
    conf = {"bootstrap.servers": bootstrap, "group.id": uuid.uuid4().hex, "auto.offset.reset": "earliest"}
    consumer = Consumer(conf)
    try:
        consumer.subscribe([topic])
        end = time.monotonic() + PATIENCE_S
        while len(found) < count:
            assert time.monotonic() < end, f"{len(found)} of {count} letters came"
            message = consumer.poll(0.1)
            if message is not None and message.error() is None:
                headers = {name: text.decode() for name, text in message.headers() or ()}
                found.append((message.key(), message.value(), headers, message.partition()))
    finally:
        consumer.close()
    return sorted(
        found, key=lambda letter: (letter[2]["__dlq.errors.partition"], int(letter[2]["__dlq.errors.offset"]))
    )


def context(topic: str, group: str, offset: int, count: int, message: str, partition: int = 0) -> dict[str, str]:
    told = {
        "topic": topic,
        "partition": str(partition),
        "offset": str(offset),
        "group": group,
        "delivery.count": str(count),
        "message": message,
    }
    return {f"__dlq.errors.{name}": text for name, text in told.items()}


def until_at(connection: Connection, group: str, offset: int) -> None:
    """Wait until the group has nothing left to do below this offset."""
    end = time.monotonic() + PATIENCE_S
    while True:
        asked = {"group_id": group, "topics": None}
        (told,) = connection.call(raw_client.DESCRIBE_SHARE_GROUP_OFFSETS, 1, groups=[asked]).groups
        if told.topics[0].partitions[0].start_offset == offset:
            return
        assert time.monotonic() < end, told
        time.sleep(0.02)


def test_what_is_rejected_or_delivered_too_often_has_a_letter(
    broker: Subject, connection: Connection, topic: str, group: str, member: Callable[[], Member]
) -> None:
    dead = dead_letter_topic(broker)
    assert configure(connection, group, TOPIC_NAME, dead) is Error.none
    assert configure(connection, group, "share.delivery.count.limit", "2") is Error.none
    send(broker.bootstrap, topic, "good", "bad", "tiring")
    one = member()
    assert one.beat(0, [topic]).error_code is Error.none
    assert acquired(until_acquired(one)) == [(0, 2, 1)]
    answer = one.fetch((0, 0, ACCEPT), (1, 1, REJECT), (2, 2, RELEASE), max_wait=1000)
    assert part(answer).acknowledge_error_code == 0
    assert acquired(answer) == [(2, 2, 2)]
    assert part(one.fetch((2, 2, RELEASE))).acknowledge_error_code == 0
    until_at(connection, group, 3)
    assert letters(broker.bootstrap, dead, 2) == [
        (None, None, context(topic, group, 1, 1, REJECTED), 0),
        (None, None, context(topic, group, 2, 2, TOO_OFTEN), 0),
    ]
    # Nothing of it comes again, and without a topic there are no more letters.
    assert configure(connection, group, TOPIC_NAME, "") is Error.none
    send(broker.bootstrap, topic, "last")
    assert acquired(until_acquired(one)) == [(3, 3, 1)]
    one.acknowledge((3, 3, REJECT))
    until_at(connection, group, 4)
    assert raw_client.offset_at(connection, dead, -1).offset == 2


def test_a_letter_has_key_and_value_where_the_group_wants_that_and_they_fit(
    broker: Subject, connection: Connection, topic: str, group: str, member: Callable[[], Member]
) -> None:
    dead = dead_letter_topic(broker, max_message_bytes="2000")
    assert configure(connection, group, TOPIC_NAME, dead) is Error.none
    assert configure(connection, group, COPY, "true") is Error.none
    send(broker.bootstrap, topic, "a", "b", "x" * 5000, "c")
    one = member()
    assert acquired(until_acquired(one)) == [(0, 3, 1)]
    one.acknowledge((0, 3, REJECT))
    assert letters(broker.bootstrap, dead, 4) == [
        (b"key of a", b"a", context(topic, group, 0, 1, REJECTED), 0),
        (b"key of b", b"b", context(topic, group, 1, 1, REJECTED), 0),
        (None, None, context(topic, group, 2, 1, REJECTED), 0),
        (b"key of c", b"c", context(topic, group, 3, 1, REJECTED), 0),
    ]


@pytest.mark.parametrize("wrong", ["missing", "not enabled"])
def test_records_are_done_without_a_letter_where_the_topic_takes_none(
    broker: Subject, connection: Connection, topic: str, group: str, member: Callable[[], Member], wrong: str
) -> None:
    dead = "dlq.nowhere"
    if wrong == "not enabled":
        dead = dead_letter_topic(broker, errors_deadletterqueue_group_enable="false")
    assert configure(connection, group, TOPIC_NAME, dead) is Error.none
    send(broker.bootstrap, topic, "a")
    one = member()
    assert one.beat(0, [topic]).error_code is Error.none
    until_acquired(one)
    one.acknowledge((0, 0, REJECT))
    until_at(connection, group, 1)
    if wrong == "not enabled":
        assert raw_client.offset_at(connection, dead, -1).offset == 0


@pytest.mark.parametrize("name", ["letters", "__dlq.letters", "dlq.let ters", "dlq." + "x" * 250])
def test_topics_with_other_names_are_refused(connection: Connection, group: str, name: str) -> None:
    assert configure(connection, group, TOPIC_NAME, name) is Error.invalid_config


def test_a_topic_is_created_where_the_cluster_allows_that(own_broker: Callable[..., Subject]) -> None:
    broker = own_broker(
        errors_deadletterqueue_auto_create_topics_enable="true", errors_deadletterqueue_topic_name_prefix="failed-"
    )
    raw_client.create_topic(broker.bootstrap, "t", 1, {})
    with Connection(broker.bootstrap) as connection:
        topic_id = raw_client.wait_topic(connection, "t", 1)
        raw_client.until_coordinated(connection, name="g")
        for name, value in ((TOPIC_NAME, "failed-t"), ("share.auto.offset.reset", "earliest")):
            assert configure(connection, "g", name, value) is Error.none
        assert configure(connection, "g", TOPIC_NAME, "dlq.t") is Error.invalid_config
        send(broker.bootstrap, "t", "a")
        one = Member(broker.bootstrap, "g", topic_id)
        try:
            until_acquired(one)
            one.acknowledge((0, 0, REJECT))
            assert letters(broker.bootstrap, "failed-t", 1) == [(None, None, context("t", "g", 0, 1, REJECTED), 0)]
        finally:
            one.close()
        resource = {"resource_type": 2, "resource_name": "failed-t", "configuration_keys": [ENABLE]}
        (described,) = connection.call(raw_client.DESCRIBE_CONFIGS, 4, resources=[resource]).results
        assert [each.value for each in described.configs] == ["true"]
        group = {"resource_type": GROUP_RESOURCE, "resource_name": "g", "configuration_keys": [TOPIC_NAME, COPY]}
        (described,) = connection.call(raw_client.DESCRIBE_CONFIGS, 4, resources=[group]).results
        assert {each.name: each.value for each in described.configs} == {TOPIC_NAME: "failed-t", COPY: "false"}


def test_letters_are_written_after_the_broker_was_killed(own_broker: Callable[..., Subject]) -> None:
    """While its dead-letter topic cannot take them, letters wait, also over a kill."""
    broker = own_broker(min_insync_replicas="1")
    raw_client.create_topic(broker.bootstrap, "t", 1, {})
    raw_client.create_topic(broker.bootstrap, "dlq.t", 1, {ENABLE: "true", "min.insync.replicas": "2"})
    with Connection(broker.bootstrap) as connection:
        topic_id = raw_client.wait_topic(connection, "t", 1)
        raw_client.until_coordinated(connection, name="g")
        for name, value in ((TOPIC_NAME, "dlq.t"), (COPY, "true"), ("share.auto.offset.reset", "earliest")):
            assert configure(connection, "g", name, value) is Error.none
        send(broker.bootstrap, "t", "a", "b")
        one = Member(broker.bootstrap, "g", topic_id)
        assert acquired(until_acquired(one)) == [(0, 1, 1)]
        assert part(one.acknowledge((0, 0, ACCEPT), (1, 1, REJECT))).error_code is Error.none
        one.close()
    broker.kill()
    broker.start()
    with Connection(broker.bootstrap) as connection:
        raw_client.wait_topic(connection, "t", 1)
        assert raw_client.offset_at(connection, "dlq.t", -1).offset == 0
        configs = [{"name": "min.insync.replicas", "config_operation": 0, "value": "1"}]
        resource = {"resource_type": 2, "resource_name": "dlq.t", "configs": configs}
        (told,) = connection.call(raw_client.INCREMENTAL_ALTER_CONFIGS, 1, resources=[resource]).responses
        assert told.error_code is Error.none
        send(broker.bootstrap, "t", "c")
        other = Member(broker.bootstrap, "g", topic_id)
        try:
            assert acquired(until_acquired(other)) == [(2, 2, 1)], "what was rejected is not delivered again"
        finally:
            other.close()
    assert letters(broker.bootstrap, "dlq.t", 1) == [(b"key of b", b"b", context("t", "g", 1, 1, REJECTED), 0)]


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_letters_of_every_partition_reach_a_topic_that_other_brokers_lead(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    partitions, count = 6, 60
    with ClusterProcesses(tmp_path_factory.mktemp("dead-letters"), brokers=3) as cluster:
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
        made = admin.create_topics(
            [NewTopic("jobs", partitions, 3), NewTopic("dlq.jobs", 4, 3, config={ENABLE: "true"})]
        )
        for done in made.values():
            done.result(60)
        wanted = {TOPIC_NAME: "dlq.jobs", COPY: "true", "share.auto.offset.reset": "earliest"}
        entries = [
            ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET) for name, value in wanted.items()
        ]
        resource = ConfigResource(ResourceType.GROUP, "workers", incremental_configs=entries)
        for done in admin.incremental_alter_configs([resource]).values():
            done.result(60)
        producer = Producer({"bootstrap.servers": cluster.bootstrap})
        for number in range(count):
            producer.produce("jobs", str(number), partition=number % partitions)
        assert producer.flush(PATIENCE_S) == 0
        _reject_all(cluster, partitions)
        found = letters(cluster.bootstrap, "dlq.jobs", count)
        assert sorted(int(value or b"") for _, value, _, _ in found) == list(range(count))
        for _, value, headers, partition in found:
            source = int(headers["__dlq.errors.partition"])
            assert source == int(value or b"") % partitions
            assert partition == source % 4


def _reject_all(cluster: ClusterProcesses, partitions: int) -> None:
    """Reject everything, partition by partition, at its leader."""
    with Connection(cluster.brokers[1].bootstrap) as connection:
        image = connection.call(raw_client.METADATA, 12, topics=[{"topic_id": None, "name": "jobs"}])
    addresses = {node.node_id: f"{node.host}:{node.port}" for node in image.brokers}
    for each in image.topics[0].partitions:
        one = Member(addresses[each.leader_id], "workers", image.topics[0].topic_id, each.partition_index)
        try:
            left = 10
            while left:
                spans = acquired(until_acquired(one))
                assert (
                    part(one.acknowledge(*((first, last, REJECT) for first, last, _ in spans))).error_code is Error.none
                )
                left -= sum(last - first + 1 for first, last, _ in spans)
        finally:
            one.close()
