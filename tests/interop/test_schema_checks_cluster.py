"""Schema validation in a cluster: the leader of a topic is another broker than the leader of the registry."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient

from headrace.testing.cluster import ClusterProcesses
from tests.waiting import until

from . import batches, raw_client
from .test_registry import RegistryClient
from .test_schema_checks import ORDER, framed, problems

pytestmark = pytest.mark.slow

Error = raw_client.Error
TOPIC = "orders"


def leader_of(cluster: ClusterProcesses, topic: str) -> int:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    return int(admin.list_topics(topic, 30).topics[topic].partitions[0].leader)


@contextmanager
def checked_topic(cluster: ClusterProcesses, broker_id: int) -> Iterator[raw_client.Connection]:
    """A connection to the one broker that has the topic."""
    with raw_client.Connection(cluster.brokers[broker_id].bootstrap) as connection:
        topic = {
            "name": TOPIC,
            "num_partitions": -1,
            "replication_factor": -1,
            "assignments": [{"partition_index": 0, "broker_ids": [broker_id]}],
            "configs": [{"name": "value.schema.validation", "value": "payload"}],
        }
        answer = connection.call(raw_client.CREATE_TOPICS, 7, topics=[topic], timeout=60_000)
        assert answer.topics[0].error_code == Error.none, answer.topics[0]
        raw_client.wait_topic(connection, TOPIC, 1)
        yield connection


def test_another_broker_leads_the_registry_and_is_killed(tmp_path: Path) -> None:
    with ClusterProcesses(tmp_path, brokers=3) as cluster:
        clients = {each: RegistryClient(f"{broker.http_url}/registry") for each, broker in cluster.brokers.items()}
        number = clients[1].register(f"{TOPIC}-value", ORDER)
        registry_leader = leader_of(cluster, "_schemas")
        other = next(each for each in cluster.brokers if each != registry_leader)
        with checked_topic(cluster, other) as connection:

            def produce(schema: int) -> Error:
                answer = raw_client.produce(connection, TOPIC, batches.batch([framed(schema)]))
                assert answer.error_code != Error.invalid_record or [*problems(answer)] == [0]
                return Error(answer.error_code)

            assert produce(number) == Error.none
            assert produce(number + 1) == Error.invalid_record
            # Registered on any broker, it is known on all of them at once.
            new = clients[registry_leader].register(f"{TOPIC}-value", {**ORDER, "doc": "new"})
            assert produce(new) == Error.none

            cluster.kill(registry_leader)
            began = time.monotonic()
            while time.monotonic() - began < 3:
                assert produce(number) == Error.none, "what is known passes while the registry has no leader"
            began = time.monotonic()
            assert produce(new + 1) in (Error.not_enough_replicas, Error.invalid_record)
            assert time.monotonic() - began < 15, "a produce does not wait for ever"
            until(lambda: produce(new + 1) == Error.invalid_record, "a new leader of the registry")
            late = clients[other].register(f"{TOPIC}-value", {**ORDER, "doc": "late"})
            assert produce(late) == Error.none
            found = raw_client.fetch(connection, TOPIC).records
        stored = batches.values(found)
        assert {value[4] for value in stored if value is not None} == {number, new, late}
