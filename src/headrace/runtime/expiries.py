"""Timeouts that nearly never fire, for things that come by the thousand: one sweep instead of one timer each."""

from collections.abc import Callable


class Expiries:
    def __init__(self) -> None:
        self._deadlines: dict[Callable[[], None], float] = {}

    def __len__(self) -> int:
        return len(self._deadlines)

    def add(self, deadline_ms: float, expire: Callable[[], None]) -> None:
        self._deadlines[expire] = deadline_ms

    def remove(self, expire: Callable[[], None]) -> None:
        self._deadlines.pop(expire, None)

    def sweep(self, now_ms: float) -> None:
        """Fire what is due. Late by at most the time between two sweeps."""
        if not self._deadlines:
            return
        due = [expire for expire, deadline_ms in self._deadlines.items() if deadline_ms <= now_ms]
        for expire in due:
            self._deadlines.pop(expire, None)
            expire()
