"""From records to rows: values are decoded by the source's format, and those that do not fit get a reason.

`decoded` adds two columns to the records of a topic: `_v`, the value as a struct, and `_reason`, one sentence that says
why the value does not fit, null where it does. `rows` then keeps what fits; `dead_letters/columns.py` takes the rest.
"""

from pathlib import Path

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StringType, StructField, StructType

from headrace.pipelines.avro.registry import avro_values
from headrace.pipelines.spec.model import OnError, Source

RECORD_SCHEMA = (
    "key BINARY, value BINARY, topic STRING, partition INT, offset BIGINT, timestamp TIMESTAMP, timestampType INT"
)
HEADERS_SCHEMA = "headers ARRAY<STRUCT<key: STRING, value: BINARY>>"

REASON = "_reason"
_VALUE = "_v"
_CORRUPT = "_headrace_corrupt_record"
_TOMBSTONE = "there is no value (a tombstone)"
_ABSENT = "_headrace_absent"
_PERMISSIVE = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": _CORRUPT}


def decoded(records: DataFrame, source: Source, folder: Path = Path()) -> DataFrame:
    """The records with `_v` and `_reason`. Files that the source names are in `folder`."""
    if source.tombstones == "drop":
        records = records.where(F.col("value").isNotNull())
    if source.decoded_format == "avro":
        return _from_avro(records, source, folder)
    if source.decoded_format == "text":
        made = records.withColumn(_VALUE, F.struct(F.col("value").cast("string").alias("value")))
        return made.withColumn(REASON, _first(_shape_problems(source, may_be_empty=True)))
    schema = _schema(source.schema or "")
    made = records.withColumn(_VALUE, _parsed(source, schema))
    problems = [
        *_shape_problems(source, may_be_empty=False),
        (F.col("value").isNotNull() & F.col(_VALUE).isNull(), F.lit("the value is blank")),
        (F.col(_VALUE)[_CORRUPT].isNotNull(), _misfit(source, schema)),
    ]
    if source.decoded_format == "json":
        # Spark's parser stops at the end of the first object and looks no further.
        trimmed = F.expr(r"trim(TRAILING ' \t\r\n' FROM CAST(value AS STRING))")
        problems.append((~F.endswith(trimmed, F.lit("}")), F.lit("something follows the JSON object")))
    return made.withColumn(REASON, _first(problems))


def _from_avro(records: DataFrame, source: Source, folder: Path = Path()) -> DataFrame:
    """Decoded in blocks, by Python workers."""
    values = avro_values(
        schema=source.schema, schemas=source.schemas, registry=source.registry, subject=source.subject, folder=folder
    )
    columns = f"{_ddl(records.schema)}, {_VALUE} {values.spark_type}, {REASON} STRING"
    made = records.mapInArrow(values.appended, columns)
    if source.tombstones == "keep":
        return made
    return made.withColumn(REASON, F.when(F.col("value").isNull(), F.lit(_TOMBSTONE)).otherwise(F.col(REASON)))


def _schema(ddl: str) -> StructType:
    schema = StructType.fromDDL(ddl)
    assert isinstance(schema, StructType)
    return schema


def counted(decoded: DataFrame, name: str) -> DataFrame:
    """The same rows; how many there are and how many do not fit is in the progress, under `name`."""
    return decoded.observe(name, F.count(F.lit(1)).alias("rows"), F.count(F.col(REASON)).alias("bad"))


def rows(decoded: DataFrame, source: Source, on_error: OnError) -> DataFrame:
    """The rows that fit, as columns of their own. With `fail`, one that does not fit stops the query."""
    is_good = F.col(REASON).isNull()
    if on_error == "fail":
        place = F.concat_ws("/", "topic", F.col("partition").cast("string"), F.col("offset").cast("string"))
        text = F.concat(F.lit("the record at "), place, F.lit(" does not fit: "), F.col(REASON))
        is_good = F.when(is_good, F.lit(True)).otherwise(F.raise_error(text).cast("boolean"))
    fields = [field for field in _fields(decoded) if field != _CORRUPT]
    columns = [F.col(_VALUE)[field].alias(field) for field in fields]
    return decoded.where(is_good).select(*columns, *metadata(decoded))


def metadata(records: DataFrame) -> list[Column]:
    """Where each row comes from, under names that a value is unlikely to have."""
    columns = [F.col("key").cast("string").alias("_key")]
    columns += [F.col(name).alias(f"_{name}") for name in ("topic", "partition", "offset", "timestamp")]
    if "headers" in records.columns:
        columns.append(F.col("headers").alias("_headers"))
    return columns


def _fields(decoded: DataFrame) -> list[str]:
    value = decoded.schema[_VALUE].dataType
    return value.fieldNames() if isinstance(value, StructType) else []


def _parsed(source: Source, schema: StructType) -> Column:
    text = F.col("value").cast("string")
    whole = StructType([*schema.fields, StructField(_CORRUPT, StringType())])
    if source.decoded_format == "csv":
        return F.from_csv(text, _ddl(whole), {**_options(source), **_PERMISSIVE})
    return F.from_json(text, whole, {**_options(source), **_PERMISSIVE})


def _ddl(schema: StructType) -> str:
    return ", ".join(f"`{field.name}` {field.dataType.simpleString()}" for field in schema.fields)


def _options(source: Source) -> dict[str, str]:
    """Options of Spark's own parsers, written under `options` with the name of the format: `csv.sep = ";"`."""
    prefix = f"{source.decoded_format}."
    return {key.removeprefix(prefix): str(value) for key, value in source.options.items() if key.startswith(prefix)}


Problems = list[tuple[Column, Column]]


def _first(problems: Problems) -> Column:
    """The text of the first that holds, else null."""
    (condition, text), *others = problems
    chain = F.when(condition, text)
    for condition, text in others:
        chain = chain.when(condition, text)
    return chain.otherwise(F.lit(None).cast("string"))


def _shape_problems(source: Source, *, may_be_empty: bool) -> Problems:
    """What can be wrong before the value is looked into."""
    problems: Problems = []
    if source.tombstones == "keep":
        problems.append((F.col("value").isNull(), F.lit(None).cast("string")))
    else:
        problems.append((F.col("value").isNull(), F.lit(_TOMBSTONE)))
    if not may_be_empty:
        problems.append((F.length("value") == 0, F.lit("the value is empty")))
    problems.append((~F.is_valid_utf8(F.col("value").cast("string")), F.lit("the value is not UTF-8")))
    return problems


def _misfit(source: Source, schema: StructType) -> Column:
    """Which field is at fault: each is tried alone, but only for rows that are known to be bad."""
    if source.decoded_format == "csv":
        return F.lit("the value does not fit the schema")
    text = F.col("value").cast("string")

    def fails(field: StructField) -> Column:
        alone = StructType([field, StructField(_CORRUPT, StringType())])
        return F.from_json(text, alone, {**_options(source), **_PERMISSIVE})[_CORRUPT].isNotNull()

    problems: Problems = [
        (fails(StructField(_ABSENT, StringType())), F.lit("the value is not a JSON object, or is cut off"))
    ]
    for field in schema.fields:
        kind = field.dataType.simpleString().upper()
        problems.append((fails(field), F.lit(f"{field.name} is not {kind}")))
    return F.coalesce(_first(problems), F.lit("the value does not fit the schema"))
