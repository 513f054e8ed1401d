"""The figures of a run: measured in the process that runs Spark, and read by the one that reports.

A supervised run writes them to `figures.json` in its state folder, at most once a second; its supervisor reads them.
Neither a full disk nor a reader can disturb the run: a failed write is skipped.
"""

import os
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import msgspec

from headrace.pipelines.control.progress import RunProgress

_RATE_WINDOW_S = 30.0
_WRITE_EVERY_S = 1.0


class RunFigures(msgspec.Struct, frozen=True, kw_only=True):
    """What a run has done so far."""

    pid: int
    started_ms: int
    batches: int = 0
    rows_in: int = 0
    rows_out: int = 0
    rows_per_s: float = 0.0
    batch_ms: float = 0.0
    lag: int = 0
    bad: int = 0
    dead_letters: int = 0
    late_rows: int = 0
    busy_ms: int = 0
    state_rows: int = 0
    state_bytes: int = 0


class RunMeter:
    """Turns the progress of a run into figures; rows per second are those of the last half minute."""

    def __init__(self, clock_s: Callable[[], float] = time.monotonic, wall_s: Callable[[], float] = time.time) -> None:
        self._clock_s = clock_s
        self._started_ms = int(wall_s() * 1000)
        self._counts: deque[tuple[float, int]] = deque([(clock_s(), 0)])

    def measure(self, book: RunProgress) -> RunFigures:
        queries = book.queries.values()
        rows_in = max((each.rows_in for each in queries), default=0)
        return RunFigures(
            pid=os.getpid(),
            started_ms=self._started_ms,
            batches=max((each.batches for each in queries), default=0),
            rows_in=rows_in,
            rows_out=book.rows_out,
            rows_per_s=self._rate(rows_in),
            batch_ms=float(max((each.last.duration_ms for each in queries if each.batches), default=0)),
            lag=book.lag,
            bad=book.bad,
            dead_letters=book.dead_letters,
            late_rows=sum(each.late_rows for each in queries),
            busy_ms=max((each.busy_ms for each in queries), default=0),
            state_rows=sum(each.last.state_rows for each in queries),
            state_bytes=sum(each.last.state_bytes for each in queries),
        )

    def _rate(self, rows_in: int) -> float:
        now = self._clock_s()
        counts = self._counts
        if now - counts[-1][0] >= 1.0:
            counts.append((now, rows_in))
        while len(counts) > 2 and now - counts[1][0] >= _RATE_WINDOW_S:
            counts.popleft()
        seconds = now - counts[0][0]
        return round((rows_in - counts[0][1]) / seconds, 3) if seconds >= 1.0 else 0.0


class FiguresFile:
    """The file with the figures of a supervised run."""

    def __init__(self, path: Path, clock_s: Callable[[], float] = time.monotonic) -> None:
        self._path = path
        self._clock_s = clock_s
        self._written_s = -_WRITE_EVERY_S

    def write(self, figures: RunFigures) -> None:
        now = self._clock_s()
        if now - self._written_s < _WRITE_EVERY_S:
            return
        self._written_s = now
        new = self._path.with_name(f"{self._path.name}.new")
        with suppress(OSError):
            new.write_bytes(msgspec.json.encode(figures))
            new.replace(self._path)

    def read(self, pid: int | None) -> RunFigures | None:
        """The figures of the run with this process id; None if it has not written any."""
        try:
            found = msgspec.json.decode(self._path.read_bytes(), type=RunFigures)
        except (OSError, msgspec.MsgspecError):
            return None
        return found if found.pid == pid else None
