"""The memory of one connection's large frame: what it has reserved of the budget that all connections share. Pure.

Small frames are cut out of a shared buffer and need none. A connection has one large frame at the most, which is being
received, waits, or is being handled.
"""

from collections.abc import Callable

from headrace.kafka.budget import BULK_HEADS, RequestBudget
from headrace.protocol.frames import Frame, FrameReader


def _nothing() -> None: ...


class FrameMemory:
    __slots__ = ("_budget", "_frames", "_on_room", "is_in_use", "reserved_bytes")

    def __init__(self, budget: RequestBudget, frames: FrameReader, on_room: Callable[[], None]) -> None:
        """`on_room` is called when there may be memory after `reserve` has found none."""
        self._budget = budget
        self._frames = frames
        self._on_room = on_room
        self.reserved_bytes = 0
        self.is_in_use = False
        """Whether it is that of a request whose handler goes on as a coroutine."""

    @property
    def is_of_next_request(self) -> bool:
        """True if memory is reserved for a request that is not begun."""
        return bool(self.reserved_bytes) and not self.is_in_use

    def reserve(self) -> bool:
        """Reserve what the frame that is being received needs before its buffer grows; False if it has to wait."""
        growth = self._frames.needed_bytes - self.reserved_bytes
        if growth <= 0:
            return True
        is_urgent = not self._frames.begins_with(BULK_HEADS)
        if self._budget.take(growth, held_bytes=self.reserved_bytes, is_urgent=is_urgent):
            self.reserved_bytes += growth
            return True
        self._budget.wait(self._on_room, held_bytes=self.reserved_bytes)
        return False

    def release(self, frame: Frame) -> None:
        """Return the memory of a handled request; the buffer of a large frame is reused."""
        if isinstance(frame, memoryview):
            self.is_in_use = False
            self._release_reserved()
            self._frames.release(frame)

    def abandon(self) -> None:
        """The connection is lost: return the memory, unless a handler uses it, and wait for no more."""
        self._budget.leave(self._on_room)
        # It refers back to the connection: breaking the cycle frees the memory without the collector.
        self._on_room = _nothing
        if not self.is_in_use:
            self._release_reserved()

    def _release_reserved(self) -> None:
        self._budget.release(self.reserved_bytes)
        self.reserved_bytes = 0
