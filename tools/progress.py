"""Shows what a long step is doing: one live line on a terminal, otherwise a plain line now and then."""

import shutil
import sys
import time
from collections.abc import Callable
from typing import TextIO

_EVERY_S = 5.0
_CLEAR_LINE = "\r\x1b[2K"


class Progress:
    """A live line on a terminal. Elsewhere a line per phase, and one every few seconds within a phase."""

    def __init__(
        self, stream: TextIO | None = None, live: bool | None = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._stream = stream or sys.stderr
        self._live = self._stream.isatty() if live is None else live
        self._clock = clock
        self._started_s = self._shown_s = clock()
        self._phase = ""

    @property
    def elapsed_s(self) -> float:
        return self._clock() - self._started_s

    def say(self, text: str) -> None:
        """Print a line that stays."""
        self._write(f"{_CLEAR_LINE if self._live else ''}{text}\n")

    def show(self, phase: str, detail: str = "") -> None:
        """Show the phase and how far it is, with the seconds since the beginning."""
        text = f"{phase}{': ' if detail else ''}{detail}, {self.elapsed_s:.0f} s"
        if self._live:
            self._write(_CLEAR_LINE + text[: shutil.get_terminal_size().columns - 1])
        elif phase != self._phase or self._clock() - self._shown_s >= _EVERY_S:
            self._shown_s = self._clock()
            self._write(text + "\n")
        self._phase = phase

    def clear(self) -> None:
        """Remove the live line, so that other output begins on an empty one."""
        if self._live:
            self._write(_CLEAR_LINE)

    def _write(self, text: str) -> None:
        self._stream.write(text)
        self._stream.flush()


def format_size(size_mb: float) -> str:
    """A size as people say it: 0.3 MB, 58 MB, 1.1 GB."""
    if size_mb >= 1000:
        return f"{size_mb / 1000:.1f} GB"
    return f"{size_mb:.0f} MB" if size_mb >= 1 or not size_mb else f"{size_mb:.1f} MB"
