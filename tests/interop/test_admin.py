"""Topics through the admin clients: create, describe, grow, configure, truncate, delete."""

import asyncio
import subprocess
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

import pytest
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.admin import NewTopic as AioTopic
from aiokafka.admin.config_resource import ConfigResource as AioResource
from aiokafka.admin.config_resource import ConfigResourceType as AioResourceType
from aiokafka.admin.new_partitions import NewPartitions as AioPartitions
from aiokafka.admin.records_to_delete import RecordsToDelete
from aiokafka.structs import TopicPartition as AioPartition
from confluent_kafka import Consumer, KafkaError, KafkaException, TopicCollection, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ConfigSource,
    NewPartitions,
    NewTopic,
    OffsetSpec,
    ResourceType,
)
from kafka.admin import ConfigResource as PythonResource
from kafka.admin import ConfigResourceType as PythonResourceType
from kafka.admin import NewPartitions as PythonPartitions
from kafka.admin import NewTopic as PythonTopic
from kafka.errors import TopicAlreadyExistsError

from kafka import KafkaAdminClient, KafkaProducer
from kafka import TopicPartition as PythonPartition
from tests.waiting import until

from . import batches, clients, raw_client
from .batches import Record
from .subject import Subject


def fresh_name() -> str:
    return f"admin-{uuid.uuid4().hex[:8]}"


def one(futures: dict[Any, Any]) -> Any:
    """The result of the only future; its error is raised."""
    (future,) = futures.values()
    return future.result(60)


def code_of(futures: dict[Any, Any]) -> int:
    with pytest.raises(KafkaException) as caught:
        one(futures)
    code: int = caught.value.args[0].code()
    return code


@pytest.fixture
def admin(broker: Subject) -> AdminClient:
    return AdminClient({"bootstrap.servers": broker.bootstrap})


@pytest.fixture
def python_admin(broker: Subject) -> Iterator[KafkaAdminClient]:
    with closing(KafkaAdminClient(bootstrap_servers=broker.bootstrap)) as client:
        yield client


def settings_of(admin: AdminClient, topic: str) -> dict[str, Any]:
    found: dict[str, Any] = one(admin.describe_configs([ConfigResource(ResourceType.TOPIC, topic)]))
    return found


# Topics


def test_create_describe_and_delete(admin: AdminClient, broker: Subject) -> None:
    name = fresh_name()
    one(admin.create_topics([NewTopic(name, 3, 1, config={"retention.ms": "1234567"})]))
    until(lambda: name in admin.list_topics(timeout=60).topics, "listed")
    described = one(admin.describe_topics(TopicCollection([name])))
    assert described.name == name
    assert not described.is_internal
    assert [partition.id for partition in described.partitions] == [0, 1, 2]
    (node,) = one({"cluster": admin.describe_cluster()}).nodes
    for partition in described.partitions:
        assert partition.leader.id == node.id
        assert [replica.id for replica in partition.replicas] == [node.id]
        assert [replica.id for replica in partition.isr] == [node.id]
    assert settings_of(admin, name)["retention.ms"].value == "1234567"

    one(admin.delete_topics([name]))
    until(lambda: name not in admin.list_topics(timeout=60).topics, "gone")
    assert code_of(admin.describe_topics(TopicCollection([name]))) == KafkaError.UNKNOWN_TOPIC_OR_PART


def test_a_topic_made_again_is_empty_and_has_another_id(admin: AdminClient, broker: Subject) -> None:
    name = fresh_name()
    first = raw_client.create_topic(broker.bootstrap, name)
    clients.Confluent().write(broker.bootstrap, name, [Record(b"old")])
    one(admin.delete_topics([name]))
    until(lambda: name not in admin.list_topics(timeout=60).topics, "gone")
    assert raw_client.create_topic(broker.bootstrap, name) != first
    with raw_client.Connection(broker.bootstrap) as connection:
        assert raw_client.offset_at(connection, name, -1).offset == 0
    clients.Confluent().write(broker.bootstrap, name, [Record(b"new")])
    assert clients.AioKafka().read(broker.bootstrap, name, 1)[0].value == b"new"


def test_what_cannot_be_created_is_refused_with_the_reason(admin: AdminClient, topic: str) -> None:
    def create(*arguments: Any, **settings: Any) -> int:
        return code_of(admin.create_topics([NewTopic(*arguments, **settings)]))

    assert create(topic, 1, 1) == KafkaError.TOPIC_ALREADY_EXISTS
    assert create("no/slashes", 1, 1) == KafkaError.TOPIC_EXCEPTION
    assert create("..", 1, 1) == KafkaError.TOPIC_EXCEPTION
    assert create("x" * 250, 1, 1) == KafkaError.TOPIC_EXCEPTION
    assert create(fresh_name(), 1, 3) == KafkaError.INVALID_REPLICATION_FACTOR
    assert create(fresh_name(), 1, 1, config={"retention.ms": "soon"}) == KafkaError.INVALID_CONFIG
    assert create(fresh_name(), 1, 1, config={"no.such.setting": "1"}) == KafkaError.INVALID_CONFIG


def test_validate_only_creates_nothing(admin: AdminClient) -> None:
    name = fresh_name()
    one(admin.create_topics([NewTopic(name, 1, 1)], validate_only=True))
    assert name not in admin.list_topics(timeout=60).topics


def test_partitions_can_be_added_but_not_taken_away(
    admin: AdminClient, broker: Subject, new_topic: Callable[..., str]
) -> None:
    topic = new_topic(partitions=2)
    clients.Confluent().write(broker.bootstrap, topic, [Record(b"before")], partition=1)
    one(admin.create_partitions([NewPartitions(topic, 5)]))
    until(lambda: len(admin.list_topics(topic, timeout=60).topics[topic].partitions) == 5, "five partitions")
    with raw_client.Connection(broker.bootstrap) as connection:
        raw_client.wait_topic(connection, topic, 5)
    clients.Confluent().write(broker.bootstrap, topic, [Record(b"after")], partition=4)
    assert clients.AioKafka().read(broker.bootstrap, topic, 1, partition=1)[0].value == b"before"
    assert clients.AioKafka().read(broker.bootstrap, topic, 1, partition=4)[0].value == b"after"
    assert code_of(admin.create_partitions([NewPartitions(topic, 3)])) == KafkaError.INVALID_PARTITIONS
    assert code_of(admin.create_partitions([NewPartitions(topic, 5)])) == KafkaError.INVALID_PARTITIONS


# Settings


def test_describe_gives_every_default(admin: AdminClient, topic: str) -> None:
    found = settings_of(admin, topic)
    expected = {
        "cleanup.policy": "delete",
        "compression.type": "producer",
        "max.message.bytes": "1048588",
        "message.timestamp.type": "CreateTime",
        "min.insync.replicas": "1",
        "retention.bytes": "-1",
        "retention.ms": "604800000",
        "segment.bytes": "1073741824",
        "unclean.leader.election.enable": "false",
    }
    assert {name: found[name].value for name in expected} == expected
    assert ConfigSource(found["retention.ms"].source) == ConfigSource.DEFAULT_CONFIG
    assert not any(entry.is_read_only or entry.is_sensitive for entry in found.values())


def test_broker_settings_can_be_described(admin: AdminClient) -> None:
    (node,) = one({"cluster": admin.describe_cluster()}).nodes
    found = one(admin.describe_configs([ConfigResource(ResourceType.BROKER, str(node.id))]))
    assert found["num.partitions"].value == "4"
    assert found["message.max.bytes"].value == "1048588"
    assert found["advertised.listeners"].is_read_only


def test_incremental_changes_leave_the_other_settings_alone(admin: AdminClient, new_topic: Callable[..., str]) -> None:
    topic = new_topic(retention_ms="1000000", segment_bytes="2000000")

    def change(name: str, value: str | None, operation: AlterConfigOpType) -> None:
        entry = ConfigEntry(name, value, incremental_operation=operation)
        one(admin.incremental_alter_configs([ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])]))

    def becomes(name: str, value: str) -> None:
        until(lambda: settings_of(admin, topic)[name].value == value, f"{name}={value}")

    change("retention.ms", "2000000", AlterConfigOpType.SET)
    becomes("retention.ms", "2000000")
    change("cleanup.policy", "compact", AlterConfigOpType.APPEND)
    becomes("cleanup.policy", "delete,compact")
    change("cleanup.policy", "delete", AlterConfigOpType.SUBTRACT)
    becomes("cleanup.policy", "compact")
    change("retention.ms", None, AlterConfigOpType.DELETE)
    becomes("retention.ms", "604800000")
    assert settings_of(admin, topic)["segment.bytes"].value == "2000000"
    assert ConfigSource(settings_of(admin, topic)["segment.bytes"].source) == ConfigSource.DYNAMIC_TOPIC_CONFIG


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_full_change_resets_the_other_settings(admin: AdminClient, new_topic: Callable[..., str]) -> None:
    topic = new_topic(retention_ms="1000000", segment_bytes="2000000")
    one(admin.alter_configs([ConfigResource(ResourceType.TOPIC, topic, set_config={"retention.ms": "3000000"})]))
    until(lambda: settings_of(admin, topic)["segment.bytes"].value == "1073741824", "segment.bytes is the default")
    assert settings_of(admin, topic)["retention.ms"].value == "3000000"


def test_a_bad_setting_is_refused_and_nothing_changes(admin: AdminClient, topic: str) -> None:
    for name, value in [
        ("retention.ms", "soon"),
        ("no.such.setting", "1"),
        ("cleanup.policy", "burn"),
        ("segment.bytes", "-1"),
    ]:
        entry = ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
        assert code_of(admin.incremental_alter_configs([resource])) == KafkaError.INVALID_CONFIG, name
    assert settings_of(admin, topic)["retention.ms"].value == "604800000"


def test_settings_of_an_unknown_topic(admin: AdminClient) -> None:
    resource = ConfigResource(ResourceType.TOPIC, fresh_name())
    assert code_of(admin.describe_configs([resource])) == KafkaError.UNKNOWN_TOPIC_OR_PART


# Records and offsets


def test_deleted_records_are_gone_and_the_log_starts_later(admin: AdminClient, broker: Subject, topic: str) -> None:
    clients.Confluent().write(broker.bootstrap, topic, [Record(b"%d" % at) for at in range(10)])
    assert one(admin.delete_records([TopicPartition(topic, 0, 4)])).low_watermark == 4
    found = clients.AioKafka().read(broker.bootstrap, topic, 6)
    assert [(record.offset, record.value) for record in found] == [(at, b"%d" % at) for at in range(4, 10)]
    with closing(Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "unused"})) as consumer:
        assert consumer.get_watermark_offsets(TopicPartition(topic, 0), 60) == (4, 10)
    assert code_of(admin.delete_records([TopicPartition(topic, 0, 11)])) == KafkaError.OFFSET_OUT_OF_RANGE
    assert one(admin.delete_records([TopicPartition(topic, 0, -1)])).low_watermark == 10


def test_list_offsets(admin: AdminClient, broker: Subject, topic: str) -> None:
    first_ms = batches.now_ms() - 100_000
    sent = [Record(b"%d" % at, timestamp_ms=first_ms + at * 1000) for at in (0, 1, 9, 3)]
    clients.Confluent().write(broker.bootstrap, topic, sent)

    def offset(spec: OffsetSpec) -> int:
        found: int = one(admin.list_offsets({TopicPartition(topic, 0): spec})).offset
        return found

    assert offset(OffsetSpec.earliest()) == 0
    assert offset(OffsetSpec.latest()) == 4
    assert offset(OffsetSpec.max_timestamp()) == 2
    assert offset(OffsetSpec.for_timestamp(first_ms + 500)) == 1
    assert offset(OffsetSpec.for_timestamp(first_ms + 100_000)) == -1


# kafka-python and aiokafka


def test_kafka_python_admin(python_admin: KafkaAdminClient, broker: Subject) -> None:
    name = fresh_name()
    python_admin.create_topics([PythonTopic(name, 2, 1)], wait_for_metadata=True)
    with pytest.raises(TopicAlreadyExistsError):
        python_admin.create_topics([PythonTopic(name, 2, 1)])
    assert name in python_admin.list_topics()
    (described,) = python_admin.describe_topics([name])
    assert described["error_code"] == 0
    assert sorted(partition["partition_index"] for partition in described["partitions"]) == [0, 1]

    resource = PythonResource(PythonResourceType.TOPIC, name, {"retention.ms": "5000000"})
    python_admin.alter_configs([resource])

    def retention() -> str:
        wanted = PythonResource(PythonResourceType.TOPIC, name)
        value: str = python_admin.describe_configs([wanted], config_filter="all")["topic"][name]["retention.ms"][
            "value"
        ]
        return value

    until(lambda: retention() == "5000000", "retention.ms is set")
    python_admin.create_partitions({name: PythonPartitions(4)})
    until(lambda: len(python_admin.describe_topics([name])[0]["partitions"]) == 4, "four partitions")

    clients.KafkaPython().write(broker.bootstrap, name, [Record(b"%d" % at) for at in range(5)])
    where = PythonPartition(name, 0)
    assert python_admin.delete_records({where: 3})[where]["low_watermark"] == 3
    assert clients.KafkaPython().read(broker.bootstrap, name, 2)[0].offset == 3
    python_admin.delete_topics([name])
    until(lambda: name not in python_admin.list_topics(), "gone")


def test_kafka_python_describes_the_cluster(python_admin: KafkaAdminClient, broker: Subject) -> None:
    described = python_admin.describe_cluster()
    assert [f"{node['host']}:{node['port']}" for node in described["brokers"]] == [broker.bootstrap]
    assert described["cluster_id"]
    (logs,) = python_admin.describe_log_dirs()
    assert logs


def test_aiokafka_admin(broker: Subject) -> None:
    async def run() -> None:
        name = fresh_name()
        client = AIOKafkaAdminClient(bootstrap_servers=broker.bootstrap)
        await client.start()
        try:
            created = await client.create_topics([AioTopic(name, 2, 1)])
            assert [error for _, error, *_ in created.topic_errors] == [0]
            end = time.monotonic() + 60
            while name not in await client.list_topics():
                assert time.monotonic() < end
            assert len((await client.describe_topics([name]))[0]["partitions"]) == 2
            await client.create_partitions({name: AioPartitions(3)})
            while len((await client.describe_topics([name]))[0]["partitions"]) != 3:
                assert time.monotonic() < end
            await client.alter_configs([AioResource(AioResourceType.TOPIC, name, {"retention.ms": "7000000"})])
            while True:
                (answer,) = await client.describe_configs([AioResource(AioResourceType.TOPIC, name)])
                ((_, _, _, _, entries),) = answer.resources
                if {entry[0]: entry[1] for entry in entries}["retention.ms"] == "7000000":
                    break
                assert time.monotonic() < end
            where = AioPartition(name, 0)
            await asyncio.to_thread(clients.AioKafka().write, broker.bootstrap, name, [Record(b"1"), Record(b"2")])
            assert await client.delete_records({where: RecordsToDelete(1)}) == {where: 1}
            assert (await client.describe_cluster())["cluster_id"]
            await client.delete_topics([name])
            while name in await client.list_topics():
                assert time.monotonic() < end
        finally:
            await client.close()

    asyncio.run(run())


@clients.NO_KCAT
def test_kcat_lists_topics_with_their_partitions(broker: Subject, new_topic: Callable[..., str]) -> None:
    topic = new_topic(partitions=3)
    done = subprocess.run(
        ["kcat", "-L", "-b", broker.bootstrap, "-t", topic], check=True, capture_output=True, timeout=60
    )
    assert f'topic "{topic}" with 3 partitions'.encode() in done.stdout


# Auto-creation


def test_a_topic_is_created_by_the_first_producer(broker: Subject) -> None:
    name = fresh_name()
    with closing(KafkaProducer(bootstrap_servers=broker.bootstrap)) as producer:
        assert producer.send(name, b"first", partition=0).get(60).offset == 0
        assert producer.partitions_for(name) == {0, 1, 2, 3}
    assert clients.Confluent().read(broker.bootstrap, name, 1)[0].value == b"first"


def test_asking_without_permission_to_create_creates_nothing(admin: AdminClient, broker: Subject) -> None:
    name = fresh_name()
    with raw_client.Connection(broker.bootstrap) as connection:
        (found,) = connection.call(
            raw_client.METADATA, 9, topics=[{"name": name}], allow_auto_topic_creation=False
        ).topics
    assert found.error_code == raw_client.Error.unknown_topic_or_partition
    assert name not in admin.list_topics(timeout=60).topics


def test_auto_creation_can_be_switched_off(own_broker: Callable[..., Subject]) -> None:
    broker = own_broker(auto_create_topics_enable="false")
    name = fresh_name()
    with raw_client.Connection(broker.bootstrap) as connection:
        for _ in range(2):
            (found,) = connection.call(
                raw_client.METADATA, 9, topics=[{"name": name}], allow_auto_topic_creation=True
            ).topics
            assert found.error_code == raw_client.Error.unknown_topic_or_partition
