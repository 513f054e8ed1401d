"""A group is rolled from one protocol to the other and back with real clients: no pause, no overlap."""

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition

from . import raw_client
from .group_clients import python_consumer
from .group_readers import QUICK, Reader, commit, described, produce, until
from .subject import Subject

PARTITIONS = 6
SETTINGS = QUICK
CLASSIC = {"group_protocol": "classic", "session_timeout_ms": 45_000, "heartbeat_interval_ms": 200}


class Owners:
    """Who reads what, by what clients are told: nobody takes a partition before its last owner has given it up."""

    def __init__(self, bootstrap: str, group: str) -> None:
        self.bootstrap, self.group = bootstrap, group
        self.of: dict[int, Reader] = {}
        self.lost = 0
        self.readers: list[Reader] = []
        self._produced = 0
        self._values: list[int] = []

    def add(self, reader: Reader) -> Reader:
        def assigned(_: Consumer, partitions: list[TopicPartition]) -> None:
            for one in partitions:
                assert one.partition not in self.of, f"{one.partition} has two owners"
                self.of[one.partition] = reader

        def revoked(consumer: Consumer, partitions: list[TopicPartition]) -> None:
            positions = [one for one in consumer.position(partitions) if one.offset >= 0]
            if positions:
                commit(consumer, offsets=positions)
            self.forget(partitions)

        def lost(_: Consumer, partitions: list[TopicPartition]) -> None:
            self.lost += 1
            self.forget(partitions)

        reader.consumer.subscribe(["t"], on_assign=assigned, on_revoke=revoked, on_lost=lost)
        self.readers.append(reader)
        return reader

    def forget(self, partitions: list[TopicPartition]) -> None:
        for one in partitions:
            del self.of[one.partition]

    def remove(self, reader: Reader) -> None:
        self.readers.remove(reader)
        self._values += reader.values
        reader.consumer.close()

    def settle(self) -> None:
        """Everything is read by somebody, shared out evenly; and what is written meanwhile comes."""
        values = range(self._produced, self._produced + 2 * PARTITIONS)
        self._produced += len(values)
        produce(self.bootstrap, "t", values, PARTITIONS)
        until(lambda: self.is_shared_out() and set(self.values()) >= set(values), *self.readers)

    def is_shared_out(self) -> bool:
        sizes = [len(one.partitions()) for one in self.readers]
        return sum(sizes) == len(self.of) == PARTITIONS and max(sizes) - min(sizes) <= 1

    def values(self) -> list[int]:
        return self._values + [value for one in self.readers for value in one.values]

    def check(self) -> None:
        """All that was written was read, in the right order on each partition, and twice only where it was lost."""
        values = self.values()
        assert set(values) == set(range(self._produced))
        if not self.lost:
            assert len(values) == self._produced


@pytest.fixture
def reader() -> Iterator[Callable[..., Reader]]:
    with ExitStack() as stack:

        def make(bootstrap: str, group: str, **settings: object) -> Reader:
            one = Reader(bootstrap, group, "t", **settings)
            stack.callback(one.consumer.close)
            return one

        yield make


@pytest.mark.parametrize("strategy", ["range", "cooperative-sticky"])
def test_a_group_is_rolled_over_and_back(
    own_broker: Callable[..., Subject], reader: Callable[..., Reader], strategy: str
) -> None:
    broker = own_broker(**SETTINGS)
    raw_client.create_topic(broker.bootstrap, "t", PARTITIONS, {})
    owners = Owners(broker.bootstrap, "g")
    classic: dict[str, Any] = {**CLASSIC, "partition_assignment_strategy": strategy}
    for settings in (classic, {}, classic):
        kind = "classic" if settings else "consumer"
        for _ in range(2):
            owners.add(reader(broker.bootstrap, "g", **settings))
            owners.settle()
            if len(owners.readers) > 2:
                assert described(broker.bootstrap, "g").type.name == "CONSUMER"
                owners.remove(owners.readers[0])
                owners.settle()
        assert described(broker.bootstrap, "g").type.name.lower() == kind
    owners.check()


def test_a_mixed_group_goes_on_over_kills_of_the_broker(
    own_broker: Callable[..., Subject], reader: Callable[..., Reader]
) -> None:
    broker = own_broker(**SETTINGS)
    raw_client.create_topic(broker.bootstrap, "t", PARTITIONS, {})
    owners = Owners(broker.bootstrap, "g")
    owners.add(reader(broker.bootstrap, "g", **CLASSIC))
    owners.settle()
    owners.add(reader(broker.bootstrap, "g"))
    broker.kill()
    broker.start()
    owners.settle()
    broker.kill()
    broker.start()
    owners.settle()
    assert described(broker.bootstrap, "g").type.name == "CONSUMER"
    owners.remove(owners.readers[1])
    broker.kill()
    broker.start()
    owners.settle()
    assert described(broker.bootstrap, "g").type.name == "CLASSIC"
    assert set(owners.values()) == set(range(len(set(owners.values()))))


@pytest.mark.slow
def test_static_members_come_back_with_the_other_protocol(
    own_broker: Callable[..., Subject], reader: Callable[..., Reader]
) -> None:
    broker = own_broker(**SETTINGS)
    raw_client.create_topic(broker.bootstrap, "t", PARTITIONS, {})
    owners = Owners(broker.bootstrap, "g")
    for settings in (CLASSIC, {}, CLASSIC):
        for name in ("one", "two"):
            if len(owners.readers) == 2:
                owners.remove(owners.readers[0])
            owners.add(reader(broker.bootstrap, "g", group_instance_id=name, **settings))
            if len(owners.readers) == 2:
                owners.settle()
    assert described(broker.bootstrap, "g").type.name == "CLASSIC"
    owners.check()


@pytest.mark.slow
def test_kafka_python_shares_a_group_with_members_of_the_consumer_protocol(
    own_broker: Callable[..., Subject], reader: Callable[..., Reader]
) -> None:
    broker = own_broker(**SETTINGS)
    raw_client.create_topic(broker.bootstrap, "t", 4, {})
    with closing(python_consumer(broker.bootstrap, "g", "t")) as old:
        new = reader(broker.bootstrap, "g")
        end = time.monotonic() + 60
        while not len(old.assignment()) == len(new.partitions()) == 2:
            assert time.monotonic() < end, (old.assignment(), new.partitions())
            old.poll(50)
            new.poll()
        assert {one.partition for one in old.assignment()} | {n for _, n in new.partitions()} == set(range(4))
        new.consumer.close()
        while len(old.assignment()) != 4:
            assert time.monotonic() < end, old.assignment()
            old.poll(50)
