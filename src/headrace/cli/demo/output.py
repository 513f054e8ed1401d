"""The output of the tour, and progress while it waits."""

import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

_QUIET_S = 1.5
"""After so long without a word, the tour says what it waits for: a person takes two seconds of silence for a hang."""


class DemoOutput:
    """Results go to stdout, line by line. While the tour waits, stderr says for what and for how long: on a terminal in
    one line that is overwritten, else in a line of its own each time."""

    def __init__(self, quiet_s: float = _QUIET_S) -> None:
        self._quiet_s = quiet_s
        self._lock = threading.Lock()
        self._last_s = time.monotonic()
        self._overwrites = sys.stderr.isatty()
        self._is_dirty = False
        self._waits: list[tuple[str, float]] = []
        """What is waited for and since when, the innermost last."""

    def say(self, text: str) -> None:
        with self._lock:
            self._clear()
            print(text, flush=True)
            self._last_s = time.monotonic()

    @contextmanager
    def waiting_for(self, what: str) -> Iterator[None]:
        """Give signs of life, whenever nothing else is said, until the block ends. A block within names its own."""
        with self._lock:
            self._waits.append((what, time.monotonic()))
            is_outermost = len(self._waits) == 1
        is_over = threading.Event()
        thread = threading.Thread(target=self._give_signs, args=(is_over,), name="tour-progress", daemon=True)
        if is_outermost:
            thread.start()
        try:
            yield
        finally:
            is_over.set()
            if is_outermost:
                thread.join()
            with self._lock:
                self._waits.pop()
                self._clear()

    def _give_signs(self, is_over: threading.Event) -> None:
        while not is_over.wait(self._quiet_s / 6):
            with self._lock:
                now_s = time.monotonic()
                if now_s - self._last_s >= self._quiet_s:
                    what, started_s = self._waits[-1]
                    self._sign(f"   … {what}, {now_s - started_s:.0f} s")
                    self._last_s = now_s

    def _sign(self, text: str) -> None:
        if self._overwrites:
            print(f"\r\033[K{text}", end="", file=sys.stderr, flush=True)
            self._is_dirty = True
        else:
            print(text, file=sys.stderr, flush=True)

    def _clear(self) -> None:
        if self._is_dirty:
            print("\r\033[K", end="", file=sys.stderr, flush=True)
            self._is_dirty = False
