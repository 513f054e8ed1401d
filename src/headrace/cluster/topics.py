"""Validation of topic names, partition counts and replica assignments. Pure: reads the image, changes nothing.

Limits: a name has at most 249 characters of `[a-zA-Z0-9._-]`, so that `<topic>-<partition>` is a safe folder name.
Counts from clients are checked against `max.partitions.per.topic` and `max.partitions.per.broker` before anything of
that size is allocated.
"""

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from headrace.cluster import placement
from headrace.config.broker import BrokerSettings
from headrace.model.errors import (
    InvalidPartitions,
    InvalidReplicaAssignment,
    InvalidReplicationFactor,
    InvalidSettings,
    InvalidTopicName,
    NoBrokerReady,
    PolicyViolation,
)
from headrace.model.ids import BrokerId, LeaderEpoch, PartitionIndex, TopicName, TopicPartition
from headrace.model.image import INTERNAL_REPLICAS, INTERNAL_TOPICS, ClusterImage, PartitionState

MAX_NAME_LENGTH = 249
REPLICAS_BY_DEFAULT = 3
_LEGAL = re.compile(r"[a-zA-Z0-9._-]+")

Assignment = Sequence[Sequence[int]]
"""Replicas by partition, the first of each being the preferred leader."""


def check_name(name: str) -> TopicName:
    """Validate a topic name; raises `InvalidTopicName`."""
    if not name:
        raise InvalidTopicName("a topic's name must not be empty")
    if name in (".", ".."):
        raise InvalidTopicName("a topic's name must not be . or ..")
    if len(name) > MAX_NAME_LENGTH:
        raise InvalidTopicName(f"a topic's name has at most {MAX_NAME_LENGTH} characters, this one has {len(name)}")
    if _LEGAL.fullmatch(name) is None:
        raise InvalidTopicName(
            f"the topic name {name!r} has characters other than ASCII letters, digits, '.', '_', '-'"
        )
    return TopicName(name)


def check_collision(name: TopicName, others: Iterable[TopicName]) -> None:
    """Refuse a name that differs from another only in '.' and '_', which metric names do not distinguish."""
    folded = name.replace(".", "_")
    for other in others:
        if other != name and len(other) == len(name) and other.replace(".", "_") == folded:
            raise InvalidTopicName(f"the topic name {name} collides with the existing topic {other}: . and _ are equal")


def default_replication_factor(image: ClusterImage, settings: BrokerSettings) -> int:
    """The configured `default.replication.factor`, or else 3, capped at the number of brokers.

    The workers of one machine count as one broker.
    """
    if "default.replication.factor" in settings.given:
        return settings.default_replication_factor
    return max(1, min(REPLICAS_BY_DEFAULT, machine_count(image)))


def machines(image: ClusterImage) -> dict[BrokerId, str]:
    """The machine of each broker that shares its rack and host with others, as the workers of one machine do.

    Another replica there would cost as much again for each message, and be lost with the first.
    """
    return {
        broker_id: f"{broker.endpoint.host} in {broker.rack}"
        for broker_id, broker in image.brokers.items()
        if broker.rack is not None
    }


def machine_count(image: ClusterImage) -> int:
    """The number of brokers that are not being drained; the workers of one machine count as one."""
    found = machines(image)
    return len({found.get(broker_id, broker_id) for broker_id in _members(image)})


def internal_replication_factors(settings: BrokerSettings) -> dict[TopicName, int]:
    """The replication factors of the internal topics, which they have as soon as there are as many machines."""
    factors = {}
    for topic, factor in INTERNAL_REPLICAS.items():
        value = settings.value(factor) if isinstance(factor, str) else factor
        assert isinstance(value, int)
        factors[topic] = value
    return factors


def with_given_factors(settings: BrokerSettings) -> frozenset[TopicName]:
    """The internal topics whose replication factor was set: it counts brokers, also those on one machine."""
    return frozenset(topic for topic, factor in INTERNAL_REPLICAS.items() if factor in settings.given)


def initial_replication_factor(image: ClusterImage, settings: BrokerSettings, topic: TopicName) -> int:
    """What an internal topic is created with: its replication factor, capped at the number of brokers, of which the
    workers of one machine count as one unless it was set. The controller raises it when brokers join."""
    most = len(_members(image)) if topic in with_given_factors(settings) else machine_count(image)
    return min(internal_replication_factors(settings)[topic], max(1, most))


def place(image: ClusterImage, topic: TopicName, count: int, replication_factor: int) -> Assignment:
    """Place `count` additional partitions of a topic on brokers that accept replicas.

    If these are too few, brokers that are down get replicas, too, and catch up when they are back: a topic can be
    created during a rolling restart.
    """
    members, up = _members(image), placement_candidates(image)
    if not 0 < replication_factor <= len(members):
        raise InvalidReplicationFactor(
            f"replication factor {replication_factor} is not possible: the cluster has {len(members)} "
            f"broker{'s' if len(members) != 1 else ''}{_draining_note(image)}"
        )
    if not up:
        raise NoBrokerReady("no broker of this cluster accepts replicas yet: try again when one has started")
    existing = image.topics[topic].partitions if topic in image.topics else ()
    load = replicas_by_broker(image) if len(members) > 1 else Counter()
    placed = placement.place(
        up,
        topic,
        count,
        min(replication_factor, len(up)),
        existing=[state.replicas for state in existing],
        load=load,
        machines=machines(image),
    )
    if replication_factor <= len(up):
        return placed
    first = len(existing)
    return [
        placement.grown(
            members, TopicPartition(topic, PartitionIndex(index)), replicas, replication_factor, load, machines(image)
        )
        for index, replicas in enumerate(placed, first)
    ]


def _members(image: ClusterImage) -> dict[BrokerId, str | None]:
    """The brokers that are not being drained, up or down, each with its rack."""
    return {broker_id: broker.rack for broker_id, broker in sorted(image.brokers.items()) if not broker.is_draining}


def placement_candidates(image: ClusterImage) -> dict[BrokerId, str | None]:
    """The brokers that accept new replicas, each with its rack: alive, active, and not being drained."""
    return {
        broker.broker_id: broker.rack for broker in image.alive_brokers() if broker.can_lead and not broker.is_draining
    }


def replicas_by_broker(image: ClusterImage) -> Counter[BrokerId]:
    """The number of replicas on each broker."""
    return Counter(broker for topic in image.topics.values() for state in topic.partitions for broker in state.replicas)


def _draining_note(image: ClusterImage) -> str:
    """The end of an error message that names the brokers being drained; empty if there are none."""
    left = sorted(image.brokers.keys() - _members(image).keys())
    return f", not counting those being drained: {', '.join(map(str, left))}" if left else ""


def manual_assignment(by_partition: Mapping[int, Sequence[int]]) -> Assignment:
    """A client's assignment in partition order; the partitions must be 0, 1, 2 …"""
    if sorted(by_partition) != list(range(len(by_partition))):
        raise InvalidReplicaAssignment("an assignment must name the partitions 0, 1, 2 and so on without gaps")
    return [by_partition[index] for index in range(len(by_partition))]


def check_assignment(image: ClusterImage, assignment: Assignment, *, replication_factor: int | None = None) -> None:
    """Refuse unknown brokers, a broker named twice, and partitions with different numbers of replicas."""
    expected = replication_factor
    for index, replicas in enumerate(assignment):
        if not replicas:
            raise InvalidReplicaAssignment(f"an assignment has no replica for its partition number {index}")
        if len(set(replicas)) != len(replicas):
            raise InvalidReplicaAssignment(f"an assignment names a broker twice: {list(replicas)}")
        if unknown := [broker for broker in replicas if broker not in image.brokers]:
            raise InvalidReplicaAssignment(f"an assignment names the broker {unknown[0]}, which is not in the cluster")
        expected = len(replicas) if expected is None else expected
        if len(replicas) != expected:
            raise InvalidReplicaAssignment("all partitions of a topic must have the same number of replicas")


def check_count(count: int, settings: BrokerSettings) -> None:
    """Refuse a partition count below 1 or above `max.partitions.per.topic`."""
    if count <= 0:
        raise InvalidPartitions(f"a topic must have at least 1 partition, {count} were asked for")
    if count > settings.max_partitions_per_topic:
        raise PolicyViolation(
            f"a topic with {count} partitions is past the limit: "
            f"max.partitions.per.topic is {settings.max_partitions_per_topic}"
        )


def is_queue(settings: Mapping[str, str]) -> bool:
    """True for the settings of a topic that is a queue."""
    return settings.get("queue.type", "none") != "none"


def check_queue(settings: Mapping[str, str], partitions: int) -> None:
    """Refuse a queue with more than one partition: one engine delivers its messages, in one order."""
    if partitions != 1 and is_queue(settings):
        raise InvalidPartitions(f"a queue is a topic with one partition, and not {partitions}")


def check_bound(name: str, settings: Mapping[str, str]) -> None:
    """Refuse a bound on the backlog of a topic that brokers write themselves: it would drop what they need."""
    found = min((each for each in settings if each.startswith("max.backlog.")), default=None)
    if found is not None and name in INTERNAL_TOPICS:
        raise InvalidSettings(f"{found} is not for {name}, which brokers write themselves: set retention.ms or .bytes")


def check_load(image: ClusterImage, added: Assignment, settings: BrokerSettings) -> None:
    """Refuse to put more replicas on a broker than `max.partitions.per.broker`."""
    load = replicas_by_broker(image)
    load.update(BrokerId(broker) for replicas in added for broker in replicas)
    limit = settings.max_partitions_per_broker
    for broker, count in load.items():
        if count > limit:
            raise PolicyViolation(
                f"broker {broker} would have {count} partitions, max.partitions.per.broker is {limit}"
            )


def new_partitions(image: ClusterImage, assignment: Assignment, leader_epoch: int = 0) -> tuple[PartitionState, ...]:
    """The initial state of partitions: every replica that is up is in sync, and the first of them leads."""
    states = []
    for replicas in assignment:
        brokers = tuple(map(BrokerId, replicas))
        in_sync = tuple(filter(image.can_lead, brokers))
        if not in_sync:
            raise InvalidReplicaAssignment(f"none of the brokers {list(replicas)} is up: name at least one that is")
        states.append(PartitionState(in_sync[0], LeaderEpoch(leader_epoch), in_sync, brokers))
    return tuple(states)
