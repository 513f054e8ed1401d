"""Recovers a query from records that fail in its steps: finds them, writes them as dead letters, and restarts the query
without them. See `failing_rows.py` for what is found, `dead_letters/rejects.py` for why nothing is lost or
duplicated."""

import logging
import re
from collections.abc import Callable
from functools import reduce
from pathlib import Path

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery

from headrace.model.errors import HeadraceError
from headrace.pipelines import decode
from headrace.pipelines.control.folder import StateFolder
from headrace.pipelines.control.source_schemas import SourceSchemas
from headrace.pipelines.control.topic_sinks import REJECTED, rejected_sink
from headrace.pipelines.control.topics import cluster_of, make_topic, matching
from headrace.pipelines.dead_letters.columns import dead_letters
from headrace.pipelines.dead_letters.rejects import RejectedRecord, Rejects, read_rejects, write_rejects
from headrace.pipelines.errors import PipelineFailed
from headrace.pipelines.run.failing_rows import (
    REJECTED_MAX,
    TooManyFailures,
    batch_ranges,
    describe_ranges,
    find_failing,
)
from headrace.pipelines.run.inputs import read_range
from headrace.pipelines.run.plan import Query, SourceReader
from headrace.pipelines.run.start import checkpoint_of
from headrace.pipelines.sink.writer import write_batch
from headrace.pipelines.source.offsets import OffsetRange
from headrace.pipelines.spark_errors import explain_error
from headrace.pipelines.spec.file import SpecFile
from headrace.pipelines.spec.model import Source, Spec
from headrace.pipelines.values.pinned import new_ids_in

_FILE = "rejected.json"
_OURS = re.compile(
    r"^\S*headrace(?:\.\w+)+: |: headrace(?:\.\w+)+: |\[USER_RAISED_EXCEPTION\] the record at ", re.MULTILINE
)
_log = logging.getLogger("headrace.pipelines")


class FailureRecovery:
    """Excludes failing records from the batches of a pipeline's queries; see the module."""

    def __init__(
        self,
        spark: SparkSession,
        file: SpecFile,
        folder: StateFolder,
        schemas: SourceSchemas,
        is_stopping: Callable[[], bool],
    ) -> None:
        self._schemas = schemas
        self._is_stopping = is_stopping
        self._spark = spark
        self._file = file
        self._spec: Spec = file.spec
        self._folder = folder

    def rejected(self, query: str) -> Rejects:
        return read_rejects(self._path(query))

    def reading(self, query: str, read: SourceReader) -> SourceReader:
        """A reader without the records that are excluded from a query."""
        records = self.rejected(query).records

        def without(name: str, source: Source, *, headers: bool) -> DataFrame:
            rows = read(name, source, headers=headers)
            return rows if not records or not source.is_stream else rows.where(~_is_one_of(records))

        return without

    def finish(self, query: str) -> None:
        """Write the dead letters of records that a killed run had excluded but not written."""
        self._write_letters(query, self.rejected(query))

    def recover(self, query: Query, running: StreamingQuery, error: PySparkException) -> int:
        """After a failure, exclude the failing records, so that the query can be restarted; returns their number.

        Raises `PipelineFailed`, with topic and offsets, if failures stop the pipeline or no single record is at fault.
        """
        why = explain_error(error)
        if query.sink is None or _is_ours(error):
            raise PipelineFailed(f"{query.name}: {why}") from error
        failed = running._jsq.exception().get()
        batch = batch_ranges(failed.startOffset(), failed.endOffset())
        strict = self._spec.errors.on_error == "fail"
        try:
            _log.info("looking for the records that fail in %s: %s", query.name, why)
            found = find_failing(
                self._spark,
                self._file,
                query.name,
                batch,
                self._schemas,
                limit=1 if strict else REJECTED_MAX,
                is_stopping=self._is_stopping,
            )
            number = self._failed_batch(query.name)
        except TooManyFailures as many:
            first = f"the record at {many.first.place} fails: {many.first.reason}"
            many_fail = f"more than {REJECTED_MAX} records of a batch fail in its steps, so none was dead-lettered"
            raise PipelineFailed(f"{query.name}: {many_fail}; {first}") from error
        except (PySparkException, Py4JError, HeadraceError) as other:
            if (new := new_ids_in(str(other))) is not None:
                # The batch has records of new schemas, too: it is tried again, and those that fail are found then.
                self._schemas.learn(*new)
                return 0
            _log.warning("the records that fail were not found: %s", explain_error(other))
            found, number = [], -1
        if not found:
            where = describe_ranges(batch)
            raise PipelineFailed(f"{query.name}: {why}" + (f" (in a batch of {where})" if where else "")) from error
        if strict:
            raise PipelineFailed(f"{query.name}: the record at {found[0].place} fails: {found[0].reason}") from error
        before = self.rejected(query.name)
        rejects = before.with_found(running.id, number, found)
        if rejects == before:
            # They were already excluded, and the batch failed nevertheless.
            raise PipelineFailed(f"{query.name}: {why} (in a batch of {describe_ranges(batch)})") from error
        write_rejects(self._path(query.name), rejects)
        self._write_letters(query.name, rejects)
        for each in found:
            _log.warning("the record at %s fails and was excluded: %s", each.place, each.reason)
        return len(found)

    def _path(self, query: str) -> Path:
        return self._folder.checkpoint / query / _FILE

    def _failed_batch(self, query: str) -> int:
        """The id of the failed batch: Spark writes it to the checkpoint before the batch starts."""
        context = self._spark.sparkContext
        jvm = context._jvm
        assert jvm is not None
        path = jvm.org.apache.hadoop.fs.Path(f"{checkpoint_of(self._spec, self._folder, query)}/offsets")
        names = [
            each.getPath().getName() for each in path.getFileSystem(context._jsc.hadoopConfiguration()).listStatus(path)
        ]
        return max(int(name) for name in names if name.isdecimal())

    def _write_letters(self, query: str, rejects: Rejects) -> None:
        if self._spec.errors.on_error != "dead-letter":
            return
        for round_ in range(rejects.written, len(rejects.rounds)):
            for name, source in self._spec.streams.items():
                mine = [each for each in rejects.rounds[round_] if matching(source, [each.topic])]
                if mine:
                    self._write_round(query, name, mine, rejects, rejects.number_of(round_))
        if rejects.written < len(rejects.rounds):
            write_rejects(self._path(query), rejects.all_written())

    def _write_round(self, query: str, source: str, found: list[RejectedRecord], rejects: Rejects, number: int) -> None:
        options = rejected_sink(self._spec, query, source)
        self._folder.write_sinks({**self._folder.read_sinks(), f"{REJECTED}{query}-{source}": options})
        with cluster_of(self._spec, self._spec.sources[source]) as cluster:
            for topic in sorted({each.topic for each in found}):
                make_topic(cluster, self._spec.errors.dead_letter_topic(topic), like=topic)
        ranges = [OffsetRange(each.topic, each.partition, each.offset, each.offset + 1) for each in found]
        records = read_range(self._spark, self._spec, self._spec.sources[source], ranges, headers=True)
        reasons = self._spark.createDataFrame(
            [(each.topic, each.partition, each.offset, each.reason) for each in found],
            f"topic STRING, partition INT, offset BIGINT, {decode.REASON} STRING",
        )
        bad = records.join(F.broadcast(reasons), ["topic", "partition", "offset"])
        write_batch(dead_letters(bad, self._spec.errors, self._spec.group), number, rejects.query_id, options)


def _is_one_of(records: list[RejectedRecord]) -> Column:
    places: dict[tuple[str, int], list[int]] = {}
    for each in records:
        places.setdefault((each.topic, each.partition), []).append(each.offset)
    parts = [
        (F.col("topic") == topic) & (F.col("partition") == partition) & F.col("offset").isin(offsets)
        for (topic, partition), offsets in places.items()
    ]
    return reduce(lambda one, other: one | other, parts)


def _is_ours(error: BaseException) -> bool:
    """Whether the data source, a sink or the decoding raised the error, so that no step is at fault."""
    return _OURS.search(str(error)) is not None
