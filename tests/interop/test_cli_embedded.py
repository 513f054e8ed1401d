"""The broker that applications embed in their tests."""

import asyncio
import time
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from headrace.model.errors import SettingsError
from headrace.testing import Broker


def send(broker: Broker, topic: str, value: bytes) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    producer.produce(topic, value, partition=0)
    assert producer.flush(60) == 0


def read(broker: Broker, topic: str) -> bytes:
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "unused", "enable.auto.commit": False})
    consumer.assign([TopicPartition(topic, 0, 0)])
    try:
        message = consumer.poll(60)
        assert message is not None
        assert message.error() is None
        return message.value()
    finally:
        consumer.close()


def topics(broker: Broker) -> dict[str, int]:
    found = AdminClient({"bootstrap.servers": broker.bootstrap}).list_topics(timeout=60).topics
    return {name: len(topic.partitions) for name, topic in found.items()}


def test_a_broker_for_a_block_of_code():
    with Broker() as broker:
        send(broker, "t", b"hello")
        assert read(broker, "t") == b"hello"
        data_dir = broker.data_dir
        assert data_dir.is_dir()
    assert not broker.is_running
    assert not data_dir.exists()


def test_ready_within_a_second():
    times = []
    for _ in range(3):
        started, cpu_before = time.monotonic(), time.process_time()
        with Broker():
            # On a machine that is busy with something else the clock measures that: then the CPU's time counts.
            times.append(min(time.monotonic() - started, time.process_time() - cpu_before))
    assert min(times) < 1.0, times


def test_many_side_by_side_know_nothing_of_each_other():
    brokers = [Broker().start() for _ in range(4)]
    try:
        assert len({broker.bootstrap for broker in brokers}) == 4
        for number, broker in enumerate(brokers):
            send(broker, "t", str(number).encode())
        assert [read(broker, "t") for broker in brokers] == [b"0", b"1", b"2", b"3"]
    finally:
        for broker in brokers:
            broker.close()


def test_a_restart_keeps_port_and_data():
    with Broker() as broker:
        where = broker.bootstrap
        send(broker, "t", b"kept")
        broker.stop()
        assert not broker.is_running
        broker.start()
        assert broker.bootstrap == where
        assert read(broker.restart(), "t") == b"kept"


def test_a_data_dir_that_is_given_stays(tmp_path: Path):
    with Broker(tmp_path / "data") as broker:
        send(broker, "t", b"kept")
    with Broker(tmp_path / "data") as broker:
        assert read(broker, "t") == b"kept"


def test_settings_are_those_of_the_broker():
    with Broker(settings={"num.partitions": 7, "auto.create.topics.enable": True}) as broker:
        send(broker, "t", b"x")
        assert topics(broker) == {"t": 7}


def test_a_broker_that_cannot_start_says_why():
    broker = Broker(settings={"num.partition": 7})
    with pytest.raises(SettingsError, match=r"did you mean num\.partitions"):
        broker.start()
    broker.close()


def test_async_with():
    async def use() -> bytes:
        async with Broker() as broker:
            await asyncio.to_thread(send, broker, "t", b"async")
            return await asyncio.to_thread(read, broker, "t")

    assert asyncio.run(use()) == b"async"


class TestFixtures:
    @pytest.fixture
    def headrace_settings(self):
        return {"num.partitions": 2}

    def test_each_test_gets_a_broker_with_the_settings_it_asked_for(self, headrace_broker):
        assert topics(headrace_broker) == {}
        send(headrace_broker, "t", b"x")
        assert topics(headrace_broker) == {"t": 2}

    def test_the_next_one_is_empty_again(self, headrace_broker):
        assert topics(headrace_broker) == {}

    def test_the_one_of_the_session_is_shared(self, headrace_session_broker, request):
        assert request.getfixturevalue("headrace_session_broker") is headrace_session_broker
        send(headrace_session_broker, "t", b"x")
