"""The table sink with a real Spark: what it writes, what plain readers see, and a batch that comes again."""

from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyspark.sql import DataFrame, SparkSession

from headrace.pipelines.tables.sink import TableOptions, TableSink
from headrace.pipelines.tables.store import TableError
from headrace.runtime.disk import OsDisk
from headrace.testing.disks import FaultyDisk, PowerLoss, stop_at

Rows = Callable[..., DataFrame]

# The first query of a session takes long on a busy machine.
pytestmark = pytest.mark.timeout(600)


@pytest.fixture
def rows(spark: SparkSession) -> Rows:
    def make(data: Sequence[Any], schema: str = "city STRING, amount BIGINT", files: int = 1) -> DataFrame:
        return spark.createDataFrame(list(data), schema).coalesce(files)

    return make


def read(spark: SparkSession, path: Path) -> list[tuple[Any, ...]]:
    """As anybody would who knows nothing of us."""
    found = spark.read.parquet(str(path / "data")).select("city", "amount").collect()
    return sorted((tuple(row) for row in found), key=str)


def read_iceberg(path: Path) -> list[dict[str, Any]]:
    catalog = SqlCatalog("headrace", uri=f"sqlite:///{path}/catalog.db", warehouse=str(path))
    try:
        return catalog.load_table(f"headrace.{path.name}").scan().to_arrow().to_pylist()
    finally:
        catalog.engine.dispose()


def test_batches_become_a_directory_that_anybody_can_read(spark: SparkSession, rows: Rows, tmp_path: Path) -> None:
    sink = TableSink(TableOptions(path=str(tmp_path / "t"), partition_by=["city"]))
    assert sink.write(rows([("Bern", 1), ("Genf", 2), (None, 3)]), 0)
    assert sink.write(rows([("Bern", 4)]), 1)
    assert not sink.write(rows([("Bern", 4)]), 1)
    assert sink.write(rows([]), 2)
    assert read(spark, tmp_path / "t") == [("Bern", 1), ("Bern", 4), ("Genf", 2), (None, 3)]
    folders = {path.name for path in (tmp_path / "t" / "data").iterdir()}
    assert folders == {"city=Bern", "city=Genf", "city=__HIVE_DEFAULT_PARTITION__"}
    assert pq.read_table(tmp_path / "t" / "data").num_rows == 4
    assert spark.read.parquet(str(tmp_path / "t")).count() == 4


def test_a_query_with_a_new_checkpoint_counts_anew(spark: SparkSession, rows: Rows, tmp_path: Path) -> None:
    for query in ("first", "second"):
        sink = TableSink(TableOptions(path=str(tmp_path / "t")))
        assert sink.write(rows([("Bern", 1)]), 0, query)
        assert not sink.write(rows([("Bern", 1)]), 0, query)
    assert read(spark, tmp_path / "t") == [("Bern", 1)] * 2


def test_small_files_are_merged(spark: SparkSession, rows: Rows, tmp_path: Path) -> None:
    sink = TableSink(TableOptions(path=str(tmp_path / "t"), partition_by=["city"], compact_after=3))
    for batch in range(4):
        sink.write(rows([("Bern", batch)]), batch)
    assert read(spark, tmp_path / "t") == [("Bern", batch) for batch in range(4)]
    assert len([*(tmp_path / "t" / "data" / "city=Bern").iterdir()]) == 2


def test_new_columns_are_accepted_and_changed_ones_refused(spark: SparkSession, rows: Rows, tmp_path: Path) -> None:
    sink = TableSink(TableOptions(path=str(tmp_path / "t"), compact_after=3))
    sink.write(rows([("Bern", 1)]), 0)
    sink.write(rows([("Genf", 2, 0.5)], "city STRING, amount INT, rate DOUBLE"), 1)
    with pytest.raises(TableError, match=r"amount is bigint in the table .* and string in the rows"):
        sink.write(rows([("Chur", "3")], "city STRING, amount STRING"), 2)
    with pytest.raises(TableError, match="cannot tell them apart"):
        sink.write(rows([("Chur", 3)], "City STRING, amount BIGINT"), 2)
    with pytest.raises(TableError, match="partitioned by nothing, not by city"):
        TableSink(TableOptions(path=str(tmp_path / "t"), partition_by=["city"])).write(rows([("Chur", 3)]), 2)
    sink.write(rows([(7,)], "amount TINYINT"), 2)
    found = spark.read.option("mergeSchema", "true").parquet(str(tmp_path / "t" / "data")).collect()
    assert {(row.city, row.amount, row.rate) for row in found} == {
        ("Bern", 1, None),
        ("Genf", 2, 0.5),
        (None, 7, None),
    }


def test_a_crash_at_any_step_and_the_batch_again(spark: SparkSession, rows: Rows, tmp_path: Path) -> None:
    """Spark's part is slow, so it writes once; the steps behind it are tried one by one."""
    options = TableOptions(path=str(tmp_path / "t"), partition_by=["city"], compact_after=2)
    TableSink(options).write(rows([("Bern", 1), ("Genf", 1)]), 0)
    batch = rows([("Bern", 2), ("Genf", 2)]).cache()
    after = [("Bern", 1), ("Bern", 2), ("Genf", 1), ("Genf", 2)]
    for step in range(2, 60, 9):
        with suppress(PowerLoss):
            TableSink(options, disk=FaultyDisk(OsDisk(), stop_at(step))).write(batch, 1)
        seen = read(spark, tmp_path / "t")
        assert set(seen) >= {("Bern", 1), ("Genf", 1)}
        assert not Counter(seen) - Counter(after)
    TableSink(options).write(batch, 1)
    assert read(spark, tmp_path / "t") == after


def test_an_iceberg_table(spark: SparkSession, rows: Rows, tmp_path: Path) -> None:
    path = tmp_path / "revenue"
    sink = TableSink(TableOptions(path=str(path), format="iceberg", partition_by=["city"], compact_after=2))
    schema = "city STRING, amount BIGINT, at TIMESTAMP, day DATE, tags ARRAY<STRING>"
    at = datetime(2026, 1, 31, 12, tzinfo=UTC)
    assert sink.write(rows([("Bern", 1, at, at.date(), ["a"]), (None, 2, at, None, None)], schema), 0)
    assert not sink.write(rows([("Bern", 1, at, at.date(), ["a"])], schema), 0)
    assert sink.write(rows([("Bern", 3, at, at.date(), [], 0.5)], f"{schema}, rate DOUBLE"), 1)
    found = sorted(read_iceberg(path), key=lambda row: row["amount"])
    assert [row["amount"] for row in found] == [1, 2, 3]
    assert found[0] == {"city": "Bern", "amount": 1, "at": at, "day": date(2026, 1, 31), "tags": ["a"], "rate": None}
    assert found[2]["rate"] == 0.5
    # The two files of Bern became one.
    assert len({row["city"] for row in found}) == 2
    with pytest.raises(TableError, match="set format"):
        TableSink(TableOptions(path=str(path))).write(rows([("Bern", 1)]), 2)


def test_a_streaming_query_writes_each_batch_once(spark: SparkSession, tmp_path: Path) -> None:
    source, table = tmp_path / "in", tmp_path / "t"
    source.mkdir()
    sink = TableSink(TableOptions(path=str(table)))

    def run() -> None:
        stream = spark.readStream.schema("city STRING, amount BIGINT").json(str(source))
        started = stream.writeStream.foreachBatch(sink.write).option("checkpointLocation", str(tmp_path / "cp"))  # type: ignore[arg-type]
        query = started.trigger(availableNow=True).start()
        try:
            assert query.awaitTermination(240)
        finally:
            query.stop()

    (source / "1.json").write_text('{"city": "Bern", "amount": 1}\n')
    run()
    # As if the driver had died after the commit and before Spark wrote down that the batch was done.
    for committed in (tmp_path / "cp" / "commits").glob("[.0-9]*"):
        committed.unlink()
    (source / "2.json").write_text('{"city": "Genf", "amount": 2}\n')
    run()
    assert read(spark, table) == [("Bern", 1), ("Genf", 2)]
