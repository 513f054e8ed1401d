"""What a pipeline reports to a broker, and the answer: the JSON of `POST /api/v1/pipelines/{name}/report`. Pure.

Pipelines and brokers may be of different versions: a new field has a default, and unknown fields are ignored. Lengths
and counts are bounded here, so that a report fits into one request and all reports into the memory of a broker.
"""

import re
from typing import Annotated, Literal

from msgspec import Meta, Struct

PipelineState = Literal["starting", "running", "restarting", "stopped", "ended", "failed"]
DesiredState = Literal["running", "stopped"]

REPORT_EVERY_S = 5.0
"""How often a pipeline reports, besides at changes of its state."""
SILENT_AFTER_S = 30.0
"""A pipeline whose reports stop for so long is shown as `not-reporting`."""

MAX_LOG_LINES = 100
MAX_LOG_BYTES = 16 * 1024
MAX_NODES = 200
MAX_EDGES = 1000
MAX_TOPICS = 200
MAX_ERROR_CHARS = 1000
_NAME_CHARS = 249

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,99}")
"""The names that a pipeline can have."""

ShortText = Annotated[str, Meta(max_length=_NAME_CHARS)]
ErrorText = Annotated[str, Meta(max_length=MAX_ERROR_CHARS)]
LogLine = Annotated[str, Meta(max_length=MAX_LOG_BYTES)]
Count = Annotated[int, Meta(ge=0)]
Rate = Annotated[float, Meta(ge=0)]


def group_of(pipeline: str) -> str:
    """The consumer group to which a pipeline commits its offsets. Its ACLs are those of the pipeline."""
    return f"pipeline-{pipeline}"


class GraphNode(Struct, frozen=True, kw_only=True):
    """A source, step or sink of a pipeline."""

    id: ShortText
    kind: Literal["source", "step", "sink", "dead-letters"]
    name: ShortText
    type: ShortText = ""
    """topic, table, database, console, sql, python …"""
    detail: ShortText = ""
    """The topics, the path or the table."""


class PipelineGraph(Struct, frozen=True):
    nodes: Annotated[list[GraphNode], Meta(max_length=MAX_NODES)] = []
    edges: Annotated[list[tuple[ShortText, ShortText]], Meta(max_length=MAX_EDGES)] = []
    """Pairs of node ids, in the direction of the rows."""


class ReplayReport(Struct, frozen=True, kw_only=True):
    """How a replay of dead letters proceeds, which the broker has asked for."""

    id: ShortText
    state: Literal["running", "done", "failed"]
    seen: Count = 0
    total: Count = 0
    """An upper bound of the dead letters to look at."""
    sent: Count = 0
    error: ErrorText = ""


class PipelineReport(Struct, frozen=True, kw_only=True):
    """A pipeline as it is now. Counts are those of the current run."""

    instance: ShortText
    """A new one for each process that reports: the supervisor, or a run without one."""
    state: PipelineState
    is_supervised: bool = False
    """Whether it can be started again through the broker while `is_final` is false."""
    is_final: bool = False
    """Whether this is the last report of the process."""
    host: ShortText = ""
    pid: Count = 0
    version: ShortText = ""
    started_ms: Count = 0
    rows_per_s: Rate = 0.0
    batch_ms: Rate = 0.0
    lag: Count = 0
    batches: Count = 0
    rows_in: Count = 0
    rows_out: Count = 0
    bad: Count = 0
    dead_letters: Count = 0
    late_rows: Count = 0
    busy_ms: Count = 0
    restarts: Count = 0
    state_rows: Count = 0
    state_bytes: Count = 0
    last_error: ErrorText = ""
    source_topics: Annotated[list[ShortText], Meta(max_length=MAX_TOPICS)] = []
    dead_letter_topics: Annotated[list[ShortText], Meta(max_length=MAX_TOPICS)] = []
    graph: PipelineGraph = PipelineGraph()
    log: Annotated[list[LogLine], Meta(max_length=MAX_LOG_LINES)] = []
    replay: ReplayReport | None = None


class ReplayCommand(Struct, frozen=True):
    """Asks the reporting process to replay the pipeline's dead letters. It is repeated until a report has its id."""

    id: str
    reason: str = ""
    """Only letters with this in their reason; all if empty."""


class ReportAnswer(Struct, frozen=True, kw_only=True):
    desired: DesiredState = "running"
    replay: ReplayCommand | None = None
    every_s: float = REPORT_EVERY_S


def bounded_log(lines: list[str]) -> list[str]:
    """The last of these lines that fit into a report."""
    taken: list[str] = []
    room = MAX_LOG_BYTES
    for line in reversed(lines[-MAX_LOG_LINES:]):
        room -= len(line.encode(errors="replace")) + 1
        if room < 0:
            break
        taken.append(line)
    return taken[::-1]
