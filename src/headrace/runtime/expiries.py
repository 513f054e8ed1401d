"""Timeouts that rarely fire, for thousands of requests: one periodic sweep instead of a timer each."""

from collections.abc import Callable


class Expiries:
    """Callbacks with deadlines, fired by `sweep`."""

    def __init__(self) -> None:
        self._deadlines: dict[Callable[[], None], float] = {}

    def __len__(self) -> int:
        return len(self._deadlines)

    def add(self, deadline_ms: float, expire: Callable[[], None]) -> None:
        self._deadlines[expire] = deadline_ms

    def remove(self, expire: Callable[[], None]) -> None:
        self._deadlines.pop(expire, None)

    def sweep(self, now_ms: float) -> None:
        """Fire the callbacks that are due; late by at most the sweep interval."""
        if not self._deadlines:
            return
        due = [expire for expire, deadline_ms in self._deadlines.items() if deadline_ms <= now_ms]
        for expire in due:
            self._deadlines.pop(expire, None)
            expire()
