"""Progress of a pipeline, from Spark's report on each batch.

`BatchProgress` is one report; `RunProgress` adds them up over the queries of a pipeline. It has the offsets that every
query has processed (`committed`: per partition the lowest of all queries that read it), and the `lag`.
"""

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from headrace.pipelines.control.folder import replace_text

Offsets = dict[tuple[str, int], int]

_MAX_FILE_BYTES = 10 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class BatchProgress:
    """One micro-batch of one query."""

    query: str
    batch_id: int
    at: str
    duration_ms: int
    rows_in: int
    rows_out: int
    bad: int
    """Records that failed to decode or failed in a step. In a dead-letter query: the dead letters written."""
    in_per_s: float
    state_rows: int
    state_bytes: int
    late_rows: int
    watermark: str | None
    lag: int
    letters: int = 0
    """Dead letters of records that failed in the steps of the query."""
    did_work: bool = True
    """False for the report of an idle query."""
    offsets: Offsets = field(default_factory=dict)
    """Where the batch ends."""
    starts: Offsets = field(default_factory=dict)
    """Where it begins, for the partitions that Spark has begun before."""

    def as_json(self) -> str:
        row = {key: value for key, value in asdict(self).items() if key not in ("offsets", "starts", "did_work")}
        row["offsets"] = _nested(self.offsets)
        return json.dumps(row)


def read_batch(query: str, report: Mapping[str, Any]) -> BatchProgress:
    """Parse Spark's report of a batch (the JSON of `StreamingQuery.lastProgress`)."""
    observed: Mapping[str, Any] = report.get("observedMetrics") or {}
    states = report.get("stateOperators") or []
    sources = report.get("sources") or []
    lag, offsets, starts = 0, Offsets(), Offsets()
    for source in sources:
        starts |= parse_offsets(source.get("startOffset"))
        end = parse_offsets(source.get("endOffset"))
        offsets |= end
        lag += lag_of(end, parse_offsets(source.get("latestOffset")))
    bad = sum(each.get("bad", 0) for name, each in observed.items() if name.startswith("source:"))
    dead = sum(each.get("rows", 0) for name, each in observed.items() if name.startswith("dead:"))
    return BatchProgress(
        query=query,
        batch_id=int(report.get("batchId", -1)),
        at=str(report.get("timestamp", "")),
        duration_ms=int(report.get("batchDuration") or 0),
        rows_in=sum(int(each.get("numInputRows") or 0) for each in sources),
        rows_out=sum(
            int(each.get("rows", 0)) for name, each in observed.items() if name.startswith(("sink:", "dead:"))
        ),
        bad=int(bad or dead),
        in_per_s=float(report.get("processedRowsPerSecond") or 0.0),
        state_rows=sum(int(each.get("numRowsTotal") or 0) for each in states),
        state_bytes=sum(int(each.get("memoryUsedBytes") or 0) for each in states),
        late_rows=sum(int(each.get("numRowsDroppedByWatermark") or 0) for each in states),
        watermark=(report.get("eventTime") or {}).get("watermark"),
        lag=lag,
        did_work="addBatch" in (report.get("durationMs") or {}),
        offsets=offsets,
        starts=starts,
    )


def read_report(query: str, text: str) -> BatchProgress:
    return read_batch(query, json.loads(text))


def parse_offsets(value: Any) -> Offsets:
    """Offsets from `{"orders":{"0":5}}`, as text or parsed; empty for anything else."""
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except ValueError:
            return {}
    if not isinstance(value, Mapping):
        return {}
    found: Offsets = {}
    for topic, partitions in value.items():
        if isinstance(partitions, Mapping):
            found |= {
                (topic, int(partition)): offset
                for partition, offset in partitions.items()
                if str(partition).isdecimal() and isinstance(offset, int)
            }
    return found


def lag_of(end: Offsets, latest: Offsets) -> int:
    """The number of offsets past `end`."""
    return sum(max(0, offset - end.get(where, 0)) for where, offset in latest.items())


def _nested(offsets: Offsets) -> dict[str, dict[str, int]]:
    nested: dict[str, dict[str, int]] = {}
    for (topic, partition), offset in offsets.items():
        nested.setdefault(topic, {})[str(partition)] = offset
    return nested


@dataclass(slots=True)
class QueryTotals:
    """Totals of a query since the pipeline started."""

    last: BatchProgress
    batches: int = 0
    rows_in: int = 0
    rows_out: int = 0
    bad: int = 0
    letters: int = 0
    late_rows: int = 0
    busy_ms: int = 0


class RunProgress:
    """The batches of all queries of a run, added up by query."""

    def __init__(self, queries: Iterable[str], dead_letter_queries: Iterable[str]) -> None:
        self._all = [*queries, *dead_letter_queries]
        self._dead_letter_queries = frozenset(dead_letter_queries)
        self.queries: dict[str, QueryTotals] = {}
        self._offsets: dict[str, Offsets] = {}

    def add(self, batch: BatchProgress) -> None:
        totals = self.queries.setdefault(batch.query, QueryTotals(batch))
        self._offsets.setdefault(batch.query, {}).update(batch.offsets)
        totals.last = batch
        if not batch.did_work:
            return
        totals.batches += 1
        totals.rows_in += batch.rows_in
        totals.rows_out += batch.rows_out
        totals.bad += batch.bad
        totals.letters += batch.letters
        totals.late_rows += batch.late_rows
        totals.busy_ms += batch.duration_ms

    @property
    def bad(self) -> int:
        """Records that failed; every query reads all of its sources, so this is the maximum and not the sum."""
        return max((each.bad for each in self.queries.values()), default=0)

    @property
    def rows_out(self) -> int:
        """Rows written to the sinks."""
        return sum(each.rows_out for name, each in self.queries.items() if name not in self._dead_letter_queries)

    @property
    def dead_letters(self) -> int:
        written = sum(self.queries[name].rows_out for name in self._dead_letter_queries if name in self.queries)
        return written + sum(each.letters for each in self.queries.values())

    @property
    def lag(self) -> int:
        return max((each.last.lag for each in self.queries.values()), default=0)

    def committed(self) -> Offsets:
        """Per partition, the lowest offset of all queries; empty until every query has reported."""
        if len(self._offsets) < len(self._all):
            return {}
        lowest: Offsets = {}
        for offsets in self._offsets.values():
            for where, offset in offsets.items():
                lowest[where] = min(offset, lowest.get(where, offset))
        return lowest


class ProgressFiles:
    """Writes `progress.jsonl`, which is rotated at 10 MB with one predecessor, and `metrics.prom`."""

    def __init__(self, pipeline: str, progress: Path, metrics: Path) -> None:
        self._pipeline = pipeline
        self._progress = progress
        self._metrics = metrics

    def write(self, batch: BatchProgress, book: RunProgress) -> None:
        if self._progress.exists() and self._progress.stat().st_size > _MAX_FILE_BYTES:
            self._progress.replace(self._progress.with_name(f"{self._progress.name}.1"))
        with self._progress.open("a", encoding="utf-8") as file:
            file.write(batch.as_json() + "\n")
        replace_text(self._metrics, prometheus(self._pipeline, book))


_METRICS: tuple[tuple[str, str, str, Callable[[QueryTotals], float]], ...] = (
    ("rows_in_total", "counter", "Records read.", lambda each: each.rows_in),
    ("rows_out_total", "counter", "Rows written.", lambda each: each.rows_out),
    ("bad_records_total", "counter", "Records that failed to decode or failed in a step.", lambda each: each.bad),
    ("late_rows_total", "counter", "Rows dropped as later than the watermark.", lambda each: each.late_rows),
    ("batches_total", "counter", "Batches completed.", lambda each: each.batches),
    ("busy_seconds_total", "counter", "Time spent in batches.", lambda each: each.busy_ms / 1000),
    ("batch_duration_seconds", "gauge", "Time of the last batch.", lambda each: each.last.duration_ms / 1000),
    ("lag_records", "gauge", "Records still to read.", lambda each: each.last.lag),
    ("state_rows", "gauge", "Rows in the state store.", lambda each: each.last.state_rows),
    ("state_bytes", "gauge", "Memory of the state store.", lambda each: each.last.state_bytes),
)


def prometheus(pipeline: str, book: RunProgress) -> str:
    """The metrics as text, for the textfile collector of Prometheus's node exporter."""
    lines = []
    for name, kind, help_, value in _METRICS:
        lines += [f"# HELP headrace_pipeline_{name} {help_}", f"# TYPE headrace_pipeline_{name} {kind}"]
        for query, totals in book.queries.items():
            labels = f'pipeline="{pipeline}",query="{query}"'
            lines.append(f"headrace_pipeline_{name}{{{labels}}} {value(totals)}")
    return "\n".join(lines) + "\n"
