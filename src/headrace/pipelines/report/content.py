"""The content of a report: what the pipeline's file says, what the process is, and what the run has done."""

import os
import socket
import time
import uuid
from pathlib import Path

import msgspec

from headrace.model.pipeline_report import (
    MAX_ERROR_CHARS,
    MAX_LOG_BYTES,
    PipelineReport,
    PipelineState,
    ReplayReport,
    bounded_log,
)
from headrace.pipelines.report.figures import RunFigures
from headrace.pipelines.report.graph import dead_letter_topics, graph_of, source_topics
from headrace.pipelines.spec.model import Spec
from headrace.version import version

_NAME_CHARS = 249


class ReportContent:
    """Makes the reports of one process."""

    def __init__(self, spec: Spec, log: Path, *, is_supervised: bool) -> None:
        self._log = log
        self._own = PipelineReport(
            instance=uuid.uuid4().hex,
            state="starting",
            is_supervised=is_supervised,
            host=socket.gethostname()[:_NAME_CHARS],
            pid=os.getpid(),
            version=version(),
            started_ms=time.time_ns() // 1_000_000,
        )
        self.use(spec)

    def use(self, spec: Spec) -> None:
        """Show the graph of this spec from now on."""
        self._own = msgspec.structs.replace(
            self._own,
            graph=graph_of(spec),
            source_topics=source_topics(spec),
            dead_letter_topics=dead_letter_topics(spec),
        )

    def make(
        self,
        state: PipelineState,
        figures: RunFigures | None,
        *,
        restarts: int = 0,
        last_error: str = "",
        replay: ReplayReport | None = None,
        is_final: bool = False,
    ) -> PipelineReport:
        own = self._own
        if figures is not None:
            own = msgspec.structs.replace(own, **msgspec.structs.asdict(figures))
        return msgspec.structs.replace(
            own,
            state=state,
            restarts=restarts,
            last_error=last_error[:MAX_ERROR_CHARS],
            replay=replay,
            is_final=is_final,
            log=last_lines(self._log),
        )


def last_lines(log: Path) -> list[str]:
    """The end of a log, as much as a report has room for."""
    try:
        with log.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - MAX_LOG_BYTES))
            lines = file.read().decode(errors="replace").splitlines()
    except OSError:
        return []
    # The first line may be cut off.
    return bounded_log(lines[1:] if size > MAX_LOG_BYTES else lines)
