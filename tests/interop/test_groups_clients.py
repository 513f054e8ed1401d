"""Groups with the other clients: kafka-python, aiokafka and kcat, and several kinds of clients in one group."""

import asyncio
import shutil
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager

import pytest
from aiokafka import AIOKafkaConsumer
from aiokafka import TopicPartition as AioPartition
from kafka.structs import OffsetAndMetadata

from kafka import KafkaConsumer
from kafka import TopicPartition as PythonPartition

from . import raw_client
from .group_clients import QUICK, TIMEOUT_S, consumer, group, produce, python_consumer, until
from .subject import Subject


def python_read(one: KafkaConsumer, count: int) -> list[int]:
    found: list[int] = []
    end = time.monotonic() + TIMEOUT_S
    while len(found) < count:
        assert time.monotonic() < end, f"{len(found)} of {count} messages came"
        for records in one.poll(200).values():
            found += [int(record.value) for record in records]
    return found


def test_kafka_python_joins_commits_and_goes_on_after_a_kill(own_broker: Callable[..., Subject]) -> None:
    broker = own_broker(**QUICK)
    produce(broker.bootstrap, "t", range(40))
    with closing(python_consumer(broker.bootstrap, "g", "t")) as one:
        assert sorted(python_read(one, 40)) == list(range(40))
        one.commit()
        one.commit({PythonPartition("t", 1): OffsetAndMetadata(7, "back a bit", -1)})
    broker.kill()
    broker.start()
    with closing(python_consumer(broker.bootstrap, "g", "t")) as one:
        assert sorted(python_read(one, 3)) == [29, 33, 37]
        found = one.committed(PythonPartition("t", 1), metadata=True)
        assert (found.offset, found.metadata) == (7, "back a bit")
        assert one.committed(PythonPartition("t", 0)) == 10


def test_kafka_python_members_share_a_topic(own_broker: Callable[..., Subject]) -> None:
    broker = own_broker(**QUICK)
    raw_client.create_topic(broker.bootstrap, "t", 4)
    with closing(python_consumer(broker.bootstrap, "g", "t")) as first:
        until(lambda: bool(first.poll(50) or True) and len(first.assignment()) == 4)
        second = python_consumer(broker.bootstrap, "g", "t", group_instance_id="static")
        with polled(second):
            until(lambda: bool(first.poll(50) or True) and len(first.assignment()) == 2)
            until(lambda: bool(first.poll(50) or True) and len(second.assignment()) == 2)
        second.close()


@contextmanager
def polled(one: KafkaConsumer) -> Iterator[None]:
    """Poll it in a thread of its own meanwhile."""
    stop = threading.Event()

    def poll() -> None:
        while not stop.is_set():
            one.poll(50)

    thread = threading.Thread(target=poll, daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join(TIMEOUT_S)


def test_aiokafka_joins_commits_and_goes_on_after_a_kill(own_broker: Callable[..., Subject]) -> None:
    broker = own_broker(**QUICK)
    produce(broker.bootstrap, "t", range(40))

    async def read(count: int, *, commit: bool) -> tuple[list[int], int | None]:
        one = AIOKafkaConsumer(
            "t", bootstrap_servers=broker.bootstrap, group_id="g", auto_offset_reset="earliest",
            enable_auto_commit=False, session_timeout_ms=20_000, heartbeat_interval_ms=300,
        )  # fmt: skip
        await one.start()
        try:
            found: list[int] = []
            while len(found) < count:
                message = await asyncio.wait_for(one.getone(), TIMEOUT_S)
                found.append(int(message.value))
            if commit:
                await one.commit()
            return sorted(found), await one.committed(AioPartition("t", 0))
        finally:
            await one.stop()

    assert asyncio.run(read(40, commit=True)) == (list(range(40)), 10)
    broker.kill()
    broker.start()
    produce(broker.bootstrap, "t", range(40, 48))
    assert asyncio.run(read(8, commit=False)) == (list(range(40, 48)), 10)


def test_kcat_reads_as_a_group(own_broker: Callable[..., Subject]) -> None:
    kcat = shutil.which("kcat")
    if kcat is None:
        pytest.skip("kcat is not installed")
    broker = own_broker(**QUICK)
    produce(broker.bootstrap, "t", range(40))
    command = [kcat, "-b", broker.bootstrap, "-e", "-q", "-X", "auto.offset.reset=earliest", "-G", "g", "t"]
    with tempfile.TemporaryFile() as errors:
        first = subprocess.run(command, stdout=subprocess.PIPE, stderr=errors, timeout=TIMEOUT_S, check=True)
        assert sorted(map(int, first.stdout.split())) == list(range(40))
        produce(broker.bootstrap, "t", range(40, 44))
        second = subprocess.run(command, stdout=subprocess.PIPE, stderr=errors, timeout=TIMEOUT_S, check=True)
        assert sorted(map(int, second.stdout.split())) == list(range(40, 44))


def test_different_clients_share_a_group(own_broker: Callable[..., Subject]) -> None:
    broker = own_broker(**QUICK)
    raw_client.create_topic(broker.bootstrap, "t", 4)
    with (
        closing(consumer(broker.bootstrap, "g", partition_assignment_strategy="range")) as one,
        closing(python_consumer(broker.bootstrap, "g", "t")) as other,
        polled(other),
    ):
        one.subscribe(["t"])
        until(lambda: len(one.assignment()) == 2 and len(other.assignment()) == 2, one)
        described = group(broker.bootstrap, "g")
        assert (described.group_state, described.protocol_data, len(described.members)) == ("Stable", "range", 2)
