"""A consumer serves rebalances in the midst of reading: what was read before one is judged by who owns it after."""

from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicPartition

from headrace.client.consume.group import AtLeastOnce, AtMostOnce
from headrace.client.errors import ConsumeFailed
from headrace.client.kafka import consumer
from headrace.client.kafka.consumer import PartitionConsumer


class Raw:
    """A message as confluent-kafka hands it out."""

    def __init__(self, partition: int, offset: int) -> None:
        self.place = ("t", partition, offset)

    def error(self) -> None:
        return None

    def topic(self) -> str:
        return self.place[0]

    def partition(self) -> int:
        return self.place[1]

    def offset(self) -> int:
        return self.place[2]

    def value(self) -> bytes:
        return b""

    def key(self) -> None:
        return None

    def headers(self) -> None:
        return None

    def timestamp(self) -> tuple[int, int]:
        return (1, 0)


Event = Raw | Callable[["Scripted"], None]


class Scripted:
    """A consumer to which things happen in a given order: messages, and calls such as a rebalance."""

    def __init__(self, config: dict[str, Any]) -> None:
        self.events: list[Event] = []
        self.commits: list[dict[int, int]] = []
        self.paused: set[int] = set()
        self.on_commit: Callable[..., None] = config["on_commit"]

    def subscribe(self, topics: list[str], **callbacks: Callable[..., None]) -> None:
        self.callbacks = callbacks

    def poll(self, timeout_s: float) -> Raw | None:
        while self.events:
            event = self.events.pop(0)
            if isinstance(event, Raw):
                return event
            event(self)
        return None

    def commit(self, offsets: list[TopicPartition], asynchronous: bool) -> None:
        self.commits.append({each.partition: each.offset for each in offsets})

    def pause(self, partitions: list[TopicPartition]) -> None:
        self.paused |= {each.partition for each in partitions}

    def resume(self, partitions: list[TopicPartition]) -> None:
        self.paused -= {each.partition for each in partitions}

    def close(self) -> None:
        pass


def rebalance(what: str, *partitions: int) -> Callable[[Scripted], None]:
    return lambda self: self.callbacks[what](self, [TopicPartition("t", each) for each in partitions])


def fail(self: Scripted) -> None:
    raise KafkaException(KafkaError(KafkaError.GROUP_AUTHORIZATION_FAILED))


@pytest.fixture
def poller(monkeypatch: pytest.MonkeyPatch) -> PartitionConsumer:
    monkeypatch.setattr(consumer, "Consumer", Scripted)
    return PartitionConsumer({"bootstrap.servers": "nowhere:1"})


def script(poller: PartitionConsumer, *events: Event) -> Scripted:
    consumer = poller.consumer
    assert isinstance(consumer, Scripted)
    consumer.events += events
    return consumer


@pytest.mark.parametrize("end", ["on_revoke", "on_lost"])
def test_only_messages_of_partitions_that_go_are_dropped(poller: PartitionConsumer, end: str) -> None:
    stream = AtLeastOnce(poller, ["t"], commit_interval_s=60, max_unacked=100)
    script(poller, rebalance("on_assign", 0, 1), Raw(0, 0), Raw(1, 0), rebalance(end, 1), Raw(0, 1))
    assert [(each.partition, each.offset) for each in stream.take(9, 1)] == [(0, 0), (0, 1)]


def test_a_partition_that_comes_back_is_read_from_where_the_group_is(poller: PartitionConsumer) -> None:
    stream = AtLeastOnce(poller, ["t"], commit_interval_s=60, max_unacked=100)
    script(poller, Raw(0, 5), rebalance("on_revoke", 0), rebalance("on_assign", 0), Raw(0, 5), Raw(0, 6))
    assert [each.offset for each in stream.take(9, 1)] == [5, 6]


def test_at_most_once_commits_only_what_is_its_own(poller: PartitionConsumer) -> None:
    stream = AtMostOnce(poller, ["t"], batch=10)
    consumer = script(poller, Raw(0, 0), Raw(1, 0), rebalance("on_revoke", 1))
    assert [(each.partition, each.offset) for each in stream.take(9, 1)] == [(0, 0)]
    assert consumer.commits == [{0: 1}]


def test_what_was_read_before_a_failure_comes_before_it(poller: PartitionConsumer) -> None:
    script(poller, Raw(0, 0), fail, Raw(0, 1))
    assert [each.offset for each in poller.take(9, 1)] == [0]
    with pytest.raises(ConsumeFailed):
        poller.take(9, 1)
    assert [each.offset for each in poller.take(9, 1)] == [1]


def test_a_partition_that_goes_while_it_is_paused_is_read_when_it_comes_back(poller: PartitionConsumer) -> None:
    AtLeastOnce(poller, ["t"], commit_interval_s=60, max_unacked=100)
    poller.pause({("t", 0), ("t", 1)})
    consumer = script(poller, rebalance("on_lost", 1))
    poller.take(1, 1)
    assert consumer.paused == {0}


def test_a_commit_that_failed_unheard_is_made_again(poller: PartitionConsumer) -> None:
    stream = AtLeastOnce(poller, ["t"], commit_interval_s=0, max_unacked=100)
    consumer = script(poller, Raw(0, 0))
    next(stream).ack()
    stream.take(1, 1)
    assert consumer.commits == [{0: 1}]
    consumer.on_commit(KafkaError(KafkaError._TRANSPORT), [TopicPartition("t", 0, 1)])
    stream.take(1, 1)
    stream.take(1, 1)
    assert consumer.commits == [{0: 1}, {0: 1}]
