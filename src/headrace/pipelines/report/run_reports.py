"""Reports of a run without a supervisor: `headrace pipeline run`. A broker may ask it to stop, which ends it."""

from collections.abc import Callable
from pathlib import Path

from headrace.model.pipeline_report import REPORT_EVERY_S, PipelineReport, PipelineState, ReportAnswer
from headrace.pipelines.control.progress import RunProgress
from headrace.pipelines.report.content import ReportContent
from headrace.pipelines.report.figures import RunFigures, RunMeter
from headrace.pipelines.report.replays import LetterReplays
from headrace.pipelines.report.reporter import BrokerSite, Reporter
from headrace.pipelines.spec.model import Spec


class RunReports:
    """Reports from `start` to `finish`. `on_stop` is called, perhaps several times, if a broker asks for a stop."""

    def __init__(
        self,
        spec: Spec,
        log: Path,
        on_stop: Callable[[], None],
        *,
        send: Callable[[PipelineReport], ReportAnswer] | None = None,
        every_s: float = REPORT_EVERY_S,
    ) -> None:
        self._content = ReportContent(spec, log, is_supervised=False)
        self._meter = RunMeter()
        self._figures: RunFigures | None = None
        self._state: PipelineState = "starting"
        self._on_stop = on_stop
        self._reporter = Reporter(send or BrokerSite(spec).send, self._make, self._answered, every_s=every_s)
        self._replays = LetterReplays(spec, self._reporter.report_soon)

    def start(self) -> None:
        self._reporter.start()

    def update(self, book: RunProgress) -> None:
        """Take the progress of the run; called from its thread."""
        before, self._figures = self._figures, self._meter.measure(book)
        has_begun = self._state == "starting"
        self._state = "running"
        if has_begun or (before is not None and before.batches != self._figures.batches):
            self._reporter.report_soon()

    def finish(self, state: PipelineState, last_error: str = "") -> None:
        """Send the last report."""
        self._state = state
        self._replays.close()
        replay = self._replays.report
        self._reporter.close(
            self._content.make(state, self._figures, last_error=last_error, replay=replay, is_final=True)
        )

    def _make(self) -> PipelineReport:
        return self._content.make(self._state, self._figures, replay=self._replays.report)

    def _answered(self, answer: ReportAnswer) -> None:
        if answer.desired == "stopped":
            self._on_stop()
        if answer.replay is not None:
            self._replays.ask(answer.replay)
