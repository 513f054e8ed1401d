"""The partitions of this broker, by topic name or by topic id.

Roles change through this module, so that the coordinators, which depend on leading a partition, are notified in order:
an `on_leading` for each leader epoch, and an `on_not_leading` after it, before the next one or the partition's removal.
"""

from collections.abc import Callable, Iterator
from uuid import UUID

from headrace.model.errors import HeadraceError, NotLeader, UnknownPartition, UnknownTopic, UnknownTopicId
from headrace.model.ids import TopicName
from headrace.model.image import ClusterImage, PartitionState, TopicImage
from headrace.observe.traffic import TrafficTable
from headrace.replication.partition import Partition


class PartitionTable:
    def __init__(self, image: Callable[[], ClusterImage] | None = None, *, traffic: TrafficTable | None = None) -> None:
        """`image` returns the cluster image, to distinguish unknown partitions from those on other brokers.

        With `traffic` messages and bytes are counted by topic.
        """
        self.traffic = traffic
        self.changes = 0
        """How many times a partition was added or removed: what was looked up before may have changed."""
        self.on_added: list[Callable[[Partition], None]] = []
        self.on_removed: list[Callable[[Partition], None]] = []
        self.on_leading: list[Callable[[Partition], None]] = []
        self.on_not_leading: list[Callable[[Partition], None]] = []
        self._image = image
        self._by_name: dict[str, dict[int, Partition]] = {}
        self._by_id: dict[UUID, dict[int, Partition]] = {}

    def get(self, topic: str, index: int) -> Partition:
        partitions = self._by_name.get(topic)
        partition = None if partitions is None else partitions.get(index)
        if partition is None:
            raise self._why_not_by_name(topic, index)
        return partition

    def by_id(self, topic_id: UUID | None, index: int) -> Partition:
        partitions = None if topic_id is None else self._by_id.get(topic_id)
        partition = None if partitions is None else partitions.get(index)
        if partition is None:
            raise self._why_not_by_id(topic_id, index)
        return partition

    def _why_not_by_name(self, topic: str, index: int) -> HeadraceError:
        found = None if self._image is None else self._image().topics.get(TopicName(topic))
        if found is None and topic not in self._by_name:
            return UnknownTopic(f"there is no topic {topic}")
        return _why_not_here(found, index) or UnknownPartition(f"topic {topic} has no partition {index}")

    def _why_not_by_id(self, topic_id: UUID | None, index: int) -> HeadraceError:
        found = None if self._image is None or topic_id is None else self._image().topic_by_id(topic_id)
        if found is None and topic_id not in self._by_id:
            return UnknownTopicId(f"there is no topic with id {topic_id}")
        return _why_not_here(found, index) or UnknownPartition(f"the topic with id {topic_id} has no partition {index}")

    def all(self) -> Iterator[Partition]:
        for partitions in self._by_name.values():
            yield from partitions.values()

    def of_topic(self, topic: TopicName) -> tuple[Partition, ...]:
        return tuple(self._by_name.get(topic, {}).values())

    def add(self, partition: Partition) -> None:
        self.changes += 1
        self._by_name.setdefault(partition.topic, {})[partition.index] = partition
        self._by_id.setdefault(partition.topic_id, {})[partition.index] = partition
        if self.traffic is not None:
            partition.traffic = partition.copier.traffic = self.traffic.of(partition.topic)
        for listener in self.on_added:
            listener(partition)
        if partition.is_leader:
            self._tell(self.on_leading, partition)

    # Roles

    def lead(self, partition: Partition, state: PartitionState, now_ms: float) -> None:
        was_leading, epoch = partition.is_leader, partition.leader_epoch
        if was_leading and state.leader_epoch > epoch:
            self._tell(self.on_not_leading, partition)
        if partition.lead(state, now_ms):
            self._tell(self.on_leading, partition)

    def follow(self, partition: Partition, state: PartitionState) -> bool:
        """Make a partition a follower; True if its leader or role has changed."""
        was_leading = partition.is_leader
        is_new = partition.follow(state)
        if was_leading and not partition.is_leader:
            self._tell(self.on_not_leading, partition)
        return is_new

    def idle(self, partition: Partition, state: PartitionState | None = None) -> None:
        was_leading = partition.is_leader
        partition.idle(state)
        if was_leading and not partition.is_leader:
            self._tell(self.on_not_leading, partition)

    def failed(self, error: BaseException) -> None:
        """Fail the waiters of all partitions, because the data directory takes no more writes."""
        for partition in self.all():
            partition.failed(error)

    # Removal

    def remove(self, partition: Partition) -> None:
        """Remove a partition; the caller closes it."""
        self.changes += 1
        by_name, by_id = self._by_name[partition.topic], self._by_id[partition.topic_id]
        del by_name[partition.index], by_id[partition.index]
        if not by_name:
            del self._by_name[partition.topic]
            if self.traffic is not None:
                self.traffic.forget(partition.topic)
        if not by_id:
            del self._by_id[partition.topic_id]
        if partition.is_leader:
            self._tell(self.on_not_leading, partition)
        self._tell(self.on_removed, partition)

    @staticmethod
    def _tell(listeners: list[Callable[[Partition], None]], partition: Partition) -> None:
        for listener in listeners:
            listener(partition)


def _why_not_here(topic: TopicImage | None, index: int) -> NotLeader | None:
    if topic is None or not 0 <= index < len(topic.partitions):
        return None
    return NotLeader(f"{topic.name}-{index} is on other brokers: broker {topic.partitions[index].leader} leads it")
