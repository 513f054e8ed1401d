"""`headrace probe` against a broker."""

import json
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from headrace.testing import Broker
from headrace.wire import Cluster
from tests.waiting import until


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker() as one:
        yield one


def command(broker: Broker, *arguments: str) -> list[str]:
    return [sys.executable, "-m", "headrace", "probe", "--bootstrap", broker.bootstrap, *arguments]


def probe(broker: Broker, *arguments: str, code: int = 0) -> str:
    result = subprocess.run(command(broker, *arguments), capture_output=True, text=True, timeout=120, check=False)
    assert result.returncode == code, result.stdout + result.stderr
    return result.stdout + result.stderr


def test_messages_go_through_the_topic_and_the_queue(broker: Broker) -> None:
    found = json.loads(probe(broker, "--count", "5", "--interval", "0.02", "--json"))
    assert list(found) == ["topic", "queue"]
    for each in found.values():
        assert (each["sent"], each["received"], each["lost"], each["in_flight"], each["last_error"]) == (5, 5, 0, 0, "")
        assert 0 < each["ack_p50_ms"] <= each["p50_ms"] <= each["p99_ms"] <= each["max_ms"]
    # The second run finds the topic and the queue of the first.
    assert json.loads(probe(broker, "--once", "--json"))["queue"]["received"] == 1
    with Cluster(broker.bootstrap) as cluster:
        assert {"__probe", "__probe_queue"} <= cluster.metadata().keys()


def test_the_table(broker: Broker) -> None:
    shown = probe(broker, "--once", "--only", "topic")
    assert shown.split()[:4] == ["PATH", "SENT", "LOST", "LAST"]
    assert "queue" not in shown


def test_a_message_that_takes_too_long_is_exit_code_1(broker: Broker) -> None:
    probe(broker, "--once", "--only", "topic", "--max-ms", "0.001", code=1)
    probe(broker, "--once", "--only", "topic", "--max-ms", "60000")


def test_arguments_that_make_no_sense(broker: Broker) -> None:
    assert "is not HOST:PORT" in probe(broker, "--once", "--listen", "here", code=2)
    assert "no broker answers" in probe(Nowhere(), "--once", code=1)  # type: ignore[arg-type]


class Nowhere:
    bootstrap = "127.0.0.1:1"


def test_figures_are_served_until_it_is_interrupted(broker: Broker) -> None:
    process = subprocess.Popen(
        command(broker, "--interval", "0.05", "--json", "--listen", "127.0.0.1:0"),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    with process:
        assert process.stderr is not None
        assert process.stdout is not None
        try:
            url = process.stderr.readline().split()[-1]
            until(lambda: received(url).get("topic", 0) >= 3 and received(url).get("queue", 0) >= 3)
            names = {each.name for each in samples(url)}
            assert "headrace_end_to_end_roundtrip_latency_seconds_bucket" in names
            assert "headrace_end_to_end_produce_latency_seconds_count" in names
            assert json.loads(process.stdout.readline())["topic"]["lost"] == 0
        finally:
            process.send_signal(signal.SIGINT)
        process.communicate(timeout=60)
        assert process.returncode == 0


def samples(url: str) -> list[Any]:
    with urllib.request.urlopen(url, timeout=30) as answer:
        return [each for family in text_string_to_metric_families(answer.read().decode()) for each in family.samples]


def received(url: str) -> dict[str, float]:
    return {each.labels["path"]: each.value for each in samples(url) if each.name.endswith("received_total")}


def test_messages_that_do_not_come_are_lost() -> None:
    options = ("--count", "80", "--interval", "0.1", "--lost-after", "1", "--json", "--only", "topic")
    with (
        Broker() as broker,
        subprocess.Popen(
            command(broker, *options, "--listen", "127.0.0.1:0"),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        ) as process,
    ):
        assert process.stderr is not None
        url = process.stderr.readline().split()[-1]
        until(lambda: received(url).get("topic", 0) >= 3)
        broker.stop()
        printed, _ = process.communicate(timeout=120)
        assert process.returncode == 1
    found = json.loads(printed)["topic"]
    assert found["sent"] == 80
    assert 3 <= found["received"] < 80
    assert found["lost"] == 80 - found["received"]
    assert found["last_error"]
