"""Shares the event loop between works that are too long for one of its turns.

For work that cannot be given to a thread with profit, because it holds the interpreter's lock for the most part.
"""

import asyncio
from collections import deque
from collections.abc import Iterator


class Turns:
    """Runs generators in the event loop: one step of one of them, each in its turn, between two polls for I/O."""

    def __init__(self) -> None:
        self._waiting: deque[Iterator[None]] = deque()

    def run(self, work: Iterator[None]) -> None:
        """Run the generator until it ends. Its first step is taken at once if no other work waits.

        It must not raise: its caller has returned by then.
        """
        if not self._waiting and not _takes_step(work):
            return
        self._waiting.append(work)
        if len(self._waiting) == 1:
            asyncio.get_running_loop().call_soon(self._next)

    def _next(self) -> None:
        work = self._waiting.popleft()
        try:
            if _takes_step(work):
                self._waiting.append(work)
        finally:
            if self._waiting:
                asyncio.get_running_loop().call_soon(self._next)


def _takes_step(work: Iterator[None]) -> bool:
    """Take one step; False if the generator has ended."""
    try:
        next(work)
    except StopIteration:
        return False
    return True
