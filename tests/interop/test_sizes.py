"""From one byte to `max.message.bytes`, and what a client is told about one byte more."""

import asyncio
import os
import subprocess
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from aiokafka import AIOKafkaProducer
from aiokafka.errors import MessageSizeTooLargeError as AioTooLarge
from confluent_kafka import KafkaError, Producer
from kafka.errors import MessageSizeTooLargeError as PythonTooLarge

from kafka import KafkaProducer

from . import batches, clients, raw_client
from .batches import Record
from .clients import Client
from .subject import Subject

DEFAULT_MAX_BYTES = 1_048_588
LIMIT = 20_000


@pytest.mark.parametrize("writer", clients.parameters())
def test_from_one_byte_to_a_megabyte(writer: Client, broker: Subject, topic: str) -> None:
    sent = [os.urandom(size) for size in (1, 2, 100, 4096, 65_537, 1_000_000)]
    writer.write(broker.bootstrap, topic, [Record(value) for value in sent])
    for reader in clients.installed():
        found = reader.read(broker.bootstrap, topic, len(sent))
        assert [record.value for record in found] == sent, reader.name


@pytest.mark.parametrize("codec", clients.CODECS)
def test_five_megabytes_where_the_topic_allows_it(codec: str, broker: Subject, new_topic: Callable[..., str]) -> None:
    topic = new_topic(max_message_bytes="8388608")
    value = os.urandom(1 << 20) * 5
    clients.AioKafka().write(broker.bootstrap, topic, [Record(value)], codec=codec)
    for reader in clients.installed():
        (found,) = reader.read(broker.bootstrap, topic, 1)
        assert found.value == value, reader.name


def exactly(size: int) -> bytes:
    """A batch of one record that takes `size` bytes."""
    overhead = len(batches.batch([b"x" * (size - 100)])) - (size - 100)
    made = batches.batch([b"x" * (size - overhead)])
    assert len(made) == size
    return made


def test_the_default_limit_is_kafkas_to_the_byte(connection: raw_client.Connection, topic: str) -> None:
    assert raw_client.produce(connection, topic, exactly(DEFAULT_MAX_BYTES)).error_code == raw_client.Error.none
    refused = raw_client.produce(connection, topic, exactly(DEFAULT_MAX_BYTES + 1))
    assert (refused.error_code, refused.base_offset) == (raw_client.Error.message_too_large, -1)
    assert raw_client.offset_at(connection, topic, -1).offset == 1


@pytest.fixture
def narrow(new_topic: Callable[..., str]) -> str:
    return new_topic(max_message_bytes=str(LIMIT))


def test_confluent_is_told_that_a_message_is_too_large(broker: Subject, narrow: str) -> None:
    outcomes: list[int | None] = []
    producer = Producer({"bootstrap.servers": broker.bootstrap, "linger.ms": 0})
    for size in (LIMIT - 100, LIMIT):
        producer.produce(narrow, b"x" * size, on_delivery=lambda error, _: outcomes.append(error and error.code()))
        assert producer.flush(60) == 0
    assert outcomes == [None, KafkaError.MSG_SIZE_TOO_LARGE]


def test_kafka_python_is_told_that_a_message_is_too_large(broker: Subject, narrow: str) -> None:
    with closing(KafkaProducer(bootstrap_servers=broker.bootstrap)) as producer:
        assert producer.send(narrow, b"x" * (LIMIT - 100)).get(60).offset == 0
        with pytest.raises(PythonTooLarge):
            producer.send(narrow, b"x" * LIMIT).get(60)


def test_aiokafka_is_told_that_a_message_is_too_large(broker: Subject, narrow: str) -> None:
    async def send() -> None:
        producer = AIOKafkaProducer(bootstrap_servers=broker.bootstrap)
        await producer.start()
        try:
            assert (await producer.send_and_wait(narrow, b"x" * (LIMIT - 100))).offset == 0
            with pytest.raises(AioTooLarge):
                await producer.send_and_wait(narrow, b"x" * LIMIT)
        finally:
            await producer.stop()

    asyncio.run(send())


@clients.NO_KCAT
def test_kcat_is_told_that_a_message_is_too_large(broker: Subject, narrow: str, tmp_path: Path) -> None:
    file = tmp_path / "value"
    file.write_bytes(b"x" * LIMIT)
    command = ["kcat", "-P", "-b", broker.bootstrap, "-t", narrow, "-p", "0", str(file)]
    done = subprocess.run(command, check=False, capture_output=True, timeout=60)
    assert b"Message size too large" in done.stderr
