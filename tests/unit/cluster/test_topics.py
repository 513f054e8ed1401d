"""How many replicas a topic gets that was created without saying so, or by the brokers themselves."""

import pytest

from headrace.cluster.topics import default_replication_factor, initial_replication_factor, internal_replication_factors
from headrace.config.broker import broker_settings
from headrace.model.ids import BrokerId
from headrace.model.image import INTERNAL_REPLICAS, INTERNAL_TOPICS, OFFSETS_TOPIC, BrokerInfo, ClusterImage, Endpoint


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


def test_each_internal_topic_has_a_number_of_replicas_and_no_more_than_there_are_brokers() -> None:
    settings = broker_settings({"offsets.topic.replication.factor": "5"})
    assert internal_replication_factors(settings) == dict.fromkeys(INTERNAL_TOPICS, 3) | {OFFSETS_TOPIC: 5}
    image = a_cluster(*[("a", "a")] * 4)
    assert {initial_replication_factor(image, settings, topic) for topic in INTERNAL_REPLICAS} == {3, 4}
    alone = a_cluster(("a", None))
    assert {initial_replication_factor(alone, settings, topic) for topic in INTERNAL_REPLICAS} == {1}
