"""`headrace pipeline` as a user types it: in the background under its supervisor, and on a cluster of Spark's own."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from headrace.pipelines.control.folder import StateFolder
from headrace.pipelines.dead_letters.replay import read_letters

from .running import Write, as_json

# A JVM takes seconds to start, and far longer where many share few cores.
pytestmark = pytest.mark.timeout(900)
WAIT_S = 400.0

PIPELINE = """\
name = "{name}"
[source]
topic = "{topic}"
schema = "id STRING, amount INT"
[transform]
sql = "SELECT id, sum(amount) AS total FROM source GROUP BY id"
[sink]
topic = "{topic}-out"
key = "id"
[spark.settings]
"spark.driver.memory" = "512m"
"spark.driver.extraJavaOptions" = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"spark.executor.extraJavaOptions" = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"spark.executor.memory" = "512m"
"spark.sql.shuffle.partitions" = 2
"""


class Cli:
    """The command line in a folder of the test's own."""

    def __init__(self, folder: Path, bootstrap: str) -> None:
        self.folder = folder
        self.environment = {
            **{name: value for name, value in os.environ.items() if name != "PYSPARK_PYTHON"},
            "HEADRACE_BOOTSTRAP": bootstrap,
            "SPARK_LOCAL_IP": "127.0.0.1",
        }

    def __call__(self, *arguments: str, code: int = 0) -> str:
        """What a command prints; it has to end with `code`."""
        result = subprocess.run(
            [sys.executable, "-m", "headrace", "pipeline", *arguments],
            cwd=self.folder,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=WAIT_S,
            check=False,
        )
        assert result.returncode == code, result.stdout + result.stderr
        return result.stdout + result.stderr


@pytest.fixture
def cli(spark, tmp_path, bootstrap) -> Cli:
    """Skips where Spark cannot run."""
    return Cli(tmp_path, bootstrap)


def until(condition: Callable[[], object], what: Callable[[], str]) -> None:
    deadline = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < deadline, what()
        # Each look is a process, which takes from Spark the time in which it would have started.
        time.sleep(1.0)


def test_in_the_background(cli: Cli, new_topic, write: Write, cluster):
    topic = new_topic(prefix="background")
    (cli.folder / "p.toml").write_text(PIPELINE.format(name="totals", topic=topic))
    write(topic, as_json(id="a", amount=1), as_json(id="b", amount=2), b"{", as_json(id="a", amount=3))

    def status() -> dict[str, Any]:
        return json.loads(cli("status", "totals", "--json"))[0]

    assert "There are no pipelines" in cli("status")
    assert "Started totals" in cli("start", "p.toml")
    try:
        assert "totals is already running" in cli("start", "p.toml", code=1)
        assert "stop it first" in cli("reset", "p.toml", "--to", "earliest", code=1)
        log = cli.folder / "headrace-pipelines" / "totals" / "log"
        until(lambda: {"sink", "dead-letters-source"} <= set(status()["queries"]), log.read_text)
        assert status()["state"] == "running"
        assert "running" in cli("status")
        until(lambda: "totals: 0 records to read" in cli("lag", "p.toml"), log.read_text)
        cli("stop", "totals")
    finally:
        # Whatever went wrong, nothing of this test goes on behind it: the pipeline ends with its supervisor.
        if pid := StateFolder.of(cli.folder / "headrace-pipelines", "totals").supervisor_lock.holder():
            os.kill(pid, signal.SIGKILL)
    assert status()["state"] == "stopped"
    assert "totals is not running" in cli("stop", "totals")
    assert sorted(each.payload or b"" for each in read_letters(cluster, f"{topic}-out")) == [
        b'{"id":"a","total":4}',
        b'{"id":"b","total":2}',
    ]
    assert "1 dead letter, 0 of them sent back" in cli("dlq", "list", "p.toml")
    assert "1 dead letter would be sent back" in cli("dlq", "replay", f"{topic}.dlq", "--dry-run")
    assert "1 dead letter sent back (1 to" in cli("dlq", "replay", "p.toml", "--reason", "cut off")
    assert "totals: 1 records to read" not in cli("dlq", "replay", "p.toml")
    assert "add --execute to do it" in cli("reset", "p.toml", "--to", "latest")
    told = json.loads(cli("reset", "p.toml", "--to", f"{topic}:0=1", "--execute", "--json"))
    assert told["moves"] == [{"topic": topic, "partition": 0, "before": 4, "after": 1}]
    assert (Path(told["backup"]) / "sink" / "commits").is_dir()
    assert "is neither earliest, latest, a time" in cli("reset", "p.toml", "--to", "soon", code=2)


@pytest.mark.slow
def test_a_preview_has_a_quick_session_of_its_own_and_leaves_nothing_behind(cli: Cli, new_topic, write: Write):
    topic = new_topic(prefix="preview-cli")
    (cli.folder / "p.toml").write_text(PIPELINE.format(name="totals", topic=topic))
    write(topic, as_json(id="a", amount=1), as_json(id="b", amount=2), b"{", as_json(id="a", amount=3))
    told = cli("preview", "p.toml")
    lines = [line.split() for line in told.splitlines()]
    assert ["a", "4"] in lines
    assert ["b", "2"] in lines
    assert f"1 message of source would not fit:\n  {topic}/0/2: the value is not a JSON object, or is cut off" in told
    assert [each.name for each in cli.folder.iterdir()] == ["p.toml"]


@contextmanager
def daemon(environment: dict[str, str], *arguments: str) -> Iterator[Callable[[str], str]]:
    """A process of Spark's cluster; what it is called with waits for a line of its output and gives its first group."""
    import pyspark

    command = [str(Path(pyspark.__file__).parent / "bin" / "spark-class"), *arguments]
    log = Path(environment["SPARK_LOG"]) / f"{arguments[0].rpartition('.')[2]}-{time.monotonic_ns()}"
    with log.open("wb") as out:
        process = subprocess.Popen(command, env=environment, stdout=out, stderr=out, start_new_session=True)

    def wait(pattern: str) -> str:
        until(lambda: re.search(pattern, log.read_text()) or process.poll() is not None, log.read_text)
        found = re.search(pattern, log.read_text())
        assert found is not None, log.read_text()
        return found[1]

    try:
        yield wait
    finally:
        process.terminate()
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(30)


@pytest.mark.slow
def test_the_same_file_on_a_standalone_cluster(cli: Cli, new_topic, write: Write, cluster):
    topic = new_topic(2, prefix="standalone")
    (cli.folder / "p.toml").write_text(PIPELINE.format(name="clustered", topic=topic))
    for partition in (0, 1):
        write(topic, *[as_json(id=str(n % 5), amount=n) for n in range(100)], partition=partition)
    environment = {
        **cli.environment,
        "SPARK_LOG": str(cli.folder),
        "SPARK_DAEMON_MEMORY": "256m",
        "SPARK_DAEMON_JAVA_OPTS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
        "SPARK_WORKER_DIR": str(cli.folder / "work"),
    }
    deploy = "org.apache.spark.deploy"
    place = ("--host", "127.0.0.1", "--webui-port", "0")
    with ExitStack() as stack:
        master = stack.enter_context(daemon(environment, f"{deploy}.master.Master", *place, "--port", "0"))
        url = master(r"Starting Spark master at (spark://\S+)")
        for _ in range(2):
            worker = stack.enter_context(
                daemon(environment, f"{deploy}.worker.Worker", *place, "--cores", "1", "--memory", "600m", url)
            )
            worker(r"Successfully registered with master (\S+)")
        told = cli("run", "p.toml", "--once", "--plain", "--master", url)
    assert f"Starting Spark on {url}" in told
    assert "clustered: 200 records in, 5 rows out, 0 bad" in told
    (status,) = json.loads(cli("status", "--json"))
    assert (status["name"], status["state"], status["last_error"]) == ("clustered", "ended", "")
    totals = {each.key: each.json()["total"] for each in read_letters(cluster, f"{topic}-out")}
    assert totals == {str(n).encode(): 2 * sum(range(n, 100, 5)) for n in range(5)}
