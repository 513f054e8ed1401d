"""A lock that users get in turn: one with many requests delays each request of the others by one of its own."""

import asyncio
from collections import OrderedDict, deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from headrace.schemas.errors import RegistryBusy


class FairTurns:
    """A lock whose waiters have names; the names take turns.

    `RegistryBusy` is raised if more than `most` wait already, or more than `most_of_one` of the same name.
    """

    def __init__(self, most: int, most_of_one: int) -> None:
        self._most = most
        self._most_of_one = most_of_one
        self._waiting: OrderedDict[str, deque[asyncio.Future[None]]] = OrderedDict()
        """By name, in the order of their next turn."""
        self._count = 0
        self._is_taken = False

    @asynccontextmanager
    async def turn(self, name: str) -> AsyncIterator[None]:
        """Wait for a turn, and take it."""
        if self._is_taken:
            await self._wait(name)
        self._is_taken = True
        try:
            yield
        finally:
            self._is_taken = False
            self._give_next()

    async def _wait(self, name: str) -> None:
        mine = self._waiting.get(name, ())
        if self._count >= self._most or len(mine) >= self._most_of_one:
            raise RegistryBusy("too many large schemas are checked at the same time: try again")
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(name, deque()).append(future)
        self._count += 1
        try:
            await future
        except asyncio.CancelledError:
            if future.cancelled():
                self._forget(name, future)
            else:
                # The turn was given to a task that is cancelled.
                self._is_taken = False
                self._give_next()
            raise
        finally:
            self._count -= 1

    def _forget(self, name: str, future: "asyncio.Future[None]") -> None:
        """Remove one that waits no longer, so that it does not count as one of its name."""
        mine = self._waiting.get(name)
        if mine is not None and future in mine:
            mine.remove(future)
            if not mine:
                del self._waiting[name]

    def _give_next(self) -> None:
        while self._waiting:
            name, mine = self._waiting.popitem(last=False)
            future = mine.popleft()
            if mine:
                self._waiting[name] = mine
            if not future.done():
                self._is_taken = True
                future.set_result(None)
                return
