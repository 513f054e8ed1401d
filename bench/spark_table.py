"""A topic as a table: Spark reads its archive and its live tail together, and the same records all from Parquet.

spark_table.py read --port PORT --topic TOPIC [--tail 0.05]

Fills the topic, archives all of it but the tail, and has one session read everything to nowhere, in turns: `table` with
`read_topic_table`, `parquet` with `spark.read.parquet` from an archive of the whole topic. Also told: how quick the
archiver is, and how much memory it takes for the whole backlog and for a tenth of it. Prints one line of JSON.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

from pyspark.sql import SparkSession

from headrace.pipelines.archive.layout import read_archive
from headrace.pipelines.archive.topic_table import read_topic_table
from spark_source import cpu_s, fill, session, timed, to_nowhere

ARCHIVE = """
import atexit, resource, sys
from headrace.cli.main import main
atexit.register(lambda: print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, file=sys.stderr))
main()
"""


def more(args: argparse.Namespace, share: float) -> float:
    """Put a share of all rows into the topic; how many."""
    return fill(argparse.Namespace(**{**vars(args), "max_bytes": args.max_bytes * share}))["rows"]


def archive(args: argparse.Namespace, folder: Path) -> tuple[float, float]:
    """Seconds, and megabytes of memory at the most."""
    words = ["pipeline", "archive", args.topic, "--to", str(folder), "--once", "--bootstrap", f"127.0.0.1:{args.port}"]
    began = time.perf_counter()
    done = subprocess.run([sys.executable, "-c", ARCHIVE, *words], check=True, capture_output=True, text=True)
    return time.perf_counter() - began, int(done.stderr.split()[-1]) / 1000


def read(spark: SparkSession, args: argparse.Namespace, home: Path) -> dict[str, float]:
    most, whole = home / "most", home / "whole"
    rows = more(args, 0.1)
    _, small_mb = archive(args, home / "small")
    rows += more(args, 0.9 - args.tail)
    archive_s, large_mb = archive(args, most)
    archived = rows
    rows += more(args, args.tail)
    archive(args, whole)
    paths = [str(file.path) for file in read_archive(whole).files]
    bootstrap = f"127.0.0.1:{args.port}"
    if read_topic_table(spark, args.topic, bootstrap, most).count() != rows:
        raise SystemExit("the table does not have every record once")
    ways: dict[str, Callable[[], None]] = {
        "parquet": lambda: to_nowhere(spark.read.parquet(*paths).drop("headers")),
        "table": lambda: to_nowhere(read_topic_table(spark, args.topic, bootstrap, most)),
    }
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    cpu: dict[str, list[float]] = {name: [] for name in ways}
    for number in range(args.repeat + 1):
        for name, way in ways.items():
            begin_s = cpu_s()
            taken = timed(way)
            if number:
                seconds[name].append(taken)
                cpu[name].append(cpu_s() - begin_s)
    return {
        "rows": rows,
        "tail": (rows - archived) / rows,
        **{f"{name}_rows_s": rows / median(taken) for name, taken in seconds.items()},
        "over_parquet": median(parquet / table for parquet, table in zip(*seconds.values(), strict=True)),
        "cpu_over_parquet": median(cpu["parquet"]) / median(cpu["table"]),
        "archived_rows_s": archived / archive_s,
        "archiver_small_mb": small_mb,
        "archiver_large_mb": large_mb,
        "archiver_growth": large_mb / small_mb,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["read"])
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--topic", required=True)
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--tail", type=float, default=0.05)
    parser.add_argument("--partitions", type=int, default=2)
    parser.add_argument("--message-bytes", type=int, default=100)
    parser.add_argument("--max-bytes", type=int, default=400_000_000)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as home:
        spark = session(home)
        try:
            result = read(spark, args, Path(home))
        finally:
            spark.stop()
    print(json.dumps(result))


if __name__ == "__main__":
    main()
