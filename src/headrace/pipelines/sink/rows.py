"""Rows as records: which columns a sink takes, and which rows go to which partition of which topic.

    value      string or binary; null is a tombstone
    key        string or binary, may be left out or null
    topic      string; left out or not looked at where the option `topic` is given
    partition  integer, may be left out or null: then the key decides as in Java's producer
    headers    array<struct<key: string, value: binary>>, may be left out or null
    timestamp  timestamp, may be left out or null: then it is now

The other columns of a source (`offset`, `timestampType`) may be there and are not looked at.
"""

from collections.abc import Callable, Iterator

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    ByteType,
    DataType,
    IntegerType,
    LongType,
    ShortType,
    StringType,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from headrace.model.errors import InvalidRecord
from headrace.pipelines.sink.two_phase import SinkError
from headrace.records.partitioning import rows_by_partition
from headrace.wire import Partition

_TEXT = (StringType, BinaryType)
_TYPES: dict[str, tuple[tuple[type[DataType], ...], str]] = {
    "value": (_TEXT, "string or binary"),
    "key": (_TEXT, "string or binary"),
    "topic": ((StringType,), "string"),
    "partition": ((IntegerType, LongType, ShortType, ByteType), "int"),
    "timestamp": ((TimestampType, TimestampNTZType), "timestamp"),
}
_IGNORED = ("offset", "timestampType")
_RECORD_COLUMNS = ("key", "value", "timestamp", "headers")


class WrongRows(SinkError):
    """Columns or rows that cannot be written; names the column."""


def check_schema(schema: StructType, *, has_topic: bool) -> None:
    """Refuse columns that a sink cannot take, before anything runs."""
    fields = {field.name: field.dataType for field in schema.fields}
    if "value" not in fields:
        raise WrongRows(f"there is no column value to write, only {', '.join(fields) or 'no column at all'}")
    if not has_topic and "topic" not in fields:
        raise WrongRows("there is neither a column topic nor the option topic: say where the rows go")
    for name, kind in fields.items():
        if name in _TYPES:
            allowed, words = _TYPES[name]
            if not isinstance(kind, allowed):
                raise WrongRows(f"the column {name} is of type {kind.simpleString()}: cast it to {words}")
        elif name == "headers":
            _check_headers(kind)
        elif name not in _IGNORED:
            raise WrongRows(
                f"a record has no column {name}: put it into value (as with to_json), key or headers, or drop it"
            )


def _check_headers(kind: DataType) -> None:
    if isinstance(kind, ArrayType) and isinstance(kind.elementType, StructType):
        inner = {field.name: field.dataType for field in kind.elementType.fields}
        if (
            set(inner) == {"key", "value"}
            and isinstance(inner["key"], StringType)
            and isinstance(inner["value"], BinaryType)
        ):
            return
    raise WrongRows(
        f"the column headers is of type {kind.simpleString()}: make it array<struct<key:string,value:binary>>"
    )


class RowRouter:
    """Splits blocks of rows. `partition_count` is asked once for each topic, and raises for one that is not there."""

    def __init__(self, topic: str | None, partition_count: Callable[[str], int], start: int = 0) -> None:
        self._topic = topic
        self._partition_count = partition_count
        self._counts: dict[str, int] = {}
        self._start = start
        """The partition for the next rows with neither key nor partition."""

    def split(self, rows: pa.RecordBatch) -> Iterator[tuple[Partition, pa.RecordBatch]]:
        """The rows of each partition in their order, as columns that can be encoded."""
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
