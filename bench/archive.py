"""A topic as a table: how quick is reading archive and live tail together, against the same records all in Parquet?

    python bench/archive.py [--rounds 5] [--megabytes 400] [--tail 0.05]

Starts a broker, fills a topic, archives all but the tail, and has Spark (`local[2]`) read everything into its `noop`
sink: `parquet` from an archive of the whole topic with `spark.read.parquet`, `table` with `read_topic_table` from the
archive and the broker. Rounds are interleaved, and the ratio is taken within a round. Also told: how quick the archiver
is, and how much memory it takes at the most, for all of the backlog and for a quarter of it. Prints one line of JSON.
"""

import argparse
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from headrace.pipelines.archive import read_archive
from headrace.pipelines.topic_table import read_topic_table
from headrace.records.encoding import encode
from headrace.testing.process import BrokerProcess
from headrace.wire import Cluster

NOW_MS = 1_700_000_000_000
BLOCK_BYTES = 2_000_000
PARTITIONS = 4
_ARCHIVE = """
import atexit, resource, sys
from headrace.cli.main import main
atexit.register(lambda: print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, file=sys.stderr))
main()
"""


def fill(cluster: Cluster, topic: str, message_bytes: int, megabytes: float) -> int:
    made = random.Random(1)
    count = BLOCK_BYTES // (message_bytes + 30)
    values = pa.array([made.randbytes(message_bytes // 2).hex().encode() for _ in range(count)])
    block = encode(pa.record_batch({"key": values.slice(0, count), "value": values}), timestamp_ms=NOW_MS)
    records = 0
    for number in range(max(PARTITIONS, round(megabytes * 1e6 / BLOCK_BYTES))):
        for batch in block:
            cluster.produce({(topic, number % PARTITIONS): batch})
        records += count
    return records


def archive(bootstrap: str, topic: str, folder: Path) -> tuple[float, float]:
    """Seconds and megabytes of memory."""
    command = [sys.executable, "-c", _ARCHIVE, "pipeline", "archive", topic, "--to", str(folder), "--once"]
    began = time.perf_counter()
    done = subprocess.run([*command, "--bootstrap", bootstrap], check=True, capture_output=True, text=True)
    return time.perf_counter() - began, int(done.stderr.split()[-1]) / 1000


def seconds(df: DataFrame) -> float:
    began = time.perf_counter()
    df.write.format("noop").mode("overwrite").save()
    return time.perf_counter() - began


def measure(
    spark: SparkSession, cluster: Cluster, folder: Path, args: argparse.Namespace, size: int
) -> dict[str, object]:
    bootstrap, topic = cluster.bootstrap, f"bench-{size}"
    cluster.create_topic(topic, partitions=PARTITIONS)
    records = fill(cluster, topic, size, args.megabytes / 4)
    _, quarter_mb = archive(bootstrap, topic, folder / f"quarter-{size}")
    records += fill(cluster, topic, size, args.megabytes * (1 - args.tail) - args.megabytes / 4)
    archive_s, whole_mb = archive(bootstrap, topic, folder / f"most-{size}")
    archived = records
    records += fill(cluster, topic, size, args.megabytes * args.tail)
    archive(bootstrap, topic, folder / f"all-{size}")
    paths = [str(file.path) for file in read_archive(folder / f"all-{size}").files]
    rounds = []
    for number in range(args.rounds + 1):
        parquet = seconds(spark.read.parquet(*paths).drop("headers"))
        table = seconds(read_topic_table(spark, topic, bootstrap, folder / f"most-{size}"))
        if number:
            rounds.append((parquet, table))
    if read_topic_table(spark, topic, bootstrap, folder / f"most-{size}").count() != records:
        raise SystemExit("the table does not have every record once")
    return {
        "message_bytes": size,
        "records": records,
        "tail": round((records - archived) / records, 3),
        "parquet_records_per_s": round(records / statistics.median(each for each, _ in rounds)),
        "table_records_per_s": round(records / statistics.median(each for _, each in rounds)),
        "ratio": round(statistics.median(parquet / table for parquet, table in rounds), 2),
        "ratios": [round(parquet / table, 2) for parquet, table in rounds],
        "archiver_records_per_s": round(archived / archive_s),
        "archiver_peak_mb": {"quarter of the backlog": round(quarter_mb), "all of it": round(whole_mb)},
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--megabytes", type=float, default=400.0)
    parser.add_argument("--tail", type=float, default=0.05)
    args = parser.parse_args()
    os.environ["PYSPARK_PYTHON"] = sys.executable
    with tempfile.TemporaryDirectory(prefix="headrace-bench-") as folder:
        builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
        spark = builder.config("spark.python.unix.domain.socket.enabled", "true").getOrCreate()
        with BrokerProcess(Path(folder, "data")) as broker, Cluster(broker.bootstrap) as cluster:
            results = [measure(spark, cluster, Path(folder), args, size) for size in (100, 1024)]
        spark.stop()
    print(json.dumps(results))


if __name__ == "__main__":
    main()
