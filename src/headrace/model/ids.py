"""Ids as distinct types: the type checker does not accept a partition index as an offset."""

from collections.abc import Iterable
from typing import NamedTuple, NewType
from uuid import UUID

Offset = NewType("Offset", int)
LeaderEpoch = NewType("LeaderEpoch", int)
BrokerId = NewType("BrokerId", int)
PartitionIndex = NewType("PartitionIndex", int)
TopicName = NewType("TopicName", str)
TopicId = NewType("TopicId", UUID)
ProducerId = NewType("ProducerId", int)
ProducerEpoch = NewType("ProducerEpoch", int)

NO_LEADER = BrokerId(-1)
NO_EPOCH = LeaderEpoch(-1)


class TopicPartition(NamedTuple):
    """One partition of a topic, by name. Its folder on disk is `<topic>-<partition>`."""

    topic: TopicName
    partition: PartitionIndex

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


def by_topic(partitions: Iterable[tuple[str, int]]) -> dict[str, list[int]]:
    """The partitions of each topic."""
    grouped: dict[str, list[int]] = {}
    for topic, index in partitions:
        grouped.setdefault(topic, []).append(index)
    return grouped


class ProducerIdAndEpoch(NamedTuple):
    """An idempotent producer: its id, and the epoch that fences earlier producers with that id."""

    producer_id: int
    epoch: int


NO_PRODUCER = ProducerIdAndEpoch(-1, -1)
