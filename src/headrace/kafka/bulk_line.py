"""The line in which bulk requests wait while the broker is busy, so that urgent ones are served first.

Produce and the fetches of consumers are bulk. All other requests are urgent: those of groups, transactions and admins,
metadata, and the fetches of followers. Urgent requests are few and small, and others depend on their being answered: a
group loses a member whose heartbeats wait for too long, and `acks=all` waits for the followers.

As long as the event loop has time, every request is handled when it is read. After `SLICE_MS` without a pause, the next
connections with bulk requests wait in line, first come, first served, and get turns of `SLICE_MS` in all between two
polls of the event loop. So an urgent request waits for about one such slice, however many producers there are. A
connection in line is not read: what it holds of the broker's memory is what two reads at most gave it.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Protocol

SLICE_MS = 5.0
"""How long bulk requests are handled before urgent ones have their turn; the last one begun may exceed it."""
_PAUSE_MS = 1.0
"""After this time without a request the event loop has had time for everything."""
_HELD_MAX_BYTES = 64 * 1024 * 1024
CROWDED_READ_BYTES = 16 * 1024
"""How much is read from a connection at a time while those in line hold much memory."""


class BulkConnection(Protocol):
    def take_turn(self) -> None:
        """Handle the requests that have waited."""

    def hold(self) -> None:
        """Read nothing: the turn comes after the next poll at the earliest."""


class BulkLine:
    __slots__ = (
        "_busy_since_ms",
        "_fresh",
        "_held_bytes",
        "_is_serving",
        "_now_ms",
        "_waiting",
        "is_crowded",
        "last_ms",
        "waits",
    )

    def __init__(self, now_ms: Callable[[], float]) -> None:
        self._now_ms = now_ms
        self._waiting: deque[tuple[BulkConnection, int]] = deque()
        """The connections in line, each with the bytes that its requests take."""
        self._fresh: list[BulkConnection] = []
        """Those that came since the last poll."""
        self._held_bytes = 0
        self._is_serving = False
        """Whether `_serve` is running or will be called."""
        self._busy_since_ms = 0.0
        self.last_ms = 0.0
        """When requests were last handled; set by connections."""
        self.is_crowded = False
        """Whether those in line hold so much memory that less is to be read at a time."""
        self.waits = 0
        """How many times a connection had to wait."""

    @property
    def waiting_count(self) -> int:
        return len(self._waiting)

    def is_busy(self, now_ms: float) -> bool:
        """Whether a bulk request has to wait in line."""
        if self._waiting:
            return True
        if now_ms - self.last_ms > _PAUSE_MS:
            self._busy_since_ms = now_ms
            return False
        return now_ms - self._busy_since_ms > SLICE_MS

    def wait(self, connection: BulkConnection, held_bytes: int) -> None:
        """Call `take_turn` of the connection when it is its turn. It holds memory until then."""
        self._waiting.append((connection, held_bytes))
        self._fresh.append(connection)
        self._hold(held_bytes)
        self.waits += 1
        if not self._is_serving:
            self._is_serving = True
            asyncio.get_running_loop().call_soon(self._serve)

    def _serve(self) -> None:
        """Give turns for the time of a slice, and the event loop a poll if others still wait after that."""
        waiting, now_ms = self._waiting, self._now_ms
        self._busy_since_ms = began_ms = now_ms()
        try:
            while waiting and now_ms() - began_ms < SLICE_MS:
                connection, held_bytes = waiting.popleft()
                self._hold(-held_bytes)
                connection.take_turn()
        finally:
            fresh, self._fresh = self._fresh, []
            self._is_serving = bool(waiting)
            if waiting:
                asyncio.get_running_loop().call_soon(self._serve)
                for connection in fresh:
                    connection.hold()

    def _hold(self, size_bytes: int) -> None:
        self._held_bytes += size_bytes
        self.is_crowded = self._held_bytes > _HELD_MAX_BYTES
