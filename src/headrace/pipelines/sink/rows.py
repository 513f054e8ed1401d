"""Splits rows by topic and partition, in the columns that record batches are encoded from. Needs no Spark."""

from collections.abc import Callable, Iterator

import pyarrow as pa
import pyarrow.compute as pc

from headrace.model.errors import InvalidRecord
from headrace.pipelines.sink.two_phase import SinkError
from headrace.records.partitioner import rows_by_partition
from headrace.wire import Partition

_RECORD_COLUMNS = ("key", "value", "timestamp", "headers")


class WrongRows(SinkError):
    """Columns or rows that a topic sink cannot write; the message names the column."""


class RowRouter:
    """Splits blocks of rows. `partition_count` is called once per topic and raises if the topic does not exist."""

    def __init__(self, topic: str | None, partition_count: Callable[[str], int], start: int = 0) -> None:
        self._topic = topic
        self._partition_count = partition_count
        self._counts: dict[str, int] = {}
        self._start = start
        """The partition for the next block's rows that have neither key nor partition."""

    def split(self, rows: pa.RecordBatch) -> Iterator[tuple[Partition, pa.RecordBatch]]:
        """The rows of each partition in their order, reduced to the columns of a record."""
        names = rows.schema.names
        for topic, part in self._by_topic(rows):
            count = self._count(topic)
            try:
                found = rows_by_partition(
                    count,
                    part.num_rows,
                    keys=part.column("key") if "key" in names else None,
                    explicit=part.column("partition") if "partition" in names else None,
                    start=self._start,
                )
            except InvalidRecord as error:
                raise WrongRows(f"the column partition of rows for the topic {topic} is wrong: {error}") from error
            columns = part.select([name for name in _RECORD_COLUMNS if name in names])
            for partition, indexes in found.items():
                whole = len(indexes) == part.num_rows
                yield (topic, partition), columns if whole else columns.take(pa.array(indexes))
        self._start += 1

    def _by_topic(self, rows: pa.RecordBatch) -> Iterator[tuple[str, pa.RecordBatch]]:
        if self._topic is not None:
            yield self._topic, rows
            return
        topics = rows.column("topic")
        if topics.null_count:
            raise WrongRows("the column topic is null in some rows, and there is no option topic: say where they go")
        distinct = topics.unique().to_pylist()
        for topic in distinct:
            yield topic, rows if len(distinct) == 1 else rows.filter(pc.equal(topics, topic))

    def _count(self, topic: str) -> int:
        if topic not in self._counts:
            self._counts[topic] = self._partition_count(topic)
        return self._counts[topic]
