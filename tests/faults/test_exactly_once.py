"""Workers copy a topic in transactions while they and the broker are killed: the copy has everything exactly once."""

import os
import random
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import closing

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from tests.faults.transformer import RECONNECT
from tests.interop import wire
from tests.interop.subject import Subject

PARTITIONS = 4
WORKERS = 2


class Worker:
    def __init__(self, broker: Subject, name: str) -> None:
        module = [sys.executable, "-m", "tests.faults.transformer"]
        self._command = [*module, broker.bootstrap, "copying", "source", "target", name]
        self.process = self._start()

    def _start(self) -> subprocess.Popen[bytes]:
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
        return subprocess.Popen(self._command, stderr=subprocess.DEVNULL, env=environment)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def keep_running(self) -> bool:
        """Start it again if it has ended; says whether it had."""
        if self.process.poll() is None:
            return False
        self.process = self._start()
        return True


class Source:
    """Writes numbers to the source topic, so many in a second, whatever happens to the broker."""

    def __init__(self, broker: Subject, count: int, per_second: int) -> None:
        self._producer = Producer(
            {
                **RECONNECT,
                "bootstrap.servers": broker.bootstrap,
                "linger.ms": 20,
                "enable.idempotence": True,
                "queue.buffering.max.messages": 1_000_000,
            }
        )
        self._count = count
        self._per_second = per_second
        self._unsent: int | None = None
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        began = time.monotonic()
        for number in range(self._count):
            if number % 100 == 0:
                self._producer.poll(max(0.0, began + number / self._per_second - time.monotonic()))
            self._producer.produce("source", b"%d" % number, partition=number % PARTITIONS)
        self._unsent = self._producer.flush(120)

    def finish(self) -> None:
        self._thread.join()
        assert self._unsent == 0


def copied(broker: Subject) -> int:
    """How many messages the group has committed."""
    with wire.Connection(broker.bootstrap) as connection:
        answer = connection.call(
            wire.OFFSET_FETCH,
            7,
            group_id="copying",
            topics=[{"name": "source", "partition_indexes": list(range(PARTITIONS))}],
            require_stable=False,
        )
        return sum(max(0, part.committed_offset) for topic in answer.topics for part in topic.partitions)


def read_all(broker: Subject, isolation: str) -> list[int]:
    settings = {"bootstrap.servers": broker.bootstrap, "group.id": "reader", "enable.partition.eof": True}
    consumer = Consumer({**settings, "isolation.level": isolation, "enable.auto.commit": False})
    numbers: list[int] = []
    with closing(consumer):
        consumer.assign([TopicPartition("target", at, 0) for at in range(PARTITIONS)])
        left = PARTITIONS
        while left:
            for message in consumer.consume(10_000, 5):
                if message.error() is not None:
                    left -= 1
                else:
                    numbers.append(int(message.value()))
    return numbers


def copy_under_kills(
    broker: Subject, count: int, per_second: int, *, kill_every_s: tuple[float, float], seed: int
) -> None:
    rng = random.Random(seed)
    wire.create_topic(broker.bootstrap, "source", PARTITIONS)
    wire.create_topic(broker.bootstrap, "target", PARTITIONS)
    source = Source(broker, count, per_second)
    workers = [Worker(broker, f"worker-{at}") for at in range(WORKERS)]
    kills = {"broker": 0, "worker": 0}
    began = time.monotonic()
    try:
        next_kill = time.monotonic() + rng.uniform(*kill_every_s)
        while True:
            for worker in workers:
                worker.keep_running()
            if time.monotonic() > next_kill:
                victim = rng.choice(("broker", "worker"))
                kills[victim] += 1
                if victim == "broker":
                    broker.kill()
                    broker.start()
                else:
                    rng.choice(workers).kill()
                next_kill = time.monotonic() + rng.uniform(*kill_every_s)
            try:
                if copied(broker) == count:
                    break
            except (OSError, wire.Closed):
                continue
            assert time.monotonic() - began < 60 + 4 * count / per_second, f"{copied(broker)} of {count} after {kills}"
            time.sleep(0.05)
    finally:
        for worker in workers:
            worker.kill()
        source.finish()
    assert min(kills.values()) > 0
    found = read_all(broker, "read_committed")
    raw = read_all(broker, "read_uncommitted")
    print(f"{count} messages in {time.monotonic() - began:.0f} s, kills {kills}, {len(raw) - len(found)} aborted")
    assert len(found) == len(set(found)), f"{len(found) - len(set(found))} twice"
    assert set(found) == set(range(count)), f"{count - len(set(found))} missing"


@pytest.mark.timeout(300)
def test_every_message_is_copied_exactly_once(own_broker: Callable[..., Subject]) -> None:
    copy_under_kills(own_broker(group_initial_rebalance_delay_ms="0"), 30_000, 2_500, kill_every_s=(1.5, 3.0), seed=1)


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_a_million_messages_are_copied_exactly_once(own_broker: Callable[..., Subject]) -> None:
    copy_under_kills(
        own_broker(group_initial_rebalance_delay_ms="0"), 1_000_000, 15_000, kill_every_s=(1.5, 4.0), seed=2
    )
