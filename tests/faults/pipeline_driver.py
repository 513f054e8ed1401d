"""A Spark driver with two queries on one topic: a copy of it, and running totals by key. Ends when both have caught up.

python -m tests.faults.pipeline_driver BOOTSTRAP FOLDER OFFSETS_PER_BATCH
"""

import sys
import time
from collections.abc import Callable
from pathlib import Path

from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from headrace.pipelines.sink.writer import write_batch
from tests.pipelines.conftest import SPARK_SETTINGS
from tests.pipelines.crashing import CrashingSource

SOURCE, COPY, TOTALS = "source", "copy", "totals"


def main(bootstrap: str, folder: Path, offsets_per_batch: str) -> None:
    # Two tasks at a time, and four attempts at each, as on a cluster.
    builder = SparkSession.builder.master("local[2,4]").appName("faults")
    for name, value in {**SPARK_SETTINGS, "spark.driver.memory": "900m"}.items():
        builder = builder.config(name, value)
    spark = builder.config("spark.local.dir", str(folder / "local")).getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    spark.dataSource.register(CrashingSource)
    broker = {"kafka.bootstrap.servers": bootstrap}

    def source() -> DataFrame:
        return (
            spark.readStream.format("headrace")
            .options(**broker, subscribe=SOURCE, startingOffsets="earliest", maxOffsetsPerTrigger=offsets_per_batch)
            .load()
        )

    def sink(topic: str) -> dict[str, str]:
        return {**broker, "topic": topic, "delivery": "exactly-once", "sinkId": topic, "armed": str(folder / "armed")}

    def copy() -> StreamingQuery:
        writer = (
            source().selectExpr("key", "value").writeStream.queryName(COPY).format("headrace").options(**sink(COPY))
        )
        return writer.option("checkpointLocation", str(folder / COPY)).trigger(availableNow=True).start()

    def write_totals(rows: DataFrame, batch_id: int) -> None:
        write_batch(rows, batch_id, "totals", sink(TOTALS))

    def totals() -> StreamingQuery:
        rows = (
            source()
            .selectExpr("cast(key as string) as key", "cast(cast(value as string) as long) as number")
            .groupBy("key")
            .agg({"number": "sum", "*": "count"})
            .selectExpr("key", "concat(`count(1)`, ' ', `sum(number)`) as value")
        )
        writer = rows.writeStream.queryName(TOTALS).outputMode("update").foreachBatch(write_totals)
        return writer.option("checkpointLocation", str(folder / TOTALS)).trigger(availableNow=True).start()

    keep_running({copy: copy(), totals: totals()})
    spark.stop()


def keep_running(queries: dict[Callable[[], StreamingQuery], StreamingQuery]) -> None:
    """Until all have ended well: a query that fails is started again, as a supervisor does."""
    while queries:
        for start, query in list(queries.items()):
            try:
                if query.awaitTermination(1):
                    del queries[start]
            except StreamingQueryException as error:
                print(f"{query.name} failed: {error}"[:3000], flush=True)
                time.sleep(1)
                queries[start] = start()


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), sys.argv[3])
