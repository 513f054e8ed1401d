"""One line for each check, and a summary."""

import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager


class Report:
    def __init__(self) -> None:
        self.passed = 0
        self.failed: list[str] = []
        self._started = time.monotonic()

    @contextmanager
    def check(self, what: str) -> Iterator[None]:
        """The block is one check: it fails if the block raises, and the rest goes on."""
        started = time.monotonic()
        try:
            yield
        except Exception as error:
            reason = str(error) if isinstance(error, AssertionError) else traceback.format_exc()
            self.add(what, reason or "assertion failed")
        else:
            self.add(what, None, time.monotonic() - started)

    def add(self, what: str, failure: str | None, seconds: float | None = None) -> None:
        took = "" if seconds is None else f" ({seconds:.1f} s)"
        if failure is None:
            self.passed += 1
            print(f"ok      {what}{took}", flush=True)
        else:
            self.failed.append(what)
            indented = failure.strip().replace("\n", "\n          ")
            print(f"FAILED  {what}: {indented}", flush=True)

    def summary(self) -> str:
        took = time.monotonic() - self._started
        if self.failed:
            return f"{len(self.failed)} of {len(self.failed) + self.passed} checks failed in {took:.0f} s"
        return f"all {self.passed} checks passed in {took:.0f} s"


def expect(holds: bool, otherwise: object) -> None:
    """Fail the check with what was seen instead."""
    if not holds:
        raise AssertionError(str(otherwise))
