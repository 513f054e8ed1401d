"""A former source becomes the mirror: between two real brokers, with real clients."""

from collections.abc import Iterator
from contextlib import closing
from uuid import UUID

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from headrace.mirror.reports import ReversalReport
from headrace.model.errors import InvalidLink
from headrace.model.ids import TopicName
from headrace.model.links import Link, MirrorState
from headrace.testing import Broker
from tests.interop.linked import ask, image, services
from tests.interop.test_link_copy import consume, create, partition, produce, until_copied
from tests.unit.storage.test_promotion import bytes_of
from tests.waiting import until

FAST = {"link.refresh.interval.ms": 100, "replica.fetch.wait.max.ms": 100, "group.initial.rebalance.delay.ms": 0}


@pytest.fixture
def first() -> Iterator[Broker]:
    with Broker(settings=FAST) as broker:
        yield broker


@pytest.fixture
def second() -> Iterator[Broker]:
    with Broker(settings=FAST) as broker:
        yield broker


def connect(here: Broker, name: str, there: Broker) -> None:
    link = Link(name, UUID(int=0), (there.bootstrap,), topics=("orders",))
    ask(here, lambda links: links.create(link))


def until_hosted(broker: Broker) -> None:
    until(lambda: services(broker).partitions.of_topic(TopicName("orders")))


def state(broker: Broker, topic: str = "orders") -> MirrorState | None:
    mirror = image(broker).mirrors.get(partition(broker, topic).topic_id)
    return None if mirror is None else mirror.state


def reverse(broker: Broker, link: str, *, dry_run: bool = False) -> ReversalReport:
    return ask(broker, lambda links: links.reverse(link, "orders", dry_run=dry_run))


def refusal(broker: Broker) -> int | None:
    """The error code of a producer, whose client ends with the exception; None if it is not refused."""
    try:
        produce(broker, "orders", "x")
    except KafkaException as error:
        return int(error.args[0].code())
    return None


def messages(broker: Broker, topic: str, count: int) -> list[Message]:
    settings = {"bootstrap.servers": broker.bootstrap, "group.id": "reader", "enable.auto.commit": False}
    found: list[Message] = []
    with closing(Consumer(settings)) as consumer:
        consumer.assign([TopicPartition(topic, 0, 0)])
        while len(found) < count:
            message = consumer.poll(30)
            assert message is not None
            assert message.error() is None, message.error()
            found.append(message)
    return found


def commit(broker: Broker, group: str, offset: int) -> None:
    with closing(Consumer({"bootstrap.servers": broker.bootstrap, "group.id": group})) as consumer:
        consumer.commit(offsets=[TopicPartition("orders", 0, offset)], asynchronous=False)


def committed(broker: Broker, group: str) -> int:
    with closing(Consumer({"bootstrap.servers": broker.bootstrap, "group.id": group})) as consumer:
        return int(consumer.committed([TopicPartition("orders", 0)], timeout=30)[0].offset)


def diverged(first: Broker, second: Broker) -> None:
    """`first` is the source and has three messages that the other one never got; that one was failed over."""
    create(first, "orders")
    produce(first, "orders", "a", "b")
    connect(second, "first", first)
    until_hosted(second)
    until_copied(first, second)
    ask(second, lambda links: links.pause("first"))
    produce(first, "orders", "c")
    produce(first, "orders", "never", transactional_id="t", commit=False)
    produce(first, "orders", "d", "e", transactional_id="t")
    ask(second, lambda links: links.failover("orders"))
    produce(second, "orders", "f", "g")
    connect(first, "second", second)


def until_same(here: Broker, there: Broker) -> None:
    until(lambda: bytes_of(partition(here, "orders").log) == bytes_of(partition(there, "orders").log))


def test_a_source_fails_back_and_forth(first: Broker, second: Broker) -> None:
    diverged(first, second)
    before = messages(first, "orders", 5)
    planned = reverse(first, "second", dry_run=True)
    assert (planned.set_aside, planned.aborted, planned.undecided) == (3, 1, 0)
    assert state(first) is None
    assert "orders.divergent" not in image(first).topics

    for group, offset in (("ahead", 6), ("behind", 1)):
        commit(first, group, offset)
    done = reverse(first, "second")
    assert (done.set_aside, done.aborted, done.undecided, done.is_complete) == (3, 1, 0, True)
    assert committed(first, "ahead") == 2, "it has not seen what the other cluster has there"
    assert committed(first, "behind") == 1
    until_same(first, second)
    assert consume(first, "orders", 4) == ["a", "b", "f", "g"]
    assert refusal(first) == KafkaError.INVALID_REQUEST
    aside = messages(first, "orders.divergent", 3)
    assert [each.value() for each in aside] == [b"c", b"d", b"e"]
    for old, new in zip(before[2:], aside, strict=True):
        assert new.timestamp() == old.timestamp()
        assert new.headers() == [
            ("headrace.divergent.topic", b"orders"),
            ("headrace.divergent.partition", b"0"),
            ("headrace.divergent.offset", str(old.offset()).encode()),
        ]
    (report,) = ask(first, lambda links: links.describe("second")).mirrors
    assert (report.set_aside, report.mirror.state) == (3, MirrorState.MIRRORING)
    again = reverse(first, "second")
    assert (again.set_aside, again.is_complete) == (3, True)

    produce(second, "orders", "h")
    until_copied(second, first)
    ask(first, lambda links: links.promote("orders"))
    produce(first, "orders", "i")
    with pytest.raises(InvalidLink, match="headrace link resume first"):
        reverse(second, "first")
    ask(second, lambda links: links.resume("first"))
    back = reverse(second, "first")
    assert (back.set_aside, back.aborted) == (0, 0)
    until_same(second, first)
    assert consume(second, "orders", 6) == ["a", "b", "f", "g", "h", "i"]
    ask(second, lambda links: links.promote("orders"))
    produce(second, "orders", "j")
    assert partition(second, "orders").is_writable


def test_the_end_of_open_transactions_is_awaited(first: Broker, second: Broker) -> None:
    diverged(first, second)
    producer = Producer({"bootstrap.servers": first.bootstrap, "transactional.id": "late"})
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce("orders", b"late", partition=0)
    assert producer.flush(30) == 0
    waiting = ask(first, lambda links: links.reverse("second", "orders", timeout_s=1))
    assert not waiting.is_complete
    assert "waits for the end of 1 transactions" in waiting.note
    producer.commit_transaction(30)
    assert reverse(first, "second").set_aside == 4
    assert messages(first, "orders.divergent", 4)[-1].value() == b"late"
    until_same(first, second)


def test_a_transaction_that_the_parting_divides_is_set_aside_as_a_whole(first: Broker, second: Broker) -> None:
    """Its first messages were copied, since they are before an open transaction, and the end of it was not. So the
    other cluster has aborted what was committed here."""
    create(first, "orders")
    connect(second, "first", first)
    until_hosted(second)
    done, open_, withdrawn = (
        Producer({"bootstrap.servers": first.bootstrap, "transactional.id": name})
        for name in ("done", "open", "withdrawn")
    )
    for producer, value in ((withdrawn, b"never"), (done, b"early"), (open_, b"first of the open one")):
        producer.init_transactions(30)
        producer.begin_transaction()
        producer.produce("orders", value, partition=0)
        assert producer.flush(30) == 0
    produce(first, "orders", "plain")
    done.produce("orders", b"late", partition=0)
    done.commit_transaction(30)
    withdrawn.abort_transaction(30)
    # Up to the last stable offset: what follows the open transaction waits for its end.
    until(lambda: partition(second, "orders").log.end_offset == 2)
    ask(second, lambda links: links.failover("orders"))
    open_.commit_transaction(30)
    connect(first, "second", second)
    until(lambda: not partition(first, "orders").log.producers.open_transactions())
    planned = reverse(first, "second", dry_run=True)
    done_ = reverse(first, "second")
    assert [(each.set_aside, each.aborted, each.undecided) for each in (planned, done_)] == [(4, 0, 0)] * 2
    values = [each.value() for each in messages(first, "orders.divergent", 4)]
    assert values == [b"early", b"first of the open one", b"plain", b"late"]
    until_same(first, second)


def test_transactions_that_do_not_end_are_counted(
    first: Broker, second: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headrace.mirror.reversals.TRANSACTIONS_S", 0.0)
    diverged(first, second)
    producer = Producer({"bootstrap.servers": first.bootstrap, "transactional.id": "late"})
    producer.init_transactions(30)
    producer.begin_transaction()
    for value in (b"x", b"y"):
        producer.produce("orders", value, partition=0)
    assert producer.flush(30) == 0
    done = reverse(first, "second")
    assert (done.set_aside, done.aborted, done.undecided) == (3, 1, 2)
    until_same(first, second)
    producer.abort_transaction(30)


def test_nothing_is_set_aside_after_a_promotion(first: Broker, second: Broker) -> None:
    create(first, "orders", 3)
    produce(first, "orders", "a", "b")
    connect(second, "first", first)
    until_hosted(second)
    ask(second, lambda links: links.promote("orders"))
    produce(second, "orders", "c")
    connect(first, "second", second)
    assert reverse(first, "second").set_aside == 0
    until_same(first, second)
    assert "orders.divergent" not in image(first).topics


def test_reversals_that_are_refused(first: Broker, second: Broker) -> None:
    create(first, "orders")
    create(second, "other")
    connect(first, "second", second)
    with pytest.raises(InvalidLink, match=r"promoted from a mirror of this orders"):
        reverse(first, "second")
    connect(second, "first", first)
    until_hosted(second)
    with pytest.raises(InvalidLink, match=r"still a read-only mirror.*headrace link failover orders"):
        reverse(first, "second")
    ask(second, lambda links: links.failover("orders"))
    admin = AdminClient({"bootstrap.servers": first.bootstrap})
    admin.delete_topics(["orders"])["orders"].result(30)
    # While the link is there, it would create the topic again, as a mirror.
    admin.create_topics([NewTopic("orders", 1)])["orders"].result(30)
    with pytest.raises(InvalidLink, match="promoted from a mirror"):
        reverse(first, "second")
    assert state(first) is None
    produce(first, "orders", "still writable")


def test_a_reversal_can_be_called_off(first: Broker, second: Broker) -> None:
    diverged(first, second)
    values = consume(first, "orders", 5)
    producer = Producer({"bootstrap.servers": first.bootstrap, "transactional.id": "open"})
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce("orders", b"open", partition=0)
    assert producer.flush(30) == 0
    ask(first, lambda links: links.reverse("second", "orders", timeout_s=0.5))
    assert state(first) is MirrorState.REVERSING
    ask(first, lambda links: links.failover("orders"))
    produce(first, "orders", "z")
    assert consume(first, "orders", 6) == [*values, "z"]
    assert image(first).mirrors[partition(first, "orders").topic_id].partings == ()
