"""Idempotent producers: what they send is there once, in order, under one producer id."""

import asyncio
from contextlib import closing

from aiokafka import AIOKafkaProducer
from confluent_kafka import Producer

from kafka import KafkaProducer

from . import batches, raw_client
from .subject import Subject

COUNT = 3000


def check(bootstrap: str, topic: str, count: int = COUNT) -> None:
    """Every number once, in order, in batches whose sequences have no gap."""
    found: list[bytes | None] = []
    producers = set()
    with raw_client.Connection(bootstrap) as connection:
        while len(found) < count:
            part = batches.parse(raw_client.fetch(connection, topic, len(found)).records)
            assert part, f"{len(found)} of {count} records are there"
            for one in part:
                assert one.base_sequence == len(found)
                producers.add((one.producer_id, one.producer_epoch))
                found += [record.value for record in one.records]
    assert found == [b"%d" % number for number in range(count)]
    ((producer_id, producer_epoch),) = producers
    assert producer_id >= 0
    assert producer_epoch == 0


def test_confluent(broker: Subject, topic: str) -> None:
    errors = []
    settings = {"bootstrap.servers": broker.bootstrap, "enable.idempotence": True, "batch.num.messages": 100}
    producer = Producer(settings)
    for number in range(COUNT):
        producer.produce(topic, b"%d" % number, on_delivery=lambda error, _: errors.append(error) if error else None)
    assert producer.flush(60) == 0
    assert not errors
    check(broker.bootstrap, topic)


def test_kafka_python(broker: Subject, topic: str) -> None:
    settings = {"enable_idempotence": True, "batch_size": 1000, "max_in_flight_requests_per_connection": 5}
    with closing(KafkaProducer(bootstrap_servers=broker.bootstrap, **settings)) as producer:
        sent = [producer.send(topic, b"%d" % number) for number in range(COUNT)]
        producer.flush(60)
        assert [future.get(60).offset for future in sent] == list(range(COUNT))
    check(broker.bootstrap, topic)


def test_aiokafka(broker: Subject, topic: str) -> None:
    async def send() -> list[int]:
        producer = AIOKafkaProducer(bootstrap_servers=broker.bootstrap, enable_idempotence=True, max_batch_size=1000)
        await producer.start()
        try:
            sent = [await producer.send(topic, b"%d" % number) for number in range(COUNT)]
            return [(await future).offset for future in sent]
        finally:
            await producer.stop()

    assert asyncio.run(send()) == list(range(COUNT))
    check(broker.bootstrap, topic)


def test_every_producer_gets_an_id_of_its_own(connection: raw_client.Connection) -> None:
    answers = [
        connection.call(raw_client.INIT_PRODUCER_ID, 4, transactional_id=None, producer_id=-1, producer_epoch=-1)
        for _ in range(50)
    ]
    assert {answer.error_code for answer in answers} == {raw_client.Error.none}
    assert {answer.producer_epoch for answer in answers} == {0}
    assert len({answer.producer_id for answer in answers}) == 50
