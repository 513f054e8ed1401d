"""Memory for requests that are being received, in total over all connections.

Past the limit a connection pauses reading until another gives memory back; it is never dropped for it. A frame that
stops growing while it holds memory is closed by the server's stall timeout, so that the budget cannot be held for ever.
"""

from collections import deque
from collections.abc import Callable


class RequestBudget:
    def __init__(self, limit_bytes: int) -> None:
        self._limit_bytes = limit_bytes
        self._used_bytes = 0
        self._waiting: deque[Callable[[], None]] = deque()

    @property
    def used_bytes(self) -> int:
        return self._used_bytes

    def take(self, size: int) -> bool:
        """Whether there was room. The first taker always gets it, else a single large request could never be served."""
        if self._used_bytes and self._used_bytes + size > self._limit_bytes:
            return False
        self._used_bytes += size
        return True

    def wait(self, resume: Callable[[], None]) -> None:
        self._waiting.append(resume)

    def give_back(self, size: int) -> None:
        if not size:
            return
        self._used_bytes -= size
        for _ in range(len(self._waiting)):
            if self._used_bytes >= self._limit_bytes:
                return
            self._waiting.popleft()()
