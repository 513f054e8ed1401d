"""Metrics that real clients push to a broker (KIP-714): librdkafka, and what shows them."""

import json
import subprocess
import sys
import urllib.request
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer

from headrace.testing.process import BrokerProcess
from tests.waiting import until


def run(broker: BrokerProcess, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "headrace", "clients", *arguments, "--bootstrap", broker.bootstrap],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def headrace(broker: BrokerProcess, *arguments: str) -> str:
    done = run(broker, *arguments)
    assert done.returncode == 0, done.stderr
    return done.stdout


def get(broker: BrokerProcess, path: str) -> Any:
    with urllib.request.urlopen(f"{broker.http_url}{path}", timeout=60) as answer:
        return answer.read().decode()


def asked(broker: BrokerProcess) -> list[dict[str, Any]]:
    """The clients that have asked what to push."""
    found: list[dict[str, Any]] = json.loads(get(broker, "/api/v1/client-metrics"))["items"]
    return found


def clients(broker: BrokerProcess) -> dict[str, dict[str, Any]]:
    """Those that push metrics."""
    return {each["client_id"]: each for each in asked(broker)}


@pytest.fixture
def broker(tmp_path):
    with BrokerProcess(tmp_path / "data") as one:
        yield one


def test_librdkafka_pushes_what_is_subscribed(broker):
    headrace(broker, "subscribe", "shop", "--interval-ms", "200", "--match", "client_id=shop.*")
    (subscription,) = json.loads(get(broker, "/api/v1/client-subscriptions"))
    assert subscription == {"name": "shop", "metrics": ["*"], "interval_ms": 200, "match": ["client_id=shop.*"]}
    common = {"bootstrap.servers": broker.bootstrap}
    producer = Producer({**common, "client.id": "shop-producer"})
    consumer = Consumer({**common, "client.id": "shop-consumer", "group.id": "g", "auto.offset.reset": "earliest"})
    other = Producer({**common, "client.id": "other"})
    try:
        consumer.subscribe(["orders"])
        for _ in range(100):
            producer.produce("orders", b"x" * 100)
        assert producer.flush(60) == 0
        until(lambda: consumer.poll(1.0))
        other.list_topics(timeout=60)

        def have_pushed() -> bool:
            consumer.poll(0.1)
            producer.poll(0)
            known = clients(broker)
            return "other" in known and all(
                known.get(f"shop-{each}", {}).get("pushes", 0) >= 2 for each in ("producer", "consumer")
            )

        until(have_pushed, lambda: str(clients(broker)))
        found = clients(broker)
        assert found["other"]["pushes"] == 0
        assert found["other"]["requested"] == []
        assert found["shop-producer"]["requested"] == [""]
        assert found["shop-producer"]["values"] > 0
        assert found["shop-producer"]["software"].startswith("confluent-kafka-python")

        pushed = json.loads(headrace(broker, "show", "shop-producer", "--json"))
        names = {each["name"] for each in pushed["metrics"]}
        assert {name for name in names if name.startswith("org.apache.kafka.producer.")}
        assert "shop-producer" in headrace(broker, "list", "--metrics")
        text = get(broker, "/metrics")
        assert 'headrace_client_pushes_total{result="NONE"}' in text
        assert 'headrace_client_metric_clients{metric="org.apache.kafka.producer.' in text

        # With other metrics it has another subscription, which the client asks for by itself.
        headrace(broker, "subscribe", "shop", "--metrics", "org.apache.kafka.consumer", "--interval-ms", "100")
        until(lambda: clients(broker)["shop-producer"]["requested"] == ["org.apache.kafka.consumer"])
        headrace(broker, "unsubscribe", "shop")
        assert json.loads(get(broker, "/api/v1/client-subscriptions")) == []
        again = run(broker, "unsubscribe", "shop")
        assert again.returncode == 1
        assert "there is no subscription shop" in again.stderr
    finally:
        consumer.close()


_PROGRAM = """
import sys
from confluent_kafka import Consumer, Producer
common = {"bootstrap.servers": sys.argv[1]}
producer = Producer(common)
producer.produce("orders", b"x")
producer.flush(60)
consumer = Consumer({**common, "group.id": "g", "auto.offset.reset": "earliest"})
consumer.subscribe(["orders"])
print(consumer.poll(60).value(), flush=True)
sys.stdin.read()
consumer.close()
"""


def test_a_program_with_default_settings_prints_nothing_about_metrics(broker):
    """librdkafka logs the client instance id that it is given with any subscription id but 0."""
    program = subprocess.Popen(
        [sys.executable, "-c", _PROGRAM, broker.bootstrap],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    with program:
        try:
            # Both ask, and asking is when it would be printed.
            until(lambda: len(asked(broker)) == 2, lambda: str(asked(broker)))
            stdout, stderr = program.communicate(timeout=60)
        finally:
            program.kill()
    assert (stdout, stderr) == ("b'x'\n", "")


def test_a_client_that_does_not_push_works_as_before(broker):
    producer = Producer({"bootstrap.servers": broker.bootstrap, "client.id": "silent", "enable.metrics.push": False})
    producer.produce("orders", b"x")
    assert producer.flush(60) == 0
    assert "silent" not in clients(broker)
    found = {each["client_id"]: each for each in json.loads(headrace(broker, "list", "--json"))}
    silent = found["silent"]
    assert silent["software"].startswith("confluent-kafka-python")
    assert (silent["address"], silent["principal"], silent["brokers"]) == ("127.0.0.1", "User:ANONYMOUS", [0])
    assert silent["client_instance_ids"] == []
    assert silent["connections"] >= 1
    assert silent["requests"] >= 2
    assert silent["received_bytes"] > 100
    assert silent["sent_bytes"] > 100
    assert "silent" in headrace(broker, "list")
