"""Much data over TLS: clients read many partitions while others write, and one that does not read costs no memory."""

import asyncio
import hashlib
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from aiokafka import AIOKafkaConsumer
from aiokafka import TopicPartition as AioPartition
from confluent_kafka import Consumer, Producer, TopicPartition

from headrace.security.tls.dev_certificates import make_dev_certificates
from headrace.testing.etcd import free_port
from headrace.testing.process import BrokerProcess
from kafka import KafkaConsumer
from kafka import TopicPartition as PythonPartition
from tests.faults.watch import MIB, memory_bytes, reset_peak

from . import raw_client, subject
from .secure_clients import TIMEOUT_S, Credentials

pytestmark = pytest.mark.skipif(not subject.IS_HEADRACE, reason="about the TLS of Headrace")

TOPIC = "large"
PARTITIONS = 16
PER_PARTITION = 200
VALUE_BYTES = 16 * 1024
FETCH_BYTES = 50_000_000


class Filled(NamedTuple):
    """A broker with data, and how to connect to it."""

    broker: BrokerProcess
    credentials: Credentials


def value(partition: int, number: int) -> bytes:
    return hashlib.shake_128(f"{partition}-{number}".encode()).digest(VALUE_BYTES)


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Filled]:
    folder = tmp_path_factory.mktemp("tls-fetch")
    made = make_dev_certificates(folder / "certificates")
    plain, secure = free_port(), free_port()
    settings = {
        "listeners": f"plain://127.0.0.1:{plain},tls://127.0.0.1:{secure}",
        "tls.cert.file": made.broker.cert_file,
        "tls.key.file": made.broker.key_file,
        "log.segment.bytes": 2 * MIB,
    }
    with BrokerProcess(folder / "data", port=plain, settings=settings) as broker:
        raw_client.create_topic(broker.bootstrap, TOPIC, PARTITIONS)
        credentials = Credentials(f"127.0.0.1:{secure}", made.ca.cert_file)
        producer = Producer({**credentials.confluent(), "linger.ms": 20, "queue.buffering.max.kbytes": 200_000})
        for number in range(PER_PARTITION):
            for partition in range(PARTITIONS):
                producer.produce(TOPIC, value(partition, number), partition=partition)
        assert producer.flush(TIMEOUT_S) == 0
        yield Filled(broker, credentials)


class Writer(threading.Thread):
    """A producer over TLS that goes on until `finish`."""

    def __init__(self, credentials: Credentials) -> None:
        super().__init__(name="writer")
        self._settings = {**credentials.confluent(), "linger.ms": 5, "acks": "all"}
        self._finished = threading.Event()
        self.acked = 0
        self.errors: list[Any] = []

    def run(self) -> None:
        producer = Producer(self._settings)
        payload = bytes(10_000)
        while not self._finished.is_set():
            for _ in range(50):
                producer.produce("written", payload, on_delivery=self._note)
            producer.flush(TIMEOUT_S)

    def _note(self, error: Any, _: Any) -> None:
        if error is None:
            self.acked += 1
        else:
            self.errors.append(error)

    def finish(self) -> None:
        self._finished.set()
        self.join()


@contextmanager
def writing(credentials: Credentials) -> Iterator[None]:
    writer = Writer(credentials)
    writer.start()
    try:
        yield
    finally:
        writer.finish()
    assert not writer.errors
    assert writer.acked


Found = dict[int, list[bytes]]
Add = Callable[[int, bytes], bool]


def read_with_confluent(credentials: Credentials, add: Add) -> None:
    limits = {"fetch.max.bytes": FETCH_BYTES, "max.partition.fetch.bytes": 8 * MIB}
    with closing(Consumer({**credentials.confluent(), **limits, "group.id": "unused"})) as consumer:
        consumer.assign([TopicPartition(TOPIC, partition, 0) for partition in range(PARTITIONS)])
        while True:
            message = consumer.poll(TIMEOUT_S)
            assert message is not None, "nothing came"
            if add(message.partition() or 0, message.value() or b""):
                break


def read_with_kafka_python(credentials: Credentials, add: Add) -> None:
    limits = {"fetch_max_bytes": FETCH_BYTES, "max_partition_fetch_bytes": 8 * MIB, "auto_offset_reset": "earliest"}
    settings = {**credentials.kafka_python(), **limits, "consumer_timeout_ms": TIMEOUT_S * 1000}
    with closing(KafkaConsumer(**settings)) as consumer:
        consumer.assign([PythonPartition(TOPIC, partition) for partition in range(PARTITIONS)])
        for message in consumer:
            if add(message.partition, message.value):
                break


def read_with_aiokafka(credentials: Credentials, add: Add) -> None:
    async def read() -> None:
        limits = {"fetch_max_bytes": FETCH_BYTES, "max_partition_fetch_bytes": 8 * MIB}
        consumer = AIOKafkaConsumer(**credentials.aiokafka(), **limits, auto_offset_reset="earliest")
        consumer.assign([AioPartition(TOPIC, partition) for partition in range(PARTITIONS)])
        async with consumer:
            while True:
                message = await asyncio.wait_for(consumer.getone(), TIMEOUT_S)
                if add(message.partition, message.value):
                    break

    asyncio.run(read())


@pytest.mark.parametrize("read", [read_with_confluent, read_with_kafka_python, read_with_aiokafka])
def test_many_partitions_are_read_while_others_write(filled: Filled, read: Callable[[Credentials, Add], None]) -> None:
    found: Found = {partition: [] for partition in range(PARTITIONS)}

    def add(partition: int, got: bytes) -> bool:
        found[partition].append(got)
        return all(len(values) == PER_PARTITION for values in found.values())

    with writing(filled.credentials):
        read(filled.credentials, add)
    for partition, values in found.items():
        assert values == [value(partition, number) for number in range(PER_PARTITION)]


class TlsConnection(raw_client.Connection):
    def __init__(self, bootstrap: str, ca_file: Path) -> None:
        super().__init__(bootstrap)
        context = ssl.create_default_context(cafile=str(ca_file))
        self._socket = context.wrap_socket(self._socket, server_hostname="localhost")


def test_clients_that_do_not_read_cost_no_memory(filled: Filled) -> None:
    """Each asks for 30 MB twice: 600 MB altogether are never in the broker's memory."""
    partitions = [
        {"partition": partition, "fetch_offset": 0, "partition_max_bytes": 8 * MIB} for partition in range(PARTITIONS)
    ]
    body = {"max_wait": 0, "min_bytes": 0, "max_bytes": 1 << 30, "topics": [{"topic": TOPIC, "partitions": partitions}]}
    credentials, pid = filled.credentials, filled.broker.pid
    assert credentials.ca_file is not None
    connections = [TlsConnection(credentials.bootstrap, credentials.ca_file) for _ in range(10)]
    try:
        reset_peak(pid)
        before = memory_bytes(pid)
        pending = [[connection.send(raw_client.FETCH, 12, body) for _ in range(2)] for connection in connections]
        with TlsConnection(credentials.bootstrap, credentials.ca_file) as other:
            # It is answered after all of the others' requests have come.
            assert len(raw_client.fetch(other, TOPIC, 0).records) > MIB // 2
        assert memory_bytes(pid, "VmHWM") - before < 64 * MIB
        answer = connections[0].receive(pending[0][0])
        assert sum(len(each.records) for each in answer.responses[0].partitions) > 20 * MIB
    finally:
        for connection in connections:
            connection.close()
