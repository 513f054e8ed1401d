"""What goes wrong with a pipeline.

HeadraceError
└── PipelineError
    ├── SpecError         the file says something that makes no sense; names the file and the line
    ├── NotReady          what pipelines need is not there: Java, a broker, a topic
    └── PipelineFailed    a pipeline ran and stopped by a failure; the reason in one sentence

Every message is one sentence for the person at the terminal; the whole trace is in the log of the pipeline.
"""

from pathlib import Path

from headrace.model.errors import HeadraceError


class PipelineError(HeadraceError):
    """Any failure of a pipeline."""


class SpecError(PipelineError):
    """The file of a pipeline is wrong at `line` (None: as a whole)."""

    def __init__(self, file: Path, line: int | None, problem: str) -> None:
        super().__init__(f"{file}:{line}: {problem}" if line else f"{file}: {problem}")
        self.file = file
        self.line = line
        self.problem = problem


class NotReady(PipelineError):
    """Something that has to be there before a pipeline can run is not."""


class PipelineFailed(PipelineError):
    """A pipeline stopped because of a failure."""
