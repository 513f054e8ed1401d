"""A list that is computed at most once at a time, and then used by all who ask for a while."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

from headrace.runtime.clock import Clock

T = TypeVar("T")

_AGE_PER_ROW_MS = 0.5
"""A row of the costliest kind, a group, costs 17 to 25 µs: a twentieth of a core is spent on rows at most."""
_MANY_ROWS = 2_500
_OLD_AGE_MS = 30_000.0
"""Many rows that are not older than this are returned as they are, while newer ones are computed."""


class Cached(Generic[T]):
    """`get` returns the rows, at most `max_age_ms` old, or 0.5 ms for each row if that is more. Not to be changed.

    No caller waits for rows that take long: more than 2,500 of them are returned while they are computed again, unless
    they are older than 30 s.

    A caller that is cancelled does not cancel the work for the others. An error goes to all who wait for it, and is not
    remembered.
    """

    def __init__(self, compute: Callable[[], Awaitable[list[T]]], clock: Clock, max_age_ms: float) -> None:
        self._compute = compute
        self._clock = clock
        self._max_age_ms = max_age_ms
        self._began_ms = self._fresh_until_ms = float("-inf")
        self._rows: list[T] | None = None
        self._task: asyncio.Task[list[T]] | None = None

    async def get(self) -> list[T]:
        now_ms, rows = self._clock.monotonic_ms(), self._rows
        if rows is not None and now_ms < self._fresh_until_ms:
            return rows
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._run())
            self._task.add_done_callback(self._ended)
        if rows is not None and len(rows) > _MANY_ROWS and now_ms < self._began_ms + _OLD_AGE_MS:
            return rows
        return await asyncio.shield(self._task)

    async def _run(self) -> list[T]:
        began_ms = self._clock.monotonic_ms()
        rows = await self._compute()
        self._began_ms = began_ms
        self._fresh_until_ms = began_ms + max(self._max_age_ms, len(rows) * _AGE_PER_ROW_MS)
        self._rows = rows
        return rows

    def _ended(self, task: "asyncio.Task[list[T]]") -> None:
        self._task = None
        if not task.cancelled():
            # There may be no caller left to see it.
            task.exception()

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait((self._task,))
