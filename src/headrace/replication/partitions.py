"""The partitions this broker hosts, found by topic name or by topic id."""

from collections.abc import Callable, Iterator
from uuid import UUID

from headrace.model.errors import UnknownPartition, UnknownTopic, UnknownTopicId
from headrace.model.ids import TopicName
from headrace.replication.partition import Partition


class PartitionTable:
    def __init__(self) -> None:
        self.on_added: list[Callable[[Partition], None]] = []
        self.on_removed: list[Callable[[Partition], None]] = []
        self._by_name: dict[str, dict[int, Partition]] = {}
        self._by_id: dict[UUID, dict[int, Partition]] = {}

    def get(self, topic: str, index: int) -> Partition:
        partitions = self._by_name.get(topic)
        if partitions is None:
            raise UnknownTopic(f"there is no topic {topic}")
        partition = partitions.get(index)
        if partition is None:
            raise UnknownPartition(f"topic {topic} has no partition {index}")
        return partition

    def by_id(self, topic_id: UUID | None, index: int) -> Partition:
        partitions = None if topic_id is None else self._by_id.get(topic_id)
        if partitions is None:
            raise UnknownTopicId(f"there is no topic with id {topic_id}")
        partition = partitions.get(index)
        if partition is None:
            raise UnknownPartition(f"the topic with id {topic_id} has no partition {index}")
        return partition

    def all(self) -> Iterator[Partition]:
        for partitions in self._by_name.values():
            yield from partitions.values()

    def of_topic(self, topic: TopicName) -> tuple[Partition, ...]:
        return tuple(self._by_name.get(topic, {}).values())

    def add(self, partition: Partition) -> None:
        self._by_name.setdefault(partition.topic, {})[partition.index] = partition
        self._by_id.setdefault(partition.topic_id, {})[partition.index] = partition
        for listener in self.on_added:
            listener(partition)

    def failed(self, error: BaseException) -> None:
        """The data directory takes no more writes: nobody waits in vain."""
        for partition in self.all():
            partition.failed(error)

    def remove_topic(self, topic: TopicName) -> tuple[Partition, ...]:
        """Forget a topic; its partitions, for whoever closes them."""
        gone = tuple(self._by_name.pop(topic, {}).values())
        for partition in gone:
            self._by_id.pop(partition.topic_id, None)
            for listener in self.on_removed:
                listener(partition)
        return gone
