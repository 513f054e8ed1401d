"""A value that is computed at most once at a time, and then used by all who ask for a while."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

from headrace.runtime.clock import Clock

T = TypeVar("T")

_REUSED_FOR = 20
"""A value is used for at least this many times the time that it took to compute."""


class Cached(Generic[T]):
    """`get` returns the value, at most `max_age_ms` old, or 20 times as old as it took to compute it.

    A caller that is cancelled does not cancel the work for the others. An error goes to all who wait for it, and is not
    remembered.
    """

    def __init__(self, compute: Callable[[], Awaitable[T]], clock: Clock, max_age_ms: float) -> None:
        self._compute = compute
        self._clock = clock
        self._max_age_ms = max_age_ms
        self._fresh_until_ms = float("-inf")
        self._value: T | None = None
        self._task: asyncio.Task[T] | None = None

    async def get(self) -> T:
        if self._value is not None and self._clock.monotonic_ms() < self._fresh_until_ms:
            return self._value
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._run())
            self._task.add_done_callback(self._ended)
        return await asyncio.shield(self._task)

    async def _run(self) -> T:
        began_ms = self._clock.monotonic_ms()
        value = await self._compute()
        ended_ms = self._clock.monotonic_ms()
        self._fresh_until_ms = began_ms + max(self._max_age_ms, (ended_ms - began_ms) * _REUSED_FOR)
        self._value = value
        return value

    def _ended(self, task: "asyncio.Task[T]") -> None:
        self._task = None
        if not task.cancelled():
            # There may be no caller left to see it.
            task.exception()

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait((self._task,))
