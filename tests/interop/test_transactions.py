"""Transactions through real clients: all or nothing, zombies fenced, offsets with the output, over restarts."""

import asyncio
import random
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import closing
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka import TopicPartition as AioPartition
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from kafka.structs import OffsetAndMetadata

from kafka import KafkaConsumer, KafkaProducer
from kafka import TopicPartition as PythonPartition

from . import raw_client
from .subject import Subject

QUICK: dict[str, Any] = {"reconnect.backoff.ms": 50, "reconnect.backoff.max.ms": 200}


def transactional(broker: Subject, name: str, **settings: Any) -> Producer:
    producer = Producer(
        {
            "bootstrap.servers": broker.bootstrap,
            "transactional.id": name,
            "linger.ms": 1,
            **QUICK,
            **settings,
        }
    )
    producer.init_transactions(60)
    return producer


def send(producer: Producer, topic: str, values: Iterable[str], partition: int = 0) -> None:
    for value in values:
        producer.produce(topic, value.encode(), partition=partition)
    producer.flush(60)


def read(broker: Subject, topic: str, isolation: str = "read_committed", partitions: int = 1) -> list[str]:
    """Everything there is for a reader of this isolation, read to the ends."""
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap,
            "group.id": "reader",
            "enable.auto.commit": False,
            "isolation.level": isolation,
            "enable.partition.eof": True,
        }
    )
    found: list[str] = []
    with closing(consumer):
        consumer.assign([TopicPartition(topic, at, 0) for at in range(partitions)])
        left, deadline = set(range(partitions)), time.monotonic() + 60
        while left:
            assert time.monotonic() < deadline, f"{len(found)} were read, and {left} have no end"
            message = consumer.poll(1)
            if message is None:
                continue
            if message.error() is None:
                found.append(message.value().decode())
            elif message.error().code() == KafkaError._PARTITION_EOF:
                left.discard(message.partition())
    return found


def test_committed_is_seen_and_aborted_is_not(broker: Subject, new_topic: Callable[..., str]) -> None:
    topic = new_topic(2)
    producer = transactional(broker, topic)
    for number in range(5):
        producer.begin_transaction()
        for partition in range(2):
            send(producer, topic, [f"{number}-{partition}"], partition)
        if number % 2:
            producer.abort_transaction(60)
        else:
            producer.commit_transaction(60)
    producer.begin_transaction()
    send(producer, topic, ["open"])
    assert sorted(read(broker, topic, partitions=2)) == ["0-0", "0-1", "2-0", "2-1", "4-0", "4-1"]
    assert len(read(broker, topic, "read_uncommitted", 2)) == 11
    producer.abort_transaction(60)


def test_large_transactions_are_told_apart(broker: Subject, topic: str) -> None:
    """Fetches of megabytes go another way than small ones, and carry the aborted transactions, too."""
    producer = transactional(broker, topic)
    for number in range(6):
        producer.begin_transaction()
        send(producer, topic, [f"{number}-".ljust(100_000, ".")] * 20)
        if number % 2:
            producer.abort_transaction(60)
        else:
            producer.commit_transaction(60)
    found = [value.split("-")[0] for value in read(broker, topic)]
    assert found == ["0"] * 20 + ["2"] * 20 + ["4"] * 20


def test_a_newer_instance_fences_the_older_one(broker: Subject, topic: str) -> None:
    zombie = transactional(broker, topic)
    zombie.begin_transaction()
    send(zombie, topic, ["zombie"])
    successor = transactional(broker, topic)
    successor.begin_transaction()
    send(successor, topic, ["successor"])
    zombie.produce(topic, b"too late", partition=0)
    with pytest.raises(KafkaException) as refused:
        zombie.commit_transaction(60)
    assert refused.value.args[0].fatal()
    successor.commit_transaction(60)
    assert read(broker, topic) == ["successor"]


def test_offsets_are_committed_with_the_output(broker: Subject, new_topic: Callable[..., str]) -> None:
    source, target = new_topic(), new_topic()
    plain = Producer({"bootstrap.servers": broker.bootstrap})
    send(plain, source, [str(number) for number in range(100)])
    group = {"bootstrap.servers": broker.bootstrap, "group.id": source, "enable.auto.commit": False}
    consumer = Consumer({**group, "auto.offset.reset": "earliest", "isolation.level": "read_committed"})
    producer = transactional(broker, source)
    with closing(consumer):
        consumer.subscribe([source])
        done = round_number = 0
        while done < 100:
            messages = consumer.consume(10, 60)
            assert messages
            round_number += 1
            producer.begin_transaction()
            send(producer, target, [message.value().decode() for message in messages])
            producer.send_offsets_to_transaction(
                consumer.position(consumer.assignment()), consumer.consumer_group_metadata(), 20
            )
            if round_number == 2:
                producer.abort_transaction(60)
                consumer.seek(TopicPartition(source, 0, done))
                committed = consumer.committed([TopicPartition(source, 0)], 60)
                assert committed[0].offset == done
                continue
            producer.commit_transaction(60)
            done += len(messages)
            assert consumer.committed([TopicPartition(source, 0)], 60)[0].offset == done
    assert read(broker, target) == [str(number) for number in range(100)]


def test_a_transaction_that_hangs_is_aborted(broker: Subject, topic: str) -> None:
    producer = transactional(broker, topic, **{"transaction.timeout.ms": 1000})
    producer.begin_transaction()
    send(producer, topic, ["hangs"])
    plain = Producer({"bootstrap.servers": broker.bootstrap})
    send(plain, topic, ["plain"])
    deadline = time.monotonic() + 60
    while read(broker, topic) != ["plain"]:
        assert time.monotonic() < deadline
    with pytest.raises(KafkaException):
        producer.commit_transaction(60)


def test_a_timeout_past_the_limit_is_refused(broker: Subject, topic: str) -> None:
    with pytest.raises(KafkaException, match="timeout"):
        transactional(broker, topic, **{"transaction.timeout.ms": 3_600_000})


def test_kafka_python(broker: Subject, new_topic: Callable[..., str]) -> None:
    source, target = new_topic(), new_topic()
    producer = KafkaProducer(bootstrap_servers=broker.bootstrap, transactional_id=target)
    producer.init_transactions()
    for number in range(4):
        producer.begin_transaction()
        producer.send(target, str(number).encode(), partition=0)
        position = {PythonPartition(source, 0): OffsetAndMetadata(number, "", -1)}
        producer.send_offsets_to_transaction(position, target)
        if number % 2:
            producer.abort_transaction()
        else:
            producer.commit_transaction()
    producer.close()
    consumer = KafkaConsumer(
        bootstrap_servers=broker.bootstrap,
        group_id=target,
        isolation_level="read_committed",
        enable_auto_commit=False,
    )
    where = PythonPartition(target, 0)
    with closing(consumer):
        consumer.assign([where])
        consumer.seek_to_beginning()
        found: list[bytes] = []
        end, deadline = consumer.end_offsets([where])[where], time.monotonic() + 60
        while consumer.position(where) < end:
            assert time.monotonic() < deadline, found
            found += [message.value for messages in consumer.poll(500).values() for message in messages]
        assert found == [b"0", b"2"]
        assert consumer.committed(PythonPartition(source, 0)) == 2


def test_aiokafka(broker: Subject, new_topic: Callable[..., str]) -> None:
    source, target = new_topic(), new_topic()

    async def run() -> list[bytes]:
        async with AIOKafkaProducer(bootstrap_servers=broker.bootstrap, transactional_id=target) as producer:
            for number in range(4):
                await producer.begin_transaction()
                await producer.send_and_wait(target, str(number).encode(), partition=0)
                await producer.send_offsets_to_transaction({AioPartition(source, 0): number}, target)
                if number % 2:
                    await producer.abort_transaction()
                else:
                    await producer.commit_transaction()
        consumer = AIOKafkaConsumer(
            target,
            bootstrap_servers=broker.bootstrap,
            isolation_level="read_committed",
            auto_offset_reset="earliest",
        )
        found: list[bytes] = []
        async with consumer:
            while len(found) < 2:
                found.append((await asyncio.wait_for(consumer.getone(), 60)).value)
        return found

    assert asyncio.run(run()) == [b"0", b"2"]


def is_aborted(producer: Producer) -> bool:
    try:
        producer.abort_transaction(60)
    except KafkaException:
        return False
    return True


@pytest.mark.parametrize("how", ["kill", pytest.param("terminate", marks=pytest.mark.slow)])
def test_transactions_survive_restarts_of_the_broker(how: str, own_broker: Callable[..., Subject]) -> None:
    """The broker goes away again and again while transactions are written to three partitions."""
    broker = own_broker()
    raw_client.create_topic(broker.bootstrap, "restarts", 3)
    finished = threading.Event()
    committed: list[int] = []
    unsure: set[int] = set()

    def restart() -> None:
        chance = random.Random(5)
        for _ in range(5):
            goal = len(committed) + 3  # However slow the machine is, something is done between two restarts.
            while len(committed) < goal and not finished.wait(0.01):
                pass
            finished.wait(chance.random())
            getattr(broker, how)()
            broker.start()

    restarting = threading.Thread(target=restart)
    restarting.start()
    try:
        producer = transactional(broker, "restarts")
        number, deadline = 0, time.monotonic() + 200
        while restarting.is_alive():
            assert time.monotonic() < deadline, f"{len(committed)} transactions were committed"
            number += 1
            try:
                producer.begin_transaction()
                for partition in range(3):
                    producer.produce("restarts", str(number).encode(), partition=partition)
                if number % 3 == 0:
                    producer.abort_transaction(60)
                    continue
                unsure.add(number)
                producer.commit_transaction(60)
                unsure.discard(number)
                committed.append(number)
            except KafkaException as error:
                problem = error.args[0]
                if problem.txn_requires_abort() and is_aborted(producer):
                    unsure.discard(number)
                elif not problem.retriable():
                    producer = transactional(broker, "restarts")
    finally:
        finished.set()
        restarting.join()
    producer = transactional(broker, "restarts")  # what was open is aborted, what was decided is complete
    found = read(broker, "restarts", partitions=3)
    seen = {number: found.count(str(number)) for number in {int(value) for value in found}}
    assert len(committed) > 5
    assert all(count == 3 for count in seen.values()), "all or nothing, and once"
    assert set(committed) <= seen.keys(), "what was committed is there"
    assert seen.keys() <= set(committed) | unsure, "what was aborted is not"
