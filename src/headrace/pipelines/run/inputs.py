"""Reads the sources of a pipeline: topics through the data source `headrace`, files and tables by Spark."""

import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from headrace.pipelines.connection_options import spark_options
from headrace.pipelines.source.offsets import OffsetRange
from headrace.pipelines.spec.model import Source, Spec

FORMAT = "headrace"
_OVERRIDDEN = ("subscribe", "assign", "starting", "ending", "failondataloss")
"""Prefixes, in lower case, of stream options that do not apply to a fixed range."""

Start = Mapping[str, Mapping[str, int]]
"""Start offsets by topic and partition (as text, as in JSON)."""


def read_static(spark: SparkSession, spec: Spec, source: Source) -> DataFrame:
    """A static file or table."""
    if source.table is not None:
        return spark.read.table(source.table)
    reader = spark.read.format(source.format or "parquet").options(**{k: str(v) for k, v in source.options.items()})
    if source.schema is not None:
        reader = reader.schema(source.schema)
    return reader.load(_located(spec.folder, source.path or ""))


def _located(folder: Path, path: str) -> str:
    """A path relative to the pipeline's folder; a path with a scheme is unchanged."""
    return path if "://" in path else str((folder / path).resolve())


def read_topics(spark: SparkSession, spec: Spec, source: Source, *, headers: bool, start: Start | None) -> DataFrame:
    """The records of the source's topics as a stream. `start` has the start offsets of a reset."""
    reader = spark.readStream.format(FORMAT)
    for name, value in source_options(spec, source, headers=headers, start=start).items():
        reader = reader.option(name, value)
    return reader.load()


def read_range(
    spark: SparkSession,
    spec: Spec,
    source: Source,
    ranges: Sequence[OffsetRange],
    *,
    headers: bool,
    fail_on_loss: bool = True,
) -> DataFrame:
    """Ranges of the source's topics as a static DataFrame; deleted offsets are an error with `fail_on_loss`."""
    places: dict[str, dict[str, tuple[int, int]]] = {}
    for each in ranges:
        start, end = places.setdefault(each.topic, {}).get(str(each.partition), (each.start, each.end))
        places[each.topic][str(each.partition)] = (min(start, each.start), max(end, each.end))
    given = source_options(spec, source, headers=headers, start=None)
    options = {name: value for name, value in given.items() if not name.lower().startswith(_OVERRIDDEN)}
    options |= {} if fail_on_loss else {"failOnDataLoss": "false"}
    options |= {
        "assign": json.dumps({topic: [int(each) for each in parts] for topic, parts in places.items()}),
        "startingOffsets": json.dumps({t: {p: at[0] for p, at in parts.items()} for t, parts in places.items()}),
        "endingOffsets": json.dumps({t: {p: at[1] for p, at in parts.items()} for t, parts in places.items()}),
    }
    return spark.read.format(FORMAT).options(**options).load()


def source_options(spec: Spec, source: Source, *, headers: bool, start: Start | None) -> dict[str, str]:
    """The options of the data source. Those in the file take precedence."""
    options = {"kafka.bootstrap.servers": spec.bootstrap_of(source), **spark_options(spec.connection)}
    if source.pattern is not None:
        options["subscribePattern"] = source.pattern
    else:
        options["subscribe"] = ",".join(source.all_topics)
    if start is not None:
        options["startingOffsets"] = json.dumps(start)
    elif source.starting in ("earliest", "latest"):
        options["startingOffsets"] = source.starting
    else:
        options["startingTimestamp"] = str(_milliseconds(source.starting))
        options["startingOffsetsByTimestampStrategy"] = "latest"
    if headers:
        options["includeHeaders"] = "true"
    if source.max_records_per_batch is not None:
        options["maxOffsetsPerTrigger"] = str(source.max_records_per_batch)
    parsers = ("json.", "csv.", "avro.", "json-schema.")
    return options | {name: _text(value) for name, value in source.options.items() if not name.startswith(parsers)}


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _milliseconds(time: str) -> int:
    """The time in ms; without a zone it is UTC, as everywhere in a pipeline."""
    moment = datetime.fromisoformat(time)
    return int((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1000)
