"""The memory budget for requests that are being received, shared by all connections.

Past the limit a connection pauses reading until another returns memory; it is never closed for that. The server's
stall timeout closes a connection whose frame stops growing while it holds memory, so no memory is held for ever. When
all memory is held by frames that wait for more, one of them at a time may exceed the limit: else they would deadlock.

A reserve beyond the limit is for urgent requests only (`bulk_line.py`): they do not wait for those of producers.
"""

from collections.abc import Callable

BULK_HEADS = frozenset(key.to_bytes(2) for key in (0, 1, 78))
"""The first bytes of Produce, Fetch and ShareFetch: the bulk requests, if no follower sends them."""
_RESERVE_SHARE = 8
"""The reserve for urgent requests is the limit divided by this."""


class RequestBudget:
    def __init__(self, limit_bytes: int) -> None:
        self._limit_bytes = limit_bytes
        self._reserve_bytes = limit_bytes // _RESERVE_SHARE
        self._used_bytes = 0
        self._waiting: dict[Callable[[], None], int] = {}
        """The waiting connections' callbacks in FIFO order, with the bytes that each connection holds."""
        self._waiting_bytes = 0

    @property
    def used_bytes(self) -> int:
        return self._used_bytes

    @property
    def limit_bytes(self) -> int:
        return self._limit_bytes

    @property
    def waiting_count(self) -> int:
        """The number of connections that wait for memory."""
        return len(self._waiting)

    def take(self, size: int, *, held_bytes: int = 0, is_urgent: bool = False) -> bool:
        """Reserve `size` more bytes for a connection that holds `held_bytes`; False if it must wait.

        It must wait only if the limit is reached and a connection that is not waiting holds memory to return.
        """
        others_bytes = self._used_bytes - held_bytes - self._waiting_bytes
        limit_bytes = self._limit_bytes + self._reserve_bytes if is_urgent else self._limit_bytes
        if others_bytes > 0 and self._used_bytes + size > limit_bytes:
            return False
        self._used_bytes += size
        return True

    def wait(self, resume: Callable[[], None], *, held_bytes: int = 0) -> None:
        """Call `resume` when memory has been returned and `take` may succeed."""
        self._waiting[resume] = held_bytes
        self._waiting_bytes += held_bytes

    def leave(self, resume: Callable[[], None]) -> None:
        """Cancel a `wait`."""
        self._waiting_bytes -= self._waiting.pop(resume, 0)

    def release(self, size: int) -> None:
        if not size:
            return
        self._used_bytes -= size
        for resume in tuple(self._waiting):
            if self._used_bytes >= self._limit_bytes and self._used_bytes > self._waiting_bytes:
                return
            self.leave(resume)
            resume()
