"""Batching of requests to one broker: items that arrive while a request is in flight go into the next one."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Generic, TypeVar

T = TypeVar("T")


class RequestBatch(Generic[T]):
    """Sends queued items to one broker, one request at a time."""

    def __init__(self, send: Callable[[Sequence[T]], Awaitable[None]], *, limit: int) -> None:
        """`send` sends up to `limit` items in one request, and must not raise."""
        self._send = send
        self._limit = limit
        self._waiting: list[T] = []
        self._task: asyncio.Task[None] | None = None

    def add(self, item: T) -> None:
        self._waiting.append(item)
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._run())

    async def stop(self) -> None:
        """Drop the queued items without a response: the broker is stopping."""
        self._waiting.clear()
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task

    async def _run(self) -> None:
        # Items of the same event loop turn go into one request.
        await asyncio.sleep(0)
        while self._waiting:
            batch = self._waiting[: self._limit]
            del self._waiting[: self._limit]
            await self._send(batch)
