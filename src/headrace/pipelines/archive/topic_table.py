"""A topic as a table: what is archived comes from Parquet files, the rest from the broker, each record once.

    orders = read_topic_table(spark, "orders", "localhost:9092", "archive/orders")
    orders.where("timestamp >= '2026-01-31'").count()

    typed = read_topic_table(spark, "orders", "localhost:9092", "archive/orders",
                             format="json", schema="order_id STRING, amount DOUBLE")

The columns are those of `spark.read.format("headrace")`, or of the schema with `_key`, `_topic`, `_partition`,
`_offset` and `_timestamp` beside them. What is seen are all records that were committed at the moment of the call, also
those that retention has deleted from the topic since they were archived: the archive says for each partition up to
which offset its files go, and the topic is read from there on. An archiver that runs on meanwhile changes nothing about
the answer: its later files are not looked at, and those that it replaces stay for an hour.

Records that are neither in the archive nor in the topic any more are an error that names them, at the call or when they
are read; with `fail_on_data_loss=False` they are passed over with a warning. The gaps that the archive knows of are
logged as a warning, too.
"""

import json
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

from pyspark.sql import DataFrame, SparkSession

from headrace.pipelines.archive.layout import ArchiveSnapshot, read_archive
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
    """The records of a topic, archived or not; see the module. `options` are further ones of the source `headrace`.

    With a `format` and a `schema` values are decoded; `on_error` says what happens to those that do not fit.
    """
    root = Path(archive).absolute()
    view, tail = _plan(topic, bootstrap, root, fail_on_data_loss=fail_on_data_loss)
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
    topic: str, bootstrap: str, root: Path, *, fail_on_data_loss: bool
) -> tuple[ArchiveSnapshot, dict[int, tuple[int, int]]]:
    """An archive at one moment, and what to read from the topic: for each partition from where and up to where.

    The archive is looked at first, so that the topic never ends before it. Where records between the two are gone, a
    running archiver may have taken them since: then look again.
    """
    with Cluster(bootstrap) as cluster:
        for look in range(_LOOKS):
            view = read_archive(root)
            if view.topic != topic:
                raise TableError(f"{root} is the archive of {view.topic or 'no topic yet'}, not of {topic}")
            found = cluster.metadata([topic]).get(topic)
            if found is None:
                # The topic may be gone altogether: the archive is all there is.
                log.warning("there is no topic %s any more: only its archive is read", topic)
                return view, {}
            if view.topic_id and found.topic_id and view.topic_id != str(found.topic_id):
                raise TableError(f"{root} is the archive of an earlier topic {topic}, which was deleted and made anew")
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
                f"{'; '.join(lost)} are neither in {root} nor in the topic any more: run the archiver more often, or "
                "pass fail_on_data_loss=False to go on without them"
            )
    for text in (*lost, *(f"{gap} of {topic}" for gap in view.gaps)):
        log.warning("%s were deleted before they were archived", text)
    return view, tail


def _archived(spark: SparkSession, view: ArchiveSnapshot, *, include_headers: bool) -> DataFrame:
    columns = f"{RECORD_SCHEMA}, {HEADERS_SCHEMA}" if include_headers else RECORD_SCHEMA
    if not view.files:
        return spark.createDataFrame([], columns)
    return spark.read.schema(columns).parquet(*(str(file.path) for file in view.files))
