"""A topic and its archive as one DataFrame: archived records from Parquet files, the rest from the broker.

    orders = read_topic_table(spark, "orders", "localhost:9092", "archive/orders")
    orders.where("timestamp >= '2026-01-31'").count()

    typed = read_topic_table(spark, "orders", "localhost:9092", "archive/orders",
                             format="json", schema="order_id STRING, amount DOUBLE")

The columns are those of `spark.read.format("headrace")`, or those of the schema and `_key`, `_topic`, `_partition`,
`_offset` and `_timestamp`. The result has every record that was committed at the time of the call, once, including
those that retention has deleted from the topic since they were archived: the archive stores the end offset of each
partition, and the topic is read from there on. An archiver that runs meanwhile does not change the result: later files
are ignored, and replaced files stay on disk for an hour.

Records that are neither in the archive nor in the topic are an error, at the call or while reading; with
`fail_on_data_loss=False` they are skipped with a warning. Known gaps of the archive are logged as warnings.
"""

import json
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

from pyspark.sql import DataFrame, SparkSession

from headrace.config.credentials import Credentials
from headrace.pipelines.archive.layout import ArchiveSnapshot, read_archive
from headrace.pipelines.connection_options import connection_options, credentials_of
from headrace.pipelines.decode import HEADERS_SCHEMA, RECORD_SCHEMA, decoded, rows
from headrace.pipelines.spec.model import Source
from headrace.pipelines.tables.store import TableError
from headrace.wire import EARLIEST, LATEST, READ_COMMITTED, Cluster

log = logging.getLogger(__name__)

_LOOKS = 5


def read_topic_table(
    spark: SparkSession,
    topic: str,
    bootstrap: str,
    archive: str | Path,
    *,
    include_headers: bool = False,
    format: Literal["raw", "json", "csv", "text"] = "raw",
    schema: str | None = None,
    on_error: Literal["skip", "fail"] = "fail",
    fail_on_data_loss: bool = True,
    options: Mapping[str, str] | None = None,
) -> DataFrame:
    """The records of a topic, archived or not; see the module. `options` are further options of the data source.

    With a `format` and a `schema` values are decoded; `on_error` skips values that fail to decode, or raises.
    """
    root = Path(archive).absolute()
    credentials = credentials_of(connection_options(options or {}))
    view, tail = _plan(topic, bootstrap, credentials, root, fail_on_data_loss=fail_on_data_loss)
    records = _archived(spark, view, include_headers=include_headers)
    if tail:
        live = spark.read.format("headrace").options(
            **{
                "kafka.bootstrap.servers": bootstrap,
                "assign": json.dumps({topic: sorted(tail)}),
                "startingOffsets": json.dumps({topic: {str(each): start for each, (start, _) in tail.items()}}),
                "endingOffsets": json.dumps({topic: {str(each): end for each, (_, end) in tail.items()}}),
                "failOnDataLoss": str(fail_on_data_loss).lower(),
                "isolation": "read_committed",
                "includeHeaders": str(include_headers).lower(),
                **(options or {}),
            }
        )
        records = records.unionByName(live.load())
    if format == "raw":
        return records
    source = Source(topic=topic, format=format, schema=schema)
    return rows(decoded(records, source), source, on_error)


def _plan(
    topic: str, bootstrap: str, credentials: Credentials, root: Path, *, fail_on_data_loss: bool
) -> tuple[ArchiveSnapshot, dict[int, tuple[int, int]]]:
    """A view of the archive, and the offsets to read from the topic: start and end by partition.

    The archive is read first, so the topic's end is never before the archive's. If records between the two are missing,
    a running archiver may have archived them meanwhile: then both are read again.
    """
    with Cluster(bootstrap, credentials=credentials) as cluster:
        for look in range(_LOOKS):
            view = read_archive(root)
            if view.topic != topic:
                raise TableError(f"{root} is the archive of {view.topic or 'no topic yet'}, not of {topic}")
            found = cluster.metadata([topic]).get(topic)
            if found is None:
                # The topic was deleted: only the archive is left.
                log.warning("the topic %s no longer exists: only its archive is read", topic)
                return view, {}
            if view.topic_id and found.topic_id and view.topic_id != str(found.topic_id):
                raise TableError(f"{root} is the archive of an earlier topic {topic}, which was deleted and recreated")
            where = [(topic, info.partition) for info in found.partitions]
            starts = cluster.list_offsets(dict.fromkeys(where, EARLIEST))
            ends = cluster.list_offsets(dict.fromkeys(where, LATEST), isolation=READ_COMMITTED)
            tail, lost = {}, []
            for place in where:
                archived, start, end = view.offsets.get(place[1], 0), starts[place].offset, ends[place].offset
                if archived < min(start, end):
                    lost.append(f"offsets {archived} to {start - 1} of {topic}-{place[1]}")
                if max(archived, start) < end:
                    tail[place[1]] = (max(archived, start), end)
            if not lost or (look == _LOOKS - 1 and not fail_on_data_loss):
                break
        else:
            raise TableError(
                f"{'; '.join(lost)} are neither in {root} nor in the topic: run the archiver more often, or pass "
                "fail_on_data_loss=False to continue without them"
            )
    for text in (*lost, *(f"{gap} of {topic}" for gap in view.gaps)):
        log.warning("%s were deleted before they were archived", text)
    return view, tail


def _archived(spark: SparkSession, view: ArchiveSnapshot, *, include_headers: bool) -> DataFrame:
    columns = f"{RECORD_SCHEMA}, {HEADERS_SCHEMA}" if include_headers else RECORD_SCHEMA
    if not view.files:
        return spark.createDataFrame([], columns)
    return spark.read.schema(columns).parquet(*(str(file.path) for file in view.files))
