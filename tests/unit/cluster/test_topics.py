"""How many replicas a topic gets that was created without saying so, or by the brokers themselves."""

from collections import Counter
from dataclasses import replace
from uuid import UUID

import pytest

from headrace.cluster.controller import Event, decide
from headrace.cluster.topics import (
    default_replication_factor,
    initial_replication_factor,
    internal_replication_factors,
    place,
    with_given_factors,
)
from headrace.config.broker import broker_settings
from headrace.model.ids import BrokerId, LeaderEpoch, TopicId, TopicName
from headrace.model.image import (
    INTERNAL_REPLICAS,
    INTERNAL_TOPICS,
    OFFSETS_TOPIC,
    QUEUE_STATE_TOPIC,
    BrokerInfo,
    ClusterImage,
    Endpoint,
    PartitionState,
    TopicImage,
)


def a_cluster(*brokers: tuple[str, str | None]) -> ClusterImage:
    """Brokers by host and rack."""
    infos = [
        BrokerInfo(BrokerId(number), Endpoint(host, 9092 + number), rack=rack)
        for number, (host, rack) in enumerate(brokers)
    ]
    return ClusterImage("c", BrokerId(0), {info.broker_id: info for info in infos}, {}, {}, {}, 1)


@pytest.mark.parametrize(
    ("brokers", "expected"),
    [
        ([("a", None)], 1),
        ([("a", None), ("b", None)], 2),
        ([("localhost", None)] * 4, 3),
        ([("a", "zone"), ("b", "zone"), ("c", "zone")], 3),
        ([("localhost", "r1"), ("localhost", "r2"), ("localhost", "r3")], 3),
        ([("a", "a")] * 4, 1),
        ([("a", "a"), ("a", "a"), ("b", "b"), ("b", "b")], 2),
        ([(host, host) for host in "abcd" for _ in range(2)], 3),
    ],
)
def test_the_workers_of_a_machine_count_as_one_broker(brokers: list[tuple[str, str | None]], expected: int) -> None:
    assert default_replication_factor(a_cluster(*brokers), broker_settings({})) == expected


def test_what_was_set_counts() -> None:
    settings = broker_settings({"default.replication.factor": "2"})
    assert default_replication_factor(a_cluster(("a", "a"), ("a", "a")), settings) == 2


def test_each_internal_topic_has_a_number_of_replicas_and_no_more_than_there_are_machines() -> None:
    settings = broker_settings({"offsets.topic.replication.factor": "5"})
    assert internal_replication_factors(settings) == dict.fromkeys(INTERNAL_TOPICS, 3) | {OFFSETS_TOPIC: 5}

    def created(image: ClusterImage) -> set[int]:
        return {initial_replication_factor(image, settings, topic) for topic in INTERNAL_REPLICAS}

    assert created(a_cluster(*[("a", None)] * 4)) == {3, 4}
    assert created(a_cluster(("a", None))) == {1}
    workers = a_cluster(*[("a", "a")] * 4)
    assert {initial_replication_factor(workers, broker_settings({}), topic) for topic in INTERNAL_REPLICAS} == {1}
    # One that was set counts brokers.
    assert initial_replication_factor(workers, settings, OFFSETS_TOPIC) == 4
    assert created(workers) == {1, 4}
    two = a_cluster(*[("a", "zone")] * 2, *[("b", "zone")] * 2)
    assert initial_replication_factor(two, settings, QUEUE_STATE_TOPIC) == 2


@pytest.mark.parametrize(
    ("brokers", "replicas", "expected"),
    [
        # The workers of one machine: there is nowhere else to go.
        ([("a", "a"), ("a", "a")], (0,), None),
        # A second machine gets one, though its other worker and that of the first one have less to do.
        ([("a", "a"), ("a", "a"), ("b", "b"), ("b", "b")], (0,), 1),
        ([("a", "zone"), ("a", "zone"), ("b", "zone"), ("b", "zone")], (0,), 1),
        ([("a", "zone"), ("a", "zone"), ("b", "zone"), ("b", "zone"), ("c", "zone")], (1,), 2),
        ([("a", None), ("a", None), ("a", None)], (2,), 2),
    ],
)
def test_an_internal_topic_grows_onto_other_machines(
    brokers: list[tuple[str, str | None]], replicas: tuple[int, ...], expected: int | None
) -> None:
    image = a_cluster(*brokers)
    held = tuple(map(BrokerId, replicas))
    state = PartitionState(held[0], LeaderEpoch(0), held, held)
    topic = TopicImage(QUEUE_STATE_TOPIC, TopicId(UUID(int=1)), (state,))
    image = replace(image, topics={topic.name: topic}, topic_names={topic.topic_id: topic.name})
    moves = decide(image, Event(), {QUEUE_STATE_TOPIC: 3}).partitions
    if expected is None:
        assert not moves
        return
    (move,) = moves.values()
    hosts = [brokers[broker] for broker in move.replicas]
    assert len(move.adding) == expected
    assert brokers[0][1] is None or len(set(hosts)) == len(hosts)


def test_a_factor_that_was_set_grows_on_one_machine() -> None:
    image = a_cluster(("a", "a"), ("a", "a"), ("a", "a"))
    held = (BrokerId(1),)
    topic = TopicImage(OFFSETS_TOPIC, TopicId(UUID(int=1)), (PartitionState(held[0], LeaderEpoch(0), held, held),))
    image = replace(image, topics={topic.name: topic}, topic_names={topic.topic_id: topic.name})
    given = with_given_factors(broker_settings({"offsets.topic.replication.factor": "2"}))
    assert given == {OFFSETS_TOPIC}
    (move,) = decide(image, Event(), {OFFSETS_TOPIC: 2}, on_any_brokers=given).partitions.values()
    assert len(move.adding) == 1
    assert not decide(image, Event(), {OFFSETS_TOPIC: 2}).partitions


def test_replicas_of_one_rack_are_on_different_machines() -> None:
    image = a_cluster(*[("a", "zone")] * 3, *[("b", "zone")] * 3, *[("c", "zone")] * 3)
    for replicas in place(image, TopicName("t"), 30, 3):
        assert {image.brokers[BrokerId(broker)].endpoint.host for broker in replicas} == {"a", "b", "c"}


def test_leaders_of_an_internal_topic_are_spread_over_the_workers() -> None:
    leaders = Counter(replicas[0] for replicas in place(a_cluster(*[("a", "a")] * 4), QUEUE_STATE_TOPIC, 16, 1))
    assert leaders == dict.fromkeys(range(4), 4)


def test_internal_topics_grow_onto_other_racks() -> None:
    image = a_cluster(("h0", "east"), ("h1", "east"), ("h2", "west"))
    state = PartitionState(BrokerId(0), LeaderEpoch(0), (BrokerId(0),), (BrokerId(0),))
    topic = TopicImage(QUEUE_STATE_TOPIC, TopicId(UUID(int=1)), (state,) * 8)
    image = replace(image, topics={topic.name: topic}, topic_names={topic.topic_id: topic.name})
    moves = decide(image, Event(), {QUEUE_STATE_TOPIC: 2}).partitions
    assert moves
    assert {move.replicas for move in moves.values()} == {(0, 2)}
