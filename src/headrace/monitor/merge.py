"""Puts together what the brokers answer: sums over topics, dead letters of queues, the overview. Pure.

What the cluster's metadata knows, such as leaders and replicas, comes from the image of the broker that merges. A
broker without an answer leaves a gap: its partitions count as unknown, its groups and transactions are missing, its
queues have no counts.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from heapq import nlargest
from typing import TypeVar

import msgspec

from headrace.model.ids import NO_LEADER, TopicName
from headrace.model.image import BrokerInfo, ClusterImage, TopicImage
from headrace.monitor.snapshots import (
    NO_LATENCY,
    NO_RATES,
    BrokerStat,
    BrokerTotals,
    GroupDetail,
    GroupPartitionStat,
    GroupStat,
    GroupTopicLag,
    LatencyStat,
    LedTopic,
    Overview,
    PartitionStat,
    QueueStat,
    Rates,
    ShareGroupStat,
    SharePartitionStat,
    TopicGroup,
    TopicStat,
)
from headrace.queues.api import QueueInfo

N = TypeVar("N", int, float)

WORST = 5
"""How many groups and queues an overview shows."""


class TopicReaders:
    """The groups that read each topic: how many, and their largest lag in messages and seconds."""

    def __init__(self, groups: Iterable[GroupStat] = ()) -> None:
        self._by_topic: dict[str, tuple[int, int | None, float | None]] = {}
        self._groups: defaultdict[str, list[GroupStat]] = defaultdict(list)
        for group in groups:
            self.add(group)

    def add(self, group: GroupStat) -> None:
        for lag in group.topics:
            self._groups[lag.topic].append(group)
            count, messages, seconds = self._by_topic.get(lag.topic, _NO_READERS)
            self._by_topic[lag.topic] = (
                count + 1,
                _largest(messages, lag.lag_messages),
                _largest(seconds, lag.lag_seconds),
            )

    def of(self, topic: str) -> tuple[int, int | None, float | None]:
        return self._by_topic.get(topic, _NO_READERS)

    def groups(self, topic: str) -> list[GroupStat]:
        """The groups that read a topic, in the order in which they were added."""
        return self._groups.get(topic, [])


_NO_READERS = (0, None, None)


class TopicMerge:
    """Sums up topics: `add` what brokers lead, then ask for each topic's `stat`."""

    def __init__(self, image: ClusterImage, is_queue: Callable[[TopicImage], bool], readers: TopicReaders) -> None:
        self._image = image
        self._is_queue = is_queue
        self._readers = readers
        self._led: dict[str, LedTopic] = {}

    def add(self, led: LedTopic) -> None:
        before = self._led.get(led.topic)
        if before is not None:
            led = LedTopic(
                led.topic,
                before.partitions + led.partitions,
                before.size_bytes + led.size_bytes,
                before.messages + led.messages,
                before.rates + led.rates,
            )
        self._led[led.topic] = led

    def stat(self, topic: TopicImage) -> TopicStat:
        name = topic.name
        led = self._led.get(name)
        groups, lag_messages, lag_seconds = self._readers.of(name)
        offline = sum(not self._image.is_alive(each.leader) for each in topic.partitions)
        known = 0 if led is None else led.partitions
        return TopicStat(
            name,
            topic.is_internal,
            self._is_queue(topic),
            len(topic.partitions),
            max((len(each.replicas) for each in topic.partitions), default=0),
            size_bytes=0 if led is None else led.size_bytes,
            messages=0 if led is None else led.messages,
            rates=NO_RATES if led is None else led.rates,
            under_replicated=under_replicated(topic),
            offline=offline,
            unknown=max(0, len(topic.partitions) - known),
            groups=groups,
            lag_messages_max=lag_messages,
            lag_seconds_max=lag_seconds,
        )


def topic_stat(
    summed: TopicMerge, topic: TopicImage, partitions: Iterable[PartitionStat], rates: Iterable[Rates]
) -> TopicStat:
    """The sums of one topic, from what the brokers of its partitions answered."""
    for each in partitions:
        summed.add(LedTopic(topic.name, 1, each.size_bytes, max(0, each.end_offset - each.start_offset)))
    summed.add(LedTopic(topic.name, 0, 0, 0, sum(rates, NO_RATES)))
    return summed.stat(topic)


def under_replicated(topic: TopicImage) -> int:
    return sum(len(each.isr) < len(each.replicas) for each in topic.partitions)


def _largest(one: N | None, other: N | None) -> N | None:
    return other if one is None else one if other is None else max(one, other)


def topic_partitions(topic: TopicImage, answered: Iterable[PartitionStat]) -> list[PartitionStat]:
    """Every partition of a topic: as its leader answered, or as the image has it."""
    by_index = {each.partition: each for each in answered}
    return [
        by_index.get(index)
        or PartitionStat(topic.name, index, state.leader, state.leader_epoch, state.replicas, state.isr)
        for index, state in enumerate(topic.partitions)
    ]


def topic_groups(groups: Iterable[GroupStat], topic: str) -> Iterator[TopicGroup]:
    """The groups that have committed offsets in a topic."""
    for group in groups:
        for lag in group.topics:
            if lag.topic == topic:
                yield TopicGroup(group.group, group.kind, group.state, lag.lag_messages, lag.lag_seconds)


def queue_stats(defined: Iterable[QueueStat], led: Iterable[QueueStat]) -> list[QueueStat]:
    """Every queue: with its counts where its leader answered, and what is in its dead-letter queue.

    `defined` are the queues as the metadata has them, without counts.
    """
    counted = {each.queue: each for each in led}
    sources: dict[str, list[str]] = {}
    everything = [counted.get(each.queue, each) for each in defined]
    by_name = {each.queue: each for each in everything}
    for each in everything:
        if each.dead_letter_queue is not None:
            sources.setdefault(each.dead_letter_queue, []).append(each.queue)
    return [
        _queue_with_dead_letters(each, by_name.get(each.dead_letter_queue or ""), sources.get(each.queue, []))
        for each in everything
    ]


def _queue_with_dead_letters(queue: QueueStat, dead: QueueStat | None, sources: list[str]) -> QueueStat:
    if dead is None and not sources:
        return queue
    letters = None if dead is None else _messages(dead)
    return msgspec.structs.replace(queue, dead_letters=letters, dead_letters_of=sources)


def _messages(queue: QueueStat) -> int | None:
    if queue.visible is None:
        return None
    return queue.visible + (queue.in_flight or 0) + (queue.delayed or 0)


def shares_by_group(shares: Iterable[SharePartitionStat]) -> dict[str, list[SharePartitionStat]]:
    by_group: dict[str, list[SharePartitionStat]] = {}
    for share in shares:
        by_group.setdefault(share.group, []).append(share)
    return by_group


def with_share_lag(group: GroupStat, shares: Iterable[SharePartitionStat]) -> GroupStat:
    """A group with the lag of a share group, which the leaders of its partitions know."""
    by_topic: dict[str, list[SharePartitionStat]] = {}
    for share in shares if group.kind == "share" else ():
        by_topic.setdefault(share.topic, []).append(share)
    if not by_topic:
        return group
    topics = [
        GroupTopicLag(
            topic, len(found), sum(each.lag_messages for each in found), _most(each.lag_seconds for each in found)
        )
        for topic, found in sorted(by_topic.items())
    ]
    return msgspec.structs.replace(
        group,
        topics=topics,
        lag_messages=sum(each.lag_messages or 0 for each in topics),
        lag_seconds=_most(each.lag_seconds for each in topics),
    )


def _most(values: Iterable[float | None]) -> float | None:
    return max((value for value in values if value is not None), default=None)


# Brokers


def broker_stats(
    image: ClusterImage, answers: Mapping[int, BrokerTotals], problems: Mapping[int, str], now_ms: int
) -> list[BrokerStat]:
    """Every broker of the cluster, by id."""
    return [
        _broker(image, broker, answers.get(broker_id), problems.get(broker_id, ""), now_ms)
        for broker_id, broker in sorted(image.brokers.items())
    ]


def _broker(
    image: ClusterImage, broker: BrokerInfo, totals: BrokerTotals | None, problem: str, now_ms: int
) -> BrokerStat:
    return BrokerStat(
        broker.broker_id,
        str(broker.endpoint),
        broker.rack,
        broker.state.value if broker.is_alive else "dead",
        broker.broker_id == image.controller_id,
        broker.is_draining,
        totals=totals,
        problem=problem,
        clock_skew_ms=None if totals is None else totals.wall_ms - now_ms,
    )


class TopicCounts:
    """Counts over the topics of an image."""

    def __init__(self, image: ClusterImage) -> None:
        self.image = image
        self.topics = 0
        """Without internal ones."""
        self.partitions = 0
        self.under_replicated = 0
        """In internal topics, too."""
        self.offline = 0

    def add(self, topic: TopicImage) -> None:
        if not topic.is_internal:
            self.topics += 1
            self.partitions += len(topic.partitions)
        self.under_replicated += under_replicated(topic)
        self.offline += sum(not self.image.is_alive(each.leader) for each in topic.partitions)


def overview(
    counts: TopicCounts,
    brokers: list[BrokerStat],
    groups: list[GroupStat],
    worst: list[GroupStat],
    queues: list[QueueStat],
    now_ms: int,
) -> Overview:
    """The cluster at a glance; `worst` are those of the groups that are farthest behind."""
    image = counts.image
    totals = [each.totals for each in brokers if each.totals is not None]
    return Overview(
        now_ms,
        image.cluster_id,
        image.feature_level,
        image.controller_id,
        brokers,
        rates=sum((each.rates for each in totals), NO_RATES),
        requests_per_s=sum(each.requests_per_s for each in totals),
        latency=worst_latency(each.latency for each in totals),
        connections=sum(each.connections for each in totals),
        topics=counts.topics,
        partitions=counts.partitions,
        groups=len(groups),
        queues=len(queues),
        under_replicated=counts.under_replicated,
        offline=counts.offline,
        disks=[disk for each in totals for disk in each.disks],
        worst_groups=worst,
        oldest_queues=oldest_queues(queues),
        open_transactions=sum(each.open_transactions for each in totals),
        without_data=[each.broker_id for each in brokers if each.totals is None],
    )


def worst_latency(latencies: Iterable[LatencyStat]) -> LatencyStat:
    found = list(latencies)
    if not found:
        return NO_LATENCY
    return LatencyStat(
        _most(each.produce_p50_ms for each in found),
        _most(each.produce_p99_ms for each in found),
        _most(each.fetch_p50_ms for each in found),
        _most(each.fetch_p99_ms for each in found),
    )


def worst_groups(groups: Iterable[GroupStat]) -> list[GroupStat]:
    """The groups that are farthest behind: by seconds, then by messages."""
    behind = (each for each in groups if each.lag_messages)
    return nlargest(WORST, behind, key=lambda each: (each.lag_seconds or 0.0, each.lag_messages or 0, each.group))


def oldest_queues(queues: Iterable[QueueStat]) -> list[QueueStat]:
    """The queues with the oldest messages."""
    waiting = (each for each in queues if _messages(each))
    return nlargest(WORST, waiting, key=lambda each: (each.oldest_age_s or 0.0, _messages(each) or 0, each.queue))


def share_groups(groups: Iterable[GroupStat], shares: Iterable[SharePartitionStat]) -> list[ShareGroupStat]:
    by_group = shares_by_group(sorted(shares, key=lambda each: (each.topic, each.partition)))
    return [
        ShareGroupStat(each.group, each.state, each.members, each.coordinator, by_group.get(each.group, []))
        for each in groups
        if each.kind == "share"
    ]


def defined_queues(queues: Iterable[QueueInfo], image: ClusterImage) -> Iterator[QueueStat]:
    """The queues as the metadata has them, without counts."""
    for queue in queues:
        topic = image.topics.get(TopicName(queue.name))
        leader = NO_LEADER if topic is None else topic.partitions[0].leader
        yield QueueStat(queue.name, queue.settings.is_fifo, leader, queue.settings.dead_letter or None)


def share_detail(group: GroupDetail, shares: Iterable[SharePartitionStat]) -> GroupDetail:
    """A share group with its positions, which the leaders of its partitions know."""
    found = [share for share in shares if share.group == group.stat.group]
    by_place = {(share.topic, share.partition): share for share in found}
    assigned = {(each.topic, each.partition): each for each in group.partitions}
    partitions: list[GroupPartitionStat] = []
    for place in sorted({*by_place, *assigned}):
        share, before = by_place.get(place), assigned.get(place)
        if share is None:
            partitions += () if before is None else (before,)
            continue
        partitions.append(
            GroupPartitionStat(
                *place,
                share.leader,
                committed=share.start_offset,
                lag_messages=share.lag_messages,
                lag_seconds=share.lag_seconds,
                member_id="" if before is None else before.member_id,
            )
        )
    return GroupDetail(with_share_lag(group.stat, found), group.members, partitions)
