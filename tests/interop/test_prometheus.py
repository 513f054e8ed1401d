"""What a broker serves to Prometheus: promtool accepts it, and it has all that the boards show."""

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from urllib.request import ProxyHandler, build_opener

import pytest
from confluent_kafka import Consumer

from headrace import Client
from headrace.monitor.health.alert_rules import METRIC
from headrace.testing import Broker
from tests.interop import grafana

needs_promtool = pytest.mark.skipif(shutil.which("promtool") is None, reason="needs promtool")
DEPLOY = Path(__file__).parents[2] / "deploy"

KAFKA_EXPORTER = """
sum(rate(kafka_topic_partition_current_offset{topic=~".*"}[1m])) by (topic)
sum(rate(kafka_consumergroup_current_offset{topic=~".*"}[1m])) by (consumergroup, topic)
sum(kafka_consumergroup_lag{topic=~".*"}) by (consumergroup, topic)
sum by (topic) (kafka_topic_partitions{topic=~".*"})
sum(kafka_topic_partition_current_offset) - sum(kafka_topic_partition_oldest_offset)
sum(kafka_topic_partition_under_replicated_partition)
kafka_brokers
kafka_topic_partition_in_sync_replica
kafka_topic_partition_leader
kafka_topic_partition_leader_is_preferred
kafka_topic_partition_replicas
kafka_consumergroup_current_offset_sum
kafka_consumergroup_lag_sum
kafka_consumergroup_members
kafka_broker_info
"""
"""What the boards for kafka_exporter show (Grafana 7589), and its other metrics."""


@pytest.fixture(scope="module")
def scrape() -> Iterator[str]:
    """The metrics of a broker that has served producers, consumers and queues."""
    with Broker() as broker, Client(broker.bootstrap) as client:
        client.publish("orders", "tea")
        consumer = Consumer(
            {"bootstrap.servers": broker.bootstrap, "group.id": "billing", "auto.offset.reset": "earliest"}
        )
        consumer.subscribe(["orders"])
        assert consumer.consume(1, 60)
        consumer.commit(asynchronous=False)
        consumer.close()
        queue = client.queue("mail")
        queue.create()
        queue.send("hello")
        for message in queue.receive():
            message.ack()
        opener = build_opener(ProxyHandler({}))
        with opener.open(f"{broker.http_url}/metrics", timeout=30) as answer:
            yield answer.read().decode()


def served(scrape: str) -> set[str]:
    return {*re.findall(r"^# TYPE (\S+)", scrape, flags=re.MULTILINE)}


@needs_promtool
def test_promtool_accepts_a_scrape(scrape: str) -> None:
    done = subprocess.run(["promtool", "check", "metrics"], input=scrape, capture_output=True, text=True, check=False)
    # Two names of kafka_exporter end as those of histograms do.
    lint = 'non-histogram and non-summary metrics should not have "_sum" suffix'
    disliked = {f"kafka_consumergroup_{name}_sum {lint}" for name in ("current_offset", "lag")}
    assert {*done.stderr.splitlines()} == disliked, done.stdout


@needs_promtool
def test_promtool_accepts_the_config_in_deploy() -> None:
    config = str(DEPLOY / "prometheus/prometheus.yml")
    done = subprocess.run(["promtool", "check", "config", config], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_board_shows_metrics_that_are_served(scrape: str) -> None:
    board = grafana.board()
    shown = {name for text in grafana.expressions(board) for name in grafana.metrics_of(text)}
    variables = {name for each in board["templating"]["list"][1:] for name in grafana.metrics_of(each["definition"])}
    assert len(shown) > 60
    assert shown | variables <= served(scrape)
    assert METRIC in shown


def test_the_board_has_its_rows_and_says_what_each_panel_is() -> None:
    board = grafana.board()
    rows = [each["title"] for each in board["panels"] if each["type"] == "row"]
    assert rows == ["Overview", "Topics", "Groups", "Queues", "Replication", "Brokers", "Pipelines"]
    panels = [each for each in board["panels"] if each["type"] != "row"]
    assert all(each["description"] and each["fieldConfig"]["defaults"]["unit"] for each in panels)
    assert len({each["id"] for each in board["panels"]}) == len(board["panels"])
    taken = [
        (x, y)
        for each in board["panels"]
        for x in range(each["gridPos"]["x"], each["gridPos"]["x"] + each["gridPos"]["w"])
        for y in range(each["gridPos"]["y"], each["gridPos"]["y"] + each["gridPos"]["h"])
    ]
    assert len(taken) == len({*taken}), "panels overlap"
    assert max(x for x, _ in taken) < 24


@needs_promtool
def test_the_expressions_of_boards_are_valid(tmp_path: Path) -> None:
    texts = [*grafana.expressions(grafana.board()), *KAFKA_EXPORTER.strip().splitlines()]
    rules = [{"record": f"panel:{number}", "expr": text} for number, text in enumerate(texts)]
    (tmp_path / "rules.yml").write_text(json.dumps({"groups": [{"name": "board", "rules": rules}]}))
    done = subprocess.run(
        ["promtool", "check", "rules", str(tmp_path / "rules.yml")], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_boards_for_kafka_exporter_find_their_metrics(scrape: str) -> None:
    wanted = {*re.findall(r"kafka_\w+", KAFKA_EXPORTER)}
    assert len(wanted) == 15
    assert wanted <= served(scrape)
    for line in (
        'kafka_consumergroup_lag{consumergroup="billing",topic="orders",partition="',
        'kafka_topic_partition_current_offset{topic="orders",partition="',
    ):
        assert line in scrape, line
