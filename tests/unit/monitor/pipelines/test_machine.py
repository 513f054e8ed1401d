"""Reports of pipelines: what is stored, what is asked of them, and what is shown."""

from typing import Any

import pytest

from headrace.coordinator.machine import InternalRecord, Outcome
from headrace.model.errors import CorruptBatch, PipelineBusy, PipelineNotListening, TooManyPipelines, UnknownPipeline
from headrace.model.pipeline_report import (
    MAX_LOG_BYTES,
    MAX_LOG_LINES,
    PipelineReport,
    ReplayCommand,
    ReplayReport,
    bounded_log,
)
from headrace.monitor.pipelines import machine as machine_module
from headrace.monitor.pipelines.entries import entry_of, worst_pipelines
from headrace.monitor.pipelines.machine import FORGOTTEN_AFTER_MS, STORE_EVERY_MS, PipelineMachine

NOW_MS = 1_700_000_000_000


def report(state: Any = "running", **more: Any) -> PipelineReport:
    return PipelineReport(**{"instance": "a", "state": state, "is_supervised": True, "host": "here", **more})


def applied(machine: PipelineMachine, outcome: Outcome[InternalRecord, Any]) -> Any:
    for record in outcome.records:
        machine.apply(record, -1)
    return outcome.answer


def after(*reports: PipelineReport) -> PipelineMachine:
    machine = PipelineMachine()
    for each in reports:
        applied(machine, machine.report("revenue", each, NOW_MS))
    return machine


class TestStored:
    def test_a_report_survives_a_replay_of_the_records(self) -> None:
        first, second = PipelineMachine(), PipelineMachine()
        outcome = first.report("revenue", report(rows_in=7, log=["a line"]), NOW_MS)
        for record in outcome.records:
            second.replay(record, -1)
        assert second.known("revenue").report == report(rows_in=7, log=["a line"])
        assert outcome.answer.desired == "running"

    def test_figures_alone_are_stored_once_a_minute(self) -> None:
        machine = after(report())
        assert machine.report("revenue", report(rows_in=5, lag=3), NOW_MS + 5000).records == []
        assert machine.report("revenue", report(rows_in=9), NOW_MS + STORE_EVERY_MS).records

    @pytest.mark.parametrize(
        "change",
        [
            {"state": "restarting"},
            {"last_error": "no broker"},
            {"restarts": 1},
            {"instance": "b"},
            {"is_final": True},
            {"replay": ReplayReport(id="1", state="running")},
        ],
        ids=str,
    )
    def test_a_change_is_stored_at_once(self, change: dict[str, Any]) -> None:
        assert after(report()).report("revenue", report(**change), NOW_MS + 1).records

    def test_more_pipelines_than_the_limit_are_refused(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(machine_module, "MAX_PIPELINES", 1)
        machine = after(report())
        with pytest.raises(TooManyPipelines):
            machine.report("other", report(), NOW_MS)
        machine.report("revenue", report(), NOW_MS)

    def test_a_pipeline_that_is_gone_is_forgotten_after_a_week(self) -> None:
        machine = after(report())
        assert not machine.expire(NOW_MS + FORGOTTEN_AFTER_MS).records
        applied(machine, machine.expire(NOW_MS + FORGOTTEN_AFTER_MS + 1))
        with pytest.raises(UnknownPipeline, match="revenue"):
            machine.known("revenue")

    def test_a_damaged_record_is_an_error(self) -> None:
        with pytest.raises(CorruptBatch):
            PipelineMachine().replay(InternalRecord(b"x", b"y"), -1)


class TestControl:
    def test_a_stop_is_in_the_answer_to_every_report_until_it_is_started_again(self) -> None:
        machine = after(report())
        applied(machine, machine.start_or_stop("revenue", "stopped", machine.known("revenue"), 1.0))
        assert machine.report("revenue", report(), NOW_MS).answer.desired == "stopped"
        assert machine.report("revenue", report("stopped"), NOW_MS).answer.desired == "stopped"
        applied(machine, machine.start_or_stop("revenue", "running", machine.known("revenue"), 1.0))
        assert machine.report("revenue", report("stopped"), NOW_MS).answer.desired == "running"

    def test_a_process_that_is_started_later_is_not_stopped(self) -> None:
        machine = after(report())
        applied(machine, machine.start_or_stop("revenue", "stopped", machine.known("revenue"), 1.0))
        assert machine.report("revenue", report(instance="b"), NOW_MS).answer.desired == "running"

    @pytest.mark.parametrize(("is_final", "silent_s"), [(True, 1.0), (False, 31.0)])
    def test_a_pipeline_that_no_process_reports_cannot_be_asked(self, is_final: bool, silent_s: float) -> None:
        machine = after(report("stopped", is_final=is_final))
        live = machine.known("revenue")
        with pytest.raises(PipelineNotListening, match=r"headrace pipeline start.*on here"):
            machine.start_or_stop("revenue", "running", live, silent_s)
        with pytest.raises(PipelineNotListening, match="dlq replay"):
            machine.replay_letters("revenue", ReplayCommand("1"), live, silent_s)

    def test_a_run_without_a_supervisor_that_stops_cannot_be_started(self) -> None:
        machine = after(report(is_supervised=False))
        applied(machine, machine.start_or_stop("revenue", "stopped", machine.known("revenue"), 1.0))
        with pytest.raises(PipelineNotListening, match="no supervisor"):
            machine.start_or_stop("revenue", "running", machine.known("revenue"), 1.0)

    def test_a_replay_is_asked_for_until_a_report_has_its_id(self) -> None:
        machine = after(report())
        applied(machine, machine.replay_letters("revenue", ReplayCommand("7", "bad"), machine.known("revenue"), 1.0))
        assert applied(machine, machine.report("revenue", report(), NOW_MS)).replay == ReplayCommand("7", "bad")
        with pytest.raises(PipelineBusy):
            machine.replay_letters("revenue", ReplayCommand("8"), machine.known("revenue"), 1.0)
        runs = report(replay=ReplayReport(id="7", state="running"))
        assert applied(machine, machine.report("revenue", runs, NOW_MS)).replay is None
        with pytest.raises(PipelineBusy):
            machine.replay_letters("revenue", ReplayCommand("8"), machine.known("revenue"), 1.0)
        done = report(replay=ReplayReport(id="7", state="done", sent=3))
        applied(machine, machine.report("revenue", done, NOW_MS))
        machine.replay_letters("revenue", ReplayCommand("8"), machine.known("revenue"), 1.0)

    def test_only_a_pipeline_that_does_not_report_is_removed(self) -> None:
        machine = after(report())
        with pytest.raises(PipelineBusy, match="stop it first"):
            machine.forget("revenue", machine.known("revenue"), 1.0)
        applied(machine, machine.forget("revenue", machine.known("revenue"), 31.0))
        assert not machine.pipelines


class TestShown:
    @pytest.mark.parametrize(
        ("given", "silent_s", "state", "can_start", "can_stop"),
        [
            (report(), 5.0, "running", False, True),
            (report(), 31.0, "not-reporting", False, False),
            (report("stopped"), 5.0, "stopped", True, False),
            (report("failed"), 5.0, "failed", True, False),
            (report("stopped", is_final=True), 500.0, "stopped", False, False),
            (report("restarting"), 5.0, "restarting", False, True),
            (report("starting", is_supervised=False), 5.0, "starting", False, True),
        ],
    )
    def test_state(self, given: PipelineReport, silent_s: float, state: str, can_start: bool, can_stop: bool) -> None:
        entry = entry_of("revenue", after(given).known("revenue"), silent_s)
        assert (entry.state, entry.can_start, entry.can_stop) == (state, can_start, can_stop)

    def test_between_the_request_and_the_end_of_the_batch_it_is_stopping(self) -> None:
        machine = after(report(rows_per_s=4.0))
        applied(machine, machine.start_or_stop("revenue", "stopped", machine.known("revenue"), 1.0))
        entry = entry_of("revenue", machine.known("revenue"), 1.0)
        assert (entry.state, entry.desired, entry.can_stop) == ("stopping", "stopped", False)

    def test_a_pipeline_that_is_not_running_has_no_rate(self) -> None:
        stored = after(report(rows_per_s=4.0, lag=9)).known("revenue")
        assert entry_of("revenue", stored, 1.0).rows_per_s == 4.0
        assert (entry_of("revenue", stored, 60.0).rows_per_s, entry_of("revenue", stored, 60.0).lag) == (0.0, 9)


def test_pipelines_that_need_attention_come_first() -> None:
    states = {"idle": report(lag=0), "behind": report(lag=9), "broken": report("failed"), "again": report("restarting")}
    found = [entry_of(name, after(each).known("revenue"), 1.0) for name, each in states.items()]
    assert [each.name for each in worst_pipelines(found)] == ["broken", "again", "behind", "idle"]
    assert [each.name for each in worst_pipelines(found, 1)] == ["broken"]


def test_a_log_is_cut_to_its_last_lines() -> None:
    assert bounded_log([f"{at}" for at in range(500)]) == [f"{at}" for at in range(500 - MAX_LOG_LINES, 500)]
    assert bounded_log(["x" * MAX_LOG_BYTES, "last"]) == ["last"]
