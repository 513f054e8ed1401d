"""The state of `__pipelines`: the last stored report of each pipeline, and what was asked of it. Pure.

    key                     value                       meaning
    ["pipeline-1", name]    `StoredPipeline` (a map)    a pipeline; a tombstone removes it

Keys are msgpack arrays, values msgpack maps. Not every report is stored: one is if it tells of a change (state, error,
restart, graph, replay), and at least each `STORE_EVERY_MS`. Figures between two records are in the memory of the leader
only; after a failover they come back with the next report, within seconds.
"""

from collections.abc import Mapping

import msgspec

from headrace.coordinator.machine import EntryMachine, InternalRecord, Outcome
from headrace.model.errors import CorruptBatch, PipelineBusy, PipelineNotListening, TooManyPipelines, UnknownPipeline
from headrace.model.pipeline_report import DesiredState, PipelineReport, ReplayCommand, ReportAnswer
from headrace.monitor.pipelines.entries import StoredPipeline, is_listening, shown_state

MAX_PIPELINES = 500
"""A report of one more is refused. A report has at most 64 KiB."""
STORE_EVERY_MS = 60_000
FORGOTTEN_AFTER_MS = 7 * 24 * 60 * 60 * 1000
"""A pipeline that has not reported for so long is removed."""


class PipelineKey(msgspec.Struct, array_like=True, frozen=True, tag="pipeline-1"):
    name: str


_encode = msgspec.msgpack.Encoder().encode
_decode_key = msgspec.msgpack.Decoder(PipelineKey).decode
_decode_stored = msgspec.msgpack.Decoder(StoredPipeline).decode


class PipelineMachine(EntryMachine):
    """The pipelines of the shard, which is the only one."""

    def __init__(self) -> None:
        self._pipelines: dict[str, StoredPipeline] = {}

    @property
    def pipelines(self) -> Mapping[str, StoredPipeline]:
        return self._pipelines

    def known(self, name: str) -> StoredPipeline:
        found = self._pipelines.get(name)
        if found is None:
            raise UnknownPipeline(f"no pipeline {name} has reported to this cluster")
        return found

    def report(self, name: str, report: PipelineReport, now_ms: int) -> Outcome[InternalRecord, ReportAnswer]:
        """Take a report; the answer says what is asked of the pipeline."""
        before = self._pipelines.get(name)
        if before is None and len(self._pipelines) >= MAX_PIPELINES:
            raise TooManyPipelines(f"{MAX_PIPELINES} pipelines have reported: remove those that are gone")
        now = reported(before, report, now_ms)
        answer = ReportAnswer(desired=now.desired_now, replay=now.replay)
        records = [_record(name, now)] if before is None or _tells_more(before, now) else []
        return Outcome(records, answer)

    def start_or_stop(
        self, name: str, desired: DesiredState, live: StoredPipeline, silent_s: float
    ) -> Outcome[InternalRecord, None]:
        """Ask the process that reports the pipeline to run it, or to stop it after its batch."""
        self.known(name)
        report = live.report
        if not is_listening(live, silent_s):
            raise PipelineNotListening(
                f"no process of the pipeline {name} reports ({shown_state(live, silent_s)}): start it with "
                f"`headrace pipeline start` where its file is{f', on {report.host}' if report.host else ''}"
            )
        if desired == "running" and not report.is_supervised and live.desired_now == "stopped":
            raise PipelineNotListening(f"{name} is stopping, and has no supervisor: `headrace pipeline start` runs one")
        now = msgspec.structs.replace(live, desired=desired, desired_of=report.instance)
        return Outcome([_record(name, now)], None)

    def replay_letters(
        self, name: str, command: ReplayCommand, live: StoredPipeline, silent_s: float
    ) -> Outcome[InternalRecord, None]:
        """Ask the process that reports the pipeline to replay its dead letters."""
        self.known(name)
        if not is_listening(live, silent_s):
            raise PipelineNotListening(
                f"no process of the pipeline {name} reports: `headrace pipeline dlq replay FILE` replays without one"
            )
        is_running = live.report.replay is not None and live.report.replay.state == "running"
        if live.replay is not None or is_running:
            raise PipelineBusy(f"a replay of the dead letters of {name} is in progress")
        return Outcome([_record(name, msgspec.structs.replace(live, replay=command))], None)

    def forget(self, name: str, live: StoredPipeline, silent_s: float) -> Outcome[InternalRecord, None]:
        """Remove a pipeline that does not report any more."""
        self.known(name)
        if is_listening(live, silent_s):
            raise PipelineBusy(f"{name} reports: stop it first")
        return Outcome([InternalRecord(_encode(PipelineKey(name)), None)], None)

    def expire(self, now_ms: int) -> Outcome[InternalRecord, None]:
        """Remove pipelines that have not reported for a week."""
        gone = [name for name, each in self._pipelines.items() if now_ms - each.reported_ms > FORGOTTEN_AFTER_MS]
        return Outcome([InternalRecord(_encode(PipelineKey(name)), None) for name in gone], None)

    # -- replay

    def replay(self, entry: InternalRecord, producer_id: int) -> None:
        try:
            name = _decode_key(entry.key).name
            if entry.value is None:
                self._pipelines.pop(name, None)
            else:
                self._pipelines[name] = _decode_stored(entry.value)
        except msgspec.MsgspecError as error:
            raise CorruptBatch(f"a record of a pipeline cannot be read: {error}") from None

    def replay_end(self, producer_id: int, *, committed: bool) -> None:
        """No record of pipelines is part of a transaction."""

    def loaded(self, now_ms: float) -> None:
        """There are no deadlines."""


def reported(before: StoredPipeline | None, report: PipelineReport, now_ms: int) -> StoredPipeline:
    """A pipeline after a report: what was asked of it stays until it is done."""
    if before is None:
        return StoredPipeline(report=report, reported_ms=now_ms)
    is_acknowledged = before.replay is not None and report.replay is not None and report.replay.id == before.replay.id
    replay = None if is_acknowledged else before.replay
    return msgspec.structs.replace(before, report=report, reported_ms=now_ms, replay=replay)


_CHANGES = ("instance", "state", "is_final", "last_error", "restarts", "graph", "version", "dead_letter_topics")


def _tells_more(before: StoredPipeline, now: StoredPipeline) -> bool:
    old, new = before.report, now.report
    return (
        now.reported_ms - before.reported_ms >= STORE_EVERY_MS
        or before.replay != now.replay
        or _replay_state(old) != _replay_state(new)
        or any(getattr(old, name) != getattr(new, name) for name in _CHANGES)
    )


def _replay_state(report: PipelineReport) -> tuple[str, str] | None:
    return None if report.replay is None else (report.replay.id, report.replay.state)


def _record(name: str, stored: StoredPipeline) -> InternalRecord:
    return InternalRecord(_encode(PipelineKey(name)), _encode(stored))
