"""Progress of data that brokers copy between themselves: how much is left, and how long it will take."""

import sys
import time
from typing import Any

from headrace.cli.output import count, human_bytes, human_duration, say

_SAY_EVERY_S = 10.0
_BAR_WIDTH = 16


class Transfer:
    """A bar on stderr for a person who watches; a line from time to time for a log."""

    def __init__(self, what: str, partitions: int, size_bytes: int) -> None:
        self._what = what
        self._partitions = partitions
        self._size_bytes = size_bytes
        self._said_s = time.monotonic()
        self._first: tuple[float, int] | None = None
        """Time and remaining bytes at the first look: what was copied before does not count for the speed."""
        self._bar: Any = None
        self._task: Any = None

    def __enter__(self) -> "Transfer":
        if sys.stderr.isatty():
            from rich.console import Console
            from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn

            columns = (SpinnerColumn(), BarColumn(_BAR_WIDTH), TextColumn("{task.description}"))
            self._bar = Progress(*columns, console=Console(stderr=True), transient=True)
            self._bar.start()
            self._task = self._bar.add_task(self._what, total=max(self._size_bytes, 1) + self._partitions)
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.stop()

    def update(self, partitions_left: int, bytes_left: int) -> None:
        text = f"{self._what}: {count(partitions_left, 'partition')}, {human_bytes(bytes_left)} left"
        now_s = time.monotonic()
        if self._first is None:
            self._first = (now_s, bytes_left)
        rate = (self._first[1] - bytes_left) / max(now_s - self._first[0], 1e-9)
        if rate >= 1 and bytes_left:
            text += f", {human_bytes(rate)}/s, {human_duration(max(1.0, bytes_left / rate))} left"
        if self._bar is not None:
            done = max(0, self._size_bytes - bytes_left) + self._partitions - partitions_left
            self._bar.update(self._task, completed=done, description=text)
        elif now_s - self._said_s >= _SAY_EVERY_S:
            self._said_s = now_s
            say(text)
