"""Request bodies: read within a limit for each, and one for all together."""

import asyncio
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from headrace.sqs import errors

Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]


class ClientDisconnected(Exception):
    """The client has closed its connection."""


class BodyBudget:
    """Limits the bytes of all request bodies together: past it, a request waits until another is parsed."""

    def __init__(self, limit_bytes: int) -> None:
        self._limit_bytes = limit_bytes
        self._used_bytes = 0
        self._waiting_bytes = 0
        """Of the used bytes, those of requests that wait for room."""
        self._freed = asyncio.Event()

    async def read(self, receive: Receive, length: int | None, most_bytes: int) -> bytes:
        """The body; `free` its length afterwards. `length` is the Content-Length, if the client sent one."""
        if length is not None and length > most_bytes:
            raise errors.too_large(most_bytes)
        pieces: list[bytes] = []
        taken = 0
        try:
            while True:
                event = await receive()
                if event["type"] == "http.disconnect":
                    raise ClientDisconnected
                piece = event.get("body", b"")
                await self._take(len(piece), taken)
                taken += len(piece)
                if taken > most_bytes:
                    raise errors.too_large(most_bytes)
                pieces.append(piece)
                if not event.get("more_body", False):
                    return pieces[0] if len(pieces) == 1 else b"".join(pieces)
        except BaseException:
            self.free(taken)
            raise

    async def _take(self, size: int, held_bytes: int) -> None:
        # If requests that wait hold all the bytes, one of them goes on: no other could free any.
        while self._used_bytes + size > self._limit_bytes and self._used_bytes > held_bytes + self._waiting_bytes:
            self._waiting_bytes += held_bytes
            self._freed.clear()
            try:
                await self._freed.wait()
            finally:
                self._waiting_bytes -= held_bytes
        self._used_bytes += size

    def free(self, size: int) -> None:
        self._used_bytes -= size
        self._freed.set()

    @property
    def used_bytes(self) -> int:
        return self._used_bytes

    @property
    def limit_bytes(self) -> int:
        return self._limit_bytes
