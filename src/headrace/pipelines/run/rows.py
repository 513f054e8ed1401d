"""Converts rows for their sink: columns for tables and databases, key and value for topics."""

from functools import reduce
from pathlib import Path

import msgspec
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import to_arrow_type
from pyspark.sql.types import BinaryType, StringType, StructType

from headrace.pipelines.control.sink_schemas import SinkSchemas
from headrace.pipelines.decode import HEADERS_SCHEMA
from headrace.pipelines.row_values import ROW
from headrace.pipelines.spec.model import METADATA_COLUMNS, SCHEMA_FORMATS, Sink
from headrace.pipelines.tables.sink import TableOptions
from headrace.pipelines.tables.store import TableError
from headrace.pipelines.upsert.database import UpsertOptions, connect_to
from headrace.pipelines.upsert.sink import plan_for

_SQLITE = "sqlite:///"
_RECORD_COLUMNS = {"key", "value", "topic", "partition", "offset", "timestamp", "timestampType", "headers"}


def sink_rows(rows: DataFrame, sink: Sink, schemas: SinkSchemas) -> DataFrame:
    """The rows in the form that the sink writes."""
    if sink.kind == "topic":
        return _records(rows, sink, schemas)
    rows = rows.drop(*METADATA_COLUMNS)
    return _with_keys(rows, sink) if sink.kind == "database" else rows


def check_sink(columns: StructType, sink: Sink, folder: Path) -> None:
    """Raise the errors that a table or a database would raise at its first batch."""
    if sink.kind == "database":
        connect_to(sink.database or "")
        plan_for(upsert_options(sink, folder, ""), columns)
    elif sink.kind == "table":
        options = table_options(sink, folder)
        if options.catalog and options.format != "iceberg":
            raise TableError('a catalog is for Iceberg tables: set format = "iceberg"')
        for column in options.partition_by:
            if column not in columns.fieldNames():
                raise TableError(f"there is no column {column}; the columns are {', '.join(columns.fieldNames())}")


def upsert_options(sink: Sink, folder: Path, name: str) -> UpsertOptions:
    """The options of an upsert sink. The path of a SQLite file is relative to the pipeline's folder."""
    database = sink.database or ""
    if database.startswith(_SQLITE):
        database = _SQLITE + str((folder / database.removeprefix(_SQLITE)).resolve())
    return UpsertOptions(
        database=database,
        table=sink.table or "",
        key=sink.keys,
        order=sink.order,
        delete=sink.delete,
        delete_nulls=sink.delete_nulls,
        create=sink.create,
        name=name,
    )


def table_options(sink: Sink, folder: Path) -> TableOptions:
    """The options of a table sink. The default path is in the pipeline's folder: `lake/revenue` for `lake.revenue`."""
    path = sink.path or (sink.table or "").replace(".", "/")
    given = {"path": str((folder / path).resolve()), "partition_by": sink.partition_columns, "name": sink.table or ""}
    if sink.format is not None:
        given["format"] = sink.format
    return msgspec.convert({**given, **sink.options}, TableOptions)


def _with_keys(rows: DataFrame, sink: Sink) -> DataFrame:
    """Fail for a row without a key in the query itself, where the record at fault can be found."""
    keys = [F.col(f"`{name}`").isNull() for name in sink.keys if name in rows.columns]
    if not keys:
        return rows
    text = f"a row for {sink.table} has no value in its key ({', '.join(sink.keys)})"
    is_missing = reduce(lambda one, other: one | other, keys)
    return rows.where(F.when(is_missing, F.raise_error(F.lit(text)).cast("boolean")).otherwise(F.lit(True)))


def _records(rows: DataFrame, sink: Sink, schemas: SinkSchemas) -> DataFrame:
    """Key, value and headers. The value is all columns by `format`, or the column `value` alone (`text`, `raw`)."""
    columns = [name for name in rows.columns if name not in METADATA_COLUMNS]
    made = [_key(rows, sink).alias("key")]
    if sink.format in SCHEMA_FORMATS:
        return _with_schema(rows, sink, columns, made, schemas)
    if sink.format == "json" or (sink.format is None and not _is_raw(rows, columns)):
        value = F.to_json(F.struct(*[F.col(f"`{name}`") for name in columns]), {"ignoreNullFields": "false"})
        made.append(value.cast("binary").alias("value"))
    else:
        made.append(F.col("value").cast("binary").alias("value"))
    if sink.headers:
        made.append(_headers(sink).alias("headers"))
    elif _is_raw(rows, columns) and "headers" in columns:
        made.append(F.col("headers"))
    return rows.select(*made)


def _with_schema(
    rows: DataFrame, sink: Sink, columns: list[str], made: list[Column], schemas: SinkSchemas
) -> DataFrame:
    """Records whose values have the id of their schema. Python workers encode Avro and Protobuf, in Arrow batches."""
    struct = F.struct(*[F.col(f"`{name}`") for name in columns])
    schema = StructType([rows.schema[name] for name in columns])
    values = schemas.values(sink, to_arrow_type(schema, timezone="UTC"))
    headers = [_headers(sink).alias("headers")] if sink.headers else []
    if sink.format == "json-schema":
        body = F.to_json(struct, {"ignoreNullFields": "false"}).cast("binary")
        return rows.select(*made, F.concat(F.lit(bytearray(values.prefix)), body).alias("value"), *headers)
    ready = rows.select(*made, struct.alias(ROW), *headers)
    types = f"key BINARY, value BINARY{f', {HEADERS_SCHEMA}' if headers else ''}"
    return ready.mapInArrow(values.encoded, types)


def _is_raw(rows: DataFrame, columns: list[str]) -> bool:
    """Whether the rows are records already: only the columns of a record, including the value."""
    if "value" not in columns or not set(columns) <= _RECORD_COLUMNS:
        return False
    return isinstance(rows.schema["value"].dataType, BinaryType | StringType)


def _key(rows: DataFrame, sink: Sink) -> Column:
    """The configured key: a column or an expression, several as JSON; by default the record's own key."""
    if len(sink.keys) == 1:
        return F.expr(sink.keys[0]).cast("string").cast("binary")
    if sink.keys:
        return F.to_json(F.struct(*[F.expr(each) for each in sink.keys])).cast("binary")
    for name in ("_key", "key"):
        if name in rows.columns and (name == "_key" or _is_raw(rows, rows.columns)):
            return F.col(name).cast("binary")
    return F.lit(None).cast("binary")


def _headers(sink: Sink) -> Column:
    pairs = [
        F.struct(F.lit(name).alias("key"), F.expr(expression).cast("string").cast("binary").alias("value"))
        for name, expression in sink.headers.items()
    ]
    return F.array(*pairs)
