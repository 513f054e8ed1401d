"""Topic → Spark → topic through our connector and through Spark's own for Kafka: the same broker, job and session.

spark_kafka.py copy     a streaming query copies a topic (key and value)
spark_kafka.py count    a streaming query counts a topic by key and writes each count that changes (update mode)

In micro-batches of a quarter of the topic until it has caught up, at least once, as Spark's sink has it. Each
round does it both ways, in changing order, with fresh checkpoints and topics; a ratio is taken within a round. Spark is
of the version of its connector (`interop/spark_kafka`). Prints one line of JSON.
"""

import argparse
import json
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

sys.path.insert(1, str(Path(__file__).resolve().parents[1] / "interop" / "spark_kafka"))

from connector import Unavailable, prepare

from headrace.wire import LATEST, Cluster

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from spark_sink import Cost

OURS, JVM = FORMS = ("headrace", "kafka")
BATCHES = 4


class Bench:
    def __init__(
        self, spark: "SparkSession", cluster: Cluster, home: Path, args: argparse.Namespace, rows: int
    ) -> None:
        self._spark = spark
        self._cluster = cluster
        self._home = home
        self._args = args
        self._rows = rows
        self._number = 0

    def run(self, form: str) -> "Cost":
        """Until the query has caught up."""
        from spark_sink import Cost
        from spark_source import cpu_s

        self._number += 1
        target = f"{self._args.topic}-{self._number}"
        self._cluster.create_topic(target, partitions=self._args.partitions, settings={"flush.policy": "os"})
        sink = {"topic": target, "kafka.bootstrap.servers": self._cluster.bootstrap}
        rows = self._stream(form)
        if self._args.what == "copy":
            writer = rows.select("key", "value").writeStream.format(form).options(**sink)
        else:
            counted = rows.groupBy("key").count().selectExpr("key", "cast(count as string) as value")
            writer = counted.writeStream.outputMode("update").foreachBatch(
                lambda batch, _: batch.write.format(form).options(**sink).mode("append").save()
            )
        writer = writer.option("checkpointLocation", str(self._home / target)).trigger(availableNow=True)
        begin_s, begin_cpu_s = time.perf_counter(), cpu_s()
        query = writer.start()
        query.awaitTermination()
        cost = Cost(time.perf_counter() - begin_s, cpu_s() - begin_cpu_s)
        self._check(target)
        self._cluster.delete_topic(target)
        return cost

    def _stream(self, form: str) -> "DataFrame":
        reader = self._spark.readStream.format(form).option("subscribe", self._args.topic)
        reader = reader.option("kafka.bootstrap.servers", self._cluster.bootstrap)
        reader = reader.option("startingOffsets", "earliest").option("maxOffsetsPerTrigger", -(-self._rows // BATCHES))
        return reader.load()

    def _check(self, target: str) -> None:
        """What is fast and wrong is no result."""
        ends = self._cluster.list_offsets(
            dict.fromkeys([(target, index) for index in range(self._args.partitions)], LATEST)
        )
        written = sum(end.offset for end in ends.values())
        if not written or (self._args.what == "copy" and written != self._rows):
            raise SystemExit(f"{target} has {written} records of {self._rows}")


def measure(bench: Bench, rows: int, repeat: int) -> dict[str, float]:
    for form in FORMS:
        bench.run(form)
    rounds = [{form: bench.run(form) for form in (FORMS if turn % 2 else FORMS[::-1])} for turn in range(repeat)]
    return {
        "rows": rows,
        "source_rows_s": rows / median(each[OURS].wall_s for each in rounds),
        "jvm_rows_s": rows / median(each[JVM].wall_s for each in rounds),
        "over_jvm": median(each[JVM].wall_s / each[OURS].wall_s for each in rounds),
        "cpu_over_jvm": median(each[JVM].cpu_s / each[OURS].cpu_s for each in rounds),
    }


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
    try:
        connector = prepare()
    except Unavailable as reason:
        raise SystemExit(f"Spark's Kafka connector is not to be had: {reason}") from None
    # They import pyspark, whose version is chosen above.
    from spark_sink import fill
    from spark_source import session

    with tempfile.TemporaryDirectory() as folder, Cluster(f"127.0.0.1:{args.port}") as cluster:
        rows = fill(cluster, args)
        spark = session(folder, connector.settings)
        try:
            result = measure(Bench(spark, cluster, Path(folder), args, rows), rows, args.repeat)
        finally:
            spark.stop()
    print(json.dumps(result))


if __name__ == "__main__":
    main()
