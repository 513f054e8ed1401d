"""Decodes records to rows by the source's format; records that cannot be decoded get a reason.

`decoded` adds two columns to the records of a topic: `_v`, the value as a struct, and `_reason`, the reason why the
value cannot be decoded, else null. `rows` selects the decoded ones, `dead_letters/columns.py` the others.
"""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StringType, StructField, StructType

from headrace.pipelines.json_schema.values import TEXT, JsonSchemaValues
from headrace.pipelines.spec.model import OnError, Source
from headrace.pipelines.values.framed import FramedValues

RECORD_SCHEMA = (
    "key BINARY, value BINARY, topic STRING, partition INT, offset BIGINT, timestamp TIMESTAMP, timestampType INT"
)
HEADERS_SCHEMA = "headers ARRAY<STRUCT<key: STRING, value: BINARY>>"

REASON = "_reason"
_VALUE = "_v"
_PARSED = "_headrace_parsed"
_CORRUPT = "_headrace_corrupt_record"
_TOMBSTONE = "there is no value (a tombstone)"
_ABSENT = "_headrace_absent"
_PERMISSIVE = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": _CORRUPT}


def decoded(records: DataFrame, source: Source, values: FramedValues | None = None) -> DataFrame:
    """The records with `_v` and `_reason`. `values` decodes those of a format with schemas."""
    if source.tombstones == "drop":
        records = records.where(F.col("value").isNotNull())
    if values is not None:
        return _by_schema(records, source, values)
    if source.decoded_format == "text":
        made = records.withColumn(_VALUE, F.struct(F.col("value").cast("string").alias("value")))
        return made.withColumn(REASON, _first(_shape_problems(source, may_be_empty=True)))
    schema = _schema(source.schema or "")
    text = F.col("value").cast("string")
    made = records.withColumn(_VALUE, _parsed(source, schema, text))
    problems = [
        *_shape_problems(source, may_be_empty=False),
        (F.col("value").isNotNull() & F.col(_VALUE).isNull(), F.lit("the value is blank")),
        (F.col(_VALUE)[_CORRUPT].isNotNull(), _misfit(source, schema, text)),
    ]
    if source.decoded_format == "json":
        # Spark's parser ignores everything after the first object.
        trimmed = F.expr(r"trim(TRAILING ' \t\r\n' FROM CAST(value AS STRING))")
        problems.append((~F.endswith(trimmed, F.lit("}")), F.lit("something follows the JSON object")))
    return made.withColumn(REASON, _first(problems))


def _by_schema(records: DataFrame, source: Source, values: FramedValues) -> DataFrame:
    """Decode in Arrow batches, by Python workers."""
    columns = f"{_ddl(records.schema)}, {_VALUE} {values.spark_type}, {REASON} STRING"
    made = records.mapInArrow(values.appended, columns)
    reason = F.col(REASON)
    if isinstance(values, JsonSchemaValues):
        # The value is valid JSON; Spark makes columns of it.
        text, schema = F.col(_VALUE)[TEXT], _schema(values.ddl)
        made = made.withColumn(_PARSED, _parsed(source, schema, text))
        misfit = F.when(F.col(_PARSED)[_CORRUPT].isNotNull(), _misfit(source, schema, text))
        made = made.withColumn(REASON, F.coalesce(reason, misfit)).withColumn(_VALUE, F.col(_PARSED)).drop(_PARSED)
    if source.tombstones == "keep":
        return made
    return made.withColumn(REASON, F.when(F.col("value").isNull(), F.lit(_TOMBSTONE)).otherwise(reason))


def _schema(ddl: str) -> StructType:
    schema = StructType.fromDDL(ddl)
    assert isinstance(schema, StructType)
    return schema


def counted(decoded: DataFrame, name: str) -> DataFrame:
    """The same rows, with the metrics `rows` and `bad` observed under `name`, for the progress reports."""
    return decoded.observe(name, F.count(F.lit(1)).alias("rows"), F.count(F.col(REASON)).alias("bad"))


def rows(decoded: DataFrame, source: Source, on_error: OnError) -> DataFrame:
    """The decoded rows, with a column per field. With `fail`, a record that cannot be decoded fails the query."""
    is_good = F.col(REASON).isNull()
    if on_error == "fail":
        place = F.concat_ws("/", "topic", F.col("partition").cast("string"), F.col("offset").cast("string"))
        text = F.concat(F.lit("the record at "), place, F.lit(" does not fit: "), F.col(REASON))
        is_good = F.when(is_good, F.lit(True)).otherwise(F.raise_error(text).cast("boolean"))
    fields = [field for field in _fields(decoded) if field != _CORRUPT]
    columns = [F.col(_VALUE)[field].alias(field) for field in fields]
    return decoded.where(is_good).select(*columns, *metadata(decoded))


def metadata(records: DataFrame) -> list[Column]:
    """The metadata columns: key and origin of each row."""
    columns = [F.col("key").cast("string").alias("_key")]
    columns += [F.col(name).alias(f"_{name}") for name in ("topic", "partition", "offset", "timestamp")]
    if "headers" in records.columns:
        columns.append(F.col("headers").alias("_headers"))
    return columns


def _fields(decoded: DataFrame) -> list[str]:
    value = decoded.schema[_VALUE].dataType
    return value.fieldNames() if isinstance(value, StructType) else []


def _parsed(source: Source, schema: StructType, text: Column) -> Column:
    whole = StructType([*schema.fields, StructField(_CORRUPT, StringType())])
    if source.decoded_format == "csv":
        return F.from_csv(text, _ddl(whole), {**_options(source), **_PERMISSIVE})
    return F.from_json(text, whole, {**_options(source), **_PERMISSIVE})


def _ddl(schema: StructType) -> str:
    return ", ".join(f"`{field.name}` {field.dataType.simpleString()}" for field in schema.fields)


def _options(source: Source) -> dict[str, str]:
    """Options for Spark's parsers: those with the format's name as a prefix, such as `csv.sep = ";"`."""
    prefix = f"{source.decoded_format}."
    return {key.removeprefix(prefix): str(value) for key, value in source.options.items() if key.startswith(prefix)}


Problems = list[tuple[Column, Column]]


def _first(problems: Problems) -> Column:
    """The text of the first problem whose condition holds, else null."""
    (condition, text), *others = problems
    chain = F.when(condition, text)
    for condition, text in others:
        chain = chain.when(condition, text)
    return chain.otherwise(F.lit(None).cast("string"))


def _shape_problems(source: Source, *, may_be_empty: bool) -> Problems:
    """Problems that are found without parsing the value."""
    problems: Problems = []
    if source.tombstones == "keep":
        problems.append((F.col("value").isNull(), F.lit(None).cast("string")))
    else:
        problems.append((F.col("value").isNull(), F.lit(_TOMBSTONE)))
    if not may_be_empty:
        problems.append((F.length("value") == 0, F.lit("the value is empty")))
    problems.append((~F.is_valid_utf8(F.col("value").cast("string")), F.lit("the value is not UTF-8")))
    return problems


def _misfit(source: Source, schema: StructType, text: Column) -> Column:
    """The field at fault: each is parsed on its own, but only in records that failed."""
    if source.decoded_format == "csv":
        return F.lit("the value does not fit the schema")

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
