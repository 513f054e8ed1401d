"""Moves that bring existing queues to the brokers that lead their state.

The partition of `__queue_state` that has the state of a queue never changes, and many queues share it: so the state is
spread evenly over the brokers, and each queue follows its state.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from uuid import UUID

from headrace.cluster.placement import Racks, Replicas, even_out, rack_use
from headrace.model.ids import BrokerId, PartitionIndex, TopicPartition
from headrace.model.image import QUEUE_STATE_TOPIC
from headrace.model.state_partition import state_partition
from headrace.wire import Cluster, Topic

_TOPICS_AT_ONCE = 500


def queue_ids(cluster: Cluster, topics: Mapping[str, Topic]) -> dict[str, UUID]:
    """The topic id of each queue, by name."""
    candidates = [name for name, topic in topics.items() if len(topic.partitions) == 1 and not topic.is_internal]
    kinds: dict[str, str] = {}
    for start in range(0, len(candidates), _TOPICS_AT_ONCE):
        kinds |= cluster.one_setting(candidates[start : start + _TOPICS_AT_ONCE], "queue.type")
    ids = ((name, topics[name].topic_id) for name, kind in sorted(kinds.items()) if kind != "none")
    return {name: topic_id for name, topic_id in ids if topic_id is not None}


def state_leaders(
    placed: Mapping[TopicPartition, Replicas], queues: Mapping[str, UUID], state_count: int
) -> dict[TopicPartition, BrokerId]:
    """The preferred leader of the state of each queue. A queue is left out if it, or its state, is not in `placed`."""
    found = {}
    for partition in placed:
        if partition.topic in queues:
            index = PartitionIndex(state_partition(queues[partition.topic], state_count))
            state = placed.get(TopicPartition(QUEUE_STATE_TOPIC, index))
            if state is not None:
                found[partition] = state[0]
    return found


def balanced_with_state(
    racks: Racks, placed: Mapping[TopicPartition, Replicas], queues: Mapping[str, UUID], state_count: int
) -> dict[TopicPartition, Replicas]:
    """The partitions that need other replicas, or another replica order, to balance the brokers and to have queues led
    by the brokers that lead their state."""

    def of(partitions: Iterable[TopicPartition]) -> dict[TopicPartition, Replicas]:
        return {partition: placed[partition] for partition in partitions}

    states = [partition for partition in placed if partition.topic == QUEUE_STATE_TOPIC]
    others = [
        partition for partition in placed if partition.topic not in queues and partition.topic != QUEUE_STATE_TOPIC
    ]
    now = {**placed, **even_out(racks, of(states))}
    load = Counter(broker for replicas in now.values() for broker in replicas)
    for partition, leader in sorted(state_leaders(now, queues, state_count).items()):
        if leader in racks:
            after = led_by(racks, now[partition], leader, load)
            load.subtract(now[partition])
            load.update(after)
            now[partition] = after
    now |= even_out(racks, {each: now[each] for each in placed if each.topic in queues}, keeps_leaders=True)
    # Other topics may be led anywhere: they go where queues and states are few.
    bound = Counter(broker for partition in now.keys() - set(others) for broker in now[partition])
    now |= even_out(racks, of(others), others=bound)
    return {partition: replicas for partition, replicas in now.items() if replicas != placed[partition]}


def led_by(racks: Racks, replicas: Replicas, leader: BrokerId, load: Mapping[BrokerId, int]) -> Replicas:
    """The replicas with this broker in front. If it has none yet, it replaces the broker with the highest load, on as
    many racks as before."""
    if leader in replicas:
        return (leader, *(broker for broker in replicas if broker != leader))

    def others(gone: BrokerId) -> Replicas:
        return tuple(broker for broker in replicas if broker != gone)

    gone = max(replicas, key=lambda each: (len(rack_use(racks, (leader, *others(each)))), load.get(each, 0), each))
    return (leader, *others(gone))
