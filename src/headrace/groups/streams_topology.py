"""The topology of a streams group (KIP-1071): its tasks, and the internal topics that they need. Pure.

A subtopology has a task for each partition of the largest topic that it reads. The partition count of a repartition
topic, if the application does not set it, is derived from the topics read upstream and from the topics that must be
co-partitioned with it; a changelog has one partition for each task.
"""

from collections.abc import Callable, Iterator, Mapping
from enum import IntEnum
from hashlib import blake2b
from typing import NamedTuple

import msgspec

from headrace.cluster.topics import check_name
from headrace.groups.streams_records import InternalTopic, Subtopology, TopologyValue
from headrace.groups.streams_tasks import StreamsTask, Tasks
from headrace.model.errors import InvalidTopicName, InvalidTopology, ProtocolError, RecordTooLarge
from headrace.model.ids import TopicName
from headrace.model.image import INTERNAL_TOPICS, ClusterImage

_MAX_BYTES = 512 * 1024
"""A topology is one record."""


class StatusCode(IntEnum):
    """Kafka's status codes of a streams group."""

    STALE_TOPOLOGY = 0
    MISSING_SOURCE_TOPICS = 1
    INCORRECTLY_PARTITIONED_TOPICS = 2
    MISSING_INTERNAL_TOPICS = 3
    SHUTDOWN_APPLICATION = 4
    ASSIGNMENT_DELAYED = 5


class GroupStatus(NamedTuple):
    code: StatusCode
    detail: str


class Configured(NamedTuple):
    """A topology configured for the existing topics."""

    counts: Mapping[str, int]
    """The partition count of each topic, existing or to be created; empty if it cannot be determined."""
    task_counts: Mapping[str, int]
    """The number of tasks by subtopology; empty if it cannot be determined."""
    missing: tuple[InternalTopic, ...] = ()
    """The internal topics to create, with their partition counts."""
    problem: GroupStatus | None = None
    """Why no tasks can be assigned."""
    topics_hash: bytes = b""
    """Changes when a topic of the topology is created, deleted or gets more partitions."""

    @property
    def is_ready(self) -> bool:
        return self.problem is None

    def tasks(self) -> Tasks:
        return frozenset(StreamsTask(name, at) for name, count in self.task_counts.items() for at in range(count))


class _Unfit(Exception):
    """Topics do not have the required partition counts."""


def read_topics(subtopology: Subtopology) -> Iterator[str]:
    """Yield the topics that the tasks of a subtopology read."""
    yield from subtopology.source_topics
    for topic in subtopology.repartition_source_topics:
        yield topic.name


def required_topics(topology: TopologyValue) -> set[str]:
    return {
        name
        for subtopology in topology.subtopologies
        for name in (*read_topics(subtopology), *(topic.name for topic in subtopology.changelog_topics))
    }


def named_topics(topology: TopologyValue) -> set[str]:
    """Return all topics that a topology names, including repartition topics that it writes to."""
    return required_topics(topology).union(*(one.repartition_sink_topics for one in topology.subtopologies))


def check_topology(topology: TopologyValue) -> None:
    """Refuse a topology that cannot have tasks with any topics, by `InvalidTopology`."""
    if not topology.subtopologies:
        raise InvalidTopology("the topology has no subtopologies")
    if len(msgspec.msgpack.encode(topology)) > _MAX_BYTES:
        raise RecordTooLarge(f"the topology has more than {_MAX_BYTES} bytes")
    if topology.epoch < 0:
        raise ProtocolError(f"the topology epoch {topology.epoch} is not valid")
    ids = [subtopology.subtopology_id for subtopology in topology.subtopologies]
    if len(set(ids)) < len(ids):
        raise InvalidTopology("two subtopologies have the same id")
    for subtopology in topology.subtopologies:
        reads = set(read_topics(subtopology))
        if not reads:
            raise InvalidTopology(f"the subtopology {subtopology.subtopology_id} reads no topic")
        for topic in subtopology.changelog_topics:
            if topic.partitions:
                raise InvalidTopology(f"the changelog {topic.name} has {topic.partitions} partitions: leave it at 0")
        for group in subtopology.copartition_groups:
            if not reads.issuperset(group):
                raise InvalidTopology(
                    f"{', '.join(sorted(set(group) - reads))} must be partitioned like a topic of the subtopology "
                    f"{subtopology.subtopology_id}, which does not read it"
                )
    _check_names(topology)
    # Any source count will do: this checks that the count of every repartition topic can be derived.
    _repartition_counts(topology, lambda _: 1)


def _check_names(topology: TopologyValue) -> None:
    names = required_topics(topology)
    if internal := sorted(names & INTERNAL_TOPICS):
        raise InvalidTopology(f"the topology uses internal topics of the broker: {', '.join(internal)}")
    for name in names:
        try:
            check_name(name)
        except InvalidTopicName as error:
            raise InvalidTopology(str(error)) from None


def _hash(topology: TopologyValue, image: ClusterImage) -> bytes:
    digest = blake2b(digest_size=8)
    for name in sorted(required_topics(topology)):
        topic = image.topics.get(TopicName(name))
        if topic is not None:
            digest.update(topic.topic_id.bytes + len(topic.partitions).to_bytes(4))
    return digest.digest()


def configure(topology: TopologyValue, image: ClusterImage) -> Configured:
    """Configure a topology for the topics of an image: tasks, topics to create, or the problem."""
    return _configure(topology, image)._replace(topics_hash=_hash(topology, image))


def _configure(topology: TopologyValue, image: ClusterImage) -> Configured:
    def existing(name: str) -> int | None:
        topic = image.topics.get(TopicName(name))
        return None if topic is None else len(topic.partitions)

    sources = {name for subtopology in topology.subtopologies for name in subtopology.source_topics}
    internal = {topic.name for subtopology in topology.subtopologies for topic in subtopology.repartition_source_topics}
    if missing := sorted(name for name in sources - internal if existing(name) is None):
        detail = f"Source topics {', '.join(missing)} are missing."
        return Configured({}, {}, problem=GroupStatus(StatusCode.MISSING_SOURCE_TOPICS, detail))
    try:
        return _configured(topology, existing)
    except _Unfit as problem:
        return Configured({}, {}, problem=GroupStatus(StatusCode.INCORRECTLY_PARTITIONED_TOPICS, str(problem)))


def _configured(topology: TopologyValue, existing: Callable[[str], int | None]) -> Configured:
    counts = _repartition_counts(topology, lambda name: existing(name) or 0)
    _copartition(topology, counts, lambda name: existing(name) or 0)
    wanted: dict[str, InternalTopic] = {}
    task_counts: dict[str, int] = {}
    for name in (name for subtopology in topology.subtopologies for name in subtopology.source_topics):
        counts.setdefault(name, existing(name) or 0)
    read = frozenset(counts)
    for subtopology in topology.subtopologies:
        task_counts[subtopology.subtopology_id] = tasks = max(counts[name] for name in read_topics(subtopology))
        for topic in subtopology.repartition_source_topics:
            wanted[topic.name] = _sized(topic, counts[topic.name])
        for topic in subtopology.changelog_topics:
            # A changelog that is also a source topic belongs to the application.
            if topic.name not in read:
                wanted[topic.name] = _sized(topic, tasks)
    missing: list[InternalTopic] = []
    for name in sorted(wanted):
        found = existing(name)
        counts[name] = wanted[name].partitions
        if found is None:
            missing.append(wanted[name])
        elif found != wanted[name].partitions:
            raise _Unfit(
                f"Existing topic {name} has different number of partitions: expected {wanted[name].partitions}, "
                f"found {found}"
            )
    problem = None
    if missing:
        names = ", ".join(topic.name for topic in missing)
        problem = GroupStatus(StatusCode.MISSING_INTERNAL_TOPICS, f"Internal topics are missing: {names}")
    return Configured(counts, task_counts, tuple(missing), problem)


def _sized(topic: InternalTopic, partitions: int) -> InternalTopic:
    return InternalTopic(topic.name, partitions, topic.replication_factor, topic.settings)


def _repartition_counts(topology: TopologyValue, source_count: Callable[[str], int]) -> dict[str, int]:
    """Return the partition counts of repartition topics: as the application sets, or that of the largest topic read by
    the writers of the topic. That may be a repartition topic as well, so counts are derived from the sources on."""
    topics = {topic.name: topic for one in topology.subtopologies for topic in one.repartition_source_topics}
    counts = {name: topic.partitions for name, topic in topics.items() if topic.partitions}
    writers = {
        name: [one for one in topology.subtopologies if name in one.repartition_sink_topics] for name in sorted(topics)
    }
    unknown = [name for name in writers if name not in counts]

    def upstream(name: str) -> list[int | None]:
        return [
            counts.get(read) if read in topics else source_count(read)
            for writer in writers[name]
            for read in read_topics(writer)
        ]

    while unknown:
        found = {name: upstream(name) for name in unknown}
        known = {name: max(sizes) for name, sizes in found.items() if sizes and None not in sizes}  # type: ignore[type-var]
        if not known:
            # Repartition topics in a cycle: use the upstream counts that are known.
            partly = {name: [size for size in sizes if size is not None] for name, sizes in found.items()}
            known = {name: max(sizes) for name, sizes in partly.items() if sizes}
        if not known:
            raise InvalidTopology(
                f"the number of partitions of {', '.join(unknown)} cannot be derived: no subtopology writes to it"
            )
        counts.update({name: size for name, size in known.items() if size is not None})
        unknown = [name for name in unknown if name not in counts]
    return counts


def _copartition(topology: TopologyValue, counts: dict[str, int], source_count: Callable[[str], int]) -> None:
    """Set co-partitioned topics to the same partition count, where the application sets none."""
    fixed = {
        topic.name for one in topology.subtopologies for topic in one.repartition_source_topics if topic.partitions
    }
    for subtopology in topology.subtopologies:
        repartitioned = {topic.name for topic in subtopology.repartition_source_topics}
        for group in subtopology.copartition_groups:
            sources = {name: source_count(name) for name in group if name not in repartitioned}
            decided = {**sources, **{name: counts[name] for name in group if name in fixed & repartitioned}}
            if len(set(decided.values())) > 1:
                sizes = ", ".join(f"{name}={count}" for name, count in sorted(decided.items()))
                raise _Unfit(f"Topics are not co-partitioned: {sizes}")
            size = next(iter(decided.values())) if decided else max(counts[name] for name in group)
            counts.update({name: size for name in group if name in repartitioned and name not in fixed})
