"""Asking one broker many things: what gathers while a request is under way goes with the next one."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Generic, TypeVar

T = TypeVar("T")


class RequestBatch(Generic[T]):
    def __init__(self, send: Callable[[Sequence[T]], Awaitable[None]], *, limit: int) -> None:
        """`send` deals with up to `limit` things at a time, and raises nothing."""
        self._send = send
        self._limit = limit
        self._waiting: list[T] = []
        self._task: asyncio.Task[None] | None = None

    def add(self, thing: T) -> None:
        self._waiting.append(thing)
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._run())

    async def stop(self) -> None:
        """Whoever waits is not told: the broker stops."""
        self._waiting.clear()
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task

    async def _run(self) -> None:
        # Those of the same turn of the event loop go together.
        await asyncio.sleep(0)
        while self._waiting:
            some = self._waiting[: self._limit]
            del self._waiting[: self._limit]
            await self._send(some)
