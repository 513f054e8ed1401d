"""The figures of a broker, compared with what real clients did: rates, lag in transactions, share groups, open
transactions, and encrypted and compacted topics."""

import time
from base64 import b64encode
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from headrace import Client
from headrace.monitor.monitor import Monitor
from headrace.monitor.snapshots import GroupPartitionStat, GroupStat, TransactionStat
from headrace.testing.broker import Broker
from headrace.wire import Cluster
from tests.monitored import ask_monitor, eventually

from .raw_client import Connection
from .share_members import ACCEPT, Member, configure, until_acquired


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    folder: Path = tmp_path_factory.mktemp("monitored")
    settings = {
        "num.partitions": 1,
        "group.share.record.lock.duration.ms": 30_000,
        "encryption.master.key": b64encode(bytes(range(32))).decode(),
    }
    with Broker(folder / "data", settings=settings) as running:
        yield running


def commit(broker: Broker, group: str, topic: str, offset: int) -> None:
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": group})
    consumer.commit(offsets=[TopicPartition(topic, 0, offset)], asynchronous=False)
    consumer.close()


def position(broker: Broker, group: str) -> GroupPartitionStat:
    detail = ask_monitor(broker, lambda monitor: monitor.group(group))
    assert detail is not None
    (found,) = detail.partitions
    return found


def listed(broker: Broker, group: str) -> GroupStat | None:
    return next((each for each in ask_monitor(broker, lambda monitor: monitor.groups()) if each.group == group), None)


def test_rates_and_history_follow_what_clients_do(broker: Broker) -> None:
    ask_monitor(broker, lambda monitor: monitor.sample())
    with Client(broker.bootstrap) as client:
        for number in range(50):
            client.publish("flow", f"{number}" * 20)
        assert len(list(client.replay("flow"))) == 50
        commit(broker, "flowing", "flow", 10)
        ask_monitor(broker, lambda monitor: monitor.sample())
        (own,) = eventually(
            lambda: ask_monitor(broker, lambda monitor: monitor.brokers()),
            lambda found: found[0].totals is not None and found[0].totals.rates.messages_in_per_s > 0,
        )
    totals = own.totals
    assert totals is not None
    assert totals.rates.bytes_in_per_s > 50 * 20 / 5
    assert totals.rates.messages_out_per_s > 0
    assert totals.requests_per_s > 0
    assert 0 < (totals.latency.produce_p50_ms or 0) <= (totals.latency.produce_p99_ms or 0)
    assert totals.process.cpu_percent is not None
    assert totals.process.memory_bytes
    assert totals.connections > 0
    topic = eventually(
        lambda: ask_monitor(broker, lambda monitor: monitor.topic("flow")),
        lambda found: found is not None and bool(found.groups),
    )
    assert topic is not None
    assert topic.stat.rates.messages_in_per_s > 0
    assert topic.stat.rates.bytes_out_per_s > 0
    of_topic = ask_monitor(broker, lambda monitor: monitor.history("topic", "flow"))
    assert any(of_topic.series["messages_in_per_s"])
    of_cluster = ask_monitor(broker, lambda monitor: monitor.history("cluster"))
    assert any(of_cluster.series["requests_per_s"])
    of_broker = ask_monitor(broker, lambda monitor: monitor.history("broker", str(own.broker_id)))
    assert any(of_broker.series["messages_in_per_s"])

    async def history_of_group(monitor: Monitor) -> list[float | None]:
        await monitor.sample()
        return (await monitor.history("group", "flowing")).series.get("lag_messages", [])

    eventually(lambda: ask_monitor(broker, history_of_group), lambda found: found[-1:] == [40.0])
    assert ask_monitor(broker, lambda monitor: monitor.history("topic", "missing")).series == {}


def test_markers_at_the_end_leave_no_lag_in_seconds(broker: Broker) -> None:
    """A consumer that commits the offset after its last record stands before the marker: there is nothing to read."""
    producer = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": "payments"})
    producer.init_transactions(60)
    for is_committed in (True, False):
        producer.begin_transaction()
        producer.produce("transfers", b"1" if is_committed else b"aborted")
        producer.flush(60)
        producer.commit_transaction(60) if is_committed else producer.abort_transaction(60)
    # The record is at 0, its marker at 1, the aborted record at 2, its marker at 3.
    commit(broker, "auditors", "transfers", 0)
    found = position(broker, "auditors")
    assert found.end_offset == 4
    assert found.lag_seconds is not None
    assert found.lag_seconds > 0
    commit(broker, "auditors", "transfers", 1)
    found = position(broker, "auditors")
    # As Kafka's tools have it: they do not know what is between the offsets.
    assert (found.lag_messages, found.lag_seconds) == (3, 0.0)


def test_an_open_transaction_is_listed_with_its_partitions(broker: Broker) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": "slow"})
    producer.init_transactions(60)
    producer.begin_transaction()
    producer.produce("held", b"1")
    producer.flush(60)

    def find() -> TransactionStat | None:
        found = ask_monitor(broker, lambda monitor: monitor.transactions())
        return next((each for each in found if each.transactional_id == "slow"), None)

    opened = eventually(find, lambda found: found is not None and found.state == "Ongoing")
    assert opened is not None
    assert opened.partitions == [("held", 0)]
    assert abs((opened.started_ms or 0) - time.time() * 1000) < 60_000
    producer.commit_transaction(60)
    ended = eventually(find, lambda found: found is not None and found.state == "CompleteCommit")
    assert ended is not None
    assert ended.started_ms is None


def test_lag_in_seconds_of_an_encrypted_topic(broker: Broker) -> None:
    with Cluster(broker.bootstrap) as tools:
        tools.create_topic("secrets", partitions=1, settings={"encryption.at.rest": "true"})
    now_ms = int(time.time() * 1000)
    with Client(broker.bootstrap) as client:
        for age_s in (500, 200, 100):
            client.publish_soon("secrets", "x", timestamp=now_ms - age_s * 1000)
        client.flush()
    for offset, age_s in enumerate((500, 200, 100)):
        commit(broker, "spies", "secrets", offset)
        found = position(broker, "spies")
        assert found.lag_seconds == pytest.approx(age_s + time.time() - now_ms / 1000, abs=1.0)


def test_an_offset_below_the_start_of_the_log_counts_from_there(broker: Broker) -> None:
    now_ms = int(time.time() * 1000)
    with Client(broker.bootstrap) as client:
        for age_s in (900, 600, 300):
            client.publish("trimmed", "x", timestamp=now_ms - age_s * 1000)
    commit(broker, "late", "trimmed", 0)
    assert position(broker, "late").lag_seconds == pytest.approx(900 + time.time() - now_ms / 1000, abs=1.0)
    with Cluster(broker.bootstrap) as tools:
        tools.delete_records({("trimmed", 0): 2})
    found = position(broker, "late")
    assert (found.start_offset, found.lag_messages) == (2, 1)
    assert found.lag_seconds == pytest.approx(300 + time.time() - now_ms / 1000, abs=1.0)


def test_members_with_their_partitions(broker: Broker) -> None:
    with Client(broker.bootstrap) as client:
        client.publish("shifts", "x")
    consumer = Consumer(
        {"bootstrap.servers": broker.bootstrap, "group.id": "crew", "client.id": "c1", "auto.offset.reset": "earliest"}
    )
    try:
        consumer.subscribe(["shifts"])
        message: Any = None
        while message is None:
            message = consumer.poll(1)
        consumer.commit(asynchronous=False)
        detail = ask_monitor(broker, lambda monitor: monitor.group("crew"))
        assert detail is not None
        (member,) = detail.members
        assert (member.client_id, member.assignment) == ("c1", {"shifts": [0]})
        (found,) = detail.partitions
        assert (found.member_id, found.lag_messages, found.lag_seconds) == (member.member_id, 0, 0.0)
        assert detail.stat.state == "Stable"
    finally:
        consumer.close()
    # A group that stopped keeps its position, and its lag grows.
    with Client(broker.bootstrap) as client:
        client.publish("shifts", "y")
    stopped = eventually(lambda: listed(broker, "crew"), lambda each: each is not None and each.state == "Empty")
    assert stopped is not None
    after = eventually(lambda: listed(broker, "crew"), lambda each: each is not None and each.lag_messages == 1)
    assert after is not None
    assert after.lag_seconds is not None
    assert 0 < after.lag_seconds < 60


def test_share_groups_with_what_is_in_flight(broker: Broker) -> None:
    with Client(broker.bootstrap) as client:
        for _ in range(5):
            client.publish("tasks", "x")
    with Cluster(broker.bootstrap) as tools:
        topic_id = tools.metadata()["tasks"].topic_id
    assert topic_id is not None
    with Connection(broker.bootstrap) as connection:
        configure(connection, "workers", "share.auto.offset.reset", "earliest")
    member = Member(broker.bootstrap, "workers", topic_id)
    try:
        member.beat(0, ["tasks"])
        until_acquired(member)
        member.acknowledge((0, 1, ACCEPT))

        def shares() -> list[tuple[int, int, int]]:
            found = ask_monitor(broker, lambda monitor: monitor.share_groups())
            return [
                (each.start_offset, each.lag_messages, each.in_flight)
                for group in found
                if group.group == "workers"
                for each in group.partitions
            ]

        eventually(shares, lambda found: found == [(2, 3, 3)])
        stat = eventually(
            lambda: listed(broker, "workers"), lambda found: found is not None and found.lag_messages == 3
        )
        assert stat is not None
        assert (stat.kind, stat.members) == ("share", 1)
        assert stat.lag_seconds is not None
        assert 0 < stat.lag_seconds < 60
    finally:
        member.close()
