"""Memory for requests that are being received, in total over all connections.

Past the limit a connection pauses reading until another gives memory back; it is never dropped for it. A frame that
stops growing while it holds memory is closed by the server's stall timeout, so that the budget cannot be held for ever.
Where all memory is held by frames that wait for more of it, one of them at a time gets it past the limit: they would
wait for each other for ever.
"""

from collections.abc import Callable


class RequestBudget:
    def __init__(self, limit_bytes: int) -> None:
        self._limit_bytes = limit_bytes
        self._used_bytes = 0
        self._waiting: dict[Callable[[], None], int] = {}
        """Who waits, in order, with the bytes that each holds."""
        self._waiting_bytes = 0

    @property
    def used_bytes(self) -> int:
        return self._used_bytes

    def take(self, size: int, *, held_bytes: int = 0) -> bool:
        """Whether there was room for one who holds some already. There is, unless somebody else will give some back."""
        others_bytes = self._used_bytes - held_bytes - self._waiting_bytes
        if others_bytes > 0 and self._used_bytes + size > self._limit_bytes:
            return False
        self._used_bytes += size
        return True

    def wait(self, resume: Callable[[], None], *, held_bytes: int = 0) -> None:
        """Call back when it is worth while to ask again."""
        self._waiting[resume] = held_bytes
        self._waiting_bytes += held_bytes

    def leave(self, resume: Callable[[], None]) -> None:
        """Wait no longer."""
        self._waiting_bytes -= self._waiting.pop(resume, 0)

    def give_back(self, size: int) -> None:
        if not size:
            return
        self._used_bytes -= size
        for resume in tuple(self._waiting):
            if self._used_bytes >= self._limit_bytes and self._used_bytes > self._waiting_bytes:
                return
            self.leave(resume)
            resume()
