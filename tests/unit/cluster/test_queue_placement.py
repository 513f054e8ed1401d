"""A new queue is led by the broker that leads its state: for every number of replicas, with racks, workers and brokers
that a caller has assigned."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from random import Random
from uuid import UUID

import pytest

from headrace.cluster.queue_placement import DRAWS, place_with_state
from headrace.cluster.topics import place
from headrace.model.ids import NO_LEADER, BrokerId, LeaderEpoch, TopicId, TopicName
from headrace.model.image import QUEUE_STATE_TOPIC, BrokerInfo, ClusterImage, Endpoint, PartitionState, TopicImage
from headrace.model.state_partition import partition_for, state_name, state_partition

STATE_ID = TopicId(UUID(int=7))


def cluster(racks: Sequence[str | None]) -> ClusterImage:
    """Brokers 0, 1 … by rack; those of one rack are the workers of one machine."""
    brokers = {
        BrokerId(number): BrokerInfo(BrokerId(number), Endpoint(rack or f"host-{number}", 9092), rack=rack)
        for number, rack in enumerate(racks)
    }
    return ClusterImage("c", BrokerId(0), brokers, {}, {}, {}, 1)


def with_state(image: ClusterImage, states: Sequence[Sequence[int]]) -> ClusterImage:
    """The image with a topic of the state that has these replicas."""
    partitions = []
    for replicas in states:
        brokers = tuple(map(BrokerId, replicas))
        leader = next(filter(image.can_lead, brokers), NO_LEADER)
        partitions.append(PartitionState(leader, LeaderEpoch(0), brokers, brokers))
    topic = TopicImage(QUEUE_STATE_TOPIC, STATE_ID, tuple(partitions))
    return replace(image, topics={topic.name: topic}, topic_names={STATE_ID: topic.name})


def ids(seed: int = 1) -> Callable[[], TopicId]:
    random = Random(seed)
    return lambda: TopicId(UUID(int=random.getrandbits(128), version=4))


def state_of(image: ClusterImage, topic_id: TopicId) -> PartitionState:
    states = image.topics[QUEUE_STATE_TOPIC].partitions
    return states[state_partition(topic_id, len(states))]


@pytest.mark.parametrize(
    "racks",
    [
        [None],
        [None] * 3,
        [None] * 5,
        ["a"] * 2,
        ["a"] * 8,
        ["a", "a", "b", "b"],
        ["a", "a", "a", "b", "b", "b", "c", "c", "c"],
        ["a", None, "b", "b"],
    ],
)
def test_a_placed_queue_is_led_with_its_state_for_every_number_of_replicas(racks: list[str | None]) -> None:
    image, new_id = cluster(racks), ids()
    for state_factor in range(1, len(racks) + 1):
        image = with_state(image, place(cluster(racks), QUEUE_STATE_TOPIC, 16, state_factor))
        for factor in range(1, len(racks) + 1):
            for number in range(5):
                (assigned,) = place(image, TopicName(f"q{number}"), 1, factor)
                topic_id, replicas = place_with_state(image, assigned, new_id, is_fixed=False)
                assert sorted(replicas) == sorted(assigned)
                assert state_of(image, topic_id).replicas[0] == replicas[0]


def test_assigned_brokers_stay_in_their_order() -> None:
    new_id = ids()
    image = with_state(cluster([None] * 3), [(index % 3, (index + 1) % 3) for index in range(16)])
    for assigned in [(0,), (2, 1), (1, 0, 2)]:
        topic_id, replicas = place_with_state(image, assigned, new_id, is_fixed=True)
        assert replicas == assigned
        assert state_of(image, topic_id).leader == assigned[0]


def test_followers_in_the_same_order_are_preferred() -> None:
    image = with_state(cluster([None] * 3), [(0, 1, 2), (0, 2, 1), (1, 2, 0), (0, 2, 1)] * 4)
    new_id = ids()
    for _ in range(20):
        topic_id, _ = place_with_state(image, (0, 2, 1), new_id, is_fixed=True)
        assert state_of(image, topic_id).replicas == (0, 2, 1)


def test_another_replica_leads_where_the_first_one_leads_no_state() -> None:
    image = with_state(cluster([None] * 3), [(2,)] * 16)
    topic_id, replicas = place_with_state(image, (0, 1, 2), ids(), is_fixed=False)
    assert replicas == (2, 0, 1)
    assert state_of(image, topic_id).leader == 2
    topic_id, replicas = place_with_state(image, (0, 1, 2), ids(), is_fixed=True)
    assert replicas == (0, 1, 2)


def test_while_the_first_replica_is_down_the_queue_is_with_the_state_that_it_had_led() -> None:
    image = cluster([None] * 3)
    brokers = {**image.brokers, BrokerId(0): replace(image.brokers[BrokerId(0)], is_alive=False)}
    image = with_state(replace(image, brokers=brokers), [(0, 1, 2), (1, 2, 0)] * 8)
    topic_id, _ = place_with_state(image, (0, 1, 2), ids(), is_fixed=True)
    assert state_of(image, topic_id).replicas == (0, 1, 2)
    assert state_of(image, topic_id).leader == 1


@pytest.mark.parametrize("assigned", [(0,), (0, 1)])
def test_a_queue_that_fits_nowhere_gets_an_id_after_a_bounded_number_of_draws(assigned: tuple[int, ...]) -> None:
    drawn: list[TopicId] = []
    source = ids()

    def new_id() -> TopicId:
        drawn.append(source())
        return drawn[-1]

    nowhere = with_state(cluster([None] * 3), [(2,)] * 16)
    topic_id, replicas = place_with_state(nowhere, assigned, new_id, is_fixed=False)
    assert (topic_id, replicas, len(drawn)) == (drawn[-1], assigned, 1)

    never = UUID(int=next(value for value in range(100) if state_partition(UUID(int=value), 16) != 3))

    def always_the_same() -> TopicId:
        drawn.append(TopicId(never))
        return drawn[-1]

    drawn.clear()
    image = with_state(cluster([None] * 3), [(0,) if index == 3 else (2,) for index in range(16)])
    assert place_with_state(image, assigned, always_the_same, is_fixed=False)[0] == never
    assert len(drawn) == DRAWS


def test_without_a_topic_of_the_state_any_id_will_do() -> None:
    image = cluster([None] * 2)
    assert place_with_state(image, (1, 0), ids(3), is_fixed=False) == (ids(3)(), (1, 0))


def test_the_partition_is_that_of_the_key_of_the_state() -> None:
    """The state of existing queues is found there: this must never change."""
    known = UUID("6a5e1b36-6f0c-4f58-9a0b-2d1f4ce01c11")
    assert state_partition(known, 16) == partition_for("6a5e1b366f0c4f589a0b2d1f4ce01c11:0:", 16) == 0
    assert state_name(known, 2, "g") == "6a5e1b366f0c4f589a0b2d1f4ce01c11:2:g"
