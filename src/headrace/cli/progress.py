"""One line of progress on stderr while a command works, when a person is there to see it."""

import sys
import time
from typing import Any

from headrace.cli.output import human_bytes, per_time


class ProgressLine:
    """Shows a count, a rate and, where the end is known, a bar. Silent when stderr is not a terminal."""

    def __init__(self, verb: str, *, shown: bool = True, total: int | None = None) -> None:
        self._verb = verb
        self._total = total
        self._shown = shown and sys.stderr.isatty()
        self._bar: Any = None
        self._task: Any = None
        self._started = time.monotonic()

    def __enter__(self) -> "ProgressLine":
        if self._shown:
            from rich.console import Console
            from rich.progress import BarColumn, SpinnerColumn, TextColumn
            from rich.progress import Progress as Bar

            columns = [SpinnerColumn(), *([BarColumn()] if self._total else []), TextColumn("{task.description}")]
            self._bar = Bar(*columns, console=Console(stderr=True), transient=True)
            self._bar.start()
            self._task = self._bar.add_task("", total=self._total)
            self._started = time.monotonic()
        return self

    def update(self, messages: int, size_bytes: int | None = None) -> None:
        if self._bar is not None:
            seconds = max(time.monotonic() - self._started, 1e-9)
            speed = per_time(messages, seconds)
            if size_bytes is not None:
                speed += f", {human_bytes(size_bytes / seconds)}/s"
            self._bar.update(self._task, completed=messages, description=f"{messages:,} {self._verb}, {speed}")

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.stop()
