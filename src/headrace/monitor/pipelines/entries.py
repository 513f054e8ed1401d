"""A pipeline as the HTTP API shows it, derived from its last report and the time. Pure."""

from typing import Any, Literal

import msgspec

from headrace.model.pipeline_report import (
    SILENT_AFTER_S,
    DesiredState,
    PipelineGraph,
    PipelineReport,
    PipelineState,
    ReplayCommand,
    ReplayReport,
)

ShownState = PipelineState | Literal["not-reporting", "stopping"]
_BUSY = ("starting", "running", "restarting")


class StoredPipeline(msgspec.Struct, frozen=True, kw_only=True):
    """The value of a record of `__pipelines`. New fields have defaults; unknown ones are ignored."""

    report: PipelineReport
    reported_ms: int
    desired: DesiredState = "running"
    desired_of: str = ""
    """The instance that `desired` was asked of: a process that is started later begins as running."""
    replay: ReplayCommand | None = None
    """A replay that no report has acknowledged yet."""

    @property
    def desired_now(self) -> DesiredState:
        return self.desired if self.desired_of == self.report.instance else "running"


class SeriesHistory(msgspec.Struct, frozen=True):
    """Points at regular times, the oldest first; None where there was no report."""

    step_s: int
    end_ms: int
    series: dict[str, list[float | None]]


class PipelineEntry(msgspec.Struct, frozen=True, kw_only=True):
    """A pipeline in a list."""

    name: str
    state: ShownState
    desired: DesiredState
    can_start: bool
    can_stop: bool
    host: str
    version: str
    is_supervised: bool
    started_ms: int
    reported_ms: int
    rows_per_s: float
    batch_ms: float
    lag: int
    rows_in: int
    rows_out: int
    bad: int
    dead_letters: int
    restarts: int
    state_rows: int
    state_bytes: int
    last_error: str
    batches: int = 0
    busy_ms: int = 0


class PipelineDetail(PipelineEntry, frozen=True, kw_only=True):
    """A pipeline on a page of its own."""

    pid: int
    late_rows: int
    source_topics: list[str]
    dead_letter_topics: list[str]
    graph: PipelineGraph
    log: list[str]
    replay: ReplayReport | None
    history: SeriesHistory


def shown_state(stored: StoredPipeline, silent_s: float) -> ShownState:
    report = stored.report
    if report.is_final:
        return report.state
    if silent_s > SILENT_AFTER_S:
        return "not-reporting"
    if stored.desired_now == "stopped" and report.state in _BUSY:
        return "stopping"
    return report.state


def is_listening(stored: StoredPipeline, silent_s: float) -> bool:
    """Whether a process of the pipeline will read the answer to its next report."""
    return not stored.report.is_final and silent_s <= SILENT_AFTER_S


def entry_of(name: str, stored: StoredPipeline, silent_s: float) -> PipelineEntry:
    return PipelineEntry(**_fields(name, stored, silent_s))


def detail_of(name: str, stored: StoredPipeline, silent_s: float, history: SeriesHistory) -> PipelineDetail:
    report, command = stored.report, stored.replay
    waiting = None if command is None else ReplayReport(id=command.id, state="running")
    return PipelineDetail(
        **_fields(name, stored, silent_s),
        pid=report.pid,
        late_rows=report.late_rows,
        source_topics=report.source_topics,
        dead_letter_topics=report.dead_letter_topics,
        graph=report.graph,
        log=report.log,
        replay=waiting or report.replay,
        history=history,
    )


_COPIED = tuple(
    name for name in PipelineEntry.__struct_fields__ if name in PipelineReport.__struct_fields__ and name != "state"
)


def _fields(name: str, stored: StoredPipeline, silent_s: float) -> dict[str, Any]:
    report, state = stored.report, shown_state(stored, silent_s)
    listens = is_listening(stored, silent_s)
    fields: dict[str, Any] = {each: getattr(report, each) for each in _COPIED}
    if state not in _BUSY:
        fields["rows_per_s"] = 0.0
    return {
        **fields,
        "name": name,
        "state": state,
        "desired": stored.desired_now,
        "can_start": listens and report.is_supervised and state in ("stopped", "failed", "ended"),
        "can_stop": listens and stored.desired_now == "running" and report.state in _BUSY,
        "reported_ms": stored.reported_ms,
    }


_ATTENTION = ("failed", "not-reporting", "restarting")


def worst_pipelines(found: list[PipelineEntry], most: int = 5) -> list[PipelineEntry]:
    """Those that need attention most: failed and silent ones first, then those farthest behind."""

    def key(entry: PipelineEntry) -> tuple[int, int, str]:
        at = _ATTENTION.index(entry.state) if entry.state in _ATTENTION else len(_ATTENTION)
        return at, -entry.lag, entry.name

    return sorted(found, key=key)[:most]
