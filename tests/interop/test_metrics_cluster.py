"""The metrics of three brokers: a sum over all of them has each partition and group once, also after a kill."""

from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from headrace.testing.cluster import ClusterProcesses
from tests.scraped import Scrape, scrape
from tests.waiting import until

TOPIC, PARTITIONS, MESSAGES = "orders", 6, 600
GROUPS = ("one", "two", "three")
COPIED = "headrace_topic_replication_bytes"
ALONE = "alone"
"""A topic with one replica of each partition."""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClusterProcesses]:
    settings = {
        "broker.session.timeout.ms": 3_000,
        "offsets.topic.num.partitions": 3,
        "replica.lag.time.max.ms": 3_000,
        "group.initial.rebalance.delay.ms": 0,
    }
    with ClusterProcesses(tmp_path_factory.mktemp("metrics"), brokers=3, settings=settings) as running:
        admin = AdminClient({"bootstrap.servers": running.bootstrap})
        topics = [NewTopic(TOPIC, PARTITIONS, 3), NewTopic(ALONE, 3, 1)]
        for future in admin.create_topics(topics).values():
            future.result(60)
        producer = Producer({"bootstrap.servers": running.bootstrap, "enable.idempotence": True})
        for number in range(MESSAGES):
            producer.produce(TOPIC, str(number), partition=number % PARTITIONS)
            producer.produce(ALONE, str(number), partition=number % 3)
        assert not producer.flush(60)
        for group in GROUPS:
            consumer = Consumer({"bootstrap.servers": running.bootstrap, "group.id": group})
            places = [TopicPartition(TOPIC, partition, 10) for partition in range(PARTITIONS)]
            consumer.commit(offsets=places, asynchronous=False)
            consumer.close()
        yield running


def scrapes(cluster: ClusterProcesses) -> dict[int, Scrape]:
    return {broker_id: scrape(cluster.brokers[broker_id].http_url) for broker_id in cluster.running}


def summed(found: dict[int, Scrape], name: str, **labels: str) -> float:
    return sum(each.sum(name, **labels) for each in found.values())


def summed_count(found: dict[int, Scrape], name: str, **labels: str) -> int:
    return sum(len(each.of(name, **labels)) for each in found.values())


def once(found: dict[int, Scrape], name: str, **labels: str) -> dict[tuple[str, ...], float]:
    """The samples of all brokers; each is exported by one of them."""
    every: dict[tuple[str, ...], float] = {}
    for each in found.values():
        for key, value in each.of(name, **labels).items():
            assert key not in every, f"{name} {key} is exported by two brokers"
            every[key] = value
    return every


def copied_out(found: dict[int, Scrape]) -> float:
    return summed(found, f"{COPIED}_out_total", topic=TOPIC)


def has_every_lag(found: dict[int, Scrape]) -> bool:
    """Coordinators have the lags of all groups once the leaders have answered them."""
    return summed_count(found, "headrace_group_lag_seconds", topic=TOPIC) == PARTITIONS * len(GROUPS)


def test_partitions_and_groups_count_once(cluster: ClusterProcesses) -> None:
    cluster.await_in_sync()
    until(lambda: has_every_lag(scrapes(cluster)))
    found = scrapes(cluster)
    offsets = once(found, "kafka_topic_partition_current_offset", topic=TOPIC)
    assert offsets == {(str(partition),): MESSAGES / PARTITIONS for partition in range(PARTITIONS)}
    assert once(found, "kafka_topic_partitions", topic=TOPIC) == {(): PARTITIONS}
    assert once(found, "kafka_brokers") == {(): 3}
    assert len(once(found, "kafka_broker_info")) == 3
    assert summed(found, "kafka_controller_kafkacontroller_activecontrollercount") == 1
    for group in GROUPS:
        lags = once(found, "kafka_consumergroup_lag", consumergroup=group, topic=TOPIC)
        # Leaders on other brokers were asked.
        assert lags == {(str(partition),): MESSAGES / PARTITIONS - 10 for partition in range(PARTITIONS)}
        seconds = once(found, "headrace_group_lag_seconds", group=group, topic=TOPIC)
        assert len(seconds) == PARTITIONS
        assert all(value > 0 for value in seconds.values())
        assert once(found, "kafka_consumergroup_members", consumergroup=group) == {(): 0}
    assert summed(found, "headrace_topic_messages_in_total", topic=TOPIC) == MESSAGES
    until(lambda: summed(scrapes(cluster), "headrace_follower_lag_messages") == 0)
    until(lambda: copied_out(scrapes(cluster)) == summed(scrapes(cluster), f"{COPIED}_in_total", topic=TOPIC))
    found = scrapes(cluster)
    copied = copied_out(found)
    assert copied >= 2 * summed(found, "headrace_topic_bytes_in_total", topic=TOPIC)
    assert summed(found, "headrace_partition_size_bytes", topic=TOPIC) == 3 * summed(
        found, "headrace_topic_bytes_in_total", topic=TOPIC
    )
    assert summed(found, "headrace_kafka_requests_total", api="FetchFollower") > 0
    for each in found.values():
        assert each.value("headrace_metadata_store_seconds_count", operation="keep_alive") > 0
        assert each["headrace_metadata_store_up"] == 1
        assert each["headrace_scrape_errors_total"] == 0


def test_a_broker_that_is_killed_and_comes_back(cluster: ClusterProcesses) -> None:
    cluster.await_in_sync()
    before = scrapes(cluster)
    for name in ("under_replicated", "under_min_isr", "offline"):
        assert summed(before, f"headrace_{name}_partitions") == 0
    victim = next(broker_id for broker_id, each in before.items() if not each["headrace_active_controller"])
    led = before[victim].of("kafka_topic_partition_leader", topic=ALONE)
    cluster.kill(victim)
    until(lambda: summed(scrapes(cluster), "headrace_offline_partitions") == len(led))
    until(lambda: len(once(scrapes(cluster), "kafka_topic_partition_current_offset", topic=TOPIC)) == PARTITIONS)
    now = scrapes(cluster)
    assert once(now, "kafka_brokers") == {(): 2}
    assert summed(now, "kafka_controller_kafkacontroller_offlinepartitionscount") == len(led)
    # The controller exports what no leader can.
    leaders = once(now, "kafka_topic_partition_leader", topic=ALONE)
    assert {key: value for key, value in leaders.items() if value < 0} == dict.fromkeys(led, -1)
    assert len(leaders) == 3
    until(
        lambda: summed(scrapes(cluster), "kafka_topic_partition_under_replicated_partition", topic=TOPIC) == PARTITIONS
    )
    now = scrapes(cluster)
    under = summed(now, "kafka_server_replicamanager_underreplicatedpartitions")
    assert under >= PARTITIONS
    assert under == summed(now, "headrace_under_replicated_partitions")
    assert summed(now, "headrace_at_min_isr_partitions") >= PARTITIONS
    assert summed(now, "headrace_under_min_isr_partitions") == 0
    gained = {key: before[key] for key in now}
    assert summed(now, "headrace_leader_elections_total") > summed(gained, "headrace_leader_elections_total")
    cluster.start_broker(victim)
    cluster.await_in_sync()
    until(lambda: summed(scrapes(cluster), "headrace_under_replicated_partitions") == 0)
    after = scrapes(cluster)
    assert summed(after, "headrace_offline_partitions") == 0
    assert summed(after, "headrace_isr_expands_total") > summed(gained, "headrace_isr_expands_total")
    assert after[victim]["headrace_was_stopped_cleanly"] == 0
    assert once(after, "kafka_brokers") == {(): 3}
