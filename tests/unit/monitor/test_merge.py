"""What brokers answer, put together: topics with leaders elsewhere, dead letters, and what needs attention."""

from uuid import UUID

from headrace.model.ids import BrokerId, LeaderEpoch, TopicId, TopicName
from headrace.model.image import BrokerInfo, ClusterImage, Endpoint, PartitionState, TopicImage
from headrace.monitor import merge
from headrace.monitor.snapshots import (
    BrokerTotals,
    DiskStat,
    GroupStat,
    GroupTopicLag,
    LedTopic,
    PartitionStat,
    ProcessStat,
    QueueStat,
    Rates,
    SharePartitionStat,
)


def partition(leader: int, isr: tuple[int, ...] = (1, 2, 3)) -> PartitionState:
    brokers = tuple(map(BrokerId, isr))
    return PartitionState(BrokerId(leader), LeaderEpoch(1), brokers, (BrokerId(1), BrokerId(2), BrokerId(3)))


ORDERS = TopicImage(TopicName("orders"), TopicId(UUID(int=1)), (partition(1), partition(2), partition(3, (3,))))
IMAGE = ClusterImage(
    "cluster",
    BrokerId(1),
    {
        BrokerId(number): BrokerInfo(BrokerId(number), Endpoint("h", number), is_alive=number != 3)
        for number in (1, 2, 3)
    },
    {ORDERS.name: ORDERS},
    {ORDERS.topic_id: ORDERS.name},
    {},
    7,
)


def group(name: str, seconds: float | None, messages: int | None = 1, kind: str = "classic") -> GroupStat:
    lags = [GroupTopicLag("orders", 3, messages, seconds)]
    return GroupStat(name, kind, "Stable", "consumer", 1, 1, lags, lag_messages=messages, lag_seconds=seconds)


def totals(rate: float, wall_ms: int = 1_000) -> BrokerTotals:
    disk = DiskStat(1, "/data", 10, 100)
    return BrokerTotals("0.2.0", wall_ms, ProcessStat(0), [disk], Rates(rate, rate), requests_per_s=rate, connections=2)


def test_a_topic_is_the_sum_over_its_leaders() -> None:
    readers = merge.TopicReaders([group("a", 5.0, 50), group("b", 9.0, 40), group("c", None, None)])
    summed = merge.TopicMerge(IMAGE, lambda _: False, readers)
    summed.add(LedTopic("orders", 1, 100, 10, Rates(1.0, 2.0)))
    summed.add(LedTopic("orders", 1, 200, 20, Rates(3.0, 4.0)))
    found = summed.stat(ORDERS)
    assert (found.partitions, found.replicas, found.size_bytes, found.messages) == (3, 3, 300, 30)
    assert found.rates == Rates(4.0, 6.0)
    # Broker 3 is dead and was the only one in sync.
    assert (found.offline, found.under_replicated, found.unknown) == (1, 1, 1)
    assert (found.groups, found.lag_messages_max, found.lag_seconds_max) == (3, 50, 9.0)


def test_partitions_without_an_answer_are_as_the_image_has_them() -> None:
    answered = PartitionStat("orders", 1, 2, start_offset=5, end_offset=9)
    found = merge.topic_partitions(ORDERS, [answered])
    assert [(each.leader, each.end_offset) for each in found] == [(1, -1), (2, 9), (3, -1)]
    assert found[2].is_under_replicated


def test_brokers_without_an_answer_are_listed_without_data() -> None:
    found = merge.broker_stats(IMAGE, {1: totals(1.0), 2: totals(2.0, 1_750)}, {3: "broker 3 is down"}, 1_000)
    assert [(each.broker_id, each.state, each.problem) for each in found] == [
        (1, "active", ""),
        (2, "active", ""),
        (3, "dead", "broker 3 is down"),
    ]
    assert [each.clock_skew_ms for each in found] == [0, 750, None]
    counts = merge.TopicCounts(IMAGE)
    for topic in IMAGE.topics.values():
        counts.add(topic)
    groups = [group("a", 1.0)]
    view = merge.overview(counts, found, groups, merge.worst_groups(groups), [], 1_000)
    assert view.without_data == [3]
    assert (view.rates.messages_in_per_s, view.requests_per_s, view.connections) == (3.0, 3.0, 4)
    assert (view.topics, view.partitions, view.under_replicated, view.offline) == (1, 3, 1, 1)
    assert len(view.disks) == 2


def test_the_groups_that_are_farthest_behind_come_first() -> None:
    groups = [
        group("caught-up", 0.0, 0),
        group("unknown", None, None),
        group("old", 900.0, 1),
        group("many", 5.0, 10_000),
        group("more", 5.0, 20_000),
        group("no-time", None, 7),
    ]
    assert [each.group for each in merge.worst_groups(groups)] == ["old", "more", "many", "no-time"]


def test_queues_with_what_is_in_their_dead_letter_queue() -> None:
    defined = [QueueStat("failed", False, 1), QueueStat("jobs", False, 2, "failed"), QueueStat("lost", False, 3)]
    led = [QueueStat("failed", False, 1, visible=2, in_flight=1, delayed=0), QueueStat("jobs", False, 2, "failed", 5)]
    failed, jobs, lost = merge.queue_stats(defined, led)
    assert (failed.dead_letters, failed.dead_letters_of) == (None, ["jobs"])
    assert (jobs.visible, jobs.dead_letters) == (5, 3)
    assert (lost.visible, lost.leader) == (None, 3)


def test_the_lag_of_a_share_group_comes_from_the_leaders() -> None:
    shares = [
        SharePartitionStat("workers", "orders", 0, 5, 3, 1, 1, 4.0),
        SharePartitionStat("workers", "orders", 1, 9, 2, 0, 2, 8.0),
        SharePartitionStat("others", "orders", 0, 0, 99, 0, 1),
    ]
    workers = merge.with_share_lag(group("workers", None, None, kind="share"), merge.shares_by_group(shares)["workers"])
    assert (workers.lag_messages, workers.lag_seconds) == (5, 8.0)
    assert workers.topics == [GroupTopicLag("orders", 2, 5, 8.0)]
    (listed,) = merge.share_groups([workers, group("readers", 1.0)], shares)
    assert [each.partition for each in listed.partitions] == [0, 1]
