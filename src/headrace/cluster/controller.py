"""The controller's decisions: leader election, ISR shrinking, admission, draining. Pure: an image and an event in,
changes out.

After the changes of `decide`, for every partition examined:
- the leader is an ISR member that is alive and admitted; the partition has no leader (-1) if the ISR has no such
  member. A replica outside the ISR is never elected, so an election loses no acknowledged record;
- dead, starting and stopping brokers are out of the ISR as long as one member that can lead remains. The ISR is never
  emptied, and stays whole while no member can lead: the first one to come back has every committed record;
- every change of leader has a new leader epoch, and every change a new partition epoch.
Deciding again from the resulting image changes nothing.

Admission. A restarted broker may have lost unflushed data, and the others may have moved on without it. So before it
becomes ACTIVE, every partition that has it in the ISR is updated: where another ISR member can lead, it leaves the ISR
and rejoins by catching up; where none can, it is the best replica left and leads, with a new epoch. Its own change to
ACTIVE is written last; since every broker sees changes in order, it has seen the others by then.

A broker that returns with another data directory has none of its former data. It leaves every ISR that has another
member, alive or not. Where it is the only member, the data is lost unless the old directory comes back: the broker is
not admitted while there is such a partition (`Changes.refused`).

A broker that does not support the cluster's feature level cannot read the others' writes: it is neither admitted nor
elected (`Changes.outdated`).

A broker is drained by reassignments, a bounded number at a time, and removed once it is dead and has no replica left.
Internal topics are grown to their replication factor the same way: they may have been created before enough brokers
had joined. The workers of one machine count as one broker.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from headrace.cluster import placement, reassignment, topics
from headrace.model.ids import NO_LEADER, BrokerId, LeaderEpoch, PartitionIndex, TopicId, TopicName, TopicPartition
from headrace.model.image import BrokerInfo, BrokerState, ClusterImage, PartitionState, TopicImage

MOVES_AT_ONCE = 10
"""Concurrent reassignments for draining; and as many for growing a topic's replication factor."""

PartitionKey = tuple[TopicId, int]


@dataclass(frozen=True, slots=True)
class Event:
    """What changed since the last decision: which partitions to examine."""

    everything: bool = False
    """Examine every partition: earlier changes are unknown, as after a controller failover."""
    brokers: frozenset[BrokerId] = frozenset()
    """Brokers that joined, left, or changed state."""
    partitions: frozenset[PartitionKey] = frozenset()
    """New and changed partitions."""
    is_balancing: bool = False
    """A preferred leader election is due."""


@dataclass(frozen=True, slots=True)
class Changes:
    partitions: Mapping[PartitionKey, PartitionState] = field(default_factory=dict)
    brokers: tuple[BrokerInfo, ...] = ()
    """Brokers to admit, written after all of `partitions`."""
    removed_brokers: tuple[BrokerId, ...] = ()
    """Drained brokers to remove from the cluster."""
    refused: Mapping[BrokerId, tuple[TopicPartition, ...]] = field(default_factory=dict)
    """Brokers not admitted because they lost their data directory, each with the partitions only it had in sync."""
    outdated: tuple[BrokerId, ...] = ()
    """Brokers not admitted because they do not support the cluster's feature level."""

    def __bool__(self) -> bool:
        return bool(self.partitions or self.brokers or self.removed_brokers)


def decide(
    image: ClusterImage,
    event: Event,
    factors: Mapping[TopicName, int] | None = None,
    *,
    on_any_brokers: Collection[TopicName] = (),
) -> Changes:
    """The changes to write. `factors`: replication factors to grow topics to, as far as there are machines; those of
    `on_any_brokers` as far as there are brokers."""
    starting = frozenset(
        broker.broker_id
        for broker in image.brokers.values()
        if broker.is_alive and broker.state is BrokerState.STARTING
    )
    changed: dict[PartitionKey, PartitionState] = {}
    for topic, index, state in _affected(image, event, starting):
        new = reconciled(image, state)
        if new != state:
            changed[topic.topic_id, index] = new
    if event.is_balancing:
        for topic, index, state in _all(image):
            preferred = with_preferred_leader(image, state)
            if preferred is not None:
                changed.setdefault((topic.topic_id, index), preferred)
    draining = {broker.broker_id for broker in image.brokers.values() if broker.is_draining}
    if draining:
        changed |= _drain_moves(image, draining, changed)
    for name, factor in (factors or {}).items():
        if name in image.topics:
            machines = {} if name in on_any_brokers else topics.machines(image)
            changed |= _growth_moves(image, image.topics[name], factor, machines, changed)
    refused = _sole_copies(image, changed, {broker for broker in starting if _has_lost_data(image, broker)})
    outdated = tuple(sorted(broker for broker in starting if _is_outdated(image, broker)))
    return Changes(
        changed,
        tuple(
            replace(image.brokers[broker], state=BrokerState.ACTIVE, former_data_dir="")
            for broker in sorted(starting - refused.keys() - set(outdated))
        ),
        tuple(sorted(_removable(image, draining))),
        refused,
        outdated,
    )


def _all(image: ClusterImage) -> Iterator[tuple[TopicImage, int, PartitionState]]:
    for topic in image.topics.values():
        for index, state in enumerate(topic.partitions):
            yield topic, index, state


def _affected(
    image: ClusterImage, event: Event, starting: frozenset[BrokerId]
) -> Iterator[tuple[TopicImage, int, PartitionState]]:
    brokers = event.brokers | starting
    if event.everything or brokers:
        for topic, index, state in _all(image):
            if (
                event.everything
                or not brokers.isdisjoint(state.replicas)
                or (topic.topic_id, index) in event.partitions
            ):
                yield topic, index, state
        return
    for topic_id, index in event.partitions:
        found = image.topic_by_id(topic_id)
        if found is not None and index < len(found.partitions):
            yield found, index, found.partitions[index]


def reconciled(image: ClusterImage, state: PartitionState) -> PartitionState:
    """The partition's state for the brokers' current states; the same object if nothing has to change."""
    fit = tuple(filter(image.can_lead, state.isr))
    if fit:
        return _with_isr(state, fit)
    if state.leader in state.isr and _is(image, state.leader, BrokerState.STOPPING):
        # No other broker can take over, so it leads until it exits. Dead members stay in the ISR: they have every
        # committed record and may be needed, for this broker may be stopping because its disk has failed.
        isr = tuple(broker for broker in state.isr if not _is(image, broker, BrokerState.STARTING))
        return _with_epochs(state, replace(state, isr=isr))
    with_data = tuple(broker for broker in state.isr if not _has_lost_data(image, broker)) or state.isr
    for broker in state.replicas:
        if broker in with_data and _may_lead_once_admitted(image, broker):
            return _with_epochs(state, replace(state, leader=broker, isr=(broker,)), is_new_leadership=True)
    return _with_epochs(state, replace(state, leader=NO_LEADER, isr=with_data))


def _with_isr(state: PartitionState, isr: tuple[BrokerId, ...]) -> PartitionState:
    """The state with this ISR, all of whose members can lead. A complete reassignment ends."""
    new = state
    if state.is_reassigning and reassignment.is_complete(state, isr):
        isr = tuple(broker for broker in isr if broker not in state.removing)
        new = replace(state, replicas=reassignment.target(state), adding=(), removing=())
    leader = state.leader if state.leader in isr else next(broker for broker in new.replicas if broker in isr)
    return _with_epochs(state, replace(new, leader=leader, isr=isr))


def with_preferred_leader(image: ClusterImage, state: PartitionState) -> PartitionState | None:
    """The state with the first replica as leader; None if it leads already, or must not."""
    preferred = state.replicas[0]
    if preferred == state.leader or preferred not in state.isr or not image.can_lead(preferred):
        return None
    if image.brokers[preferred].is_draining:
        return None
    return _with_epochs(state, replace(state, leader=preferred))


def _with_epochs(old: PartitionState, new: PartitionState, *, is_new_leadership: bool = False) -> PartitionState:
    """The new state with its epochs bumped as its changes require; the old one if nothing changed."""
    is_new_leadership = is_new_leadership or new.leader != old.leader or reassignment.removes_replica(old, new.replicas)
    if new == old and not is_new_leadership:
        return old
    return replace(
        new,
        leader_epoch=LeaderEpoch(old.leader_epoch + is_new_leadership),
        partition_epoch=old.partition_epoch + 1,
    )


def _is(image: ClusterImage, broker_id: BrokerId, state: BrokerState) -> bool:
    """True if the broker is alive and in this state."""
    broker = image.brokers.get(broker_id)
    return broker is not None and broker.is_alive and broker.state is state


def _may_lead_once_admitted(image: ClusterImage, broker_id: BrokerId) -> bool:
    is_starting = _is(image, broker_id, BrokerState.STARTING)
    return is_starting and not _has_lost_data(image, broker_id) and not _is_outdated(image, broker_id)


def _is_outdated(image: ClusterImage, broker_id: BrokerId) -> bool:
    return image.brokers[broker_id].max_level < image.feature_level


def _has_lost_data(image: ClusterImage, broker_id: BrokerId) -> bool:
    broker = image.brokers.get(broker_id)
    return broker is not None and broker.has_lost_data


def _drain_moves(
    image: ClusterImage, draining: set[BrokerId], changed: Mapping[PartitionKey, PartitionState]
) -> dict[PartitionKey, PartitionState]:
    """The next reassignments away from draining brokers, up to `MOVES_AT_ONCE` at a time."""
    racks = topics.placement_candidates(image)
    load = topics.replicas_by_broker(image)
    moves: dict[PartitionKey, PartitionState] = {}
    in_progress = 0
    waiting: list[tuple[PartitionKey, TopicPartition, PartitionState]] = []
    for topic, index, before in _all(image):
        key = (topic.topic_id, index)
        state = changed.get(key, before)
        partition = TopicPartition(topic.name, PartitionIndex(index))
        is_changed = state is not before  # One change at a time: the partition is examined again after this one.
        if not draining.isdisjoint(state.removing):
            in_progress += 1
            lost = [broker for broker in state.adding if broker not in racks]
            if lost and not is_changed and (move := _replacement(racks, partition, state, lost, load)) is not None:
                moves[key] = move
        elif not draining.isdisjoint(state.replicas) and image.can_lead(state.leader) and not is_changed:
            waiting.append((key, partition, state))
    for key, partition, state in waiting:
        if in_progress >= MOVES_AT_ONCE:
            break
        leaving = [broker for broker in reassignment.target(state) if broker in draining]
        if (move := _replacement(racks, partition, state, leaving, load)) is not None:
            moves[key] = move
            load.update(move.adding)
            in_progress += 1
    return moves


def _replacement(
    racks: placement.Racks,
    partition: TopicPartition,
    state: PartitionState,
    leaving: Iterable[BrokerId],
    load: Mapping[BrokerId, int],
) -> PartitionState | None:
    """The reassignment that replaces the `leaving` brokers; None if there are no others to take their replicas."""
    wanted = reassignment.target(state)
    for broker in leaving:
        found = placement.replaced(racks, partition, wanted, broker, load)
        if found is None:
            return None
        wanted = found
    return reassignment.begun(state, wanted)


def _growth_moves(
    image: ClusterImage,
    topic: TopicImage,
    factor: int,
    machines: placement.Machines,
    changed: Mapping[PartitionKey, PartitionState],
) -> dict[PartitionKey, PartitionState]:
    """The next reassignments that raise a topic's replication factor, up to `MOVES_AT_ONCE` at a time."""
    in_progress = sum(state.is_reassigning for state in topic.partitions)
    racks = topics.placement_candidates(image)
    short = {
        index: others
        for index, state in enumerate(topic.partitions)
        if len(state.replicas) < factor and (others := _on_other_machines(racks, machines, state.replicas))
    }
    if not short or in_progress >= MOVES_AT_ONCE:
        return {}
    load = topics.replicas_by_broker(image)
    moves: dict[PartitionKey, PartitionState] = {}
    for index, others in short.items():
        key, state = (topic.topic_id, index), topic.partitions[index]
        if key in changed or state.is_reassigning or not image.can_lead(state.leader):
            continue
        partition = TopicPartition(topic.name, PartitionIndex(index))
        possible = len(state.replicas) + len({machines.get(broker, broker) for broker in others})
        used = {broker: image.brokers[broker].rack for broker in state.replicas if broker in image.brokers}
        wanted = placement.grown(used | others, partition, state.replicas, min(factor, possible), load, machines)
        move = reassignment.begun(state, wanted)
        if move is not state:
            moves[key] = move
            load.update(move.adding)
            if in_progress + len(moves) >= MOVES_AT_ONCE:
                break
    return moves


def _on_other_machines(
    racks: placement.Racks, machines: placement.Machines, replicas: tuple[BrokerId, ...]
) -> dict[BrokerId, str | None]:
    """The brokers on machines that have none of these replicas."""
    used = {machines.get(broker, broker) for broker in replicas}
    return {broker: rack for broker, rack in racks.items() if machines.get(broker, broker) not in used}


def _sole_copies(
    image: ClusterImage, changed: Mapping[PartitionKey, PartitionState], brokers: set[BrokerId]
) -> dict[BrokerId, tuple[TopicPartition, ...]]:
    """The partitions for which each of these brokers is the only ISR member."""
    found: dict[BrokerId, tuple[TopicPartition, ...]] = {}
    if brokers:
        for topic, index, before in _all(image):
            isr = changed.get((topic.topic_id, index), before).isr
            if len(isr) == 1 and isr[0] in brokers:
                found[isr[0]] = (*found.get(isr[0], ()), TopicPartition(topic.name, PartitionIndex(index)))
    return found


def _removable(image: ClusterImage, draining: set[BrokerId]) -> set[BrokerId]:
    """Drained brokers that are dead and have no replica left."""
    gone = {broker for broker in draining if not image.is_alive(broker)}
    if gone:
        for _, _, state in _all(image):
            gone.difference_update(state.replicas)
    return gone
