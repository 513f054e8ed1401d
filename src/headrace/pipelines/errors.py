"""Errors of pipelines.

HeadraceError
└── PipelineError
    ├── SpecError         the pipeline file is invalid; the message has the file and the line
    ├── NotReady          a prerequisite is missing: Java, a broker, a topic
    └── PipelineFailed    a running pipeline stopped because of an error; the message has the cause

Every message is one sentence; the full traceback is in the log of the pipeline.
"""

from pathlib import Path

from headrace.model.errors import HeadraceError


class PipelineError(HeadraceError):
    """Any failure of a pipeline."""


class SpecError(PipelineError):
    """A pipeline file is invalid at `line` (None: as a whole)."""

    def __init__(self, file: Path, line: int | None, problem: str) -> None:
        super().__init__(f"{file}:{line}: {problem}" if line else f"{file}: {problem}")
        self.file = file
        self.line = line
        self.problem = problem


class NotReady(PipelineError):
    """A prerequisite for running a pipeline is missing."""


class PipelineFailed(PipelineError):
    """A running pipeline stopped because of an error."""
