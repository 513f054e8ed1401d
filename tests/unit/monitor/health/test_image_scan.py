"""What the image says about brokers and partitions."""

from dataclasses import replace
from uuid import UUID, uuid4

from headrace.model.ids import NO_LEADER, BrokerId, LeaderEpoch, TopicId, TopicName
from headrace.model.image import BrokerInfo, ClusterImage, Endpoint, PartitionState, TopicImage
from headrace.monitor.health.facts import ClusterFacts, PartitionCounts
from headrace.monitor.health.image_scan import ImageScan


def state(isr: tuple[int, ...], leader: int | None = None, adding: tuple[int, ...] = ()) -> PartitionState:
    first = isr[0] if leader is None else leader
    return PartitionState(
        BrokerId(first), LeaderEpoch(0), tuple(map(BrokerId, isr)), (BrokerId(1), BrokerId(2), BrokerId(3)),
        adding=tuple(map(BrokerId, adding)),
    )  # fmt: skip


def topic(name: str, *partitions: PartitionState) -> TopicImage:
    return TopicImage(TopicName(name), TopicId(uuid4()), partitions)


def image(*topics: TopicImage, dead: tuple[int, ...] = (), controller: int = 1) -> ClusterImage:
    brokers = {
        BrokerId(each): BrokerInfo(BrokerId(each), Endpoint("h", 1), is_alive=each not in dead, max_level=3)
        for each in (1, 2, 3)
    }
    names: dict[UUID, TopicName] = {each.topic_id: each.name for each in topics}
    return ClusterImage("c", BrokerId(controller), brokers, {each.name: each for each in topics}, names, {}, 1)


def scan(found: ClusterImage, book: ImageScan | None = None, min_isr: int = 2) -> ClusterFacts:
    used = book or ImageScan()
    for _ in used.topics(found, lambda _: min_isr):
        pass
    return used.facts(found)


def test_a_cluster_in_which_all_is_in_sync():
    found = scan(image(topic("orders", state((1, 2, 3)), state((2, 3, 1)))))
    assert (found.broker_count, found.down, found.has_controller) == (3, [], True)
    assert (dict(found.lacking), found.offline, found.under_min_isr) == ({}, [], [])


def test_partitions_are_counted_by_topic_and_by_missing_broker():
    found = scan(
        image(
            topic("orders", state((1, 2)), state((1,)), state((), leader=NO_LEADER)),
            topic("logs", state((1,))),
            dead=(3,),
            controller=NO_LEADER,
        )
    )
    assert found.down == [3]
    assert not found.has_controller
    assert dict(found.lacking) == {1: 1, 2: 3, 3: 4}
    assert found.offline == [PartitionCounts("orders", 1, 2)]
    assert found.under_min_isr == [PartitionCounts("logs", 1, 0), PartitionCounts("orders", 1, 1)]


def test_a_replica_that_is_being_added_is_not_missing():
    assert dict(scan(image(topic("orders", state((1, 2), adding=(3,))))).lacking) == {}


def test_a_topic_with_fewer_replicas_than_min_isr_is_not_blamed_on_brokers():
    one = PartitionState(BrokerId(1), LeaderEpoch(0), (BrokerId(1),), (BrokerId(1),))
    assert scan(image(topic("small", one))).under_min_isr == []


def test_only_changed_topics_are_counted_again_and_deleted_ones_forgotten():
    book, good = ImageScan(), topic("good", state((1, 2, 3)))
    bad = topic("bad", state((1,)))
    assert scan(image(good, bad), book).under_min_isr
    fixed = replace(bad, partitions=(state((1, 2, 3)),))
    assert not scan(image(good, fixed), book).under_min_isr
    book.clear()
    assert not scan(image(good, fixed), book).under_min_isr
    assert scan(image(good, bad), book).under_min_isr
    assert not scan(image(good), book).under_min_isr


def test_the_level_that_every_live_broker_supports():
    found = image(topic("t", state((1, 2, 3))))
    old = replace(found.brokers[BrokerId(2)], max_level=2)
    brokers = {**found.brokers, BrokerId(2): old}
    assert scan(replace(found, brokers=brokers)).possible_level == 2
    assert scan(replace(found, brokers={**brokers, BrokerId(2): replace(old, is_alive=False)})).possible_level == 3
