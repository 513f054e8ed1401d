"""The model of a pipeline file: a class per section, a field per key. Pure.

`file.py` parses a file into these classes; `docs/pipelines.md` is the reference for users.
"""

from pathlib import Path
from typing import Literal

from msgspec import Struct, field

Scalar = str | int | float | bool
OnError = Literal["dead-letter", "skip", "fail"]
Delivery = Literal["exactly-once", "at-least-once"]
OutputMode = Literal["append", "update", "complete"]

DEAD_LETTER_SUFFIX = ".dlq"
ONLY_SOURCE = "source"
ONLY_STEP = "transform"
ONLY_SINK = "sink"

METADATA_COLUMNS = ("_key", "_topic", "_partition", "_offset", "_timestamp", "_headers")
"""Columns of every row of a topic beside those of its value. Sinks drop them unless they are renamed."""


SCHEMA_FORMATS = ("avro", "json-schema", "protobuf")
"""Formats of values with a schema, by default that of the registry."""


def subject_of(topic: str) -> str:
    """The subject of a topic's values in a registry, by Confluent's rule."""
    return f"{topic}-value"


class SpecSection(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Base of the sections: an unknown key is an error."""


class Deduplicate(SpecSection, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Drop duplicates: pass only the first row per key within a time (or within the watermark)."""

    by: str | list[str]
    within: str | None = None

    @property
    def columns(self) -> list[str]:
        return [self.by] if isinstance(self.by, str) else self.by


class Source(SpecSection, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A stream of one or more topics, or a static file or table to join with."""

    topic: str | None = None
    topics: list[str] = []
    pattern: str | None = None
    path: str | None = None
    table: str | None = None
    format: str | None = None
    schema: str | None = None
    schemas: dict[str, str] = {}
    registry: str | None = None
    subject: str | None = None
    version: int | None = None
    message: str | None = None
    starting: str = "earliest"
    tombstones: Literal["bad", "keep", "drop"] = "bad"
    watermark: str | None = None
    deduplicate: Deduplicate | None = None
    max_records_per_batch: int | None = None
    bootstrap: str | None = None
    options: dict[str, Scalar] = {}

    @property
    def is_stream(self) -> bool:
        return self.path is None and self.table is None

    @property
    def all_topics(self) -> list[str]:
        return [self.topic] if self.topic else self.topics

    @property
    def decoded_format(self) -> str:
        """The format of the values; `json` by default."""
        return self.format or "json"

    @property
    def has_schemas(self) -> bool:
        """Whether values are of a format with schemas."""
        return self.is_stream and self.decoded_format in SCHEMA_FORMATS

    @property
    def uses_registry(self) -> bool:
        """Whether values have the ids of schemas in a registry; a schema alone, or files, are for values without."""
        named = self.registry or self.subject or self.version
        return self.has_schemas and bool(named or not (self.schema or self.schemas))

    @property
    def subject_name(self) -> str:
        """The subject whose schema values are read with; empty if there is no single topic to name it after."""
        return self.subject or (subject_of(self.all_topics[0]) if len(self.all_topics) == 1 else "")

    @property
    def can_be_bad(self) -> bool:
        """Whether values can fail to decode."""
        return self.is_stream and self.decoded_format != "raw"


class Step(SpecSection, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A transformation in SQL or Python over the sources and the earlier steps."""

    name: str = ONLY_STEP
    sql: str | None = None
    python: str | None = None
    watermark: str | None = None
    deduplicate: Deduplicate | None = None


class Sink(SpecSection, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Where rows go: a topic, a table of files, a table of a database, or the terminal."""

    topic: str | None = None
    table: str | None = None
    path: str | None = None
    database: str | None = None
    console: bool = False
    from_: str | None = field(default=None, name="from")
    format: str | None = None
    key: str | list[str] | None = None
    headers: dict[str, str] = {}
    partitions: int | None = None
    partition_by: str | list[str] = []
    registry: str | None = None
    subject: str | None = None
    order: str | None = None
    delete: str | None = None
    delete_nulls: bool = False
    create: bool = False
    delivery: Delivery = "exactly-once"
    mode: OutputMode | None = None
    rows: int = 20
    bootstrap: str | None = None
    options: dict[str, Scalar] = {}

    @property
    def kind(self) -> Literal["topic", "table", "database", "console"]:
        if self.database is not None:
            return "database"
        if self.topic is not None:
            return "topic"
        return "console" if self.console else "table"

    @property
    def keys(self) -> list[str]:
        if self.key is None:
            return []
        return [self.key] if isinstance(self.key, str) else self.key

    @property
    def partition_columns(self) -> list[str]:
        return [self.partition_by] if isinstance(self.partition_by, str) else self.partition_by


class Errors(SpecSection, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """How records that fail to decode, or fail in a step, are handled."""

    on_error: OnError = "dead-letter"
    topic: str | None = None
    """The dead-letter topic; `<topic>.dlq` by default."""

    def dead_letter_topic(self, topic: str) -> str:
        return self.topic or topic + DEAD_LETTER_SUFFIX


class Trigger(SpecSection, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """When batches start: at an interval, one after the other (default), or only until the backlog is processed."""

    every: str | None = None
    once: bool = False
    available_now: bool = field(default=False, name="available-now")

    @property
    def ends(self) -> bool:
        return self.once or self.available_now


class Spark(SpecSection, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The Spark master, Spark settings, and Python files for the workers."""

    master: str = "local[*]"
    settings: dict[str, Scalar] = {}
    py_files: list[str] = []


class BrokerLogin(SpecSection, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The section [connection]: how the brokers of a pipeline are connected to. Secrets are references, `${NAME}`."""

    profile: str | None = None
    user: str | None = None
    password: str | None = None
    mechanism: str | None = None
    token: str | None = None
    tls: bool | str | None = None
    ca_file: str | None = None
    cert_file: str | None = None
    key_file: str | None = None
    key_password: str | None = None
    verify_hostname: bool | None = None


class Spec(Struct, frozen=True, kw_only=True):
    """A whole pipeline. Relative paths in it start at the folder of `file`."""

    file: Path
    name: str
    bootstrap: str
    sources: dict[str, Source]
    steps: list[Step]
    sinks: dict[str, Sink]
    errors: Errors
    trigger: Trigger
    spark: Spark
    connection: tuple[tuple[str, str], ...] = ()
    """The fields of [connection] that are given, with references unresolved."""
    checkpoint: str | None = None

    @property
    def folder(self) -> Path:
        return self.file.parent

    @property
    def streams(self) -> dict[str, Source]:
        return {name: each for name, each in self.sources.items() if each.is_stream}

    @property
    def group(self) -> str:
        """The consumer group that mirrors the pipeline's offsets."""
        return f"pipeline-{self.name}"

    def bootstrap_of(self, part: Source | Sink) -> str:
        return part.bootstrap or self.bootstrap
