"""The figures of a cluster of three brokers: lag where coordinators are not the leaders, and a broker that is killed.

Two of the brokers run in the test's process, so that their monitors can be asked; the third is a process of its own.
"""

import contextlib
import time
from collections.abc import Iterator
from typing import NamedTuple

import pytest
from confluent_kafka import Consumer, TopicPartition

from headrace import Client
from headrace.monitor.snapshots import GroupDetail, GroupStat
from headrace.testing.broker import Broker
from headrace.testing.etcd import EtcdProcess, free_port
from headrace.testing.process import BrokerProcess
from headrace.wire import Cluster
from kafka import KafkaConsumer
from kafka import TopicPartition as KafkaPythonPartition
from tests.monitored import ask_monitor, eventually

TOPIC, PARTITIONS, MESSAGES = "orders", 6, 60
GROUPS = [f"group-{number}" for number in range(6)]


class Trio(NamedTuple):
    first: Broker
    second: Broker
    third: BrokerProcess

    @property
    def bootstrap(self) -> str:
        return ",".join((self.first.bootstrap, self.second.bootstrap, self.third.bootstrap))


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Trio]:
    folder = tmp_path_factory.mktemp("monitored")
    with contextlib.closing(EtcdProcess(folder / "etcd").start()) as etcd:
        settings = {
            "etcd.endpoints": etcd.endpoint,
            "broker.session.timeout.ms": 4_000,
            "offsets.topic.num.partitions": 6,
            "offsets.topic.replication.factor": 3,
            "default.replication.factor": 3,
        }
        with (
            Broker(folder / "1", settings={**settings, "broker.id": 1}) as first,
            Broker(folder / "2", settings={**settings, "broker.id": 2}) as second,
        ):
            third = BrokerProcess(
                folder / "3",
                port=free_port(),
                settings={name: value for name, value in settings.items() if name != "etcd.endpoints"},
                args=["--etcd", etcd.endpoint, "--broker-id", "3"],
                log_file=folder / "3.log",
            )
            try:
                third.start(90)
                trio = Trio(first, second, third)
                with Cluster(trio.bootstrap) as tools:
                    tools.create_topic(TOPIC, partitions=PARTITIONS)
                with Client(trio.bootstrap) as client:
                    for number in range(MESSAGES):
                        client.publish(TOPIC, f"{number}", partition=number % PARTITIONS)
                for number, group in enumerate(GROUPS):
                    commit(trio.bootstrap, group, {part: (number + part) % 11 for part in range(PARTITIONS)})
                yield trio
            finally:
                third.kill()
                third.close()


def commit(bootstrap: str, group: str, offsets: dict[int, int]) -> None:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group})
    wanted = [TopicPartition(TOPIC, partition, offset) for partition, offset in offsets.items()]
    consumer.commit(offsets=wanted, asynchronous=False)
    consumer.close()


def are_known(found: list[GroupStat], groups: list[str]) -> bool:
    """Whether all `groups` are among those found, each with its lag."""
    lags = {each.group: each.lag_messages for each in found}
    return all(lags.get(group) is not None for group in groups)


def detail_of(broker: Broker, group: str) -> GroupDetail:
    found = ask_monitor(broker, lambda monitor: monitor.group(group))
    assert found is not None
    return found


def test_lag_across_coordinators_and_leaders_is_that_of_kafka_clients(cluster: Trio) -> None:
    stats = {
        each.group: each
        for each in eventually(
            lambda: ask_monitor(cluster.first, lambda monitor: monitor.groups()),
            lambda found: are_known(found, GROUPS),
        )
    }
    with Cluster(cluster.bootstrap) as tools:
        leaders = {part.leader for part in tools.metadata()[TOPIC].partitions}
    assert leaders == {1, 2, 3}
    assert len({each.coordinator for each in stats.values()}) > 1, "all groups have one coordinator: use more groups"
    for group in GROUPS:
        expected = lag_of_confluent(cluster.bootstrap, group)
        assert expected == lag_of_kafka_python(cluster.bootstrap, group)
        for broker in (cluster.first, cluster.second):
            found = detail_of(broker, group)
            assert {each.partition: each.lag_messages for each in found.partitions} == expected
        assert stats[group].lag_messages == sum(expected.values())


def lag_of_confluent(bootstrap: str, group: str) -> dict[int, int]:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group})
    try:
        places = [TopicPartition(TOPIC, partition) for partition in range(PARTITIONS)]
        committed = consumer.committed(places, timeout=60)
        return {each.partition: consumer.get_watermark_offsets(each, timeout=60)[1] - each.offset for each in committed}
    finally:
        consumer.close()


def lag_of_kafka_python(bootstrap: str, group: str) -> dict[int, int]:
    places = [KafkaPythonPartition(TOPIC, partition) for partition in range(PARTITIONS)]
    consumer = KafkaConsumer(bootstrap_servers=bootstrap.split(","), group_id=group, enable_auto_commit=False)
    try:
        ends = consumer.end_offsets(places)
        return {place.partition: ends[place] - consumer.committed(place) for place in places}
    finally:
        consumer.close()


def test_lag_in_seconds_is_the_age_of_the_next_record(cluster: Trio) -> None:
    """A scripted consumer: it stops after each record, and knows when the next one was written."""
    topic, group, written_ms = "paced", "pacer", list[int]()
    with Cluster(cluster.bootstrap) as tools:
        tools.create_topic(topic, partitions=1)
    with Client(cluster.bootstrap) as client:
        # Written in one batch, with times that are minutes apart.
        now_ms = int(time.time() * 1000)
        written_ms = [now_ms - age_s * 1000 for age_s in (600, 300, 60, 0)]
        for time_ms in written_ms:
            client.publish_soon(topic, "x", timestamp=time_ms)
        client.flush()
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": group})
    try:
        for offset, next_ms in enumerate([*written_ms, None]):
            consumer.commit(offsets=[TopicPartition(topic, 0, offset)], asynchronous=False)
            for broker in (cluster.first, cluster.second):
                (found,) = detail_of(broker, group).partitions
                assert found.committed == offset
                assert found.lag_messages == len(written_ms) - offset
                behind_s = 0.0 if next_ms is None else time.time() - next_ms / 1000
                assert found.lag_seconds == pytest.approx(behind_s, abs=1.0)
    finally:
        consumer.close()


def test_a_topic_has_the_figures_of_all_leaders(cluster: Trio) -> None:
    found = ask_monitor(cluster.first, lambda monitor: monitor.topic(TOPIC))
    assert found is not None
    assert [each.end_offset for each in found.partitions] == [10] * PARTITIONS
    assert {each.leader for each in found.partitions} == {1, 2, 3}
    assert (found.stat.messages, found.stat.unknown, found.stat.replicas) == (MESSAGES, 0, 3)
    listed = eventually(
        lambda: {each.name: each for each in ask_monitor(cluster.second, lambda monitor: monitor.topics())},
        lambda found: TOPIC in found and found[TOPIC].messages == MESSAGES,
    )
    assert listed[TOPIC].size_bytes == found.stat.size_bytes


def test_every_broker_answers_for_itself(cluster: Trio) -> None:
    brokers = ask_monitor(cluster.first, lambda monitor: monitor.brokers())
    assert [each.broker_id for each in brokers] == [1, 2, 3]
    for each in brokers:
        assert each.totals is not None, each.problem
        assert each.totals.leaders > 0
        assert each.totals.disks
        assert abs(each.clock_skew_ms or 0) < 5_000
    assert sum(each.is_controller for each in brokers) == 1
    assert brokers[0].totals is not None
    # Each broker has its own history, and any of them has that of all.
    for asked in ("1", "2", "3"):
        eventually(
            lambda name=asked: ask_monitor(cluster.first, lambda monitor: monitor.history("broker", name)),  # type: ignore[misc]
            lambda found: any(found.series.get("memory_bytes", [])),
        )
    together = ask_monitor(cluster.second, lambda monitor: monitor.history("cluster"))
    alone = ask_monitor(cluster.second, lambda monitor: monitor.history("broker", "2"))
    assert max(filter(None, together.series["memory_bytes"])) > max(filter(None, alone.series["memory_bytes"]))
    assert ask_monitor(cluster.second, lambda monitor: monitor.history("broker", "99")).series == {}


def test_a_broker_that_hangs_or_dies_is_listed_without_data(cluster: Trio) -> None:
    cluster.third.pause()
    began_s = time.monotonic()
    without = eventually(
        lambda: ask_monitor(cluster.first, lambda monitor: monitor.overview()),
        lambda found: found.without_data == [3],
    )
    assert time.monotonic() - began_s < 30
    (third,) = (each for each in without.brokers if each.broker_id == 3)
    assert third.totals is None
    assert third.problem
    assert {each.broker_id for each in without.brokers if each.totals is not None} == {1, 2}
    cluster.third.resume()
    cluster.third.kill()
    dead = eventually(
        lambda: ask_monitor(cluster.second, lambda monitor: monitor.brokers()),
        lambda found: found[2].state == "dead",
    )
    assert dead[2].problem == "broker 3 is down"
    # The others have taken over its partitions and groups.
    eventually(
        lambda: ask_monitor(cluster.first, lambda monitor: monitor.topic(TOPIC)),
        lambda found: found is not None and found.stat.unknown == 0 and found.stat.messages == MESSAGES,
    )
    eventually(
        lambda: ask_monitor(cluster.second, lambda monitor: monitor.groups()),
        lambda found: are_known(found, GROUPS),
    )
