"""The table sink: writes micro-batches to a table of Parquet files, plain or Iceberg, exactly once.

    sink = TableSink(TableOptions(path="lake/revenue", format="iceberg", partition_by=["day"]))
    query = stream.writeStream.foreachBatch(sink.write).start()

Guarantees:

- A batch is one commit, which includes the query's id and the batch id: a repeated batch, after a crash anywhere, adds
  nothing. A query with a new checkpoint starts from batch 0, and its rows are added.
- Spark's workers write the files in parallel, the driver commits them. Every worker must have access to `path` (one
  machine, or a shared file system); a batch with missing rows is refused.
- New columns are added and are null in older rows. A column that changes its type is refused.
- Small files are merged when there are `compact_after` adjacent ones; readers see every row once, before and after.

`store.py` describes what readers of plain Parquet see (`spark.read.parquet("lake/revenue/data")`), `iceberg.py` what
readers of Iceberg see.
"""

import json
import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal
from urllib.parse import quote

import msgspec
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, Observation
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from headrace.pipelines.foreach_batch import run_without_writing, running_query_id
from headrace.pipelines.tables.compaction import compact
from headrace.pipelines.tables.schema import evolve, nullable
from headrace.pipelines.tables.store import (
    HIDDEN,
    OURS,
    ManifestStore,
    TableError,
    TableFile,
    TableState,
    TableStore,
    has_catalog_note,
    make_folders,
    table_lock,
)
from headrace.runtime.disk import Disk, OsDisk

_BATCHES, _SCHEMA, _PARTITIONS = "batches", "schema", "partition_by"
_KEEP_QUERIES = 32
# How long to wait for the batch of another query that writes to the same table.
_LOCK_WAIT_S = 120.0
_TIMESTAMPS = "spark.sql.parquet.outputTimestampType"


class TableOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Options of a table sink."""

    path: str
    """The table's directory."""
    format: Literal["parquet", "iceberg"] = "parquet"
    partition_by: list[str] = []
    """Partition columns. In plain Parquet they are in the folder names, not in the files."""
    name: str = ""
    """The name in the Iceberg catalog, `namespace.table`; the directory's if empty."""
    catalog: str = ""
    """An Iceberg catalog that is not in the directory: a REST catalog's address, or a name that pyiceberg knows."""
    target_file_bytes: int = 128 * 1024 * 1024
    compact_after: int = 16
    """Merge when there are this many adjacent small files; 0: never."""


class TableSink:
    """A `foreachBatch` writer; see the module."""

    def __init__(self, options: TableOptions, *, disk: Disk | None = None) -> None:
        self._options = options
        self._disk = disk or OsDisk()
        self._root = Path(options.path).absolute()
        self._store: TableStore | None = None

    def write(self, df: DataFrame, batch_id: int, query_id: str | None = None) -> bool:
        """Add a batch to the table; False if it was already committed. Batches are identified by `query_id`, by default
        that of the running query, and `batch_id`."""
        query = running_query_id(df) if query_id is None else query_id
        with table_lock(self._root, "a table sink", wait_s=_LOCK_WAIT_S), self._open_store() as store:
            state = store.state()
            batches: dict[str, int] = json.loads(state.properties.get(_BATCHES, "{}"))
            if batches.get(query, -1) >= batch_id:
                run_without_writing(df)
                return False
            schema = self._schema_after(state, df.schema)
            columns = to_arrow_schema(schema, timezone="UTC")
            store.prepare(columns, [(column, "identity") for column in self._options.partition_by])
            with self._staged(df, schema) as staging:
                added = self._adopt(store, staging, state.version + 1)
            # Only the last queries are remembered: a table outlives the checkpoints of many.
            batches = dict([*((name, last) for name, last in batches.items() if name != query), (query, batch_id)])
            properties = {
                **state.properties,
                _BATCHES: json.dumps(dict([*batches.items()][-_KEEP_QUERIES:])),
                _SCHEMA: schema.json(),
                _PARTITIONS: json.dumps(self._options.partition_by),
            }
            if added:
                state = store.commit(state, add=added, remove=[], properties=properties)
                self._compact(store, state)
            return True

    @contextmanager
    def _open_store(self) -> Iterator[TableStore]:
        """The store; recovered from a crash on first use and after an error."""
        store = self._store
        try:
            if store is None:
                store = open_store(self._options, self._disk)
                if (self._root / HIDDEN / "staging").is_dir():
                    self._disk.remove_tree(self._root / HIDDEN / "staging")
                store.recover()
                self._store = store
            yield store
        except BaseException:
            self._store = None
            if store is not None:
                store.close()
            raise

    def _schema_after(self, state: TableState, rows: StructType) -> StructType:
        missing = [column for column in self._options.partition_by if column not in rows.fieldNames()]
        if missing:
            raise TableError(f"the table {self._root} is partitioned by {missing[0]}, which the rows do not have")
        if _SCHEMA not in state.properties:
            return nullable(rows)
        partitioned_by = json.loads(state.properties[_PARTITIONS])
        if partitioned_by != self._options.partition_by:
            raise TableError(
                f"the table {self._root} is partitioned by {', '.join(partitioned_by) or 'nothing'}, not by "
                f"{', '.join(self._options.partition_by) or 'nothing'}: this cannot be changed; write to another table"
            )
        return evolve(StructType.fromJson(json.loads(state.properties[_SCHEMA])), rows, str(self._root))

    @contextmanager
    def _staged(self, df: DataFrame, schema: StructType) -> Iterator[Path]:
        """The batch as Parquet files written by Spark, checked to be complete."""
        make_folders(self._disk, self._root / HIDDEN / "staging")
        staging = self._root / HIDDEN / "staging" / uuid.uuid4().hex
        names = df.schema.fieldNames()
        seen = Observation()
        rows = df.observe(seen, F.count(F.lit(1)).alias("rows")).select(
            [
                (F.col(_quoted(field.name)) if field.name in names else F.lit(None))
                .cast(field.dataType)
                .alias(field.name)
                for field in schema.fields
            ]
        )
        partitioned_by = self._options.partition_by
        if self._options.format == "iceberg":
            # Iceberg reads partition values from the files, so Spark partitions by copies of the columns.
            copies = {f"hr_part_{index}": F.col(_quoted(column)) for index, column in enumerate(partitioned_by)}
            rows, partitioned_by = rows.withColumns(copies) if copies else rows, list(copies)
        with _setting(df, _TIMESTAMPS, "TIMESTAMP_MICROS"):
            rows.write.option("compression", "zstd").partitionBy(*partitioned_by).parquet(str(staging))
        try:
            arrived = sum(pq.read_metadata(path).num_rows for path in _parquet_files(staging))
            expected = seen.get.get("rows", 0)
            if arrived != expected:
                raise TableError(
                    f"Spark wrote {expected} rows and {arrived} of them are in {self._root}: every worker must have "
                    "access to that directory, on one machine or through a shared file system"
                )
            yield staging
        finally:
            self._disk.remove_tree(staging)

    def _adopt(self, store: TableStore, staging: Path, version: int) -> list[TableFile]:
        """Move the files that Spark has written to the table's files."""
        added = []
        for index, path in enumerate(_parquet_files(staging)):
            rows = pq.read_metadata(path).num_rows
            if not rows:
                continue
            folder = self._folder(path.parent.relative_to(staging))
            name = f"{OURS}{version:010d}-{index:05d}-{uuid.uuid4().hex[:8]}.parquet"
            file = self._disk.open(path)
            file.sync_data()
            size_bytes = file.size()
            file.close()
            self._disk.rename(path, store.path_for_new(name, folder), sync=False)
            added.append(TableFile(name, folder, rows, size_bytes))
        return added

    def _folder(self, staged: Path) -> str:
        """The table's folder for a staged folder: copies of columns get the columns' names."""
        if self._options.format == "parquet":
            return "" if staged == Path() else str(staged)
        names = [quote(column, safe=" ") for column in self._options.partition_by]
        values = [part.partition("=")[2] for part in staged.parts]
        return "/".join(f"{name}={value}" for name, value in zip(names, values, strict=True))

    def _compact(self, store: TableStore, state: TableState) -> None:
        if self._options.compact_after:
            compact(
                store,
                state,
                self._disk,
                target_bytes=self._options.target_file_bytes,
                fan_in=lambda folder: self._options.compact_after,
                name=lambda files: f"{files[0].name.rpartition('-')[0]}-{uuid.uuid4().hex[:8]}.parquet",
            )


def open_store(options: TableOptions, disk: Disk) -> TableStore:
    root = Path(options.path).absolute()
    if options.format == "parquet":
        if options.catalog:
            raise TableError(f'a catalog is for Iceberg tables: set format = "iceberg" for {root}')
        if (root / "catalog.db").exists() or has_catalog_note(root):
            raise TableError(f'{root} is an Iceberg table: set format = "iceberg"')
        return ManifestStore(root, disk=disk)
    if (root / HIDDEN / "commits").exists():
        raise TableError(f'{root} is a table of plain Parquet files: set format = "parquet"')
    from headrace.pipelines.tables.iceberg import IcebergStore, table_name

    return IcebergStore(root, options.name or table_name(root.name), disk=disk, catalog=options.catalog)


def _parquet_files(folder: Path) -> list[Path]:
    return sorted(
        Path(parent, name) for parent, _, names in os.walk(folder) for name in names if name.endswith(".parquet")
    )


def _quoted(column: str) -> str:
    return "`" + column.replace("`", "``") + "`"


@contextmanager
def _setting(df: DataFrame, name: str, value: str) -> Iterator[None]:
    """Set a session setting temporarily; the batches of a streaming query have a session of their own."""
    conf = df.sparkSession.conf
    before = conf.get(name, None)
    conf.set(name, value)
    try:
        yield
    finally:
        if before is None:
            conf.unset(name)
        else:
            conf.set(name, before)
