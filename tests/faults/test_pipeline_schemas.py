"""Topic → Spark → topic with schemas of the registry, while new versions come and the driver is killed: each record is
a row once or a dead letter once, whichever of the two queries met its schema first."""

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from headrace.pipelines.dead_letters.replay import read_letters
from headrace.pipelines.values.registry import SchemaRegistry
from headrace.pipelines.values.schemas import WriterSchema
from headrace.records.builder import build_batch
from headrace.records.reader import Record
from headrace.schemas.parsed import parse_any
from headrace.schemas.payload.codecs import codec_of
from headrace.schemas.payload.frames import prefix, read_frame
from headrace.testing.process import BrokerProcess
from headrace.wire import Cluster
from tests.waiting import until

VERSIONS = 5
RECORDS = 400
"""Of each version."""
PIPELINE = """
name = "orders"
[source]
topic = "orders"
format = "avro"
max_records_per_batch = 150
[sink]
topic = "out"
format = "avro"
[spark]
master = "local[2]"
"""


def version(number: int) -> WriterSchema:
    fields: list[dict[str, Any]] = [{"name": "id", "type": "long"}]
    fields += [{"name": f"column{each}", "type": "long", "default": each} for each in range(1, number)]
    return WriterSchema(json.dumps({"type": "record", "name": "Order", "fields": fields}))


class PipelineProcess:
    """`headrace pipeline run`, killed with its JVM and started again."""

    def __init__(self, folder: Path, bootstrap: str) -> None:
        self._folder = folder
        self._bootstrap = bootstrap
        self._process: subprocess.Popen[bytes] | None = None

    def start(self, *options: str) -> "subprocess.Popen[bytes]":
        command = [sys.executable, "-m", "headrace", "pipeline", "run", "orders.toml", *options]
        with (self._folder / "run.log").open("ab") as log:
            self._process = subprocess.Popen(
                [*command, "--bootstrap", self._bootstrap],
                cwd=self._folder,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        return self._process

    def kill(self) -> None:
        if self._process is not None and self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait(60)

    def log(self) -> str:
        return (self._folder / "run.log").read_text(errors="replace")[-4000:]


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.skipif(shutil.which("java") is None, reason="Spark needs Java 17")
def test_new_versions_and_unknown_ids_under_kills(tmp_path: Path) -> None:
    seed = int(os.environ.get("HEADRACE_TEST_SEED", random.randrange(10**6)))
    print(f"seed {seed}")
    chance = random.Random(seed)
    (tmp_path / "orders.toml").write_text(PIPELINE)
    with BrokerProcess(tmp_path / "data") as broker, Cluster(broker.bootstrap) as cluster:
        for topic in ("orders", "out", "orders.dlq"):
            cluster.create_topic(topic, partitions=2)
        registry = SchemaRegistry(f"{broker.http_url}/registry")
        pipeline = PipelineProcess(tmp_path, broker.bootstrap)
        sent: dict[str, Counter[int]] = {"rows": Counter(), "letters": Counter()}
        ids: list[int] = []

        def arrived() -> int:
            return sum(1 for topic in ("out", "orders.dlq") for _ in read_letters(cluster, topic))

        try:
            for number in range(1, VERSIONS + 1):
                ids.append(registry.register("orders-value", version(number)))
                produce(cluster, chance, ids, sent, number)
                enough = arrived() + chance.randrange(1, RECORDS)
                pipeline.start()
                until(lambda enough=enough: arrived() >= enough, pipeline.log, timeout_s=600)  # type: ignore[misc]
                pipeline.kill()
            assert pipeline.start("--once").wait(900) == 0, pipeline.log()
        finally:
            pipeline.kill()
        schemas = {each.id: each.schema for each in registry.versions("out-value")}
        assert len(schemas) >= 2
        codecs = {schema_id: codec_of(parse_any("AVRO", each.text)) for schema_id, each in schemas.items()}
        rows = Counter(read_row(codecs, each.payload)["id"] for each in read_letters(cluster, "out"))
        letters = Counter(int((each.payload or b"")[5:]) for each in read_letters(cluster, "orders.dlq"))
        assert rows == sent["rows"]
        assert letters == sent["letters"]


def produce(
    cluster: Cluster, chance: random.Random, ids: list[int], sent: dict[str, Counter[int]], number: int
) -> None:
    """Records of all versions so far, mostly of the newest, and one in twenty of an id that there is not."""
    codecs = [codec_of(parse_any("AVRO", version(each).text)) for each in range(1, number + 1)]
    for partition in (0, 1):
        values = []
        for at in range(RECORDS // 2):
            name = (number * 2 + partition) * 10_000 + at
            if chance.random() < 0.05:
                values.append(prefix(ids[-1] + 50 + number) + b"%d" % name)
                sent["letters"][name] += 1
                continue
            which = chance.choice([number, number, chance.randint(1, number)]) - 1
            values.append(
                prefix(ids[which]) + codecs[which].encode({"id": name, **dict.fromkeys(columns(which + 1), 1)})
            )
            sent["rows"][name] += 1
        records = [Record(0, round(time.time() * 1000), None, value, ()) for value in values]
        cluster.produce({("orders", partition): build_batch(records)})


def columns(number: int) -> list[str]:
    return [f"column{each}" for each in range(1, number)]


def read_row(codecs: dict[int, Any], payload: bytes | None) -> Any:
    frame = read_frame(payload or b"")
    assert isinstance(frame.schema, int)
    return codecs[frame.schema].decode(frame.body)
