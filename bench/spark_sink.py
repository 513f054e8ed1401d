"""Topic → Spark → topic: exactly once beside at least once, in one Spark session, in turns. Prints one line of JSON.

    python bench/spark_sink.py [--records 1000000] [--bytes 100] [--per-batch 250000] [--rounds 5]

A streaming query copies a topic (`copy`), or counts it by key (`count`, update mode through `foreachBatch`), in
micro-batches of `--per-batch` records until it has caught up. Each round does it both ways, in changing order, with
fresh checkpoints and topics; a ratio is taken within a round. The broker is a process of its own, with its defaults.
"""

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from headrace.pipelines.sink import write_batch
from headrace.records.encoding import encode
from headrace.testing.process import BrokerProcess
from headrace.wire import Cluster

PARTITIONS = 2
SOURCE = "source"
KEYS = 10_000
WAYS = ("at-least-once", "exactly-once")
SETTINGS = {
    "spark.driver.memory": "2g",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.shuffle.partitions": "2",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.python.unix.domain.socket.enabled": "true",
    "spark.log.level": "ERROR",
}


def fill(cluster: Cluster, records: int, size: int) -> None:
    cluster.create_topic(SOURCE, partitions=PARTITIONS)
    random = np.random.default_rng(1)
    for start in range(0, records, 100_000):
        count = min(100_000, records - start)
        keys = [b"%d" % key for key in random.integers(0, KEYS, count)]
        rows = pa.RecordBatch.from_pydict({"key": keys, "value": [random.bytes(size)] * count})
        for batch in encode(rows, timestamp_ms=round(time.time() * 1000)):
            cluster.produce({(SOURCE, start // 100_000 % PARTITIONS): batch})


class Bench:
    def __init__(self, spark: SparkSession, cluster: Cluster, home: Path, per_batch: int) -> None:
        self._spark = spark
        self._cluster = cluster
        self._home = home
        self._per_batch = per_batch
        self._number = 0

    def run(self, job: str, way: str) -> float:
        """How long it takes to catch up, in seconds."""
        self._number += 1
        name = f"{job}-{self._number}"
        self._cluster.create_topic(name, partitions=PARTITIONS)
        sink = {"topic": name, "delivery": way, "sinkId": name, "kafka.bootstrap.servers": self._cluster.bootstrap}
        rows = self._rows()
        if job == "copy":
            writer = rows.select("key", "value").writeStream.format("headrace").options(**sink)
        else:
            counted = rows.groupBy("key").count().selectExpr("key", "cast(count as string) as value")
            writer = counted.writeStream.outputMode("update").foreachBatch(
                lambda batch, number: write_batch(batch, number, name, sink)
            )
        begin = time.perf_counter()
        query = writer.option("checkpointLocation", str(self._home / name)).trigger(availableNow=True).start()
        query.awaitTermination()
        return time.perf_counter() - begin

    def _rows(self) -> DataFrame:
        reader = self._spark.readStream.format("headrace").option("subscribe", SOURCE)
        reader = reader.option("kafka.bootstrap.servers", self._cluster.bootstrap)
        return (
            reader.option("startingOffsets", "earliest").option("maxOffsetsPerTrigger", self._per_batch).load()
        )  # fmt: skip


def session(home: Path) -> SparkSession:
    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder = SparkSession.builder.master("local[2]").appName("bench")
    for name, value in {**SETTINGS, "spark.local.dir": str(home / "local")}.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def rounds(bench: Bench, job: str, count: int) -> Iterator[dict[str, float]]:
    for way in WAYS:
        bench.run(job, way)
    for number in range(count):
        yield {way: bench.run(job, way) for way in (WAYS if number % 2 else reversed(WAYS))}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--bytes", type=int, default=100, help="of a value")
    parser.add_argument("--per-batch", type=int, default=250_000)
    parser.add_argument("--rounds", type=int, default=5)
    args = parser.parse_args()
    answer: dict[str, object] = vars(args).copy()
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        spark = session(home)
        with BrokerProcess(home / "data") as broker, Cluster(broker.bootstrap) as cluster:
            fill(cluster, args.records, args.bytes)
            bench = Bench(spark, cluster, home, args.per_batch)
            for job in ("copy", "count"):
                taken = list(rounds(bench, job, args.rounds))
                ratios = [each["at-least-once"] / each["exactly-once"] for each in taken]
                answer[job] = {
                    **{f"{way} records/s": round(args.records / median(each[way] for each in taken)) for way in WAYS},
                    "exactly once over at least once": round(median(ratios), 2),
                    "range": [round(min(ratios), 2), round(max(ratios), 2)],
                }
        spark.stop()
    print(json.dumps(answer))


if __name__ == "__main__":
    main()
