"""`headrace txn` against a real broker."""

import json
from collections.abc import Callable
from uuid import uuid4

import pytest
from confluent_kafka import KafkaException, Producer

from headrace import Client

from . import raw_client
from . import test_wire_transactions as wire_transactions
from .quick import broker  # noqa: F401
from .subject import Subject
from .test_cli_groups import Run, run  # noqa: F401


@pytest.fixture
def open_transaction(broker: Subject) -> Callable[[str], tuple[str, Producer]]:
    def begin(topic: str) -> tuple[str, Producer]:
        name = f"txn-{uuid4().hex[:8]}"
        producer = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": name})
        producer.init_transactions(60)
        producer.begin_transaction()
        producer.produce(topic, b"in doubt", partition=0)
        producer.flush(60)
        return name, producer

    return begin


def test_a_transaction_is_listed_described_and_aborted(
    broker: Subject, run: Run, topic: str, open_transaction: Callable[[str], tuple[str, Producer]]
) -> None:
    name, producer = open_transaction(topic)
    listed = {each["transactional_id"]: each["state"] for each in json.loads(run("txn", "list", "--json"))}
    assert listed[name] == "Ongoing"
    assert name in run("txn", "list", "--open")
    description = json.loads(run("txn", "describe", name, "--json"))
    assert description["partitions"] == [[topic, 0]]
    assert description["timeout_ms"] == 60_000
    assert "Open for" in run("txn", "describe", name)

    assert "--yes" in run("txn", "abort", name, fails=True)
    assert "Aborted" in run("txn", "abort", name, "--yes")
    assert "nothing was done" in run("txn", "abort", name, "--yes")
    assert name not in run("txn", "list", "--open")
    with pytest.raises(KafkaException):
        producer.commit_transaction(60)
    with Client(broker.bootstrap) as client:
        client.publish(topic, "certain")
        assert [message.text for message in client.replay(topic)] == ["certain"]


def test_a_transaction_in_two_phase_commit_is_aborted(broker: Subject, run: Run, topic: str) -> None:
    name = f"txn-{uuid4().hex[:8]}"
    with raw_client.Connection(broker.bootstrap) as connection:
        producer = wire_transactions.Producer(connection, topic, name)
        assert producer.init(6, enable2_pc=True) == raw_client.Error.none
        assert producer.produce(b"in doubt", 12) == raw_client.Error.none
        assert "without a limit" in run("txn", "describe", name)
        assert "Aborted" in run("txn", "abort", name, "--yes")
        assert producer.end(5) == raw_client.Error.producer_fenced


def test_an_id_that_is_not_there(run: Run) -> None:
    for command in (("describe",), ("abort", "--yes")):
        assert "there is no transactional id nobody" in run("txn", *command, "nobody", fails=True)
