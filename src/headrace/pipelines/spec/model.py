"""What a pipeline is: the sections of its file as they are once read and checked. Pure.

Each class is a section; its fields are the keys that may stand there. `file.py` reads the file, finds the lines for
errors and fills these in; `docs/pipelines.md` explains them to users.
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
"""What every row of a topic carries beside the columns of its value. Sinks leave them out unless they are renamed."""


class SpecSection(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A section of the file: a key that it does not have is an error."""


class Deduplicate(SpecSection, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Let only the first row of each key through, as far back as `within` (or the watermark) remembers."""

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
        """How values are read: `json` unless the file says otherwise."""
        return self.format or "json"

    @property
    def can_be_bad(self) -> bool:
        """Whether there are rows that do not fit."""
        return self.is_stream and self.decoded_format != "raw"


class Step(SpecSection, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """SQL or a Python function over the sources and the steps before it."""

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
    """What happens to a row that does not fit its schema."""

    on_error: OnError = "dead-letter"
    topic: str | None = None
    """The dead-letter topic; without it that of a topic is `<topic>.dlq`."""

    def dead_letter_topic(self, topic: str) -> str:
        return self.topic or topic + DEAD_LETTER_SUFFIX


class Trigger(SpecSection, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """When a batch starts: at an interval, as soon as the last one is done, or until all that is there is done."""

    every: str | None = None
    once: bool = False
    available_now: bool = field(default=False, name="available-now")

    @property
    def ends(self) -> bool:
        return self.once or self.available_now


class Spark(SpecSection, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Where Spark runs, its settings, and Python files that its workers need."""

    master: str = "local[*]"
    settings: dict[str, Scalar] = {}
    py_files: list[str] = []


class Spec(Struct, frozen=True, kw_only=True):
    """A whole pipeline. `file` is where it was read, relative paths in it start at its folder."""

    file: Path
    name: str
    bootstrap: str
    sources: dict[str, Source]
    steps: list[Step]
    sinks: dict[str, Sink]
    errors: Errors
    trigger: Trigger
    spark: Spark
    checkpoint: str | None = None

    @property
    def folder(self) -> Path:
        return self.file.parent

    @property
    def streams(self) -> dict[str, Source]:
        return {name: each for name, each in self.sources.items() if each.is_stream}

    @property
    def group(self) -> str:
        """The consumer group that mirrors how far the pipeline is."""
        return f"pipeline-{self.name}"

    def bootstrap_of(self, part: Source | Sink) -> str:
        return part.bootstrap or self.bootstrap
