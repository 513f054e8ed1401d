"""Spark reads a topic. One session measures everything that is compared, in turns. Prints one line of JSON.

spark_source.py fill    random rows into a topic
spark_source.py read    all rows of a topic to nowhere: through our source, through one that yields tuples, and the same
                        rows from Parquet files by Spark itself
spark_source.py floor   the time of a micro-batch with almost nothing in it: our source and Spark's own rate source
spark_source.py memory  how large a Python worker gets while it reads a topic
"""

import argparse
import json
import os
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from headrace.pipelines.source.datasource import HeadraceDataSource
from headrace.records.builder import build_batch
from headrace.records.encoder import encode
from headrace.records.reader import Record
from headrace.wire import Cluster

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


class TupleSource(DataSource):
    """The same fetches and the same decoding, handed to Spark row by row: what a source does that knows no Arrow."""

    @classmethod
    def name(cls) -> str:
        return "tuples"

    def schema(self) -> StructType:
        return HeadraceDataSource(self.options).schema()

    def reader(self, schema: StructType) -> DataSourceReader:
        return TupleReader(HeadraceDataSource(self.options).reader(schema))


class TupleReader(DataSourceReader):
    def __init__(self, arrow: DataSourceReader) -> None:
        self._arrow = arrow

    def partitions(self) -> list[InputPartition]:
        return list(self._arrow.partitions())

    def read(self, partition: InputPartition) -> Iterator[tuple[Any, ...]]:
        for batch in self._arrow.read(partition):
            yield from zip(*(column.to_pylist() for column in batch.columns), strict=True)


def session(home: str, more: Mapping[str, str] | None = None) -> SparkSession:
    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder = SparkSession.builder.master("local[2]").appName("bench")
    settings = {**SETTINGS, "spark.local.dir": home, "spark.sql.warehouse.dir": f"{home}/warehouse", **(more or {})}
    for name, value in settings.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def topic_frame(spark: SparkSession, args: argparse.Namespace, form: str = "headrace") -> DataFrame:
    reader = spark.read.format(form).option("kafka.bootstrap.servers", f"127.0.0.1:{args.port}")
    return reader.option("subscribe", args.topic).load()


def to_nowhere(frame: DataFrame) -> None:
    frame.write.format("noop").mode("overwrite").save()


def timed(act: Callable[[], object]) -> float:
    begin = time.perf_counter()
    act()
    return time.perf_counter() - begin


def descendants() -> dict[int, str]:
    """Processes under this one, and what they were started with."""
    parents = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                parents[int(entry.name)] = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            except OSError:
                continue
    found = {}
    for pid in parents:
        above = pid
        while above in parents and above != os.getpid():
            above = parents[above]
        if above == os.getpid() and pid != above:
            try:
                found[pid] = Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " ")
            except OSError:
                continue
    return found


def cpu_s() -> float:
    """CPU time of the JVM and of Spark's Python processes, those that have ended included."""
    ticks = 0
    for pid in descendants():
        try:
            ticks += sum(int(word) for word in Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:15])
        except OSError:
            continue
    return ticks / os.sysconf("SC_CLK_TCK")


def fill(args: argparse.Namespace) -> dict[str, float]:
    """Rows of random bytes, so that Parquet finds nothing in them to make small."""
    size, count = args.message_bytes, max(1, (1 << 20) // args.message_bytes)
    offsets = pa.py_buffer((np.arange(count + 1) * size).astype(np.int32))
    written = rows = 0
    with Cluster(f"127.0.0.1:{args.port}") as cluster:
        while written < args.max_bytes:
            for partition in range(args.partitions):
                values = pa.BinaryArray.from_buffers(
                    pa.binary(), count, [None, offsets, pa.py_buffer(os.urandom(size * count))]
                )
                for batch in encode(pa.table({"value": values}), timestamp_ms=time.time_ns() // 1_000_000):
                    cluster.produce({(args.topic, partition): batch})
                    written += len(batch)
                rows += count
    return {"rows": rows, "bytes": written}


def read(spark: SparkSession, args: argparse.Namespace, home: str) -> dict[str, float]:
    spark.dataSource.register(TupleSource)
    files = f"{home}/rows"
    topic_frame(spark, args).write.parquet(files)
    rows = spark.read.parquet(files).count()
    ways: dict[str, Callable[[], None]] = {
        "source": lambda: to_nowhere(topic_frame(spark, args)),
        "parquet": lambda: to_nowhere(spark.read.parquet(files)),
        "tuples": lambda: to_nowhere(topic_frame(spark, args, "tuples")),
    }
    for way in ways.values():
        way()
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    cpu: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(args.repeat):
        for name, way in ways.items():
            begin_s = cpu_s()
            seconds[name].append(timed(way))
            cpu[name].append(cpu_s() - begin_s)
    rates = {name: rows / median(taken) for name, taken in seconds.items()}
    cpu_rates = {name: rows / median(taken) for name, taken in cpu.items()}
    return {
        "rows": rows,
        **{f"{name}_rows_s": rate for name, rate in rates.items()},
        **{f"{name}_rows_cpu_s": rate for name, rate in cpu_rates.items()},
        "over_parquet": rates["source"] / rates["parquet"],
        "over_tuples": rates["source"] / rates["tuples"],
        "cpu_over_parquet": cpu_rates["source"] / cpu_rates["parquet"],
        "cpu_over_tuples": cpu_rates["source"] / cpu_rates["tuples"],
    }


def micro_batches(frame: DataFrame, home: str, name: str, count: int) -> list[float]:
    """How long micro-batches took, in ms, of a query that always has something to do; the first few warm up."""
    writer = frame.writeStream.format("noop").option("checkpointLocation", f"{home}/{name}")
    query = writer.trigger(processingTime="0 seconds").start()
    taken: dict[int, float] = {}
    try:
        end = time.monotonic() + 300
        while len(taken) < count + 5:
            for progress in query.recentProgress:
                if progress.numInputRows:
                    taken[progress.batchId] = progress.durationMs["triggerExecution"]
            if not query.isActive or time.monotonic() > end:
                raise SystemExit(f"the query {name} made {len(taken)} micro-batches: {query.exception()}")
            time.sleep(0.05)
    finally:
        query.stop()
    return [taken[number] for number in sorted(taken)][5:]


def floor(spark: SparkSession, args: argparse.Namespace, home: str) -> dict[str, float]:
    stopping = threading.Event()

    def trickle() -> None:
        with Cluster(f"127.0.0.1:{args.port}") as cluster:
            while not stopping.wait(0.005):
                cluster.produce({(args.topic, 0): build_batch([Record(0, 0, None, b"x" * 100)] * 10)})

    source = spark.readStream.format("headrace").option("kafka.bootstrap.servers", f"127.0.0.1:{args.port}")
    ours = source.option("subscribe", args.topic).load()
    rate = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 10).option("numPartitions", 1).load()
    writer = threading.Thread(target=trickle)
    writer.start()
    taken: dict[str, list[float]] = {"source": [], "rate": []}
    try:
        for turn in range(args.repeat):
            taken["source"] += micro_batches(ours, home, f"source-{turn}", args.batches)
            taken["rate"] += micro_batches(rate, home, f"rate-{turn}", args.batches)
    finally:
        stopping.set()
        writer.join()
    source_ms, rate_ms = median(taken["source"]), median(taken["rate"])
    return {"source_ms": source_ms, "rate_ms": rate_ms, "over_rate": source_ms / rate_ms}


def resident_bytes(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, IndexError):
        return 0


def memory(spark: SparkSession, args: argparse.Namespace, home: str) -> dict[str, float]:
    done = threading.Event()
    largest = [0]

    def watch() -> None:
        while not done.wait(0.05):
            sizes = [resident_bytes(pid) for pid, command in descendants().items() if "pyspark.worker" in command]
            largest[0] = max([largest[0], *sizes])

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        seconds = timed(lambda: to_nowhere(topic_frame(spark, args)))
    finally:
        done.set()
        watcher.join()
    return {"worker_rss_mb": largest[0] / 1e6, "seconds": seconds}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["fill", "read", "floor", "memory"])
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--topic", required=True)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--batches", type=int, default=20)
    parser.add_argument("--partitions", type=int, default=2)
    parser.add_argument("--message-bytes", type=int, default=100)
    parser.add_argument("--max-bytes", type=int, default=100_000_000)
    args = parser.parse_args()
    if args.what == "fill":
        print(json.dumps(fill(args)))
        return
    with tempfile.TemporaryDirectory() as home:
        spark = session(home)
        try:
            result = {"read": read, "floor": floor, "memory": memory}[args.what](spark, args, home)
        finally:
            spark.stop()
    print(json.dumps(result))


if __name__ == "__main__":
    main()
