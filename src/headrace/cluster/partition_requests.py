"""Requests of clients about partitions: reassign, cancel a reassignment, elect the preferred leader.

Any broker can serve them: each change is a compare-and-set on the state it was decided from and on the lease of the
broker that is to lead, and is decided again after a conflict. The controller does what follows, such as completing a
reassignment.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence

from headrace.cluster import layout, reassignment
from headrace.cluster.controller import PartitionKey, with_preferred_leader
from headrace.cluster.metadata import Metadata
from headrace.model.errors import (
    ElectionNotNeeded,
    HeadraceError,
    InvalidReplicaAssignment,
    InvalidReplicationFactor,
    NoEligibleLeader,
    NoReassignment,
    PreferredLeaderNotAvailable,
    StoreConflict,
    UnknownPartition,
)
from headrace.model.ids import NO_LEADER, BrokerId, TopicName, TopicPartition
from headrace.model.image import ClusterImage, PartitionState

ATTEMPTS = 20

Outcomes = dict[TopicPartition, HeadraceError | None]
"""The result for each requested partition; None is success."""

_Decide = Callable[[ClusterImage, TopicPartition, PartitionState], PartitionState | None]
"""Returns the new state, or None if nothing has to change. Raises the reason for a refusal."""


async def reassign(
    metadata: Metadata,
    wanted: Mapping[TopicPartition, Sequence[int] | None],
    *,
    may_change_factor: bool = True,
) -> Outcomes:
    """Start reassigning partitions to these replicas; None cancels a partition's reassignment."""

    def decide(image: ClusterImage, partition: TopicPartition, state: PartitionState) -> PartitionState | None:
        replicas = wanted[partition]
        if replicas is None:
            if not state.is_reassigning:
                raise NoReassignment(f"no reassignment of {partition} is in progress")
            return reassignment.cancelled(state, image.can_lead)
        _check(image, partition, state, replicas, may_change_factor=may_change_factor)
        new = reassignment.begun(state, [BrokerId(broker) for broker in replicas])
        return None if new is state else new

    return await _change(metadata, wanted, decide)


async def elect_preferred(metadata: Metadata, partitions: Iterable[TopicPartition]) -> Outcomes:
    """Make the first replica of each partition its leader, where it is in sync."""

    def decide(image: ClusterImage, partition: TopicPartition, state: PartitionState) -> PartitionState | None:
        preferred = state.replicas[0]
        if preferred == state.leader:
            raise ElectionNotNeeded(f"{partition} is led by its first replica, broker {preferred}")
        new = with_preferred_leader(image, state)
        if new is None:
            why = "is being drained" if image.can_lead(preferred) else "is not up"
            raise PreferredLeaderNotAvailable(
                f"the first replica of {partition}, broker {preferred}, "
                + (why if preferred in state.isr else "is not in sync")
            )
        return new

    return await _change(metadata, partitions, decide)


def refuse_unclean(image: ClusterImage, partitions: Iterable[TopicPartition]) -> Outcomes:
    """Refuse an unclean leader election: it is not needed, or would lose acknowledged messages."""
    outcomes: Outcomes = {}
    for partition in partitions:
        try:
            _, state = _find(image, partition)
            if state.leader != NO_LEADER and image.is_alive(state.leader):
                raise ElectionNotNeeded(f"{partition} is led by broker {state.leader}")
            raise NoEligibleLeader(
                f"{partition} has no leader, and unclean leader election is not supported: a replica that is not in "
                f"sync might lack acknowledged messages. Start one of the brokers {list(state.isr)}"
            )
        except HeadraceError as error:
            outcomes[partition] = error
    return outcomes


def _find(image: ClusterImage, partition: TopicPartition) -> tuple[PartitionKey, PartitionState]:
    topic = image.topics.get(TopicName(partition.topic))
    if topic is None or not 0 <= partition.partition < len(topic.partitions):
        raise UnknownPartition(f"there is no partition {partition}")
    return (topic.topic_id, partition.partition), topic.partitions[partition.partition]


def _check(
    image: ClusterImage,
    partition: TopicPartition,
    state: PartitionState,
    replicas: Sequence[int],
    *,
    may_change_factor: bool,
) -> None:
    if not replicas:
        raise InvalidReplicaAssignment(f"{partition} must have at least one replica")
    if len(set(replicas)) != len(replicas):
        raise InvalidReplicaAssignment(f"the new replicas of {partition} name a broker twice: {list(replicas)}")
    for broker in replicas:
        if broker not in image.brokers:
            raise InvalidReplicaAssignment(
                f"{partition} cannot be on {list(replicas)}: broker {broker} is not in the cluster"
            )
    factor = len(state.replicas) - len(state.adding)
    if not may_change_factor and len(replicas) != factor:
        raise InvalidReplicationFactor(
            f"{partition} has {factor} replicas, and the request does not allow changing that to {len(replicas)}"
        )


async def _change(metadata: Metadata, asked: Iterable[TopicPartition], decide: _Decide) -> Outcomes:
    """Decide all changes from one image and commit them; on a conflict, decide again from the next image."""
    partitions = tuple(asked)
    outcomes: Outcomes = {}
    tried: set[TopicPartition] = set()
    for attempt in range(ATTEMPTS):
        image = metadata.image
        changes: dict[PartitionKey, PartitionState] = {}
        for partition in partitions:
            outcomes[partition] = None
            try:
                key, state = _find(image, partition)
                new = decide(image, partition, state)
            except (ElectionNotNeeded, NoReassignment) as error:
                # After a conflict the request's own change may have been committed: that is success.
                outcomes[partition] = None if partition in tried else error
            except HeadraceError as error:
                outcomes[partition] = error
            else:
                if new is not None:
                    changes[key] = new
                    tried.add(partition)
        leaders = {state.leader for state in changes.values() if state.leader != NO_LEADER}
        alive = [metadata.unchanged(layout.alive_key(leader)) for leader in sorted(leaders)]
        try:
            if changes:
                await metadata.change_partitions(changes, others=alive)
            break
        except StoreConflict:
            if attempt == ATTEMPTS - 1:
                raise
            await metadata.wait_for_image_after(image)
    return outcomes
