"""Translates a pipeline file into Spark plans: one query per sink, and one for the dead letters of each source.

Nothing runs here. The source of the records is injected (`SourceReader`), so `validate` plans over empty streams
exactly what `run` plans over topics. Errors of Spark's analysis become `SpecError`s with the line at fault.
"""

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import msgspec
from py4j.protocol import Py4JError
from pyspark.errors import AnalysisException, ParseException, PySparkException
from pyspark.errors.exceptions.base import QueryContextType
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from headrace.model.errors import HeadraceError
from headrace.pipelines import decode
from headrace.pipelines.control.sink_schemas import SinkSchemas
from headrace.pipelines.control.source_schemas import SourceSchemas
from headrace.pipelines.control.topic_sinks import DEAD_LETTERS
from headrace.pipelines.dead_letters import columns
from headrace.pipelines.errors import NotReady, SpecError
from headrace.pipelines.run.output_modes import choose_mode
from headrace.pipelines.run.python_steps import call_function
from headrace.pipelines.run.rows import check_sink, sink_rows
from headrace.pipelines.spark_errors import explain_error
from headrace.pipelines.spec.check import split_watermark
from headrace.pipelines.spec.file import SpecFile
from headrace.pipelines.spec.model import METADATA_COLUMNS, SCHEMA_FORMATS, Deduplicate, OutputMode, Sink, Source, Spec
from headrace.pipelines.spec.toml_lines import Path as KeyPath
from headrace.pipelines.values.registry import RegistryUnavailable


class SourceReader(Protocol):
    """Reads a source of the pipeline."""

    def __call__(self, name: str, source: Source, *, headers: bool) -> DataFrame:
        """The records of a stream, with the columns of `decode.RECORD_SCHEMA`, or the rows of a static source."""
        ...


class PlanSchemas(NamedTuple):
    """The schemas that sources are read with and sinks write with."""

    sources: SourceSchemas
    sinks: SinkSchemas

    @classmethod
    def unregistered(cls, spec: Spec) -> "PlanSchemas":
        """For a plan that is not run: nothing is stored or registered."""
        return cls(SourceSchemas(spec), SinkSchemas(spec, registers=False))


@dataclass(frozen=True, slots=True)
class Query:
    """A planned streaming query. Dead-letter queries have no `sink`."""

    name: str
    rows: DataFrame
    mode: OutputMode
    columns: dict[str, str]
    """The columns of the sink, with their types."""
    sink: Sink | None = None
    source: str | None = None
    """The source of a dead-letter query."""


def plan(spark: SparkSession, file: SpecFile, read: SourceReader, schemas: PlanSchemas) -> list[Query]:
    """The queries of a pipeline."""
    return _Planner(spark, file, read, schemas).queries()


def steps_over(spark: SparkSession, file: SpecFile, query: str, sources: Mapping[str, DataFrame]) -> DataFrame:
    """The input of the sink `query` over static rows of the sources."""
    planner = _Planner(spark, file, _read_nothing, PlanSchemas.unregistered(file.spec))
    planner.use_static(sources)
    return sink_rows(planner.view(query), file.spec.sinks[query], SinkSchemas(file.spec, registers=False))


def results_over(spark: SparkSession, file: SpecFile, sources: Mapping[str, DataFrame]) -> dict[str, DataFrame]:
    """By sink, its columns over static rows of the sources."""
    planner = _Planner(spark, file, _read_nothing, PlanSchemas.unregistered(file.spec))
    planner.use_static(sources)
    return {name: planner.view(name).drop(*METADATA_COLUMNS) for name in file.spec.sinks}


def _read_nothing(name: str, source: Source, *, headers: bool) -> DataFrame:
    raise NotImplementedError("the sources are static")


class _Planner:
    def __init__(self, spark: SparkSession, file: SpecFile, read: SourceReader, schemas: PlanSchemas) -> None:
        self._spark = spark
        self._schemas = schemas
        self._file = file
        self._spec = file.spec
        self._read = read
        self._views: dict[str, DataFrame] = {}
        self._origins: dict[str, KeyPath] = {}

    def queries(self) -> list[Query]:
        for name, source in self._spec.sources.items():
            self._add(name, self._source(name, source))
            self._origins[name] = ("sources", name)
        for at in range(len(self._spec.steps)):
            self._step(at)
        last = [*self._views][-1]
        found = [self._sink(name, sink, sink.from_ or last) for name, sink in self._spec.sinks.items()]
        return [*found, *self._dead_letters()]

    def use_static(self, sources: Mapping[str, DataFrame]) -> None:
        """Plan the steps over static sources."""
        for name, rows in sources.items():
            source = self._spec.sources[name]
            time = "timestamp" if source.decoded_format == "raw" else "_timestamp"
            timed = self._timed(rows, ("sources", name), source.watermark, source.deduplicate, time)
            self._add(name, timed if source.is_stream else rows)
            self._origins[name] = ("sources", name)
        for at in range(len(self._spec.steps)):
            self._step(at)

    def view(self, query: str) -> DataFrame:
        """The rows for a sink, before the conversion to records."""
        return self._views[self._spec.sinks[query].from_ or [*self._views][-1]]

    def _source(self, name: str, source: Source) -> DataFrame:
        path: KeyPath = ("sources", name)
        if not source.is_stream:
            with self._errors_at((*path, "path" if source.path else "table")):
                return self._read(name, source, headers=False)
        wants_headers = self._mentions("_headers") or self._mentions("headers")
        if source.decoded_format == "raw":
            rows = self._read(name, source, headers=wants_headers)
        else:
            with self._errors_at((*path, "schema")):
                values = self._schemas.sources.values(name)
                names_schemas = values is not None and values.reads_headers
                records = self._read(name, source, headers=wants_headers or names_schemas)
                made = decode.decoded(records, source, values)
                made = made if wants_headers else made.drop("headers")
                rows = decode.rows(decode.counted(made, f"source:{name}"), source, self._spec.errors.on_error)
        time = "timestamp" if source.decoded_format == "raw" else "_timestamp"
        return self._timed(rows, path, source.watermark, source.deduplicate, time)

    def _mentions(self, word: str) -> bool:
        """Whether a step may use a column: headers are expensive, and read only if a step uses them."""
        return any(step.python is not None or word in (step.sql or "") for step in self._spec.steps)

    def _timed(
        self, rows: DataFrame, path: KeyPath, watermark: str | None, deduplicate: Deduplicate | None, time: str
    ) -> DataFrame:
        if watermark is not None:
            column, delay = split_watermark(watermark)
            with self._errors_at((*path, "watermark")):
                rows = rows.withWatermark(column, delay)
        if deduplicate is not None:
            with self._errors_at((*path, "deduplicate")):
                if deduplicate.within is not None:
                    rows = rows.withWatermark(time, deduplicate.within)
                if rows.isStreaming:
                    rows = rows.dropDuplicatesWithinWatermark(deduplicate.columns)
                else:
                    rows = rows.dropDuplicates(deduplicate.columns)
        return rows

    def _step(self, at: int) -> None:
        step, path = self._spec.steps[at], ("steps", at)
        before = [*self._views][-1]
        if step.watermark or step.deduplicate:
            timed = self._timed(self._views[before], path, step.watermark, step.deduplicate, "_timestamp")
            self._add(before, timed)
        if step.python is not None:
            with self._errors_at((*path, "python")):
                made = call_function(self._spark, self._file, at, self._views)
        elif step.sql is not None:
            with self._errors_at((*path, "sql")):
                made = self._spark.sql(step.sql)
        else:
            made = self._views[before]
        self._add(step.name, made)
        self._origins[step.name] = (*path, "python" if step.python is not None else "sql")

    def _add(self, name: str, rows: DataFrame) -> None:
        self._views[name] = rows
        rows.createOrReplaceTempView(name)

    def _sink(self, name: str, sink: Sink, view: str) -> Query:
        rows, path = self._views[view], ("sinks", name)
        if not rows.isStreaming:
            raise self._file.error_at((*path, "from"), f"{view} reads no topic, so there is nothing to stream")
        with self._errors_at((*path, "mode") if sink.mode is not None else self._origins[view]):
            mode = choose_mode(self._spark, rows, sink.mode)
        with self._errors_at((*path, "format" if sink.format in SCHEMA_FORMATS else "key")):
            made = sink_rows(rows, sink, self._schemas.sinks)
        with self._errors_at(path):
            check_sink(made.schema, sink, self._spec.folder)
        columns = {name: kind for name, kind in rows.dtypes if name not in METADATA_COLUMNS}
        return Query(name, made.observe(f"sink:{name}", F.count(F.lit(1)).alias("rows")), mode, columns, sink)

    def _dead_letters(self) -> Iterator[Query]:
        if self._spec.errors.on_error != "dead-letter":
            return
        for name, source in self._spec.streams.items():
            if source.can_be_bad:
                made = decode.decoded(
                    self._read(name, source, headers=True), source, self._schemas.sources.values(name)
                )
                letters = columns.dead_letters(made, self._spec.errors, self._spec.group)
                counted = letters.observe(f"dead:{name}", F.count(F.lit(1)).alias("rows"))
                yield Query(DEAD_LETTERS + name, counted, "append", dict(letters.dtypes), source=name)

    @contextmanager
    def _errors_at(self, path: KeyPath) -> Iterator[None]:
        """Report Spark's errors as errors of the file at `path`."""
        try:
            yield
        except (AnalysisException, ParseException) as error:
            raise self._located(error, path) from error
        except SpecError:
            raise
        except RegistryUnavailable as error:
            raise NotReady(str(error)) from error
        except (PySparkException, Py4JError, HeadraceError, msgspec.ValidationError) as error:
            raise self._file.error_at(path, explain_error(error)) from error

    def _located(self, error: PySparkException, path: KeyPath) -> SpecError:
        problem = explain_error(error)
        for context in error.getQueryContext() or ():
            if context.contextType() == QueryContextType.SQL:
                return self._file.error_at(path, problem, context.startIndex())
        found = re.search(r"\(line (\d+), pos(?:ition)? (\d+)\)", str(error))
        if found is not None:
            return self._file.error_at(path, problem, _index(self._text(path), int(found[1])))
        return self._file.error_at(path, problem)

    def _text(self, path: KeyPath) -> str:
        at = path[1] if len(path) > 1 and path[0] == "steps" else None
        return (self._spec.steps[at].sql or "") if isinstance(at, int) else ""


def _index(text: str, line: int) -> int:
    """The index of the beginning of a line."""
    return sum(len(each) + 1 for each in text.split("\n")[: line - 1])
