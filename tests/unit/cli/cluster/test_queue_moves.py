"""What `headrace cluster rebalance --move` plans for queues: each is led by the broker that leads its state."""

from collections import Counter
from random import Random
from uuid import UUID

import pytest

from headrace.cli.cluster.plans import balanced
from headrace.cli.cluster.queue_moves import balanced_with_state, led_by, state_leaders
from headrace.cluster.placement import Replicas
from headrace.model.ids import BrokerId, PartitionIndex, TopicName, TopicPartition
from headrace.model.image import QUEUE_STATE_TOPIC
from headrace.model.state_partition import state_partition
from headrace.wire import PartitionInfo

STATES = 16


def at(topic: str, index: int = 0) -> TopicPartition:
    return TopicPartition(TopicName(topic), PartitionIndex(index))


def some_cluster(
    brokers: int, factor: int, seed: int
) -> tuple[dict[TopicPartition, Replicas], dict[str, UUID], dict[BrokerId, str | None]]:
    """Queues, their state and a topic, at random on all brokers but the last, which is new."""
    random = Random(seed)
    known = [BrokerId(number) for number in range(brokers)]
    old = known[:-1] if brokers - 1 >= factor else known

    def replicas() -> Replicas:
        return tuple(random.sample(old, factor))

    placed = {at("orders", index): replicas() for index in range(12)}
    placed |= {at(QUEUE_STATE_TOPIC, index): replicas() for index in range(STATES)}
    queues = {f"q{number}": UUID(int=random.getrandbits(128)) for number in range(40)}
    placed |= {at(name): replicas() for name in queues}
    return placed, queues, dict.fromkeys(known)


@pytest.mark.parametrize("brokers", [1, 2, 3, 5])
@pytest.mark.parametrize("factor", [1, 2, 3])
def test_all_queues_are_led_with_their_state_and_once_is_enough(brokers: int, factor: int) -> None:
    for seed in range(10):
        placed, queues, racks = some_cluster(brokers, min(factor, brokers), seed)
        after = placed | balanced_with_state(racks, placed, queues, STATES)
        for name, topic_id in queues.items():
            state = after[at(QUEUE_STATE_TOPIC, state_partition(topic_id, STATES))]
            assert after[at(name)][0] == state[0]
        for partition, replicas in after.items():
            assert len(set(replicas)) == len(placed[partition])
        leads = Counter(after[at(QUEUE_STATE_TOPIC, index)][0] for index in range(STATES))
        assert max(leads.values()) - min(leads[broker] for broker in racks) <= 1
        load = Counter(broker for name in queues for broker in after[at(name)])
        if factor > 1:
            assert min(load[broker] for broker in racks) >= sum(load.values()) // len(racks) // 2
        assert balanced_with_state(racks, after, queues, STATES) == {}


def test_leaders_are_only_put_in_front_where_the_replicas_are_right() -> None:
    assert led_by({}, (BrokerId(1), BrokerId(2), BrokerId(3)), BrokerId(3), {}) == (3, 1, 2)


@pytest.mark.parametrize(
    ("replicas", "load", "expected"),
    [
        ((1,), {}, (2,)),
        # Rack b has no other replica: 3 stays, though it has the most.
        ((1, 3), {1: 1, 3: 9}, (2, 3)),
        ((3, 4), {3: 5, 4: 9}, (2, 3)),
        ((3, 4), {3: 9, 4: 5}, (2, 4)),
    ],
)
def test_a_broker_that_has_no_replica_replaces_one(
    replicas: tuple[int, ...], load: dict[int, int], expected: tuple[int, ...]
) -> None:
    racks = {BrokerId(broker): rack for broker, rack in {1: "a", 2: "a", 3: "b", 4: "b"}.items()}
    loads = {BrokerId(broker): count for broker, count in load.items()}
    assert led_by(racks, tuple(map(BrokerId, replicas)), BrokerId(2), loads) == expected


def test_a_queue_whose_state_is_being_reassigned_is_left_alone() -> None:
    queues = {"q": UUID(int=5)}
    index = state_partition(queues["q"], STATES)
    placed = {at("q"): (BrokerId(1),), at(QUEUE_STATE_TOPIC, (index + 1) % STATES): (BrokerId(2),)}
    assert state_leaders(placed, queues, STATES) == {}
    assert at("q") not in balanced_with_state({BrokerId(1): None, BrokerId(2): None}, placed, queues, STATES)


def test_a_broker_that_gets_no_replicas_gets_no_queue() -> None:
    queues = {"q": UUID(int=5)}
    placed: dict[TopicPartition, Replicas] = {
        at(QUEUE_STATE_TOPIC, index): (BrokerId(3), BrokerId(1)) for index in range(STATES)
    }
    placed[at("q")] = (BrokerId(1),)
    after = balanced_with_state({BrokerId(1): None}, placed, queues, STATES)
    assert at("q") not in after or after[at("q")][0] == 1


def test_the_plan_of_the_command_has_them() -> None:
    queues = {"q": UUID(int=5)}
    index = state_partition(queues["q"], 2)
    leaders = {index: 1, 1 - index: 2}
    parts: dict[tuple[str, int], PartitionInfo] = {
        (QUEUE_STATE_TOPIC, each): PartitionInfo(each, leaders[each], 0, (leaders[each],), ()) for each in (0, 1)
    }
    parts[("q", 0)] = PartitionInfo(0, 2, 0, (2, 1), (2, 1))
    (move,) = balanced(parts, {1: None, 2: None}, queues, 2)
    assert (move.partition, move.before, move.after, move.adding) == (("q", 0), (2, 1), (1, 2), ())
