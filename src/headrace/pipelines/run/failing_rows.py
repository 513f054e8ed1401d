"""Finds the records that make a batch fail in the steps of a pipeline, for example a cast of text that is no number.

The records of the batch are read again as a table and run through the steps: first all of them, then by bisection until
each failing record is isolated. This finds records that fail on their own, so only row-wise operators are run:
projections, filters, functions over columns (including Python UDFs), generators, unions, and joins with static tables.
Of operators that combine rows (aggregations, deduplication, joins of streams, custom state), the input is computed, and
for aggregations the keys and arguments. A failure that needs several rows, such as a sum that overflows, is not found.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import reduce
from typing import Any

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from headrace.pipelines import decode
from headrace.pipelines.control.source_schemas import SourceSchemas
from headrace.pipelines.control.topics import matching
from headrace.pipelines.dead_letters.rejects import RejectedRecord
from headrace.pipelines.run.inputs import read_range, read_static
from headrace.pipelines.run.plan import steps_over
from headrace.pipelines.run.row_plans import row_plans
from headrace.pipelines.source.offsets import OffsetRange, split
from headrace.pipelines.spark_errors import explain_error
from headrace.pipelines.spec.file import SpecFile
from headrace.pipelines.spec.model import Source
from headrace.pipelines.values.pinned import new_ids_in

REJECTED_MAX = 100
"""If more records of a batch fail, the step itself is considered wrong."""
_CHUNK_OFFSETS = 50_000

Ranges = Sequence[OffsetRange]


class TooManyFailures(Exception):
    """More than `REJECTED_MAX` records of a batch fail; `first` is one of them."""

    def __init__(self, first: RejectedRecord) -> None:
        super().__init__(first.place)
        self.first = first


def batch_ranges(start: str | None, end: str | None) -> list[list[OffsetRange]]:
    """The ranges that each source of a batch reads, from the offsets in Spark's error: `[{"orders": {"0": 3}}]`."""
    ends = _offsets(end)
    starts = _offsets(start) or [None] * len(ends)
    found = []
    for first, last in zip(starts, ends, strict=False):
        last = last or {}
        first = last.get("began at") or first or {}
        found.append(
            [
                OffsetRange(topic, int(partition), int(first.get(topic, {}).get(partition, 0)), int(offset))
                for topic, partitions in last.items()
                if topic != "began at"
                for partition, offset in partitions.items()
                if int(first.get(topic, {}).get(partition, 0)) < int(offset)
            ]
        )
    return found


def _offsets(text: str | None) -> list[dict[str, Any] | None]:
    """Parse Spark's list of offsets by source; a dash stands for none."""
    try:
        found = json.loads((text or "[]").replace("[-", "[null").replace(", -", ", null"))
    except ValueError:
        return []
    return [each if isinstance(each, dict) else None for each in found]


def describe_ranges(batch: Sequence[Ranges]) -> str:
    """`orders/0 from offset 3 to 7`, for an error without a single record at fault."""
    found = [
        f"{each.topic}/{each.partition} from offset {each.start} to {each.end - 1}" for part in batch for each in part
    ]
    return ", ".join(found[:5]) + (f" and {len(found) - 5} more" if len(found) > 5 else "")


def find_failing(
    spark: SparkSession,
    file: SpecFile,
    query: str,
    batch: Sequence[Ranges],
    schemas: SourceSchemas,
    *,
    limit: int = REJECTED_MAX,
    is_stopping: Callable[[], bool] = lambda: False,
) -> list[RejectedRecord]:
    """The records of a batch that fail in the steps before a sink, at most `limit` of them; `TooManyFailures` beyond.

    Returns none if the pipeline is stopped meanwhile: all of them or nothing.
    """
    found: list[RejectedRecord] = []
    for name, ranges in by_source(batch, file.spec.streams).items():
        for chunk in _chunks(ranges):
            with_rows = _Chunk(spark, file, query, name, chunk, schemas, is_stopping)
            try:
                for each in with_rows.search(chunk):
                    if len(found) == limit:
                        raise TooManyFailures(found[0])
                    found.append(each)
                    if limit == 1:
                        return found
            finally:
                with_rows.close()
    return [] if is_stopping() else found


def by_source(batch: Sequence[Ranges], streams: Mapping[str, Source]) -> dict[str, list[OffsetRange]]:
    """The ranges by source; empty if two sources read the same topic, since the source of a range is then ambiguous.

    A query that uses a source twice reads it twice, usually up to the same offsets.
    """
    unique = [*dict.fromkeys(each for part in batch for each in part)]
    found = {name: [each for each in unique if matching(source, [each.topic])] for name, source in streams.items()}
    is_clear = len({each[:2] for each in unique}) == len(unique) == sum(map(len, found.values()))
    return found if is_clear else {}


def _chunks(ranges: Ranges) -> Iterator[list[OffsetRange]]:
    """Split ranges into chunks that are cached one at a time."""
    chunk: list[OffsetRange] = []
    for each in split(ranges, max_records=_CHUNK_OFFSETS):
        if chunk and sum(part.size for part in chunk) + each.size > _CHUNK_OFFSETS:
            yield chunk
            chunk = []
        chunk.append(each)
    if chunk:
        yield chunk


class _Chunk:
    """Records of a source, decoded once and run through the steps in parts."""

    def __init__(
        self,
        spark: SparkSession,
        file: SpecFile,
        query: str,
        source: str,
        ranges: Ranges,
        schemas: SourceSchemas,
        is_stopping: Callable[[], bool],
    ) -> None:
        self._schemas = schemas
        self._spark, self._file, self._query, self._source = spark, file, query, source
        self._is_stopping = is_stopping
        spec = file.spec
        self._static = {
            name: read_static(spark, spec, each) for name, each in spec.sources.items() if not each.is_stream
        }
        self._rows = self._decoded(source, ranges).persist()
        # The other streams have no rows here, but their plans are needed.
        self._others = {
            name: self._decoded(name, ranges).where(F.lit(False)) for name in spec.streams if name != source
        }
        self._is_raw = spec.sources[source].decoded_format == "raw"

    def _decoded(self, name: str, ranges: Ranges) -> DataFrame:
        spec = self._file.spec
        source = spec.sources[name]
        records = read_range(self._spark, spec, spec.sources[self._source], ranges, headers=True, fail_on_loss=False)
        if source.decoded_format == "raw":
            return records
        return decode.rows(decode.decoded(records, source, self._schemas.values(name)), source, "skip")

    def close(self) -> None:
        self._rows.unpersist()

    def search(self, ranges: Ranges, *, surely: bool = False) -> Iterator[RejectedRecord]:
        """The records that fail. With `surely` at least one of them does, since none is in the other half."""
        size = sum(each.size for each in ranges)
        if size == 0 or self._is_stopping():
            return
        error = None
        if not surely or size == 1:
            error = self._error(ranges)
            if error is None:
                return
        if size == 1 and error is not None:
            only = next(each for each in ranges if each.size)
            yield RejectedRecord(only.topic, only.partition, only.start, reason_of(error))
            return
        left, right = _halves(ranges)
        found = 0
        for each in self.search(left):
            found += 1
            yield each
        yield from self.search(right, surely=found == 0)

    def _error(self, ranges: Ranges) -> PySparkException | None:
        """The error of the steps over these records; None if they pass."""
        sources = {**self._static, **self._others, self._source: self._rows.where(self._within(ranges))}
        ordered: Mapping[str, DataFrame] = {name: sources[name] for name in self._file.spec.sources}
        try:
            for rows in row_plans(self._spark, steps_over(self._spark, self._file, self._query, ordered)):
                rows.write.format("noop").mode("overwrite").save()
        except PySparkException as error:
            if new_ids_in(str(error)) is not None:
                raise  # no record is at fault
            return error
        return None

    def _within(self, ranges: Ranges) -> Column:
        topic, partition, offset = (
            ("topic", "partition", "offset") if self._is_raw else ("_topic", "_partition", "_offset")
        )
        parts = [
            (F.col(topic) == each.topic)
            & (F.col(partition) == each.partition)
            & (F.col(offset) >= each.start)
            & (F.col(offset) < each.end)
            for each in ranges
        ]
        return reduce(lambda one, other: one | other, parts)


def _halves(ranges: Ranges) -> tuple[list[OffsetRange], list[OffsetRange]]:
    if len(ranges) > 1:
        return [*ranges[: len(ranges) // 2]], [*ranges[len(ranges) // 2 :]]
    (only,) = ranges
    middle = only.start + only.size // 2
    return [only._replace(end=middle)], [only._replace(start=middle)]


def reason_of(error: PySparkException) -> str:
    """The cause of an error, after the SQL fragment at fault."""
    try:
        fragments = [context.fragment() for context in error.getQueryContext() or ()]
    except (Py4JError, NotImplementedError, PySparkException):
        fragments = []
    where = " ".join(fragments[0].split())[:200] if fragments and fragments[0] else ""
    return f"{where}: {explain_error(error)}" if where else explain_error(error)
