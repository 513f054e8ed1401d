"""Topic → Spark → topic: exactly once beside at least once, in one Spark session, in turns. Prints one line of JSON.

spark_sink.py copy   a streaming query copies a topic
spark_sink.py count  a streaming query counts a topic by key: update mode, through `foreachBatch`

Both do it in micro-batches of a quarter of the topic until they have caught up, with fresh checkpoints and topics each
time, in changing order; a ratio is taken between two runs of the same round.
"""

import argparse
import json
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from headrace.pipelines.sink.writer import write_batch
from headrace.records.encoder import encode
from headrace.wire import Cluster
from spark_source import cpu_s, session

KEYS = 10_000
BATCHES = 4
WAYS = ("at-least-once", "exactly-once")


class Cost(NamedTuple):
    wall_s: float
    cpu_s: float
    """Of Spark and its workers."""


def fill(cluster: Cluster, args: argparse.Namespace) -> int:
    """Random keys and values; how many."""
    random = np.random.default_rng(1)
    count, written, rows = max(1, (1 << 20) // args.message_bytes), 0, 0
    while written < args.max_bytes:
        for partition in range(args.partitions):
            keys = [b"%d" % key for key in random.integers(0, KEYS, count)]
            values = [random.bytes(args.message_bytes)] * count
            block = pa.RecordBatch.from_pydict({"key": keys, "value": values})
            for batch in encode(block, timestamp_ms=time.time_ns() // 1_000_000):
                cluster.produce({(args.topic, partition): batch})
                written += len(batch)
            rows += count
    return rows


class Bench:
    def __init__(self, spark: SparkSession, cluster: Cluster, home: Path, args: argparse.Namespace, rows: int) -> None:
        self._spark = spark
        self._cluster = cluster
        self._home = home
        self._args = args
        self._per_batch = -(-rows // BATCHES)
        self._number = 0

    def run(self, way: str) -> Cost:
        """What it takes to catch up."""
        self._number += 1
        name = f"{self._args.topic}-{self._number}"
        self._cluster.create_topic(name, partitions=self._args.partitions)
        sink = {"topic": name, "delivery": way, "sinkId": name, "kafka.bootstrap.servers": self._cluster.bootstrap}
        if self._args.what == "copy":
            writer = self._rows().select("key", "value").writeStream.format("headrace").options(**sink)
        else:
            counted = self._rows().groupBy("key").count().selectExpr("key", "cast(count as string) as value")
            writer = counted.writeStream.outputMode("update").foreachBatch(
                lambda batch, number: write_batch(batch, number, name, sink)
            )
        began_s, began_cpu_s = time.perf_counter(), cpu_s()
        query = writer.option("checkpointLocation", str(self._home / name)).trigger(availableNow=True).start()
        query.awaitTermination()
        cost = Cost(time.perf_counter() - began_s, cpu_s() - began_cpu_s)
        self._cluster.delete_topic(name)
        return cost

    def _rows(self) -> DataFrame:
        reader = self._spark.readStream.format("headrace").option("subscribe", self._args.topic)
        reader = reader.option("kafka.bootstrap.servers", self._cluster.bootstrap)
        reader = reader.option("startingOffsets", "earliest").option("maxOffsetsPerTrigger", self._per_batch)
        return reader.load()

    def rounds(self) -> Iterator[dict[str, Cost]]:
        for way in WAYS:
            self.run(way)
        for number in range(self._args.repeat):
            yield {way: self.run(way) for way in (WAYS if number % 2 else reversed(WAYS))}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["copy", "count"])
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--topic", required=True)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--partitions", type=int, default=2)
    parser.add_argument("--message-bytes", type=int, default=100)
    parser.add_argument("--max-bytes", type=int, default=100_000_000)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, Cluster(f"127.0.0.1:{args.port}") as cluster:
        rows = fill(cluster, args)
        spark = session(folder)
        try:
            taken = list(Bench(spark, cluster, Path(folder), args, rows).rounds())
        finally:
            spark.stop()
    least, once = ([each[way] for each in taken] for way in WAYS)
    result = {
        "rows": rows,
        "at_least_once_rows_s": rows / median(cost.wall_s for cost in least),
        "exactly_once_rows_s": rows / median(cost.wall_s for cost in once),
        "over_at_least_once": median(a.wall_s / b.wall_s for a, b in zip(least, once, strict=True)),
        "cpu_over_at_least_once": median(a.cpu_s / b.cpu_s for a, b in zip(least, once, strict=True)),
    }
    print(json.dumps(result))


if __name__ == "__main__":
    main()
