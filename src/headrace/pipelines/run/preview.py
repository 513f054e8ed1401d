"""Previews a pipeline: runs its steps over a few messages as static rows. Nothing is written."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from headrace.client.message import Message
from headrace.pipelines import decode
from headrace.pipelines.control.source_schemas import SourceSchemas
from headrace.pipelines.errors import PipelineFailed
from headrace.pipelines.run.failing_rows import reason_of
from headrace.pipelines.run.inputs import read_static
from headrace.pipelines.run.plan import results_over
from headrace.pipelines.spec.file import SpecFile
from headrace.pipelines.values.framed import schema_keys

_BAD_SHOWN = 5
_HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))


@dataclass(slots=True)
class SinkPreview:
    """The first rows of a sink; `more` is true if there are others."""

    columns: dict[str, str]
    rows: list[dict[str, Any]]
    more: bool


@dataclass(slots=True)
class Preview:
    """By source, the number of undecodable messages and samples as (place, reason); by sink, its rows."""

    bad: dict[str, int] = field(default_factory=dict)
    samples: dict[str, list[tuple[str, str]]] = field(default_factory=dict)
    sinks: dict[str, SinkPreview] = field(default_factory=dict)


def preview(spark: SparkSession, file: SpecFile, messages: Mapping[str, Sequence[Message]], rows: int) -> Preview:
    """Run the steps over the messages of each source; at most `rows` rows of each sink."""
    spec, made = file.spec, Preview()
    schemas = SourceSchemas(spec)
    sources: dict[str, DataFrame] = {}
    for name, source in spec.sources.items():
        if not source.is_stream:
            sources[name] = read_static(spark, spec, source)
            continue
        records = _records(spark, messages.get(name, ()))
        if source.decoded_format == "raw":
            sources[name] = records
            continue
        if source.uses_registry:
            schemas.learn(name, schema_keys(messages.get(name, ())))
        decoded = decode.decoded(records, source, schemas.values(name))
        if source.has_schemas:
            # Python workers decode these, so do it once. Other formats are evaluated by the optimizer: see `_records`.
            decoded = decoded.persist()
        bad = decoded.where(F.col(decode.REASON).isNotNull())
        found = bad.select("topic", "partition", "offset", decode.REASON).collect()
        made.bad[name] = len(found)
        made.samples[name] = [(f"{each[0]}/{each[1]}/{each[2]}", each[3]) for each in found[:_BAD_SHOWN]]
        sources[name] = decode.rows(decoded, source, "skip")
    for name, result in results_over(spark, file, sources).items():
        try:
            lines = [json.loads(row[0]) for row in result.select(_as_json(result)).take(rows + 1)]
        except PySparkException as error:
            raise PipelineFailed(f"{name}: {reason_of(error)}") from error
        made.sinks[name] = SinkPreview(dict(result.dtypes), lines[:rows], len(lines) > rows)
    return made


def _as_json(rows: DataFrame) -> Any:
    return F.to_json(F.struct(*[F.col(f"`{name}`") for name in rows.columns]), {"ignoreNullFields": "false"})


def _records(spark: SparkSession, messages: Sequence[Message]) -> DataFrame:
    """The messages as a local relation, which is a part of the plan.

    Spark's optimizer evaluates row-wise operators over a local relation itself. Rows from Python objects would need
    Python workers, and a job for every action.
    """
    columns = {
        "key": pa.array([each.key for each in messages], pa.binary()),
        "value": pa.array([each.payload for each in messages], pa.binary()),
        "topic": pa.array([each.topic for each in messages], pa.string()),
        "partition": pa.array([each.partition for each in messages], pa.int32()),
        "offset": pa.array([each.offset for each in messages], pa.int64()),
        "timestamp": pa.array([(each.timestamp_ms or 0) * 1000 for each in messages], pa.timestamp("us", "UTC")),
        "timestampType": pa.array([0] * len(messages), pa.int32()),
        "headers": pa.array(
            [[{"key": name, "value": value} for name, value in each.headers] for each in messages], _HEADERS
        ),
    }
    return spark.createDataFrame(pa.table(columns), f"{decode.RECORD_SCHEMA}, {decode.HEADERS_SCHEMA}")
