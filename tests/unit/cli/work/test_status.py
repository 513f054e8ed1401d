"""What `headrace work` shows: the table on a screen, and the metrics."""

from typing import Any, cast

import pytest
from rich.console import Console

from headrace.cli.metrics_listener import metrics_text
from headrace.cli.work.metrics import families
from headrace.cli.work.process import PoolProcess
from headrace.cli.work.status import PoolOutput, PoolView
from headrace.client.work.messages import Report, WorkerReport
from headrace.model.scale import ScaleRules, SourceLoad

LOADS = [SourceLoad("queue emails", 4_000, 70.0, 52.0), SourceLoad("group billing", None)]


class Process:
    """A process as the table sees it."""

    pid, state, started_s = 4711, "running", 0.0

    def __init__(self, number: int) -> None:
        self.number = number
        self.report = Report([WorkerReport("queue emails", 1_234, 5, None, 16, "ValueError: no address")], True)


def view(processes: int = 2) -> PoolView:
    running = cast("list[PoolProcess]", [Process(number) for number in range(1, processes + 1)])
    return PoolView("app:client", 2, ScaleRules(1, 8), "why", "", LOADS, running, {"queue emails": 99}, 3)


def shown(picture: PoolView) -> str:
    output: Any = PoolOutput()
    console = Console(width=120, record=True, force_terminal=False)
    output._live = type("Live", (), {"update": lambda _, found, refresh: console.print(found)})()
    output.show(picture)
    return console.export_text()


def test_the_table_has_the_reason_the_backlog_and_the_processes(capsys: pytest.CaptureFixture[str]) -> None:
    text = shown(view())
    assert "app:client: 2 processes (1 to 8): why" in text
    assert "queue emails: 4,000 waiting, the oldest for 70 s, 52.0/s per process" in text
    assert "group billing: backlog not known" in text
    assert "1,234" in text
    assert "ValueError: no address" in text


def test_many_processes_are_counted(capsys: pytest.CaptureFixture[str]) -> None:
    assert "and 4 more" in shown(view(20))


def test_metrics() -> None:
    text = metrics_text(families(view()))[1].decode()
    for line in (
        'headrace_work_processes{state="running"} 2',
        "headrace_work_wanted_processes 2",
        "headrace_work_restarts_total 3",
        'headrace_work_messages_handled_total{source="queue emails"} 99',
        'headrace_work_backlog_messages{source="queue emails"} 4000',
    ):
        assert line in text
    assert 'backlog_messages{source="group billing"}' not in text
