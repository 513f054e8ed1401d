"""The waiters of a partition: produce requests that wait for a commit, and fetches that wait for data.

Sans-IO: the code that moves the high watermark calls `advanced`; timers belong to the waiters, which cancel themselves.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Protocol


class CommitWaiters:
    """Callbacks in the order of their offsets; appends come in order, so the first is the next due."""

    __slots__ = ("_waiting",)

    def __init__(self) -> None:
        self._waiting: deque[tuple[int, Callable[[BaseException | None], None]]] = deque()

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, offset: int, callback: Callable[[BaseException | None], None]) -> None:
        """Call back with None once everything below `offset` is committed, or with the error that rules it out."""
        self._waiting.append((offset, callback))

    async def until(self, offset: int) -> None:
        """Return once everything below `offset` is committed, or raise the error that rules it out."""
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def settled(error: BaseException | None) -> None:
            if not done.done():
                if error is None:
                    done.set_result(None)
                else:
                    done.set_exception(error)

        self.add(offset, settled)
        await done

    def advanced(self, high_watermark: int) -> None:
        waiting = self._waiting
        while waiting and waiting[0][0] <= high_watermark:
            waiting.popleft()[1](None)

    def fail(self, error: BaseException) -> None:
        waiting, self._waiting = self._waiting, deque()
        for _, callback in waiting:
            callback(error)


class DataWaiter(Protocol):
    def data_arrived(self) -> None: ...


class DataWaiters:
    """Fetches to notify of new data. Each stays until it removes itself."""

    __slots__ = ("_waiting",)

    def __init__(self) -> None:
        self._waiting: dict[DataWaiter, None] = {}

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, waiter: DataWaiter) -> None:
        self._waiting[waiter] = None

    def remove(self, waiter: DataWaiter) -> None:
        self._waiting.pop(waiter, None)

    def advanced(self) -> None:
        for waiter in tuple(self._waiting):
            waiter.data_arrived()
