"""The Spark data source `headrace`, for `spark.read`, `readStream`, `write` and `writeStream`.

Spark imports this module in processes that only inspect options and columns, so the readers and writers are imported on
demand.
"""

from typing import TYPE_CHECKING

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from headrace.pipelines.source.options import COLUMNS, OptionError, SourceOptions, parse_source_options
from headrace.pipelines.spark_errors import hide_traceback

if TYPE_CHECKING:
    from headrace.pipelines.source.reader import ReadRequest

_HEADERS = ArrayType(StructType([StructField("key", StringType()), StructField("value", BinaryType())]))
_TYPES: dict[str, DataType] = {
    "key": BinaryType(),
    "value": BinaryType(),
    "topic": StringType(),
    "partition": IntegerType(),
    "offset": LongType(),
    "timestamp": TimestampType(),
    "timestampType": IntegerType(),
    "headers": _HEADERS,
}


class HeadraceDataSource(DataSource):
    """The data source `headrace`: topics as rows, with the columns and option names of Spark's Kafka source.

    ```python
    orders = (
        spark.read.format("headrace")
        .option("kafka.bootstrap.servers", "localhost:9092")
        .option("subscribe", "orders")
        .load()
    )
    print(orders.selectExpr("CAST(value AS STRING)", "offset").collect())
    ```
    """

    @classmethod
    def name(cls) -> str:
        return "headrace"

    def schema(self) -> StructType:
        with hide_traceback():
            return StructType([StructField(name, _TYPES[name]) for name in self._any_options().columns])

    def reader(self, schema: StructType) -> DataSourceReader:
        from headrace.pipelines.source.reader import BatchReader

        return BatchReader(self._reading(schema, streaming=False))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        from headrace.pipelines.source.reader import StreamReader

        return StreamReader(self._reading(schema, streaming=True))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        from headrace.pipelines.sink.writer import batch_sink

        with hide_traceback():
            return batch_sink(self.options, schema, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        from headrace.pipelines.sink.writer import stream_sink

        with hide_traceback():
            return stream_sink(self.options, schema, overwrite)

    def _reading(self, schema: StructType, *, streaming: bool) -> "ReadRequest":
        from headrace.pipelines.source.reader import ReadRequest

        return ReadRequest(dict(self.options), tuple(schema.fieldNames()), streaming, _problem(schema))

    def _any_options(self) -> SourceOptions:
        """The options of a batch or of a stream: Spark asks for the schema before it says which of them it is."""
        try:
            return parse_source_options(self.options, streaming=True)
        except OptionError as error:
            try:
                return parse_source_options(self.options, streaming=False)
            except OptionError:
                raise error from None


def _problem(schema: StructType) -> str:
    """Why a user's schema is invalid, or nothing: it may have any of the source's columns, in any order."""
    for field in schema.fields:
        expected = _TYPES.get(field.name)
        if expected is None:
            return f"the schema has a column {field.name!r}, which is none of {', '.join(COLUMNS)}"
        if expected.simpleString() != field.dataType.simpleString():
            return (
                f"the column {field.name} is of type {expected.simpleString()}, not {field.dataType.simpleString()}: "
                "cast it in the query"
            )
    return ""
