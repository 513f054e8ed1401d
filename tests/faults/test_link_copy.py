"""A link whose destination is killed: the copy is the log of the source, byte by byte, until a failover."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from headrace.testing import Broker
from headrace.testing.process import BrokerProcess
from headrace.wire.cluster import Cluster
from tests.interop.linked import ask, link_to
from tests.waiting import until

SETTINGS = {"link.refresh.interval.ms": 100}
PARTITIONS = 2
TOPIC = "orders"


@pytest.fixture
def source(tmp_path: Path) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path / "source") as broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        admin.create_topics([NewTopic(TOPIC, PARTITIONS)])[TOPIC].result(30)
        yield broker


def produce(bootstrap: str, first: int, count: int, codec: str) -> None:
    config = {"bootstrap.servers": bootstrap, "compression.type": codec, "linger.ms": 5, "enable.idempotence": True}
    producer = Producer(config)
    for number in range(first, first + count):
        headers = [("number", str(number).encode()), ("empty", None)]
        producer.produce(
            TOPIC, b"value %d" % number * 5, b"key %d" % (number % 7), number % PARTITIONS, headers=headers
        )
        producer.poll(0)
    assert producer.flush(60) == 0


def produce_in_transactions(bootstrap: str) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": "shop", "compression.type": "lz4"})
    producer.init_transactions(30)
    for number in range(4):
        producer.begin_transaction()
        for partition in range(PARTITIONS):
            producer.produce(TOPIC, b"in transaction %d" % number, partition=partition)
        producer.flush(30)
        if number % 2:
            producer.abort_transaction(30)
        else:
            producer.commit_transaction(30)


def log_bytes(bootstrap: str) -> list[bytes]:
    """What a consumer is sent of each partition, from its beginning to its end."""
    logs = []
    with Cluster(bootstrap) as cluster:
        for partition in range(PARTITIONS):
            end, data = cluster.list_offsets([(TOPIC, partition)])[TOPIC, partition].offset, b""
            offset = 0
            while offset < end:
                fetched = cluster.fetch(TOPIC, partition, offset)
                records = bytes(fetched.records)
                data += records
                offset = next_offset(records)
            logs.append(data)
    return logs


def next_offset(records: bytes) -> int:
    """The offset after the last whole batch."""
    at = last = 0
    while at + 61 <= len(records):
        last = int.from_bytes(records[at : at + 8]) + int.from_bytes(records[at + 23 : at + 27]) + 1
        at += 12 + int.from_bytes(records[at + 8 : at + 12])
    assert at == len(records), "a batch was cut off"
    return last


def ends(bootstrap: str) -> list[int]:
    with Cluster(bootstrap) as cluster:
        found = cluster.list_offsets([(TOPIC, index) for index in range(PARTITIONS)])
        return [found[TOPIC, index].offset for index in range(PARTITIONS)]


def committed(bootstrap: str, group: str) -> int:
    with closing(Consumer({"bootstrap.servers": bootstrap, "group.id": group})) as reader:
        return int(reader.committed([TopicPartition(TOPIC, 0)], 30)[0].offset)


@pytest.mark.slow
def test_a_copy_is_the_sources_log_through_kills_and_a_failover(source: BrokerProcess, tmp_path: Path) -> None:
    there, folder = source.bootstrap, tmp_path / "target"
    produce(there, 0, 2_000, "zstd")
    produce_in_transactions(there)
    with closing(Consumer({"bootstrap.servers": there, "group.id": "shop"})) as reader:
        reader.commit(offsets=[TopicPartition(TOPIC, 0, 500)], asynchronous=False)

    with Broker(folder, settings=SETTINGS) as target:
        ask(target, lambda links: links.create(link_to(source, topics=(TOPIC,))))
        until(lambda: TOPIC in AdminClient({"bootstrap.servers": target.bootstrap}).list_topics().topics)
        until(lambda: ends(target.bootstrap) == ends(there), lambda: f"{ends(target.bootstrap)}, not {ends(there)}")
        assert log_bytes(target.bootstrap) == log_bytes(there)
        until(lambda: committed(target.bootstrap, "shop") == 500)
        refused: list[KafkaError] = []
        producer = Producer({"bootstrap.servers": target.bootstrap})
        producer.produce(TOPIC, b"no", on_delivery=lambda error, _: refused.append(error))
        assert producer.flush(30) == 0
        assert refused[0].code() == KafkaError.INVALID_REQUEST

    with BrokerProcess(folder, settings=SETTINGS) as copy:
        for round_number in range(3):
            produce(there, 2_000 + 3_000 * round_number, 3_000, "gzip")
            copy.restart(kill=True)
        until(lambda: ends(copy.bootstrap) == ends(there), lambda: f"{ends(copy.bootstrap)}, not {ends(there)}")
        assert log_bytes(copy.bootstrap) == log_bytes(there)
        copy.terminate()

    with Broker(folder, settings=SETTINGS) as target:
        until(lambda: ask(target, lambda links: links.mirror(TOPIC)).lag_messages == 0)
        planned = ask(target, lambda links: links.failover(TOPIC, dry_run=True))
        assert planned.missing_messages == 0
        ask(target, lambda links: links.failover(TOPIC))
        produce(target.bootstrap, 20_000, 100, "none")
        for mine, theirs in zip(log_bytes(target.bootstrap), log_bytes(there), strict=True):
            assert mine.startswith(theirs)
        config = {"bootstrap.servers": target.bootstrap, "group.id": "shop", "auto.offset.reset": "error"}
        with closing(Consumer(config)) as reader:
            reader.assign([TopicPartition(TOPIC, 0, committed(target.bootstrap, "shop"))])
            first = until(lambda: reader.poll(1))
            assert first.error() is None
            assert first.offset() == 500
            until(lambda: any(each.value().startswith(b"value 20098") for each in reader.consume(10_000, 1)))
