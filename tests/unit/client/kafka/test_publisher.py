"""The first message of a producer."""

from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from headrace.client.kafka import publisher
from headrace.client.kafka.publisher import Publisher
from headrace.client.outgoing import Outgoing
from headrace.client.partitioners import by_key


class _Producer:
    """Notes what is asked of it, in order."""

    def __init__(self, config: dict[str, Any]) -> None:
        self.asked: list[str] = []
        self.fails = False

    def list_topics(self, topic: str, timeout_s: float) -> None:
        self.asked.append(f"list {topic}")
        if self.fails:
            raise KafkaException(KafkaError(KafkaError._TRANSPORT))

    def produce(self, topic: str, *args: Any, **more: Any) -> None:
        self.asked.append(f"produce {topic}")

    def poll(self, timeout_s: float) -> int:
        return 0

    flush = poll

    def purge(self) -> None: ...


def _made(monkeypatch: pytest.MonkeyPatch, **config: str) -> tuple[Publisher, _Producer]:
    monkeypatch.setattr(publisher, "Producer", _Producer)
    made = Publisher({"bootstrap.servers": "here:1", **config}, by_key, "/test")
    producer: Any = made.producer
    return made, producer


def test_the_first_message_lets_librdkafka_connect_before_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without it, librdkafka's timer makes the first message wait for 500 to 1,000 ms."""
    made, producer = _made(monkeypatch)
    for _ in range(2):
        made.send(Outgoing("orders", "x"), is_awaited=False)
    made.discard()
    assert producer.asked == ["list orders", "list orders", "produce orders", "produce orders"]


def test_a_message_is_queued_all_the_same_where_nobody_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    made, producer = _made(monkeypatch)
    producer.fails = True
    made.send(Outgoing("orders", "x"), is_awaited=False)
    made.discard()
    assert producer.asked[-1] == "produce orders"


def test_a_transactional_producer_has_its_id_already(monkeypatch: pytest.MonkeyPatch) -> None:
    made, producer = _made(monkeypatch, **{"transactional.id": "t"})
    made.send(Outgoing("orders", "x"), is_awaited=False)
    made.discard()
    assert producer.asked == ["produce orders"]
