"""Reports and their answers, without a broker."""

import logging
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from headrace.client.errors import ClientError
from headrace.model.pipeline_report import PipelineReport, ReplayCommand, ReplayReport, ReportAnswer
from headrace.pipelines.control.folder import StateFolder
from headrace.pipelines.control.progress import RunProgress
from headrace.pipelines.control.supervisor import Supervisor
from headrace.pipelines.dead_letters.letter_topics import LetterTopic
from headrace.pipelines.errors import NotReady
from headrace.pipelines.report import replays
from headrace.pipelines.report.reporter import BrokerSite, Reporter
from headrace.pipelines.report.run_reports import RunReports
from headrace.pipelines.report.supervised import SupervisedReports
from headrace.pipelines.spec.model import Spec
from tests.waiting import until

from .specs import TEXT, revenue


class Broker:
    """Takes reports, and answers as it is set to."""

    def __init__(self) -> None:
        self.reports: list[PipelineReport] = []
        self.answer = ReportAnswer()
        self.error: Exception | None = None
        self.asked = 0

    def send(self, report: PipelineReport) -> ReportAnswer:
        self.asked += 1
        if self.error is not None:
            raise self.error
        self.reports.append(report)
        return self.answer

    @property
    def states(self) -> list[str]:
        """The states in their order, each once."""
        found = [each.state for each in self.reports]
        return [state for at, state in enumerate(found) if at == 0 or found[at - 1] != state]


def program(code: str) -> list[str]:
    return [sys.executable, "-c", code]


REPORT = PipelineReport(instance="a", state="running")


def test_failures_are_one_line_and_so_is_their_end(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    broker = Broker()
    broker.error = ClientError("no broker answers")
    reporter = Reporter(broker.send, lambda: REPORT, every_s=0.01)
    reporter.start()
    until(lambda: broker.asked >= 3)
    broker.error = RuntimeError("a defect")
    until(lambda: broker.asked >= 5)
    broker.error = None
    until(lambda: len(broker.reports) >= 2)
    reporter.close()
    assert [each.getMessage() for each in caplog.records] == [
        "the brokers do not show this pipeline, which goes on all the same: no broker answers",
        "the pipeline is reported to the brokers again",
    ]


def test_an_answer_that_cannot_be_followed_does_not_end_the_reports(caplog: pytest.LogCaptureFixture) -> None:
    broker = Broker()

    def fail(answer: ReportAnswer) -> None:
        raise RuntimeError("a defect")

    reporter = Reporter(broker.send, lambda: REPORT, fail, every_s=0.01)
    reporter.start()
    until(lambda: len(broker.reports) >= 2)
    reporter.close()
    assert "could not be done" in caplog.text


def test_the_last_report_is_sent_once_and_its_answer_is_ignored() -> None:
    broker, answers = Broker(), list[ReportAnswer]()
    reporter = Reporter(broker.send, lambda: REPORT, answers.append)
    reporter.start()
    until(lambda: answers)
    reporter.close(PipelineReport(instance="a", state="stopped", is_final=True))
    assert [each.is_final for each in broker.reports] == [False, True]
    assert len(answers) == 1


def test_without_a_broker_the_site_says_why(tmp_path: Path) -> None:
    site = BrokerSite(revenue(tmp_path, 'bootstrap = "127.0.0.1:1"\n' + TEXT))
    with pytest.raises(Exception, match=r"127\.0\.0\.1:1"):
        site.send(REPORT)


def test_a_run_reports_its_states_and_is_stopped_by_an_answer(tmp_path: Path) -> None:
    broker, stopped = Broker(), threading.Event()
    reports = RunReports(revenue(tmp_path), tmp_path / "log", stopped.set, send=broker.send, every_s=0.05)
    (tmp_path / "log").write_text("one\ntwo\n")
    reports.start()
    until(lambda: broker.states == ["starting"])
    reports.update(RunProgress([], []))
    until(lambda: broker.states == ["starting", "running"])
    assert not stopped.is_set()
    broker.answer = ReportAnswer(desired="stopped")
    reports.update(RunProgress([], []))
    until(stopped.is_set)
    reports.finish("stopped")
    last = broker.reports[-1]
    assert (last.state, last.is_final, last.is_supervised, last.log) == ("stopped", True, False, ["one", "two"])
    assert last.dead_letter_topics == ["orders.dlq"]
    assert len({each.instance for each in broker.reports}) == 1


@contextmanager
def supervised(tmp_path: Path, broker: Broker, code: str) -> Iterator[Supervisor]:
    spec, folder = revenue(tmp_path), StateFolder(tmp_path / "state")
    supervisor = Supervisor(folder, program(code), first_wait_s=0.01)
    reports = SupervisedReports(supervisor, folder, lambda: spec, send=broker.send, every_s=0.05)
    supervisor.on_status = reports.status_changed
    reports.start()
    thread = threading.Thread(target=supervisor.run, daemon=True)
    thread.start()
    try:
        yield supervisor
    finally:
        supervisor.stop()
        thread.join(60)
        reports.finish()


RUNS = """
import json, os, pathlib, signal, sys, time
signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
figures = {"pid": os.getpid(), "started_ms": 1, "rows_in": 7}
pathlib.Path(PATH).write_text(json.dumps(figures))
while True:
    time.sleep(0.1)
"""


def test_a_supervised_run_is_stopped_and_started_by_answers(tmp_path: Path) -> None:
    broker = Broker()
    path = tmp_path / "state" / "figures.json"
    with supervised(tmp_path, broker, RUNS.replace("PATH", repr(str(path)))) as supervisor:
        until(lambda: broker.states[-1:] == ["starting"])
        until(lambda: broker.states[-1:] == ["running"])
        first = supervisor.status.pid
        assert broker.reports[-1].rows_in == 7
        broker.answer = ReportAnswer(desired="stopped")
        until(lambda: broker.states[-1:] == ["stopped"])
        assert supervisor.status.pid is None
        assert not broker.reports[-1].is_final
        broker.answer = ReportAnswer(desired="running")
        until(lambda: broker.states[-1:] == ["running"])
        assert supervisor.status.pid != first
    assert (broker.reports[-1].state, broker.reports[-1].is_final) == ("stopped", True)
    assert broker.reports[-1].restarts == 0
    assert any("asked to stop" in line for line in broker.reports[-1].log)


def test_a_run_that_fails_is_reported_with_its_error(tmp_path: Path) -> None:
    broker = Broker()
    with supervised(tmp_path, broker, "import sys; sys.exit('headrace: no broker')"):
        until(lambda: any(each.restarts >= 1 for each in broker.reports))
        until(lambda: "restarting" in broker.states)
    assert broker.reports[-1].last_error == "no broker"


def test_a_replay_that_cannot_be_done_is_reported_as_failed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_broker(spec: Spec) -> list[LetterTopic]:
        raise NotReady("no broker answers")

    monkeypatch.setattr(replays, "letter_topics", no_broker)
    broker = Broker()
    broker.answer = ReportAnswer(replay=ReplayCommand("7"))
    reports = RunReports(revenue(tmp_path), tmp_path / "log", lambda: None, send=broker.send, every_s=0.05)
    reports.start()
    until(lambda: broker.reports and (found := broker.reports[-1].replay) is not None and found.state == "failed")
    reports.finish("ended")
    assert broker.reports[-1].replay == ReplayReport(id="7", state="failed", error="no broker answers")
