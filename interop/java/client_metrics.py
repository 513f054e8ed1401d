"""Metrics that Java's clients push (KIP-714), and `kafka-client-metrics.sh`, which subscribes to them."""

import json
import urllib.request
from typing import Any

from apache import Java
from report import Report, expect
from tests.waiting import until

from headrace.testing.process import BrokerProcess

_COMMAND = "org.apache.kafka.tools.ClientMetricsCommand"
_PRODUCE = "org.apache.kafka.tools.ProducerPerformance"
_CLIENT = "java-shop"


def check_client_metrics(report: Report, java: Java, broker: BrokerProcess) -> None:
    def tool(*arguments: str) -> str:
        ran = java.run(_COMMAND, "--bootstrap-server", broker.bootstrap, *arguments)
        expect(ran.code == 0, str(ran))
        return ran.out

    with report.check("kafka-client-metrics.sh makes, lists and describes a subscription"):
        tool("--alter", "--name", "java", "--metrics", "*", "--interval", "500", "--match", f"client_id={_CLIENT}.*")
        expect("java" in tool("--list"), "it is not listed")
        described = tool("--describe", "--name", "java")
        expect("interval.ms=500" in described, described)
        expect(f"client_id={_CLIENT}.*" in described, described)

    with report.check("a Java producer pushes its metrics while it runs, and once more when it ends"):
        properties = (f"bootstrap.servers={broker.bootstrap}", f"client.id={_CLIENT}")
        ran = java.run(
            _PRODUCE, "--topic", "pushing", "--num-records", "400", "--record-size", "100", "--throughput", "100",
            "--producer-props", *properties,
        )  # fmt: skip
        expect(ran.code == 0, str(ran))
        client = until(lambda: _client(broker))
        expect(client["pushes"] >= 2, str(client))
        expect(client["software"].startswith("apache-kafka-java "), str(client))
        found = _get(broker, f"/client-metrics/{client['client_instance_id']}")["metrics"]
        sent = [each["value"] for each in found if each["name"] == "org.apache.kafka.producer.record.send.total"]
        names = sorted({each["name"] for each in found})
        # A counter is pushed as deltas, and added up.
        expect(sent == [400.0], f"{sent}: {names}")

    with report.check("kafka-client-metrics.sh deletes a subscription"):
        tool("--delete", "--name", "java")
        expect(_get(broker, "/client-subscriptions") == [], "it is still there")


def _client(broker: BrokerProcess) -> Any:
    return next((each for each in _get(broker, "/client-metrics")["items"] if each["client_id"] == _CLIENT), None)


def _get(broker: BrokerProcess, path: str) -> Any:
    with urllib.request.urlopen(f"{broker.http_url}/api/v1{path}", timeout=60) as answer:
        return json.load(answer)
