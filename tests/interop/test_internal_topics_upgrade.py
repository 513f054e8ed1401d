"""Groups and transactional ids of 0.1: found by the current version, and rewritten once the feature level rises."""

from collections.abc import Iterable
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from headrace.model.features import FEATURE, LATEST_LEVEL
from headrace.testing.process import BrokerProcess
from headrace.wire import Cluster
from tests.earlier_versions import environment_of
from tests.waiting import until

from . import subject
from .group_clients import TIMEOUT_S, produce
from .test_internal_topics import Message, messages

pytestmark = pytest.mark.skipif(not subject.IS_HEADRACE, reason="about versions of Headrace")

GROUPS = [f"group-{number}" for number in range(20)]
OFFSETS, TRANSACTIONS = "__consumer_offsets", "__transaction_state"
SETTINGS = {"offsets.topic.num.partitions": 3, "transaction.state.log.num.partitions": 3}


def commit(bootstrap: str, groups: Iterable[str], offset: int) -> None:
    for group in groups:
        one = Consumer({"bootstrap.servers": bootstrap, "group.id": group})
        one.commit(offsets=[TopicPartition("t", 0, offset)], asynchronous=False)
        one.close()


def committed(bootstrap: str) -> dict[str, int]:
    found = {}
    for group in GROUPS:
        one = Consumer({"bootstrap.servers": bootstrap, "group.id": group})
        found[group] = one.committed([TopicPartition("t", 0)], timeout=TIMEOUT_S)[0].offset
        one.close()
    return found


def transact(bootstrap: str, transactional_id: str) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": transactional_id})
    producer.init_transactions(TIMEOUT_S)
    producer.begin_transaction()
    producer.produce("t", b"x", partition=0)
    producer.commit_transaction(TIMEOUT_S)


def is_kafkas(message: Message) -> bool:
    return message.key[0] == 0


def old_values(bootstrap: str, topic: str) -> set[bytes]:
    """The keys that have a value in the format of 0.1, but for the marker."""
    last = {message.key: message.value for message in messages(bootstrap, topic) if not is_kafkas(message)}
    return {key for key, value in last.items() if value is not None and b"format" not in key}


def test_from_0_1_to_kafkas_records(tmp_path: Path) -> None:
    broker = BrokerProcess(tmp_path / "data", settings=SETTINGS, env=environment_of("0.1", tmp_path))
    with broker:
        produce(broker.bootstrap, "t", range(10), partitions=1)
        commit(broker.bootstrap, GROUPS, 3)
        for number in range(5):
            transact(broker.bootstrap, f"id-{number}")
        broker.terminate()
        broker.env = {}
        broker.start()
        assert committed(broker.bootstrap) == dict.fromkeys(GROUPS, 3)
        commit(broker.bootstrap, GROUPS[:10], 4)
        transact(broker.bootstrap, "id-0")
        for topic in (OFFSETS, TRANSACTIONS):
            assert not any(map(is_kafkas, messages(broker.bootstrap, topic))), "0.1 must be able to read it"

        with Cluster(broker.bootstrap) as cluster:
            cluster.upgrade_feature(FEATURE, LATEST_LEVEL)
        for topic in (OFFSETS, TRANSACTIONS):
            until(lambda topic=topic: not old_values(broker.bootstrap, topic), f"{topic} is rewritten")  # type: ignore[misc]
        expected = dict.fromkeys(GROUPS[:10], 4) | dict.fromkeys(GROUPS[10:], 3)
        assert committed(broker.bootstrap) == expected
        commit(broker.bootstrap, GROUPS[5:15], 5)
        transact(broker.bootstrap, "id-1")
        broker.kill()
        broker.start()
        assert committed(broker.bootstrap) == expected | dict.fromkeys(GROUPS[5:15], 5)
        transact(broker.bootstrap, "id-1")
        transact(broker.bootstrap, "id-4")
        assert {message.key[0] for message in messages(broker.bootstrap, TRANSACTIONS)} == {0, 0x91, 0x92}
