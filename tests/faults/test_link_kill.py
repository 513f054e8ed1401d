"""Brokers on both sides of a link, killed again and again while producers write: the mirror has the source's bytes."""

import random
import time
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from headrace.model.ids import TopicName
from headrace.records.batch import iter_headers
from headrace.testing import Broker
from headrace.testing.process import BrokerProcess
from tests.interop.linked import ask, image, link_to
from tests.waiting import until

FAST = {"link.refresh.interval.ms": 100, "replica.fetch.wait.max.ms": 100}
KILLS = 8
PARTITIONS = 3


def log_of(data_dir: Path, partition: int) -> bytes:
    """The batches of a partition's segments, as far as they are whole: a process may be writing the last one."""
    files = sorted((data_dir / f"orders-{partition}").glob("*.log"))
    data = b"".join(file.read_bytes() for file in files)
    return data[: max((at + header.size for at, header in iter_headers(data)), default=0)]


def link(source: BrokerProcess, target_dir: Path) -> None:
    """Create the link and its mirror topic in the data directory of the target."""
    with Broker(target_dir, settings=FAST) as target:
        wanted = link_to(source, topics=("orders",))
        ask(target, lambda links: links.create(wanted))
        until(lambda: TopicName("orders") in image(target).topics)


@pytest.mark.slow
def test_a_mirror_is_identical_after_kills_on_both_sides(tmp_path: Path) -> None:
    chance = random.Random(20)
    source = BrokerProcess(tmp_path / "source", settings={"log.segment.bytes": 1 << 20})
    target = BrokerProcess(tmp_path / "target", settings=FAST)
    try:
        source.start()
        admin = AdminClient({"bootstrap.servers": source.bootstrap})
        admin.create_topics([NewTopic("orders", PARTITIONS)])["orders"].result(60)
        link(source, target.data_dir)
        target.start()
        producer = Producer({"bootstrap.servers": source.bootstrap, "enable.idempotence": True, "linger.ms": 5})
        lost: list[str] = []

        def delivered(error: object, _: object) -> None:
            if error is not None:
                lost.append(str(error))

        for _ in range(KILLS):
            ends_at = time.monotonic() + 0.5 + chance.random()
            while time.monotonic() < ends_at:
                producer.produce("orders", chance.randbytes(500), on_delivery=delivered)
                producer.poll(0.001)
            chance.choice((source, target)).restart(kill=True)
        assert producer.flush(60) == 0
        assert not lost
        for partition in range(PARTITIONS):
            until(lambda index=partition: log_of(target.data_dir, index) == log_of(source.data_dir, index))  # type: ignore[misc]
            assert len(log_of(target.data_dir, partition)) > 10_000
    finally:
        source.close()
        target.close()
