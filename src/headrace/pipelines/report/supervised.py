"""The process behind `headrace pipeline start`: a supervisor that reports the pipeline, and does what brokers ask.

    python -m headrace.pipelines.report.supervised FOLDER FILE BOOTSTRAP -- COMMAND…

FILE is the pipeline's file, and BOOTSTRAP the broker instead of the one in it; both may be empty. Without FILE nothing
is reported. The reports say `stopped` while a broker has asked for a stop: then the run has ended, and this process
waits to start it again.
"""

import logging
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from headrace.model.errors import HeadraceError
from headrace.model.pipeline_report import REPORT_EVERY_S, PipelineReport, PipelineState, ReportAnswer
from headrace.pipelines.control.folder import AlreadyRunning, StateFolder
from headrace.pipelines.control.supervisor import Supervisor
from headrace.pipelines.report.content import ReportContent
from headrace.pipelines.report.figures import FiguresFile
from headrace.pipelines.report.replays import LetterReplays
from headrace.pipelines.report.reporter import BrokerSite, Reporter
from headrace.pipelines.spec.file import SpecFile
from headrace.pipelines.spec.model import Spec

_STATES: dict[str, PipelineState] = {
    "starting": "starting",
    "running": "running",
    "waiting": "restarting",
    "ended": "ended",
    "failed": "failed",
    "stopped": "stopped",
}


class SupervisedReports:
    """Reports what a supervisor does, and passes on to it what brokers ask."""

    def __init__(
        self,
        supervisor: Supervisor,
        folder: StateFolder,
        read_spec: Callable[[], Spec],
        *,
        send: Callable[[PipelineReport], ReportAnswer] | None = None,
        every_s: float = REPORT_EVERY_S,
    ) -> None:
        """`read_spec` is called again when the run is started: the file may have changed."""
        spec = read_spec()
        self._supervisor = supervisor
        self._read_spec = read_spec
        self._figures = FiguresFile(folder.figures)
        self._content = ReportContent(spec, folder.log, is_supervised=True)
        self._reporter = Reporter(send or BrokerSite(spec).send, self._make, self._answered, every_s=every_s)
        self._replays = LetterReplays(spec, self._reporter.report_soon)

    def start(self) -> None:
        self._reporter.start()

    def status_changed(self) -> None:
        """Report soon: the supervisor has started, stopped or lost the run."""
        if self._supervisor.status.state == "running":
            with suppress(HeadraceError):
                self._content.use(self._read_spec())
        self._reporter.report_soon()

    def finish(self) -> None:
        """Send the last report."""
        self._replays.close()
        self._reporter.close(self._make(is_final=True))

    def _make(self, *, is_final: bool = False) -> PipelineReport:
        status = self._supervisor.status
        figures = self._figures.read(status.pid) if status.pid is not None else None
        state = _STATES[status.state]
        if state == "running" and figures is None:
            state = "starting"
        return self._content.make(
            state,
            figures,
            restarts=status.restarts,
            last_error=status.last_error,
            replay=self._replays.report,
            is_final=is_final,
        )

    def _answered(self, answer: ReportAnswer) -> None:
        if answer.desired == "stopped":
            self._supervisor.hold()
        else:
            self._supervisor.resume()
        if answer.replay is not None:
            self._replays.ask(answer.replay)


def start_in_background(
    folder: StateFolder, command: Sequence[str], file: Path | None = None, bootstrap: str | None = None
) -> "subprocess.Popen[bytes]":
    """Start a supervisor as a process of its own session, which outlives this process and its terminal."""
    folder.make()
    of_file = ["" if file is None else str(file.absolute()), bootstrap or ""]
    arguments = [sys.executable, "-m", __name__, str(folder.root), *of_file, "--", *command]
    with folder.log.open("ab") as log:
        return subprocess.Popen(
            arguments, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True, cwd=os.getcwd()
        )


def main(arguments: Sequence[str]) -> int:
    folder, file, bootstrap = StateFolder(Path(arguments[0])), arguments[1], arguments[2]
    command = arguments[4:]
    try:
        lock = folder.supervisor_lock.take(folder.root.name)
    except AlreadyRunning as error:
        print(f"headrace: {error}", file=sys.stderr)  # noqa: T201
        return 1
    with lock:
        supervisor = Supervisor(folder, command)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: supervisor.stop())
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        reports = _reports(supervisor, folder, Path(file), bootstrap or None) if file else None
        try:
            return supervisor.run()
        finally:
            if reports is not None:
                reports.finish()


def _reports(
    supervisor: Supervisor, folder: StateFolder, file: Path, bootstrap: str | None
) -> SupervisedReports | None:
    supervisor.share_log(logging.getLogger("headrace"))
    try:
        reports = SupervisedReports(supervisor, folder, lambda: SpecFile(file, bootstrap=bootstrap).spec)
    except HeadraceError as error:
        logging.getLogger("headrace.pipelines").warning("the brokers do not show this pipeline: %s", error)
        return None
    supervisor.on_status = reports.status_changed
    reports.start()
    return reports


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
