"""The figures of a single broker, which is the whole cluster."""

from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition

from headrace import Client
from headrace.monitor.snapshots import QueueStat
from headrace.testing.broker import Broker
from tests.monitored import ask_monitor, eventually


@pytest.fixture
def broker(tmp_path: Path):
    with Broker(tmp_path / "data", settings={"num.partitions": 2}) as running:
        yield running


def test_topics_and_groups_with_their_lag(broker: Broker) -> None:
    with Client(broker.bootstrap) as client:
        for number in range(10):
            client.publish("orders", f"{number}", key=f"{number}")
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "readers"})
    consumer.commit(offsets=[TopicPartition("orders", 0, 1), TopicPartition("orders", 1, 0)], asynchronous=False)
    consumer.close()
    topics = eventually(
        lambda: {each.name: each for each in ask_monitor(broker, lambda monitor: monitor.topics())},
        lambda found: found["orders"].messages == 10 and found["orders"].groups == 1,
    )
    orders = topics["orders"]
    assert (orders.partitions, orders.replicas, orders.messages) == (2, 1, 10)
    assert (orders.unknown, orders.offline, orders.under_replicated) == (0, 0, 0)
    assert orders.size_bytes > 0
    assert (orders.groups, orders.lag_messages_max) == (1, 9)
    assert topics["__consumer_offsets"].is_internal
    (group,) = ask_monitor(broker, lambda monitor: monitor.groups())
    assert (group.group, group.state, group.members, group.lag_messages) == ("readers", "Empty", 0, 9)
    detail = ask_monitor(broker, lambda monitor: monitor.group("readers"))
    assert detail is not None
    assert [(each.topic, each.partition, each.committed) for each in detail.partitions] == [
        ("orders", 0, 1),
        ("orders", 1, 0),
    ]
    assert sum(each.lag_messages or 0 for each in detail.partitions) == 9
    found = ask_monitor(broker, lambda monitor: monitor.topic("orders"))
    assert found is not None
    assert [each.end_offset for each in found.partitions] == [each.end_offset for each in detail.partitions]
    assert [each.group for each in found.groups] == ["readers"]


def test_queues_with_their_dead_letters(broker: Broker) -> None:
    with Client(broker.bootstrap) as client:
        failed, jobs = client.queue("failed"), client.queue("jobs")
        failed.create()
        jobs.create(dead_letter="failed", max_receives=3)
        failed.send("lost")
        jobs.send("one")
        jobs.send("two", delay=60)
    queues = eventually(
        lambda: {each.queue: each for each in ask_monitor(broker, lambda monitor: monitor.queues())},
        lambda found: found["jobs"].delayed == 1,
    )
    jobs_stat, failed_stat = queues["jobs"], queues["failed"]
    assert (jobs_stat.visible, jobs_stat.in_flight, jobs_stat.delayed) == (1, 0, 1)
    assert (jobs_stat.dead_letter_queue, jobs_stat.dead_letters) == ("failed", 1)
    assert (failed_stat.visible, failed_stat.dead_letters, failed_stat.dead_letters_of) == (1, None, ["jobs"])


def test_queues_with_their_rates_and_the_age_of_the_oldest_message(broker: Broker) -> None:
    with Client(broker.bootstrap) as client:
        jobs = client.queue("jobs")
        jobs.create()
        ask_monitor(broker, lambda monitor: monitor.sample())
        for number in range(6):
            jobs.send(f"{number}")
        for message in jobs.receive(2):
            message.ack()

        def sampled() -> QueueStat | None:
            ask_monitor(broker, lambda monitor: monitor.sample())
            return ask_monitor(broker, lambda monitor: monitor.queue("jobs"))

        found = eventually(sampled, lambda each: each is not None and each.last_received_ms is not None)
        assert found is not None
        assert found.oldest_age_s is not None
        assert 0 < found.oldest_age_s < 60
        history = ask_monitor(broker, lambda monitor: monitor.history("queue", "jobs"))
        assert any(history.series["sent_per_s"])
        assert any(history.series["received_per_s"])
        assert any(history.series["visible"])


def test_the_overview_has_the_broker_and_its_disk(broker: Broker) -> None:
    found = ask_monitor(broker, lambda monitor: monitor.overview())
    (own,) = found.brokers
    assert own.totals is not None
    assert (own.state, own.is_controller, own.problem) == ("active", True, "")
    assert found.without_data == []
    (disk,) = found.disks
    assert 0 < disk.free_bytes <= disk.total_bytes


def test_what_does_not_exist_is_none(broker: Broker) -> None:
    assert ask_monitor(broker, lambda monitor: monitor.topic("missing")) is None
    assert ask_monitor(broker, lambda monitor: monitor.group("missing")) is None
    assert ask_monitor(broker, lambda monitor: monitor.queue("missing")) is None
