"""A former source that is killed again and again while it becomes a mirror: nothing that was not copied is lost."""

import json
import random
from contextlib import closing, suppress
from http.client import HTTPException
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from headrace.testing.process import BrokerProcess
from tests.faults.test_link_kill import log_of
from tests.waiting import until

FAST = {"link.refresh.interval.ms": 100, "replica.fetch.wait.max.ms": 100}
PARTITIONS, COPIED, DIVERGENT, KILLS = 3, 300, 30_000, 6


def call(broker: BrokerProcess, method: str, path: str, value: object = None, timeout_s: float = 90) -> Any:
    body = None if value is None else json.dumps(value).encode()
    request = Request(f"{broker.http_url}/api/v1{path}", body, {"Content-Type": "application/json"}, method=method)
    with urlopen(request, timeout=timeout_s) as answer:
        text = answer.read()
    return json.loads(text) if text else None


def link(here: BrokerProcess, name: str, there: BrokerProcess) -> None:
    call(here, "POST", "/links", {"name": name, "bootstrap": [there.bootstrap], "topics": ["orders"]})


def produce(broker: BrokerProcess, count: int, text: str) -> dict[tuple[int, int], bytes]:
    """Send messages; returns their values by partition and offset."""
    found: dict[tuple[int, int], bytes] = {}

    def delivered(error: KafkaError | None, message: Message) -> None:
        assert error is None, error
        found[message.partition() or 0, message.offset() or 0] = message.value() or b""

    producer = Producer({"bootstrap.servers": broker.bootstrap, "enable.idempotence": True, "linger.ms": 5})
    for number in range(count):
        producer.produce("orders", f"{text} {number}".ljust(700), on_delivery=delivered)
        producer.poll(0)
    assert producer.flush(90) == 0
    assert len(found) == count
    return found


def topic(broker: BrokerProcess, name: str) -> dict[str, Any] | None:
    topics: list[dict[str, Any]] = call(broker, "GET", f"/links/{name}")["topics"]
    return topics[0] if topics else None


def set_aside(broker: BrokerProcess) -> dict[tuple[int, int], set[bytes]]:
    """The values in the divergent topic, by the partition and offset that their headers name."""
    found: dict[tuple[int, int], set[bytes]] = {}
    ended = set[int]()
    settings = {"bootstrap.servers": broker.bootstrap, "group.id": "all", "enable.partition.eof": True}
    with closing(Consumer({**settings, "enable.auto.commit": False})) as consumer:
        consumer.assign([TopicPartition("orders.divergent", index, 0) for index in range(PARTITIONS)])
        while len(ended) < PARTITIONS:
            for message in consumer.consume(1000, timeout=1):
                error = message.error()
                if error is not None:
                    assert error.code() == KafkaError._PARTITION_EOF, error
                    ended.add(message.partition() or 0)
                    continue
                headers = dict(message.headers() or [])
                assert headers["headrace.divergent.topic"] == b"orders"
                partition, offset = (int(headers[f"headrace.divergent.{each}"]) for each in ("partition", "offset"))
                assert partition == message.partition()
                found.setdefault((partition, offset), set()).add(message.value() or b"")
    return found


def test_nothing_is_lost_if_a_former_source_is_killed_while_it_is_reversed(tmp_path: Path) -> None:
    chance = random.Random(95)
    first = BrokerProcess(tmp_path / "first", settings={**FAST, "log.segment.bytes": 1 << 20})
    second = BrokerProcess(tmp_path / "second", settings=FAST)
    try:
        first.start()
        second.start()
        admin = AdminClient({"bootstrap.servers": first.bootstrap})
        admin.create_topics([NewTopic("orders", PARTITIONS)])["orders"].result(60)
        produce(first, COPIED, "copied")
        link(second, "first", first)
        until(lambda: (topic(second, "first") or {}).get("lag_messages") == 0)
        call(second, "PUT", "/links/first/paused", {"is_paused": True})
        divergent = produce(first, DIVERGENT, "divergent")
        call(second, "POST", "/mirrors/orders/failover", {})
        produce(second, COPIED, "later")
        link(first, "second", second)
        planned = call(first, "POST", "/links/second/reverse", {"topic": "orders", "dry_run": True})
        assert planned["set_aside"] == DIVERGENT

        states = []
        for _ in range(KILLS):
            with suppress(HTTPError, HTTPException, OSError):
                wanted = {"topic": "orders", "timeout_s": 0.02 + chance.random() / 3}
                call(first, "POST", "/links/second/reverse", wanted)
            first.restart(kill=True)
            states.append((topic(first, "second") or {}).get("state"))
        print(states)
        done = call(first, "POST", "/links/second/reverse", {"topic": "orders"})
        assert (done["is_complete"], done["set_aside"]) == (True, DIVERGENT)
        for _ in range(3):
            first.restart(kill=True)  # It truncates, and begins to copy.
        for index in range(PARTITIONS):
            until(lambda at=index: log_of(first.data_dir, at) == log_of(second.data_dir, at))  # type: ignore[misc]
        found = set_aside(first)
        assert found == {place: {value} for place, value in divergent.items()}
    finally:
        first.close()
        second.close()
