"""`headrace top` against a broker: one picture, as JSON, and on a terminal with keys."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from headrace import Client
from headrace.client.json_api import JsonApi
from headrace.config.credentials import NO_CREDENTIALS
from headrace.testing import Broker
from headrace.wire import Cluster
from tests.terminal import Terminal
from tests.waiting import until


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker() as one:
        with Client(one.bootstrap) as client:
            for number in range(20):
                client.publish("orders", f"order {number}")
                client.publish("payments", "x" * 1000)
            client.queue("emails").create().send("hello")
        with Cluster(one.bootstrap) as cluster:
            cluster.commit_offsets("billing", {("orders", 0): 0})
        report = {"instance": "a", "state": "running", "lag": 7}
        JsonApi(one.http_url, NO_CREDENTIALS).call("POST", "/pipelines/revenue/report", report)
        until(lambda: top(one, "topics", "--json")["total"] == 3 and top(one, "groups", "--json")["total"] == 1)
        yield one


def run(broker: Broker, *arguments: str, code: int = 0) -> str:
    command = [sys.executable, "-m", "headrace", "top", "--bootstrap", broker.bootstrap, *arguments]
    result = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert result.returncode == code, result.stdout + result.stderr
    return result.stdout + result.stderr


def top(broker: Broker, *arguments: str) -> Any:
    return json.loads(run(broker, *arguments))


def test_as_json(broker: Broker) -> None:
    found = top(broker, "--json", "--once")
    assert found["view"] == "overview"
    assert found["health"]["sentence"]
    assert [each["name"] for each in found["pipelines"]] == ["revenue"]
    assert [each["name"] for each in top(broker, "topics", "--json", "--search", "PAY")["items"]] == ["payments"]
    sizes = [each["size_bytes"] for each in top(broker, "topics", "--json", "--sort", "size_bytes")["items"]]
    assert sizes == sorted(sizes, reverse=True)
    assert [each["broker_id"] for each in top(broker, "brokers", "--json")["items"]] == [0]


def test_one_picture_of_each_view(broker: Broker) -> None:
    assert all(name in run(broker, "--once") for name in ("emails", "billing", "revenue"))
    assert "orders" in run(broker, "topics")
    assert "emails" in run(broker, "queues", "--once")
    assert "127.0.0.1" in run(broker, "brokers", "--once")
    assert "cannot be sorted by nothing: name," in run(broker, "topics", "--once", "--sort", "nothing", code=2)


def test_on_a_terminal(broker: Broker, tmp_path: Path) -> None:
    script = f"export TERM=xterm\n{sys.executable} -m headrace top --every 0.5 --bootstrap {broker.bootstrap}"
    terminal = Terminal(script, "headrace top", tmp_path, {}, 60.0)
    try:
        at = terminal.wait_for("emails")
        terminal.press("2")
        at = terminal.wait_for("payments", at)
        terminal.press("/")
        at = terminal.wait_for("search: ", at)
        terminal.press("order\r")
        at = terminal.wait_for("1 of 1 topics", at)
        terminal.press("\x1b")
        at = terminal.wait_for("3 of 3 topics", at)
        terminal.press("s")
        at = terminal.wait_for("by bytes_out_per_s", at)
        terminal.press("3")
        at = terminal.wait_for("billing", at)
        terminal.press("6")
        at = terminal.wait_for("revenue", at)
        terminal.press("q")
        terminal.finish()
    finally:
        terminal.close()
