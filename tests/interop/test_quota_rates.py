"""Real clients are held to their quotas over half a minute, and others do not notice."""

import asyncio
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from confluent_kafka import Consumer, KafkaError, Producer

from kafka import KafkaConsumer, KafkaProducer
from tests.waiting import until

from . import raw_client
from .batches import batch
from .quota_requests import quota
from .subject import Subject

pytestmark = pytest.mark.slow

RATE = 500_000
BURST_S = 11.0
"""A client that begins may use the quota of ten seconds at once: measuring begins when that has left the windows."""
MEASURED_S = 33.0
"""Whole windows."""
VALUE = b"x" * 1000
Count = Callable[[int], None]
Work = Callable[[str, str, str, threading.Event, Count], None]


def produce_confluent(bootstrap: str, client_id: str, topic: str, stop: threading.Event, count: Count) -> None:
    config = {"bootstrap.servers": bootstrap, "client.id": client_id, "batch.size": 50_000, "linger.ms": 5}
    producer = Producer({**config, "queue.buffering.max.kbytes": 4000})

    def delivered(error: KafkaError | None, _: Any) -> None:
        assert error is None, error
        count(len(VALUE))

    while not stop.is_set():
        with suppress(BufferError):
            producer.produce(topic, VALUE, on_delivery=delivered)
            producer.poll(0)
            continue
        producer.poll(0.05)
    producer.purge()


def produce_kafka_python(bootstrap: str, client_id: str, topic: str, stop: threading.Event, count: Count) -> None:
    producer = KafkaProducer(bootstrap_servers=bootstrap, client_id=client_id, batch_size=50_000, linger_ms=5)
    room = threading.Semaphore(1000)

    def delivered(_: Any) -> None:
        room.release()
        count(len(VALUE))

    while not stop.is_set():
        if room.acquire(timeout=0.1):
            producer.send(topic, VALUE).add_callback(delivered)
    producer.close(timeout=60)


def produce_aiokafka(bootstrap: str, client_id: str, topic: str, stop: threading.Event, count: Count) -> None:
    async def run() -> None:
        producer = AIOKafkaProducer(
            bootstrap_servers=bootstrap, client_id=client_id, max_batch_size=50_000, linger_ms=5
        )
        await producer.start()
        try:
            while not stop.is_set():
                sent = await producer.send(topic, VALUE)
                sent.add_done_callback(lambda done: count(len(VALUE)) if not done.exception() else None)
        finally:
            await producer.stop()

    asyncio.run(run())


def consume_confluent(bootstrap: str, client_id: str, topic: str, stop: threading.Event, count: Count) -> None:
    config = {"bootstrap.servers": bootstrap, "client.id": client_id, "group.id": client_id}
    consumer = Consumer({**config, "auto.offset.reset": "earliest", "queued.max.messages.kbytes": 1000})
    consumer.subscribe([topic])
    while not stop.is_set():
        for message in consumer.consume(500, 0.2):
            count(len(message.value() or b""))
    consumer.close()


def consume_kafka_python(bootstrap: str, client_id: str, topic: str, stop: threading.Event, count: Count) -> None:
    consumer = KafkaConsumer(
        topic,
        bootstrap_servers=bootstrap,
        client_id=client_id,
        group_id=client_id,
        auto_offset_reset="earliest",
    )
    while not stop.is_set():
        for messages in consumer.poll(200).values():
            count(sum(len(message.value) for message in messages))
    consumer.close(autocommit=False)


def consume_aiokafka(bootstrap: str, client_id: str, topic: str, stop: threading.Event, count: Count) -> None:
    async def run() -> None:
        consumer = AIOKafkaConsumer(
            topic, bootstrap_servers=bootstrap, client_id=client_id, group_id=client_id, auto_offset_reset="earliest"
        )
        await consumer.start()
        try:
            while not stop.is_set():
                for messages in (await consumer.getmany(timeout_ms=200)).values():
                    count(sum(len(message.value) for message in messages))
        finally:
            await consumer.stop()

    asyncio.run(run())


def measured_rate(work: Work, bootstrap: str, client_id: str, topic: str) -> float:
    """Bytes each second, after the burst."""
    stop, counted = threading.Event(), [0]

    def count(size: int) -> None:
        counted[0] += size

    thread = threading.Thread(target=work, args=(bootstrap, client_id, topic, stop, count))
    thread.start()
    try:
        until(lambda: counted[0] > 0)
        time.sleep(BURST_S)
        before, began = counted[0], time.monotonic()
        time.sleep(MEASURED_S)
        return (counted[0] - before) / (time.monotonic() - began)
    finally:
        stop.set()
        thread.join(60)


@pytest.mark.parametrize("work", [produce_confluent, produce_kafka_python, produce_aiokafka])
def test_a_producer_stays_within_a_tenth_of_its_quota(broker: Subject, topic: str, work: Work) -> None:
    client_id = work.__name__
    with quota(broker.bootstrap, {"client-id": client_id}, producer_byte_rate=RATE):
        rate = measured_rate(work, broker.bootstrap, client_id, topic)
    assert 0.9 * RATE <= rate <= 1.1 * RATE, f"{rate:,.0f} bytes/s with a quota of {RATE:,}"


@pytest.mark.parametrize("work", [consume_confluent, consume_kafka_python, consume_aiokafka])
def test_a_consumer_stays_within_a_tenth_of_its_quota(broker: Subject, topic: str, work: Work) -> None:
    client_id = work.__name__
    with raw_client.Connection(broker.bootstrap) as connection:
        for _ in range(700):
            raw_client.produce(connection, topic, batch([VALUE] * 50))
    with quota(broker.bootstrap, {"client-id": client_id}, consumer_byte_rate=RATE):
        rate = measured_rate(work, broker.bootstrap, client_id, topic)
    assert 0.9 * RATE <= rate <= 1.1 * RATE, f"{rate:,.0f} bytes/s with a quota of {RATE:,}"


def test_librdkafka_reports_the_delay_and_others_are_not_delayed(broker: Subject, topic: str) -> None:
    delays: dict[str, list[float]] = {"greedy": [], "modest": []}

    def producer(client_id: str) -> Producer:
        config = {"bootstrap.servers": broker.bootstrap, "client.id": client_id, "linger.ms": 0}
        return Producer({**config, "throttle_cb": lambda event: delays[client_id].append(event.throttle_time)})

    with quota(broker.bootstrap, {"client-id": "greedy"}, producer_byte_rate=10_000):
        greedy, modest = producer("greedy"), producer("modest")
        for _ in range(12):
            greedy.produce(topic, VALUE * 10)
            greedy.flush(60)
            modest.produce(topic, VALUE * 10)
            assert modest.flush(60) == 0
        until(lambda: greedy.poll(0.1) or delays["greedy"])
        assert max(delays["greedy"]) > 0
        assert delays["modest"] == []
