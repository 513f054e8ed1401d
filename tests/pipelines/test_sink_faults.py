"""A streaming query that fails at steps of the two-phase commit and is started again, in one Spark session.

The long form, with SIGKILL of driver and broker at every step, is `tests/faults/test_pipeline_exactly_once.py`.
"""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from headrace.wire import Cluster

from .committed import read_committed
from .crashing import CrashingSource, arm

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SINK = "faults"
STEPS = [
    ("stage:after", "worker"),
    ("prepare:after", "error"),
    ("decide:written", "worker"),
    ("end:after", "worker"),
]


class InSession(CrashingSource):
    """Beside the real one, which other tests use."""

    @classmethod
    def name(cls) -> str:
        return "headrace-crashing"


@pytest.mark.timeout(900)
def test_a_query_that_fails_at_many_steps_writes_each_row_once(
    spark: "SparkSession", bootstrap: str, cluster: Cluster, new_topic: Callable[..., str], tmp_path: Path
) -> None:
    spark.dataSource.register(InSession)
    topic, folder, armed = new_topic(2), tmp_path / "in", tmp_path / "armed"
    folder.mkdir()
    armed.mkdir()

    def run() -> bool:
        """Whether the query ended well."""
        stream = spark.readStream.schema("id LONG").option("maxFilesPerTrigger", 1).parquet(f"{folder}/*")
        query = (
            stream.repartition(2)
            .selectExpr("cast(id as string) value")
            .writeStream.format(InSession.name())
            .options(topic=topic, delivery="exactly-once", sinkId=SINK, armed=str(armed))
            .option("kafka.bootstrap.servers", bootstrap)
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        try:
            return bool(query.awaitTermination(300))
        except Exception:
            return False

    for number, (step, victim) in enumerate(STEPS):
        spark.range(number * 100, number * 100 + 100).write.parquet(str(folder / str(number)))
        file = arm(armed, SINK, step, victim)
        assert not run(), f"nothing failed at {step}"
        assert not file.exists()
    assert run()
    values = [int(value) for rows in read_committed(cluster, topic) for value in rows.column("value").to_pylist()]
    assert sorted(values) == list(range(100 * len(STEPS)))
    assert not [name for name in cluster.list_transactions(["Ongoing"]) if f"/{SINK}/" in name]
