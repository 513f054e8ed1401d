"""Where a new queue is led: by the broker that leads its state, so that no entry of the state crosses processes. Pure.

The state of a queue is in the partition of `__queue_state` that its topic id gives (`model/state_partition.py`). So the
random id of a new queue is drawn again until that partition has the leader that the queue has. If brokers were chosen
for the queue, and the first of them leads no state at all, another one of them becomes its preferred leader; brokers
that a caller has assigned stay in their order. All of that is before the queue is stored: the id of a queue that exists
never changes, and so its state stays where it is.

Of several partitions that fit, those are taken whose further replicas are in the order of the queue's: then both are
led by the same broker also after a failover. A queue whose brokers lead no state at all gets any id.
"""

from collections.abc import Callable, Sequence

from headrace.model.ids import BrokerId, TopicId
from headrace.model.image import QUEUE_STATE_TOPIC, ClusterImage, PartitionState
from headrace.model.state_partition import state_partition

DRAWS = 500
"""At most so many ids are drawn. One in sixteen fits where a broker leads a single one of sixteen partitions."""

Replicas = tuple[BrokerId, ...]
"""The replicas of the queue; the first is the preferred leader."""


def place_with_state(
    image: ClusterImage, assigned: Sequence[int], new_id: Callable[[], TopicId], *, is_fixed: bool
) -> tuple[TopicId, Replicas]:
    """The id and the replicas of a new queue. With `is_fixed` their order stays."""
    replicas: Replicas = tuple(map(BrokerId, assigned))
    topic = image.topics.get(QUEUE_STATE_TOPIC)
    if topic is None:
        return new_id(), replicas
    orders = [replicas] if is_fixed else [_led_by(broker, replicas) for broker in replicas]
    for order in orders:
        fitting = fitting_partitions(image, topic.partitions, order)
        if fitting:
            return _drawn(new_id, fitting, len(topic.partitions)), order
    return new_id(), replicas


def _led_by(leader: BrokerId, replicas: Replicas) -> Replicas:
    return (leader, *(broker for broker in replicas if broker != leader))


def fitting_partitions(image: ClusterImage, states: Sequence[PartitionState], replicas: Replicas) -> set[int]:
    """The partitions of `__queue_state` that suit a queue with these replicas best; empty if none has its leader."""
    ranks = {index: _rank(image, state, replicas) for index, state in enumerate(states)}
    best = max(ranks.values())
    return {index for index, rank in ranks.items() if rank == best} if best[0] or best[1] else set()


def _rank(image: ClusterImage, state: PartitionState, replicas: Replicas) -> tuple[bool, bool, int]:
    """How well a partition suits: by its preferred leader, by the one it has now, and by those that follow."""
    leader = next(filter(image.can_lead, replicas), None)
    has_preferred = state.replicas[0] == replicas[0] and replicas[0] not in state.removing
    alike = next(
        (at for at, (its, ours) in enumerate(zip(state.replicas, replicas, strict=False)) if its != ours),
        min(len(state.replicas), len(replicas)),
    )
    return has_preferred, state.leader == leader, alike


def _drawn(new_id: Callable[[], TopicId], fitting: set[int], count: int) -> TopicId:
    """An id whose state is in one of the fitting partitions, or else the last one that was drawn."""
    for _ in range(DRAWS - 1):
        topic_id = new_id()
        if state_partition(topic_id, count) in fitting:
            return topic_id
    return new_id()
