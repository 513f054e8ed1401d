"""Records over a link between two real brokers: the same bytes, read-only, promoted; and sources that lose records."""

from collections.abc import Iterator
from dataclasses import replace

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic

from headrace.mirror.reports import PartitionFigures
from headrace.model.ids import LeaderEpoch, TopicName
from headrace.replication.partition import Partition
from headrace.testing import Broker
from tests.interop.linked import ask, image, link_to, services
from tests.unit.storage.test_promotion import bytes_of
from tests.waiting import until

FAST = {"link.refresh.interval.ms": 100, "replica.fetch.wait.max.ms": 100}


@pytest.fixture
def source() -> Iterator[Broker]:
    with Broker(settings={"group.initial.rebalance.delay.ms": 0}) as broker:
        yield broker


@pytest.fixture
def target() -> Iterator[Broker]:
    with Broker(settings=FAST) as broker:
        yield broker


def create(broker: Broker, topic: str, partitions: int = 1, **config: str) -> AdminClient:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.create_topics([NewTopic(topic, partitions, config=config)])[topic].result(30)
    return admin


def produce(broker: Broker, topic: str, *values: str, transactional_id: str = "", commit: bool = True) -> list[int]:
    """Send messages to partition 0; returns their offsets."""
    offsets: list[int] = []
    errors: list[KafkaError] = []

    def delivered(error: KafkaError | None, message: object) -> None:
        if error is not None:
            errors.append(error)
        else:
            offsets.append(message.offset())  # type: ignore[attr-defined]

    settings = {"bootstrap.servers": broker.bootstrap, "enable.idempotence": True, "linger.ms": 0}
    producer = Producer(settings | ({"transactional.id": transactional_id} if transactional_id else {}))
    if transactional_id:
        producer.init_transactions(30)
        producer.begin_transaction()
    for value in values:
        producer.produce(topic, value.encode(), partition=0, on_delivery=delivered)
        producer.flush(30)
        if errors:
            raise KafkaException(errors[0])
    if transactional_id:
        (producer.commit_transaction if commit else producer.abort_transaction)(30)
    return offsets


def consume(broker: Broker, topic: str, count: int, offset: int = 0) -> list[str]:
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "g", "isolation.level": "read_committed"})
    found: list[str] = []
    try:
        consumer.assign([TopicPartition(topic, 0, offset)])
        while len(found) < count:
            message = consumer.poll(30)
            assert message is not None
            assert message.error() is None, message.error()
            found.append(message.value().decode())
    finally:
        consumer.close()
    return found


def partition(broker: Broker, topic: str, index: int = 0) -> Partition:
    return services(broker).partitions.get(topic, index)


def progress(broker: Broker, topic: str) -> PartitionFigures:
    """What `headrace link describe` says of partition 0."""
    report = ask(broker, lambda links: links.describe("eu"))
    found = next(each for each in report.mirrors if each.topic == topic).partitions[0].figures
    assert found is not None
    return found


def linked(source: Broker, target: Broker, topic: str = "orders", **changes: object) -> Partition:
    """Create a link for a topic, and return the mirror of partition 0 when it is hosted."""
    ask(target, lambda links: links.create(link_to(source, topics=(topic,), **changes)))
    until(lambda: TopicName(topic) in image(target).topics and services(target).partitions.of_topic(TopicName(topic)))
    return partition(target, topic)


def until_copied(source: Broker, target: Broker, topic: str = "orders") -> None:
    end = partition(source, topic).last_stable_offset
    until(lambda: partition(target, topic).high_watermark == end)


def test_a_mirror_has_the_bytes_of_its_source_and_takes_no_others(source: Broker, target: Broker) -> None:
    create(source, "orders")
    produce(source, "orders", "a", "b")
    produce(source, "orders", "dropped", transactional_id="t", commit=False)
    produce(source, "orders", "c", transactional_id="t")
    mirror = linked(source, target)
    until_copied(source, target)
    assert bytes_of(mirror.log) == bytes_of(partition(source, "orders").log)
    assert consume(target, "orders", 3) == ["a", "b", "c"]
    with pytest.raises(KafkaException) as refused:
        produce(target, "orders", "x")
    assert refused.value.args[0].code() == KafkaError.INVALID_REQUEST
    with pytest.raises(KafkaException):
        produce(target, "orders", "x", transactional_id="local")
    admin = AdminClient({"bootstrap.servers": target.bootstrap})
    with pytest.raises(KafkaException):
        admin.create_partitions([NewPartitions("orders", 3)])["orders"].result(30)
    with pytest.raises(KafkaException):
        next(iter(admin.delete_records([TopicPartition("orders", 0, 1)]).values())).result(30)
    produce(source, "orders", "d")
    until_copied(source, target)
    assert bytes_of(mirror.log) == bytes_of(partition(source, "orders").log)
    assert consume(target, "orders", 4) == ["a", "b", "c", "d"]
    assert progress(target, "orders").source_end == partition(source, "orders").log.end_offset


def test_an_open_transaction_is_not_copied_past_the_last_stable_offset(source: Broker, target: Broker) -> None:
    create(source, "orders")
    producer = Producer({"bootstrap.servers": source.bootstrap, "transactional.id": "t"})
    producer.init_transactions(30)
    produce(source, "orders", "before")
    producer.begin_transaction()
    producer.produce("orders", b"open", partition=0)
    producer.flush(30)
    produce(source, "orders", "behind")
    mirror = linked(source, target)
    until(lambda: mirror.high_watermark == 1)
    producer.commit_transaction(30)
    until(lambda: mirror.high_watermark == 4)
    assert consume(target, "orders", 3) == ["before", "open", "behind"]


def test_the_leader_epoch_rises_with_that_of_the_source(source: Broker, target: Broker) -> None:
    create(source, "orders")
    produce(source, "orders", "a")
    mirror = linked(source, target)
    until_copied(source, target)

    async def elect(epoch: int) -> None:
        topic = image(source).topics[TopicName("orders")]
        (state,) = topic.partitions
        elected = replace(state, leader_epoch=LeaderEpoch(epoch), partition_epoch=state.partition_epoch + 1)
        await services(source).metadata.change_partitions({(topic.topic_id, 0): elected})

    # The second one is past the room above the epoch that the mirror record has.
    for epoch in (9, 500):
        ask(source, lambda _, epoch=epoch: elect(epoch))  # type: ignore[misc]
        produce(source, "orders", f"in epoch {epoch}")
        until_copied(source, target)
        assert mirror.leader_epoch >= mirror.log.epochs.latest == epoch
    assert bytes_of(mirror.log) == bytes_of(partition(source, "orders").log)
    assert consume(target, "orders", 3) == ["a", "in epoch 9", "in epoch 500"]
    ask(target, lambda links: links.failover("orders"))
    until(lambda: mirror.is_writable)
    produce(target, "orders", "local")
    assert mirror.log.epochs.latest > 500
    assert consume(target, "orders", 4)[-1] == "local"


def test_a_promoted_mirror_loses_nothing_of_producers_with_clashing_ids(source: Broker, target: Broker) -> None:
    create(source, "orders")
    first = produce(source, "orders", "a", "b", transactional_id="t")
    mirror = linked(source, target)
    until_copied(source, target)
    mirrored = set(dict(mirror.log.producers.items()))
    assert mirrored
    report = ask(target, lambda links: links.failover("orders"))
    assert report.missing_messages == 0
    until(lambda: mirror.is_writable)
    for number in range(3):
        produce(target, "orders", f"local {number}", transactional_id=f"t{number}")
    assert mirrored & set(dict(mirror.log.producers.items())), "no id was used on both sides"
    wanted = ["a", "b", "local 0", "local 1", "local 2"]
    assert consume(target, "orders", 5) == wanted
    produce(source, "orders", "never copied")
    assert consume(target, "orders", 5, first[0]) == wanted


def test_a_source_that_starts_later_and_removes_what_was_not_copied(source: Broker, target: Broker) -> None:
    admin = create(source, "orders")
    produce(source, "orders", *"abcdef")

    def delete_below(offset: int) -> None:
        next(iter(admin.delete_records([TopicPartition("orders", 0, offset)]).values())).result(30)

    delete_below(2)
    mirror = linked(source, target)
    until_copied(source, target)
    assert (mirror.log.start_offset, progress(target, "orders").lost_messages) == (2, 0)
    delete_below(4)
    produce(source, "orders", "g")
    until(lambda: mirror.log.start_offset == 4 and mirror.high_watermark == 7)
    ask(target, lambda links: links.pause("eu"))
    produce(source, "orders", *"hijk")
    delete_below(9)
    ask(target, lambda links: links.resume("eu"))
    until_copied(source, target)
    assert progress(target, "orders").lost_messages == 2
    assert consume(target, "orders", 2, 9) == ["j", "k"]


def test_a_source_that_lost_records_faults_its_mirror_and_changes_nothing(source: Broker, target: Broker) -> None:
    create(source, "orders", 2)
    produce(source, "orders", "a", "b", "c")
    mirror = linked(source, target)
    until_copied(source, target)
    before = bytes_of(mirror.log)
    ask(target, lambda links: links.pause("eu"))

    async def lose() -> None:
        log = partition(source, "orders").log
        log.truncate_to(1)

    ask(source, lambda _: lose())
    ask(target, lambda links: links.resume("eu"))
    until(lambda: progress(target, "orders").is_faulted)
    assert "has lost committed records" in progress(target, "orders").error
    assert bytes_of(mirror.log) == before
    Producer({"bootstrap.servers": source.bootstrap}).produce("orders", b"other", partition=1)
    until(lambda: partition(target, "orders", 1).high_watermark == partition(source, "orders", 1).high_watermark)
