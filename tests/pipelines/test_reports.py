"""A pipeline in the background, seen and controlled through the HTTP API of its broker."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from http.client import HTTPConnection
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from tests.waiting import until

from headrace.testing import Broker
from headrace.wire import Cluster

from .running import Write

# `tests/browser/test_pipeline.py` does most of this in `make test`.
pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]
WAIT_S = 400.0

PIPELINE = """\
name = "{name}"
[source]
topic = "{topic}"
schema = "id STRING, amount INT"
[transform]
sql = "SELECT id, amount * 2 AS amount FROM source"
[sink]
topic = "{topic}-out"
[spark]
master = "local[1]"
[spark.settings]
"spark.driver.memory" = "512m"
"spark.driver.extraJavaOptions" = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""


class Api:
    def __init__(self, url: str) -> None:
        self._where = urlsplit(url).netloc

    def __call__(self, method: str, path: str = "", value: Any = None) -> Any:
        connection = HTTPConnection(self._where, timeout=60)
        try:
            body = json.dumps(value or {}) if method == "POST" else None
            connection.request(method, f"/api/v1/pipelines{path}", body, {"Content-Type": "application/json"})
            answer = connection.getresponse()
            text = answer.read()
            assert answer.status < 300, text
            return json.loads(text)
        finally:
            connection.close()


class Supervised:
    """`headrace pipeline start` and `stop` in a folder."""

    def __init__(self, folder: Path, bootstrap: str) -> None:
        self._folder = folder
        self._environment = {
            **{name: value for name, value in os.environ.items() if name != "PYSPARK_PYTHON"},
            "HEADRACE_BOOTSTRAP": bootstrap,
            "SPARK_LOCAL_IP": "127.0.0.1",
        }

    def popen(self, *arguments: str) -> "subprocess.Popen[str]":
        return subprocess.Popen(
            [sys.executable, "-m", "headrace", "pipeline", *arguments],
            cwd=self._folder,
            env=self._environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def run(self, *arguments: str) -> str:
        result = subprocess.run(
            [sys.executable, "-m", "headrace", "pipeline", *arguments],
            cwd=self._folder,
            env=self._environment,
            capture_output=True,
            text=True,
            timeout=WAIT_S,
            check=False,
        )
        assert result.returncode == 0, result.stdout + result.stderr
        return result.stdout

    @property
    def _log(self) -> Path:
        return self._folder / "headrace-pipelines" / "watched" / "log"

    @property
    def has_run(self) -> bool:
        return self._log.exists()

    @property
    def log(self) -> str:
        return self._log.read_text()


@pytest.fixture
def supervised(spark: Any, tmp_path: Path, spark_broker: Broker) -> Iterator[Supervised]:
    one = Supervised(tmp_path, spark_broker.bootstrap)
    yield one
    if one.has_run:
        one.run("stop", "watched")


def rows(cluster: Cluster, topic: str) -> int:
    return cluster.list_offsets([(topic, 0)])[topic, 0].offset if topic in cluster.metadata([topic]) else 0


def test_a_pipeline_is_seen_stopped_started_and_its_dead_letters_are_replayed(
    supervised: Supervised, tmp_path: Path, spark_broker: Broker, cluster: Cluster, new_topic: Any, write: Write
) -> None:
    api, topic = Api(spark_broker.http_url), new_topic(prefix="watched")
    write(topic, b'{"id": "a", "amount": 1}', b"not json", b'{"id": "b", "amount": "many"}')
    (tmp_path / "watched.toml").write_text(PIPELINE.format(name="watched", topic=topic))
    supervised.run("start", "watched.toml")

    def shown() -> Any:
        return next((each for each in api("GET")["items"] if each["name"] == "watched"), None) or {"state": "unknown"}

    def waits_for(what: str, **wanted: Any) -> Any:
        def is_there() -> bool:
            now = shown()
            return all(now.get(name) == value for name, value in wanted.items())

        until(is_there, lambda: f"{what}: {shown()} {supervised.log}", WAIT_S)
        return api("GET", "/watched")

    found = waits_for("two dead letters", state="running", rows_in=3, dead_letters=2)
    assert (found["lag"], found["restarts"], found["can_stop"], found["last_error"]) == (0, 0, True, "")
    assert found["batch_ms"] > 0
    assert [each["id"] for each in found["graph"]["nodes"]][:3] == ["source:source", "step:transform", "sink:sink"]
    assert any("started process" in line for line in found["log"])
    assert found["history"]["series"]["batch_ms"][-1] is not None

    letters = api("GET", "/watched/dead-letters")
    assert [(each["topic"], each["is_readable"]) for each in letters["topics"]] == [(f"{topic}.dlq", True)]
    assert sum(each["letters"] for each in letters["reasons"]) == letters["waiting"] == 2
    assert "not json" in {each["value"] for reason in letters["reasons"] for each in reason["samples"]}

    assert api("POST", "/watched/stop")["desired"] == "stopped"
    waits_for("a stop", state="stopped", can_start=True)
    write(topic, b'{"id": "c", "amount": 3}')
    api("POST", "/watched/replay", {"reason": ""})
    until(lambda: (api("GET", "/watched")["replay"] or {}).get("state") == "done", "a replay", WAIT_S)
    assert api("GET", "/watched")["replay"]["sent"] == 2
    assert api("GET", "/watched/dead-letters")["waiting"] == 0
    assert shown()["state"] == "stopped"

    api("POST", "/watched/start")
    # The letters are as bad as before, so they come back; the new row is written exactly once.
    found = waits_for("the rest", state="running", rows_in=3, dead_letters=2, lag=0)
    assert api("GET", "/watched/dead-letters")["waiting"] == 2
    assert (found["restarts"], found["rows_out"]) == (0, 1)
    assert "do not show this pipeline" not in supervised.log
    supervised.run("stop", "watched")
    assert waits_for("its end", state="stopped", can_start=False)["reported_ms"] > 0


def test_a_run_without_a_supervisor_ends_when_it_is_asked_to_stop(
    spark: Any, tmp_path: Path, spark_broker: Broker, cluster: Cluster, new_topic: Any, write: Write
) -> None:
    api, topic = Api(spark_broker.http_url), new_topic(prefix="alone")
    write(topic, b'{"id": "a", "amount": 1}')
    (tmp_path / "alone.toml").write_text(PIPELINE.format(name="alone", topic=topic))
    process = Supervised(tmp_path, spark_broker.bootstrap).popen("run", "alone.toml", "--plain")
    try:
        until(lambda: any(each["rows_in"] == 1 for each in api("GET")["items"] if each["name"] == "alone"), "", WAIT_S)
        found = api("GET", "/alone")
        assert (found["state"], found["is_supervised"], found["can_stop"]) == ("running", False, True)
        api("POST", "/alone/stop")
        printed, _ = process.communicate(timeout=WAIT_S)
    finally:
        process.kill()
        process.wait()
    assert process.returncode == 0, printed
    assert "as a broker was asked to" in printed
    found = api("GET", "/alone")
    assert (found["state"], found["can_start"], found["can_stop"], found["rows_out"]) == ("stopped", False, False, 1)
