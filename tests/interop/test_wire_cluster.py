"""ElectLeaders, reassignments of partitions and ListConfigResources to the letter, as a cluster of one node answers."""

from collections.abc import Callable

import pytest

from . import raw_client
from .subject import Subject

Error = raw_client.Error
TOPIC, BROKER, CLIENT_METRICS, GROUP = 2, 4, 16, 32


@pytest.mark.parametrize("version", [0, 1, 2])
def test_no_election_is_needed(version: int, connection: raw_client.Connection, topic: str) -> None:
    raw_client.wait_topic(connection, topic, 1)
    asked = [{"topic": topic, "partitions": [0, 7]}, {"topic": "none-such", "partitions": [0]}]
    answer = connection.call(raw_client.ELECT_LEADERS, version, topic_partitions=asked, timeout=10_000)
    found = {
        (one.topic, part.partition_id): part.error_code
        for one in answer.replica_election_results
        for part in one.partition_result
    }
    assert found == {
        (topic, 0): Error.election_not_needed,
        (topic, 7): Error.unknown_topic_or_partition,
        ("none-such", 0): Error.unknown_topic_or_partition,
    }


def test_all_partitions_that_need_an_election_are_none(connection: raw_client.Connection, topic: str) -> None:
    raw_client.wait_topic(connection, topic, 1)
    for election_type in (0, 1):
        answer = connection.call(
            raw_client.ELECT_LEADERS, 2, election_type=election_type, topic_partitions=None, timeout=10_000
        )
        assert answer.error_code == Error.none
        assert not any(one.partition_result for one in answer.replica_election_results)


def test_an_election_of_a_type_there_is_not(connection: raw_client.Connection, topic: str) -> None:
    answer = connection.call(raw_client.ELECT_LEADERS, 2, election_type=5, topic_partitions=None, timeout=10_000)
    assert answer.error_code == Error.invalid_request


def test_nothing_moves(connection: raw_client.Connection, topic: str) -> None:
    for topics in (None, [{"name": topic, "partition_indexes": [0, 7]}], [{"name": "none", "partition_indexes": [0]}]):
        answer = connection.call(raw_client.LIST_PARTITION_REASSIGNMENTS, 0, topics=topics, timeout=10_000)
        assert (answer.error_code, answer.topics) == (Error.none, ())


@pytest.mark.parametrize("version", [0, 1])
def test_a_partition_can_only_stay_where_it_is(version: int, connection: raw_client.Connection, topic: str) -> None:
    raw_client.wait_topic(connection, topic, 1)
    broker_id = connection.call(raw_client.METADATA, 9, topics=[]).brokers[0].node_id

    def move(name: str, partition: int, replicas: list[int] | None) -> Error:
        topics = [{"name": name, "partitions": [{"partition_index": partition, "replicas": replicas}]}]
        answer = connection.call(raw_client.ALTER_PARTITION_REASSIGNMENTS, version, topics=topics, timeout=10_000)
        assert answer.error_code == Error.none
        ((found,),) = [one.partitions for one in answer.responses]
        assert found.partition_index == partition
        return found.error_code

    assert move(topic, 0, [broker_id]) == Error.none
    assert move(topic, 0, None) == Error.no_reassignment_in_progress
    assert move(topic, 0, [broker_id + 1]) == Error.invalid_replica_assignment
    assert move(topic, 0, [broker_id, broker_id]) == Error.invalid_replica_assignment
    assert move(topic, 0, []) == Error.invalid_replica_assignment
    assert move(topic, 7, [broker_id]) == Error.unknown_topic_or_partition
    assert move("none-such", 0, [broker_id]) == Error.unknown_topic_or_partition


def test_what_has_settings(own_broker: Callable[..., Subject]) -> None:
    """On a broker of its own: other tests give groups settings."""
    broker, topic = own_broker(), "configured"
    raw_client.create_topic(broker.bootstrap, topic, 1)
    with raw_client.Connection(broker.bootstrap) as connection:
        check_what_has_settings(connection, topic)


def check_what_has_settings(connection: raw_client.Connection, topic: str) -> None:
    broker_id = str(connection.call(raw_client.METADATA, 9, topics=[]).brokers[0].node_id)

    def listed(*types: int) -> set[tuple[int, str]]:
        answer = connection.call(raw_client.LIST_CONFIG_RESOURCES, 1, resource_types=list(types))
        assert answer.error_code == Error.none
        return {(one.resource_type, one.resource_name) for one in answer.config_resources}

    assert listed(BROKER) == {(BROKER, broker_id)}
    assert (TOPIC, topic) in listed(TOPIC)
    assert {(TOPIC, topic), (BROKER, broker_id)} <= listed()
    assert listed(CLIENT_METRICS, GROUP) == set()
    assert connection.call(raw_client.LIST_CONFIG_RESOURCES, 0).config_resources == ()
    assert (
        connection.call(raw_client.LIST_CONFIG_RESOURCES, 1, resource_types=[3]).error_code == Error.unsupported_version
    )
