"""Checks of a pipeline file beyond the types of its keys. Pure."""

import re
from collections.abc import Iterator
from datetime import datetime

from headrace.config.settings import did_you_mean
from headrace.pipelines.spec.model import SCHEMA_FORMATS, Deduplicate, Sink, Source, Spec, Step
from headrace.pipelines.spec.toml_lines import Path as KeyPath

Problem = tuple[KeyPath, str]

STREAM_FORMATS = ("json", "csv", *SCHEMA_FORMATS, "text", "raw")
FILE_FORMATS = ("parquet", "csv", "json", "orc")
TOPIC_FORMATS = ("json", *SCHEMA_FORMATS, "text", "raw")
TABLE_FORMATS = ("parquet", "iceberg")

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,99}")
_VIEW_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_TOPIC = re.compile(r"[a-zA-Z0-9._-]{1,249}")
_INTERVAL = re.compile(r"\d+ *(millisecond|second|minute|hour|day|week)s?")
_WATERMARK = re.compile(r"(?P<column>\S+) +(?P<delay>\d+ .+)")
_PYTHON = re.compile(r"(?P<file>.+\.py):(?P<function>[A-Za-z_]\w*)")


def problems_of(spec: Spec) -> Iterator[Problem]:
    """Every problem, with the key at fault."""
    if not _NAME.fullmatch(spec.name):
        yield ("name",), f"{spec.name!r} cannot be a pipeline's name: letters, digits, - and _ only"
    for name, source in spec.sources.items():
        yield from _named(("sources", name), name)
        yield from _of_source(("sources", name), source)
    if not spec.streams:
        yield ("sources",), "at least one source has to be a topic"
    known = list(spec.sources)
    for at, step in enumerate(spec.steps):
        yield from _of_step(("steps", at), step, known)
        if at == 0 and len(spec.sources) > 1 and (step.watermark or step.deduplicate):
            key = "watermark" if step.watermark else "deduplicate"
            yield ("steps", at, key), f"with several sources, say in [sources.<name>] which of them the {key} is for"
        known.append(step.name)
    if not spec.steps and len(spec.sources) > 1:
        yield ("sources",), "with several sources a [transform] has to say what is made of them"
    for name, sink in spec.sinks.items():
        yield from _named(("sinks", name), name)
        yield from _of_sink(("sinks", name), sink, known)
    yield from _of_trigger(spec)
    if spec.errors.topic is not None and not _TOPIC.fullmatch(spec.errors.topic):
        yield ("errors", "topic"), f"{spec.errors.topic!r} cannot be a topic's name"


def split_watermark(text: str) -> tuple[str, str]:
    """`at 10 minutes` as the column and the delay."""
    found = _WATERMARK.fullmatch(text.strip())
    if found is None:
        raise ValueError(text)
    return found["column"], found["delay"]


def split_python(text: str) -> tuple[str, str]:
    """`revenue.py:transform` as the file and the function."""
    found = _PYTHON.fullmatch(text.strip())
    if found is None:
        raise ValueError(text)
    return found["file"], found["function"]


def _named(path: KeyPath, name: str) -> Iterator[Problem]:
    if not _VIEW_NAME.fullmatch(name):
        yield path, f"{name!r} cannot be used as a name in SQL: letters, digits and _ only"


def _of_source(path: KeyPath, source: Source) -> Iterator[Problem]:
    places = [key for key in ("topic", "topics", "pattern", "path", "table") if getattr(source, key)]
    if len(places) != 1:
        given = " and ".join(places) or "none of them"
        yield path, f"a source has one of topic, topics, pattern, path and table; this one has {given}"
        return
    for topic in source.all_topics:
        if not _TOPIC.fullmatch(topic):
            yield (*path, places[0]), f"{topic!r} cannot be a topic's name"
    known = STREAM_FORMATS if source.is_stream else FILE_FORMATS
    if source.format is not None and source.format not in known:
        hint = did_you_mean(source.format, known) or f": it is one of {', '.join(known)}"
        yield (*path, "format"), f"unknown format {source.format}{hint}"
    if source.path is not None and source.format is None:
        yield (*path, "path"), f"say in which format the file is: format = one of {', '.join(known)}"
    if source.is_stream:
        yield from _of_stream(path, source)
    elif source.watermark or source.deduplicate:
        yield (*path, "watermark" if source.watermark else "deduplicate"), "only a stream of a topic can have this"


def _of_stream(path: KeyPath, source: Source) -> Iterator[Problem]:
    kind = source.decoded_format
    if kind in ("json", "csv") and not source.schema:
        yield path, f'{kind} needs a schema, such as schema = "id STRING, amount DOUBLE"'
    yield from _of_schemas(path, source)
    if kind in ("text", "raw") and source.schema:
        yield (*path, "schema"), f"{kind} has no schema: its columns are always the same"
    if source.pattern is not None:
        try:
            re.compile(source.pattern)
        except re.error as error:
            yield (*path, "pattern"), f"{source.pattern!r} is not a regular expression: {error}"
    if source.starting not in ("earliest", "latest"):
        try:
            datetime.fromisoformat(source.starting)
        except ValueError:
            yield (
                (*path, "starting"),
                f"{source.starting!r} is neither earliest, latest nor a time like 2026-01-31T12:00Z",
            )
    if source.max_records_per_batch is not None and source.max_records_per_batch < 1:
        yield (*path, "max_records_per_batch"), "at least one record has to be in a batch"
    yield from _of_time(path, source.watermark, source.deduplicate, may_be_untimed=True)


def _of_schemas(path: KeyPath, source: Source) -> Iterator[Problem]:
    kind = source.decoded_format
    for key in ("schemas", "registry", "subject", "version"):
        if getattr(source, key) and kind not in SCHEMA_FORMATS:
            yield (*path, key), f"{key} is for {', '.join(SCHEMA_FORMATS)}, and this source is {kind}"
    if source.message and kind != "protobuf":
        yield (*path, "message"), f"message is for protobuf, and this source is {kind}"
    if source.version is not None and (source.version < 1 or source.schema):
        yield (*path, "version"), "version is that of the subject's schema, from 1 on, instead of a schema of the file"
    if source.uses_registry and not source.schema and not source.subject_name:
        yield path, "with several topics, say which subject of the registry has the schema: subject = …"


def _of_time(
    path: KeyPath, watermark: str | None, deduplicate: Deduplicate | None, *, may_be_untimed: bool
) -> Iterator[Problem]:
    if watermark is not None:
        try:
            _, delay = split_watermark(watermark)
        except ValueError:
            yield (*path, "watermark"), f"{watermark!r} is not a column and a time, such as 'at 10 minutes'"
        else:
            yield from _interval((*path, "watermark"), delay)
    if deduplicate is None:
        return
    if deduplicate.within is not None:
        yield from _interval((*path, "deduplicate", "within"), deduplicate.within)
        if watermark is not None:
            problem = "with a watermark, its time is how long keys are remembered: leave `within` out"
            yield (*path, "deduplicate", "within"), problem
    elif watermark is None and may_be_untimed:
        yield (*path, "deduplicate"), "say how long keys are remembered, such as within = '10 minutes'"
    if not deduplicate.columns:
        yield (*path, "deduplicate", "by"), "name at least one column"


def _of_step(path: KeyPath, step: Step, known: list[str]) -> Iterator[Problem]:
    if step.name in known:
        yield (*path, "name"), f"there is already a source or step {step.name}"
    yield from _named((*path, "name"), step.name)
    if step.sql is not None and step.python is not None:
        yield (*path, "python"), "a step has either sql or python, not both"
    if step.sql is None and step.python is None and len(known) > 1:
        yield path, "this step needs sql or python, since there is more than one source or step before it"
    if step.python is not None and not _PYTHON.fullmatch(step.python.strip()):
        yield (*path, "python"), f"{step.python!r} is not FILE.py:FUNCTION"
    yield from _of_time(path, step.watermark, step.deduplicate, may_be_untimed=False)


def _of_sink(path: KeyPath, sink: Sink, known: list[str]) -> Iterator[Problem]:
    places = [key for key in ("topic", "console") if getattr(sink, key)]
    if sink.database:
        places.append("database")
    elif sink.table or sink.path:
        places.append("table" if sink.table else "path")
    if len(places) != 1:
        given = " and ".join(places) or "none of them"
        yield path, f"a sink has one of topic, table (or path), database and console; this one has {given}"
        return
    if sink.from_ is not None and sink.from_ not in known:
        yield (*path, "from"), f"there is no source or step {sink.from_}{did_you_mean(sink.from_, known)}"
    if sink.topic is not None:
        if not _TOPIC.fullmatch(sink.topic):
            yield (*path, "topic"), f"{sink.topic!r} cannot be a topic's name"
        yield from _format(path, sink, TOPIC_FORMATS)
    elif sink.kind == "table":
        yield from _format(path, sink, TABLE_FORMATS)
    elif sink.kind == "database":
        if not sink.table:
            yield path, "say which table of the database: table = …"
        if not sink.keys:
            yield path, "say which columns identify a row: key = …"
    for key in ("registry", "subject"):
        if getattr(sink, key) and sink.format not in SCHEMA_FORMATS:
            yield (*path, key), f"{key} is for topics in {', '.join(SCHEMA_FORMATS)}: say which with format"
    if sink.partitions is not None and sink.partitions < 1:
        yield (*path, "partitions"), "a topic has at least one partition"
    if sink.rows < 1:
        yield (*path, "rows"), "at least one row has to be shown"


def _format(path: KeyPath, sink: Sink, known: tuple[str, ...]) -> Iterator[Problem]:
    if sink.format is not None and sink.format not in known:
        hint = did_you_mean(sink.format, known) or f": it is one of {', '.join(known)}"
        yield (*path, "format"), f"unknown format {sink.format}{hint}"


def _of_trigger(spec: Spec) -> Iterator[Problem]:
    trigger = spec.trigger
    if sum((trigger.every is not None, trigger.once, trigger.available_now)) > 1:
        yield ("trigger",), "give one of every, once and available-now"
    if trigger.every is not None:
        yield from _interval(("trigger", "every"), trigger.every)


def _interval(path: KeyPath, text: str) -> Iterator[Problem]:
    if not _INTERVAL.fullmatch(text.strip()):
        yield path, f"{text!r} is not a time, such as '10 seconds' or '5 minutes'"
