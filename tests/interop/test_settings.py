"""Topic settings do what they say, and a change takes effect while the broker runs."""

import time
from collections.abc import Callable
from contextlib import closing

import pytest
from confluent_kafka import TIMESTAMP_LOG_APPEND_TIME, Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType
from kafka.errors import InvalidRecordError

from kafka import KafkaProducer

from . import batches, raw_client, subject
from .batches import Record
from .subject import Subject

Error = raw_client.Error
HOUR_MS = 3_600_000


def change(bootstrap: str, topic: str, name: str, value: str) -> None:
    """Set one setting and wait until the broker says that it is in force."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    entry = ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
    (done,) = admin.incremental_alter_configs(
        [ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])]
    ).values()
    done.result(60)
    end = time.monotonic() + 60
    while True:
        (found,) = admin.describe_configs([ConfigResource(ResourceType.TOPIC, topic)]).values()
        if found.result(60)[name].value == value:
            return
        assert time.monotonic() < end


def eventually_produces(
    connection: raw_client.Connection, topic: str, records: Callable[[], bytes], expected: Error
) -> None:
    """Produce until the answer is `expected`: a change may take a moment to reach the log."""
    end = time.monotonic() + 60
    while (found := raw_client.produce(connection, topic, records()).error_code) != expected:
        assert time.monotonic() < end, f"still {found}, not {expected}"
        time.sleep(0.05)


def test_max_message_bytes_both_ways(broker: Subject, connection: raw_client.Connection, topic: str) -> None:
    def large() -> bytes:
        return batches.batch([b"x" * 50_000])

    eventually_produces(connection, topic, large, Error.none)
    change(broker.bootstrap, topic, "max.message.bytes", "10000")
    eventually_produces(connection, topic, large, Error.message_too_large)
    change(broker.bootstrap, topic, "max.message.bytes", "100000")
    eventually_produces(connection, topic, large, Error.none)


# Time


def test_create_time_is_kept(connection: raw_client.Connection, topic: str) -> None:
    when = batches.now_ms() - HOUR_MS
    answer = raw_client.produce(connection, topic, batches.batch([Record(b"v", timestamp_ms=when)]))
    assert answer.log_append_time is None
    (found,) = batches.parse(raw_client.fetch(connection, topic).records)
    assert found.records[0].timestamp_ms == when


@pytest.mark.parametrize("codec", range(5))
def test_log_append_time_is_the_brokers(
    codec: int, connection: raw_client.Connection, new_topic: Callable[..., str]
) -> None:
    topic = new_topic(message_timestamp_type="LogAppendTime")
    before = batches.now_ms()
    sent = [Record(b"a", timestamp_ms=before - HOUR_MS), Record(b"b", timestamp_ms=before - 2 * HOUR_MS)]
    answer = raw_client.produce(connection, topic, batches.batch(sent, codec=codec))
    after = batches.now_ms()
    assert before <= int(answer.log_append_time.timestamp() * 1000) <= after
    (found,) = batches.parse(raw_client.fetch(connection, topic).records)
    assert found.attributes & batches.LOG_APPEND_TIME
    assert [record.value for record in found.records] == [b"a", b"b"]
    assert {record.timestamp_ms for record in found.records} == {int(answer.log_append_time.timestamp() * 1000)}


def test_clients_see_log_append_time(broker: Subject, new_topic: Callable[..., str]) -> None:
    topic = new_topic(message_timestamp_type="LogAppendTime")
    before = batches.now_ms()
    with closing(KafkaProducer(bootstrap_servers=broker.bootstrap)) as producer:
        sent = producer.send(topic, b"v", timestamp_ms=before - HOUR_MS).get(60)
    assert before <= sent.timestamp <= batches.now_ms()
    settings = {"bootstrap.servers": broker.bootstrap, "group.id": "unused", "enable.auto.commit": False}
    with closing(Consumer(settings)) as consumer:
        consumer.assign([TopicPartition(topic, 0, 0)])
        message = consumer.poll(60)
        assert message is not None
        assert message.timestamp() == (TIMESTAMP_LOG_APPEND_TIME, sent.timestamp)


def test_log_append_time_can_be_switched_on(broker: Subject, connection: raw_client.Connection, topic: str) -> None:
    change(broker.bootstrap, topic, "message.timestamp.type", "LogAppendTime")
    end = time.monotonic() + 60
    while raw_client.produce(connection, topic, batches.batch([b"v"])).log_append_time is None:
        assert time.monotonic() < end
        time.sleep(0.05)


def test_a_time_too_far_ahead_is_refused(broker: Subject, connection: raw_client.Connection, topic: str) -> None:
    def ahead(hours: float) -> bytes:
        return batches.batch([Record(b"v", timestamp_ms=batches.now_ms() + int(hours * HOUR_MS))])

    assert raw_client.produce(connection, topic, ahead(0.9)).error_code == Error.none
    refused = raw_client.produce(connection, topic, ahead(1.1))
    assert (refused.error_code, refused.base_offset) == (Error.invalid_timestamp, -1)
    change(broker.bootstrap, topic, "message.timestamp.after.max.ms", str(2 * HOUR_MS))
    eventually_produces(connection, topic, lambda: ahead(1.1), Error.none)


def test_a_time_too_far_back_is_refused(connection: raw_client.Connection, new_topic: Callable[..., str]) -> None:
    topic = new_topic(message_timestamp_before_max_ms=str(HOUR_MS))

    def back(hours: float) -> bytes:
        return batches.batch([Record(b"v", timestamp_ms=batches.now_ms() - int(hours * HOUR_MS))])

    assert raw_client.produce(connection, topic, back(0.9)).error_code == Error.none
    assert raw_client.produce(connection, topic, back(1.1)).error_code == Error.invalid_timestamp


def test_one_bad_time_refuses_the_whole_batch(connection: raw_client.Connection, topic: str) -> None:
    now = batches.now_ms()
    sent = batches.batch([Record(b"good", timestamp_ms=now), Record(b"bad", timestamp_ms=now + 2 * HOUR_MS)])
    assert raw_client.produce(connection, topic, sent).error_code == Error.invalid_timestamp
    assert raw_client.offset_at(connection, topic, -1).offset == 0


# Compacted topics


@pytest.mark.parametrize("codec", range(5))
def test_a_compacted_topic_refuses_records_without_a_key(
    codec: int, connection: raw_client.Connection, new_topic: Callable[..., str]
) -> None:
    topic = new_topic(cleanup_policy="compact")
    assert (
        raw_client.produce(connection, topic, batches.batch([Record(b"v", b"k")], codec=codec)).error_code == Error.none
    )
    refused = raw_client.produce(
        connection, topic, batches.batch([Record(b"v", b"k"), Record(b"v"), Record(b"w")], codec=codec)
    )
    assert refused.error_code == Error.invalid_record
    assert refused.base_offset == -1
    assert [error.batch_index for error in refused.record_errors] == [1, 2]
    assert raw_client.offset_at(connection, topic, -1).offset == 1


def test_clients_are_told_about_the_missing_key(broker: Subject, new_topic: Callable[..., str]) -> None:
    topic = new_topic(cleanup_policy="compact")
    with closing(KafkaProducer(bootstrap_servers=broker.bootstrap)) as producer, pytest.raises(InvalidRecordError):
        producer.send(topic, b"no key").get(60)
    with closing(KafkaProducer(bootstrap_servers=broker.bootstrap)) as producer:
        assert producer.send(topic, b"v", b"k").get(60).offset == 0
    outcomes: list[int | None] = []
    confluent = Producer({"bootstrap.servers": broker.bootstrap})
    confluent.produce(topic, b"no key", on_delivery=lambda error, _: outcomes.append(error and error.code()))
    assert confluent.flush(60) == 0
    assert outcomes == [KafkaError.INVALID_RECORD]


def test_compaction_can_be_switched_on(broker: Subject, connection: raw_client.Connection, topic: str) -> None:
    assert raw_client.produce(connection, topic, batches.batch([b"no key"])).error_code == Error.none
    change(broker.bootstrap, topic, "cleanup.policy", "compact")
    eventually_produces(connection, topic, lambda: batches.batch([b"no key"]), Error.invalid_record)


def read_all(connection: raw_client.Connection, topic: str) -> list[Record]:
    found: list[Record] = []
    offset = raw_client.offset_at(connection, topic, -2).offset
    end = raw_client.offset_at(connection, topic, -1).offset
    while offset < end:
        part = raw_client.fetch(connection, topic, offset)
        assert part.error_code == Error.none
        for one in batches.parse(part.records):
            found += [record for record in one.records if record.offset >= offset]
            offset = one.base_offset + one.last_offset_delta + 1
    return found


def test_compaction_keeps_the_last_value_of_each_key(own_broker: Callable[..., Subject]) -> None:
    broker = own_broker(log_cleaner_backoff_ms="100")
    topic = "compacted"
    settings = {
        "cleanup.policy": "compact",
        "segment.ms": "200",
        "min.cleanable.dirty.ratio": "0.01",
        "delete.retention.ms": "0",
    }
    raw_client.create_topic(broker.bootstrap, topic, 1, settings)
    with raw_client.Connection(broker.bootstrap) as connection:
        for turn in range(4):
            some = [Record(b"%d-%d" % (turn, key), b"key-%d" % key) for key in range(10)]
            assert raw_client.produce(connection, topic, batches.batch(some, codec=turn)).error_code == Error.none
        deleted = batches.batch([Record(None, b"key-3")])
        assert raw_client.produce(connection, topic, deleted).error_code == Error.none

        def live() -> dict[bytes | None, list[tuple[int, bytes | None]]]:
            by_key: dict[bytes | None, list[tuple[int, bytes | None]]] = {}
            for record in read_all(connection, topic):
                if record.key != b"tick":
                    by_key.setdefault(record.key, []).append((record.offset, record.value))
            return by_key

        expected = {b"key-%d" % key: [(30 + key, b"3-%d" % key)] for key in range(10) if key != 3}
        end = time.monotonic() + 60
        while live() != expected:
            assert time.monotonic() < end, live()
            # The active segment is never compacted: a record now and then rolls it.
            assert raw_client.produce(connection, topic, batches.batch([Record(b"", b"tick")])).error_code == Error.none
            time.sleep(0.2)


def test_the_cleaner_can_be_woken_while_the_broker_runs(own_broker: Callable[..., Subject]) -> None:
    """It rests for an hour when there is nothing to do, until it is told to rest for a tenth of a second."""
    broker = own_broker(log_cleaner_backoff_ms=str(HOUR_MS))
    settings = {"cleanup.policy": "compact", "segment.ms": "200", "min.cleanable.dirty.ratio": "0.01"}
    raw_client.create_topic(broker.bootstrap, "compacted", 1, settings)
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    (node,) = admin.describe_cluster().result(60).nodes
    entry = ConfigEntry("log.cleaner.backoff.ms", "100", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.BROKER, str(node.id), incremental_configs=[entry])
    (done,) = admin.incremental_alter_configs([resource]).values()
    done.result(60)
    with raw_client.Connection(broker.bootstrap) as connection:
        end = time.monotonic() + 60
        while True:
            assert (
                raw_client.produce(connection, "compacted", batches.batch([Record(b"v", b"key")])).error_code
                == Error.none
            )
            if len(read_all(connection, "compacted")) < raw_client.offset_at(connection, "compacted", -1).offset:
                break
            assert time.monotonic() < end, "nothing was compacted"
            time.sleep(0.1)


# Retention


@pytest.mark.parametrize(
    "settings",
    [{"retention.ms": "1000", "segment.ms": "200"}, {"retention.bytes": "2000000", "segment.bytes": "1048576"}],
)
def test_old_segments_go(settings: dict[str, str], own_broker: Callable[..., Subject]) -> None:
    quick = {"log_retention_check_interval_ms": "100"}
    if not subject.IS_HEADRACE:
        quick["log_initial_task_delay_ms"] = "100"
    broker = own_broker(**quick)
    raw_client.create_topic(broker.bootstrap, "short-lived", 1, settings)
    with raw_client.Connection(broker.bootstrap) as connection:
        end = time.monotonic() + 60
        while raw_client.offset_at(connection, "short-lived", -2).offset <= 0:
            assert time.monotonic() < end
            assert (
                raw_client.produce(connection, "short-lived", batches.batch([b"x" * 200_000])).error_code == Error.none
            )
            time.sleep(0.05)
        assert raw_client.fetch(connection, "short-lived", 0).error_code == Error.offset_out_of_range
        # What is newer is there, for as long as it is new: between asking where it starts and reading it may go, too.
        while True:
            assert time.monotonic() < end
            assert raw_client.produce(connection, "short-lived", batches.batch([b"new"])).error_code == Error.none
            first = raw_client.offset_at(connection, "short-lived", -2).offset
            found = raw_client.fetch(connection, "short-lived", first)
            if found.error_code != Error.offset_out_of_range:
                break
        assert found.error_code == Error.none
        assert found.log_start_offset >= first
        assert raw_client.offset_at(connection, "short-lived", -1).offset > first


def test_settings_and_topics_survive_a_restart(own_broker: Callable[..., Subject]) -> None:
    broker = own_broker()
    topic_id = raw_client.create_topic(broker.bootstrap, "kept", 3, {"retention.ms": "123456789"})
    change(broker.bootstrap, "kept", "max.message.bytes", "5000")
    assert broker.terminate() == 0
    broker.start()
    with raw_client.Connection(broker.bootstrap) as connection:
        assert raw_client.wait_topic(connection, "kept", 3) == topic_id
        eventually_produces(connection, "kept", lambda: batches.batch([b"x" * 6000]), Error.message_too_large)
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    (found,) = admin.describe_configs([ConfigResource(ResourceType.TOPIC, "kept")]).values()
    assert found.result(60)["retention.ms"].value == "123456789"


def test_a_broker_setting_that_needs_a_restart_cannot_be_altered(broker: Subject) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    (node,) = admin.describe_cluster().result(60).nodes
    entry = ConfigEntry("connections.max.idle.ms", "99", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.BROKER, str(node.id), incremental_configs=[entry])
    (done,) = admin.incremental_alter_configs([resource]).values()
    with pytest.raises(KafkaException) as caught:
        done.result(60)
    assert caught.value.args[0].code() in (KafkaError.INVALID_REQUEST, KafkaError.INVALID_CONFIG)
