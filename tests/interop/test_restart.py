"""The broker goes away in the middle, cleanly or by SIGKILL: clients carry on, and nothing is lost or doubled."""

import asyncio
import gc
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing, suppress

import pytest
from aiokafka import AIOKafkaProducer
from confluent_kafka import Consumer, Producer, TopicPartition

from kafka import KafkaConsumer, KafkaProducer
from kafka import TopicPartition as PythonPartition

from . import batches, raw_client
from .subject import Subject

# Clients leave the sockets and transports of connections that broke to the garbage collector.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")

COUNT = 3000
PARTITIONS = 3


@pytest.fixture(autouse=True)
def collect_garbage() -> Iterator[None]:
    """What the clients leave behind is collected here, and not in a test that has nothing to do with it."""
    yield
    gc.collect()


def restart_in_the_middle(broker: Subject, how: str, sent: threading.Event) -> threading.Thread:
    def run() -> None:
        assert sent.wait(60)
        getattr(broker, how)()
        broker.start()

    thread = threading.Thread(target=run)
    thread.start()
    return thread


def stored(bootstrap: str, topic: str, partitions: int) -> list[list[bytes | None]]:
    """All values, by partition, as they are in the logs."""
    found: list[list[bytes | None]] = []
    with raw_client.Connection(bootstrap) as connection:
        raw_client.wait_topic(connection, topic, partitions)
        for partition in range(partitions):
            values: list[bytes | None] = []
            end = raw_client.offset_at(connection, topic, -1, partition=partition).offset
            while len(values) < end:
                values += batches.values(raw_client.fetch(connection, topic, len(values), partition=partition).records)
            found.append(values)
    return found


def check_once_and_in_order(found: list[list[bytes | None]], expected: set[bytes]) -> None:
    counted = Counter(value for values in found for value in values)
    assert not [value for value, times in counted.items() if times > 1], "doubled"
    assert counted.keys() == expected, f"{len(expected - counted.keys())} lost"
    for values in found:
        numbers = [int(value or b"") for value in values]
        assert numbers == sorted(numbers), "out of order"


@pytest.mark.parametrize("how", ["terminate", "kill"])
def test_confluent_producer_and_consumer_carry_on(how: str, own_broker: Callable[..., Subject]) -> None:
    broker = own_broker()
    raw_client.create_topic(broker.bootstrap, "carry-on", PARTITIONS)
    acked: set[bytes] = set()
    halfway = threading.Event()
    restarting = restart_in_the_middle(broker, how, halfway)
    quick = {"bootstrap.servers": broker.bootstrap, "reconnect.backoff.ms": 50, "reconnect.backoff.max.ms": 200}
    producer = Producer({**quick, "enable.idempotence": True, "linger.ms": 1, "batch.num.messages": 50})
    consumer = Consumer({**quick, "group.id": "unused", "enable.auto.commit": False, "auto.offset.reset": "error"})
    with closing(consumer):
        consumer.assign([TopicPartition("carry-on", at, 0) for at in range(PARTITIONS)])
        seen: list[list[bytes | None]] = [[] for _ in range(PARTITIONS)]
        for number in range(COUNT):
            value = b"%d" % number
            producer.produce(
                "carry-on", value, partition=number % PARTITIONS,
                on_delivery=lambda error, message: acked.add(message.value()) if error is None else None,
            )  # fmt: skip
            producer.poll(0)
            if number == COUNT // 3:
                halfway.set()
            if number > COUNT // 3:
                time.sleep(0.0005)
        assert producer.flush(60) == 0
        restarting.join()
        end = time.monotonic() + 60
        while sum(map(len, seen)) < COUNT and time.monotonic() < end:
            message = consumer.poll(1)
            if message is not None and message.error() is None:
                assert message.offset() == len(seen[message.partition()])
                seen[message.partition()].append(message.value())
    everything = {b"%d" % number for number in range(COUNT)}
    assert acked == everything
    check_once_and_in_order(stored(broker.bootstrap, "carry-on", PARTITIONS), everything)
    check_once_and_in_order(seen, everything)


@pytest.mark.parametrize("how", ["terminate", "kill"])
def test_kafka_python_producer_and_consumer_carry_on(how: str, own_broker: Callable[..., Subject]) -> None:
    broker = own_broker()
    raw_client.create_topic(broker.bootstrap, "carry-on", PARTITIONS)
    halfway = threading.Event()
    restarting = restart_in_the_middle(broker, how, halfway)
    where = [PythonPartition("carry-on", at) for at in range(PARTITIONS)]
    with (
        closing(KafkaProducer(bootstrap_servers=broker.bootstrap, linger_ms=1, retries=1000)) as producer,
        closing(KafkaConsumer(bootstrap_servers=broker.bootstrap, group_id=None)) as consumer,
    ):
        consumer.assign(where)
        for one in where:
            consumer.seek(one, 0)
        futures = []
        for number in range(COUNT):
            futures.append(producer.send("carry-on", b"%d" % number, partition=number % PARTITIONS))
            if number == COUNT // 3:
                futures[-1].get(60)
                halfway.set()
            if number > COUNT // 3:
                time.sleep(0.0005)
        producer.flush(60)
        offsets = [future.get(60).offset for future in futures]
        restarting.join()
        seen: list[list[bytes | None]] = [[] for _ in range(PARTITIONS)]
        end = time.monotonic() + 60
        while sum(map(len, seen)) < COUNT and time.monotonic() < end:
            for one, messages in consumer.poll(500).items():
                seen[one.partition] += [message.value for message in messages]
    everything = {b"%d" % number for number in range(COUNT)}
    found = stored(broker.bootstrap, "carry-on", PARTITIONS)
    check_once_and_in_order(found, everything)
    check_once_and_in_order(seen, everything)
    for number, offset in enumerate(offsets):
        assert found[number % PARTITIONS][offset] == b"%d" % number


@pytest.mark.parametrize("how", ["terminate", "kill"])
def test_aiokafka_producer_carries_on(how: str, own_broker: Callable[..., Subject]) -> None:
    broker = own_broker()
    raw_client.create_topic(broker.bootstrap, "carry-on", PARTITIONS)
    halfway = threading.Event()
    restarting = restart_in_the_middle(broker, how, halfway)

    async def send() -> None:
        producer = AIOKafkaProducer(
            bootstrap_servers=broker.bootstrap, enable_idempotence=True, request_timeout_ms=60_000
        )
        await producer.start()
        try:
            sent = []
            for number in range(COUNT):
                sent.append(await producer.send("carry-on", b"%d" % number, partition=number % PARTITIONS))
                if number == COUNT // 3:
                    await sent[-1]
                    halfway.set()
                await asyncio.sleep(0.0005 if number > COUNT // 3 else 0)
            await asyncio.wait_for(asyncio.gather(*sent), 60)
        finally:
            await producer.stop()

    asyncio.run(send())
    restarting.join()
    everything = {b"%d" % number for number in range(COUNT)}
    check_once_and_in_order(stored(broker.bootstrap, "carry-on", PARTITIONS), everything)


def test_a_clean_stop_leaves_waiting_clients_with_an_answer_or_a_closed_connection(
    own_broker: Callable[..., Subject],
) -> None:
    broker = own_broker()
    raw_client.create_topic(broker.bootstrap, "waiting")
    with raw_client.Connection(broker.bootstrap) as connection:
        pending = connection.send(raw_client.FETCH, 12, raw_client.fetch_body("waiting", max_wait=300_000, min_bytes=1))
        assert connection.is_silent(0.2)
        started = time.monotonic()
        assert broker.terminate() == 0
        assert time.monotonic() - started < 60
        connection.set_timeout(60)
        with suppress(raw_client.Closed):
            assert not connection.receive(pending).responses[0].partitions[0].records
