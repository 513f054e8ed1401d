"""Spark against a broker with TLS and users: it works, and the password is nowhere but where it was put."""

import contextlib
import io
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from headrace import Client
from headrace.testing import Broker

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PASSWORD = "planted-hunter2"


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker(tls=True, users={"alice": PASSWORD}, settings={"num.partitions": 1}) as running:
        with client(running) as alice:
            for topic in ("orders", "streamed"):
                alice.topics.create(topic)
            for number in range(10):
                alice.publish("orders", {"id": number})
        yield running


def client(broker: Broker) -> Client:
    return Client(broker.bootstrap, user="alice", password=PASSWORD, tls=broker.ca_file)


def planted(folder: Path) -> list[Path]:
    """The files that have the password in them."""
    return [each for each in folder.rglob("*") if each.is_file() and PASSWORD.encode() in each.read_bytes()]


def test_options_of_a_query(spark: "SparkSession", broker: Broker, tmp_path: Path) -> None:
    login = {"user": "alice", "password": PASSWORD, "tls": str(broker.ca_file)}
    options = {"kafka.bootstrap.servers": broker.bootstrap, **login}
    read = spark.read.format("headrace").options(**options, subscribe="orders").load()
    assert read.count() == 10
    checkpoint = tmp_path / "checkpoint"
    stream = spark.readStream.format("headrace").options(**options, subscribe="orders", startingOffsets="earliest")
    query = (
        stream.load()
        .select("value")
        .writeStream.format("headrace")
        .options(**options, topic="streamed", sinkId="security", delivery="exactly-once")
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    with client(broker) as alice:
        assert len(list(alice.replay("streamed"))) == 10
    shown = io.StringIO()
    with contextlib.redirect_stdout(shown):
        read.explain(True)
        read.explain("formatted")
        query.explain(True)
    assert "BatchScan headrace" in shown.getvalue()
    assert PASSWORD not in shown.getvalue()
    assert PASSWORD not in str(query.lastProgress)
    assert any(checkpoint.rglob("*"))
    assert planted(checkpoint) == []

    wrong = spark.read.format("headrace").options(**{**options, "password": "other"}, subscribe="orders").load()
    with pytest.raises(Exception, match="does not let in the user alice") as caught:
        wrong.count()
    assert PASSWORD not in str(caught.value)


PIPELINE = """\
bootstrap = "{bootstrap}"
[source]
topic = "orders"
schema = "id INT"
[transform]
sql = "SELECT id FROM source"
[sink]
topic = "copies"
[connection]
user = "alice"
password = "${{ORDERS_PASSWORD}}"
ca_file = "{ca_file}"
[spark.settings]
"spark.driver.memory" = "512m"
"spark.driver.extraJavaOptions" = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"spark.eventLog.enabled" = true
"spark.eventLog.compress" = false
"spark.eventLog.dir" = "{events}"
"""


@pytest.mark.usefixtures("spark")
def test_a_pipeline_refers_to_its_password(broker: Broker, tmp_path: Path) -> None:
    events = tmp_path / "events"
    events.mkdir()
    file = tmp_path / "copies.toml"
    file.write_text(PIPELINE.format(bootstrap=broker.bootstrap, ca_file=broker.ca_file, events=events))
    environment = {name: value for name, value in os.environ.items() if name != "PYSPARK_PYTHON"}
    environment |= {"SPARK_LOCAL_IP": "127.0.0.1", "ORDERS_PASSWORD": PASSWORD}

    def run(*arguments: str, code: int = 0, **more: str) -> str:
        done = subprocess.run(
            [sys.executable, "-m", "headrace", "pipeline", *arguments],
            cwd=tmp_path,
            env={**environment, **more},
            capture_output=True,
            text=True,
            timeout=400,
            check=False,
        )
        assert done.returncode == code, done.stdout + done.stderr
        assert PASSWORD not in done.stdout + done.stderr
        return done.stdout + done.stderr

    assert "does not let in the user alice" in run("run", str(file), "--once", code=1, ORDERS_PASSWORD="other")
    run("run", str(file), "--once")
    with client(broker) as alice:
        assert len(list(alice.replay("copies"))) == 10
    run("status")
    run("lag", str(file))
    assert any(events.rglob("events_*"))
    assert any(each.name == "spark.log" for each in tmp_path.rglob("*"))
    assert planted(tmp_path) == []
