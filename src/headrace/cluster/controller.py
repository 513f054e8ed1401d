"""What the controller decides. Pure: from an image and what has happened to the changes that put things right.

What holds after the changes of `decide` for every partition that was looked at:
- the leader is a member of the ISR that is alive and has been admitted; there is none (-1) if there is no such member.
  Nobody from outside the ISR is ever elected, so nothing that was acknowledged is lost by an election;
- members of the ISR that are dead, starting or stopping have left it, as long as one that can lead is left. The ISR is
  never emptied, and where nobody can lead it stays whole: whoever of it comes back first has everything;
- every change of the leader has a new leader epoch, and every change a new partition epoch.
Deciding again from the image that results changes nothing.

Admission. A broker that has started may have lost what it had not flushed, and others may have gone on without it. So
before it becomes ACTIVE each partition that counts on it is put right: where another member of the ISR can lead, it
leaves the ISR and comes back by catching up; where none can, it is the best there is and leads, with a new epoch. Its
own change to ACTIVE comes after all of these, and since everybody sees changes in order, it has seen them by then.

A broker that comes back with another data directory has nothing of what it is thought to have. It leaves every ISR that
has another member, be that alive or not. Where it is the only member, all is lost unless the directory comes back: it
is not admitted while there is such a partition, and `Changes.refused` says so.

A broker that does not know the cluster's feature level could not read what the others write: it is not admitted and
never elected, and `Changes.outdated` says so.

A broker is drained by reassignments, a bounded number at a time. When it is dead and has nothing left, it is forgotten.
In the same way topics that the cluster needs itself get the replicas they should have once there are brokers for them:
whoever was the first to need them may have been there before the others.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from headrace.cluster import placement, reassignment, topics
from headrace.model.ids import NO_LEADER, BrokerId, LeaderEpoch, PartitionIndex, TopicId, TopicName, TopicPartition
from headrace.model.image import BrokerInfo, BrokerState, ClusterImage, PartitionState, TopicImage

MOVES_AT_ONCE = 10
"""Partitions that move at the same time because a broker is drained; and as many that get more replicas."""

PartitionKey = tuple[TopicId, int]


@dataclass(frozen=True, slots=True)
class Event:
    """What has happened since the last decision: where to look."""

    everything: bool = False
    """Look at every partition: nobody knows what happened before."""
    brokers: frozenset[BrokerId] = frozenset()
    """These have come, gone, or changed their state."""
    partitions: frozenset[PartitionKey] = frozenset()
    """These have changed, or are new."""
    is_balancing: bool = False
    """It is time to give leadership back to preferred leaders."""


@dataclass(frozen=True, slots=True)
class Changes:
    partitions: Mapping[PartitionKey, PartitionState] = field(default_factory=dict)
    brokers: tuple[BrokerInfo, ...] = ()
    """To be written when all of `partitions` are."""
    forgotten: tuple[BrokerId, ...] = ()
    """Brokers that do not belong to the cluster any more."""
    refused: Mapping[BrokerId, tuple[TopicPartition, ...]] = field(default_factory=dict)
    """Brokers that are not admitted because they came back without their data, which nobody else has: that of these."""
    outdated: tuple[BrokerId, ...] = ()
    """Brokers that are not admitted because they do not know the cluster's feature level."""

    def __bool__(self) -> bool:
        return bool(self.partitions or self.brokers or self.forgotten)


def decide(image: ClusterImage, event: Event, factors: Mapping[TopicName, int] | None = None) -> Changes:
    """`factors` has topics that shall have so many replicas, or as many as there are brokers."""
    starting = frozenset(
        broker.broker_id
        for broker in image.brokers.values()
        if broker.is_alive and broker.state is BrokerState.STARTING
    )
    changed: dict[PartitionKey, PartitionState] = {}
    for topic, index, state in _looked_at(image, event, starting):
        new = settled(image, state)
        if new != state:
            changed[topic.topic_id, index] = new
    if event.is_balancing:
        for topic, index, state in _all(image):
            preferred = with_preferred_leader(image, state)
            if preferred is not None:
                changed.setdefault((topic.topic_id, index), preferred)
    draining = {broker.broker_id for broker in image.brokers.values() if broker.is_draining}
    if draining:
        changed |= _drained(image, draining, changed)
    for name, factor in (factors or {}).items():
        if name in image.topics:
            changed |= _grown(image, image.topics[name], factor, changed)
    refused = _irreplaceable(image, changed, {broker for broker in starting if _has_lost_data(image, broker)})
    outdated = tuple(sorted(broker for broker in starting if _is_outdated(image, broker)))
    return Changes(
        changed,
        tuple(
            replace(image.brokers[broker], state=BrokerState.ACTIVE, former_data_dir="")
            for broker in sorted(starting - refused.keys() - set(outdated))
        ),
        tuple(sorted(_to_forget(image, draining))),
        refused,
        outdated,
    )


def _all(image: ClusterImage) -> Iterator[tuple[TopicImage, int, PartitionState]]:
    for topic in image.topics.values():
        for index, state in enumerate(topic.partitions):
            yield topic, index, state


def _looked_at(
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


def settled(image: ClusterImage, state: PartitionState) -> PartitionState:
    """The state that is right for a partition with the brokers as they are; the very same one if it is right."""
    fit = tuple(filter(image.can_lead, state.isr))
    if fit:
        return _led(state, fit)
    if state.leader in state.isr and _is(image, state.leader, BrokerState.STOPPING):
        # Nobody can take over from it, so it goes on for as long as it lives. Whoever is dead stays in the ISR: it has
        # everything, and may be needed, for this one may be stopping because its disk has failed.
        isr = tuple(broker for broker in state.isr if not _is(image, broker, BrokerState.STARTING))
        return _raised(state, replace(state, isr=isr))
    with_data = tuple(broker for broker in state.isr if not _has_lost_data(image, broker)) or state.isr
    for broker in state.replicas:
        if broker in with_data and _may_lead_once_admitted(image, broker):
            return _raised(state, replace(state, leader=broker, isr=(broker,)), is_led_anew=True)
    return _raised(state, replace(state, leader=NO_LEADER, isr=with_data))


def _led(state: PartitionState, isr: tuple[BrokerId, ...]) -> PartitionState:
    """The state with these in sync, all of whom can lead. A reassignment that is complete ends."""
    new = state
    if state.is_reassigning and reassignment.is_complete(state, isr):
        isr = tuple(broker for broker in isr if broker not in state.removing)
        new = replace(state, replicas=reassignment.target(state), adding=(), removing=())
    leader = state.leader if state.leader in isr else next(broker for broker in new.replicas if broker in isr)
    return _raised(state, replace(new, leader=leader, isr=isr))


def with_preferred_leader(image: ClusterImage, state: PartitionState) -> PartitionState | None:
    """The state with the first replica for a leader; None if that leads already, or must not."""
    preferred = state.replicas[0]
    if preferred == state.leader or preferred not in state.isr or not image.can_lead(preferred):
        return None
    if image.brokers[preferred].is_draining:
        return None
    return _raised(state, replace(state, leader=preferred))


def _raised(old: PartitionState, new: PartitionState, *, is_led_anew: bool = False) -> PartitionState:
    """The new state with the epochs that follow from what is new in it; the old one if nothing is."""
    is_led_anew = is_led_anew or new.leader != old.leader or reassignment.somebody_leaves(old, new.replicas)
    if new == old and not is_led_anew:
        return old
    return replace(
        new,
        leader_epoch=LeaderEpoch(old.leader_epoch + is_led_anew),
        partition_epoch=old.partition_epoch + 1,
    )


def _is(image: ClusterImage, broker_id: BrokerId, state: BrokerState) -> bool:
    """Whether a broker is alive and in this state."""
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


def _drained(
    image: ClusterImage, draining: set[BrokerId], changed: Mapping[PartitionKey, PartitionState]
) -> dict[PartitionKey, PartitionState]:
    """The next partitions to leave the brokers that are drained, as many as may move at the same time."""
    racks = topics.takers(image)
    load = topics.replicas_by_broker(image)
    moves: dict[PartitionKey, PartitionState] = {}
    under_way = 0
    waiting: list[tuple[PartitionKey, TopicPartition, PartitionState]] = []
    for topic, index, before in _all(image):
        key = (topic.topic_id, index)
        state = changed.get(key, before)
        partition = TopicPartition(topic.name, PartitionIndex(index))
        is_changed = state is not before  # One thing at a time: it is looked at again when that is done.
        if not draining.isdisjoint(state.removing):
            under_way += 1
            lost = [broker for broker in state.adding if broker not in racks]
            if lost and not is_changed and (move := _moved_off(racks, partition, state, lost, load)) is not None:
                moves[key] = move
        elif not draining.isdisjoint(state.replicas) and image.can_lead(state.leader) and not is_changed:
            waiting.append((key, partition, state))
    for key, partition, state in waiting:
        if under_way >= MOVES_AT_ONCE:
            break
        leaving = [broker for broker in reassignment.target(state) if broker in draining]
        if (move := _moved_off(racks, partition, state, leaving, load)) is not None:
            moves[key] = move
            load.update(move.adding)
            under_way += 1
    return moves


def _moved_off(
    racks: placement.Racks,
    partition: TopicPartition,
    state: PartitionState,
    leaving: Iterable[BrokerId],
    load: Mapping[BrokerId, int],
) -> PartitionState | None:
    """The beginning of a move that puts others in the place of these; None if there are no others."""
    wanted = reassignment.target(state)
    for broker in leaving:
        found = placement.replaced(racks, partition, wanted, broker, load)
        if found is None:
            return None
        wanted = found
    return reassignment.begun(state, wanted)


def _grown(
    image: ClusterImage, topic: TopicImage, factor: int, changed: Mapping[PartitionKey, PartitionState]
) -> dict[PartitionKey, PartitionState]:
    """The next partitions of a topic to get more replicas, as many as may at the same time."""
    under_way = sum(state.is_reassigning for state in topic.partitions)
    short = [index for index, state in enumerate(topic.partitions) if len(state.replicas) < factor]
    if not short or under_way >= MOVES_AT_ONCE:
        return {}
    racks = topics.takers(image)
    load = topics.replicas_by_broker(image)
    moves: dict[PartitionKey, PartitionState] = {}
    for index in short:
        key, state = (topic.topic_id, index), topic.partitions[index]
        if key in changed or state.is_reassigning or not image.can_lead(state.leader):
            continue
        partition = TopicPartition(topic.name, PartitionIndex(index))
        move = reassignment.begun(state, placement.grown(racks, partition, state.replicas, factor, load))
        if move is not state:
            moves[key] = move
            load.update(move.adding)
            if under_way + len(moves) >= MOVES_AT_ONCE:
                break
    return moves


def _irreplaceable(
    image: ClusterImage, changed: Mapping[PartitionKey, PartitionState], brokers: set[BrokerId]
) -> dict[BrokerId, tuple[TopicPartition, ...]]:
    """The partitions of which each of these brokers is the only one in sync."""
    found: dict[BrokerId, tuple[TopicPartition, ...]] = {}
    if brokers:
        for topic, index, before in _all(image):
            isr = changed.get((topic.topic_id, index), before).isr
            if len(isr) == 1 and isr[0] in brokers:
                found[isr[0]] = (*found.get(isr[0], ()), TopicPartition(topic.name, PartitionIndex(index)))
    return found


def _to_forget(image: ClusterImage, draining: set[BrokerId]) -> set[BrokerId]:
    """Brokers that were drained, are dead and have nothing left."""
    gone = {broker for broker in draining if not image.is_alive(broker)}
    if gone:
        for _, _, state in _all(image):
            gone.difference_update(state.replicas)
    return gone
