"""Work over many objects in slices, so that it never holds the event loop for long."""

import asyncio
from collections.abc import AsyncIterator, Iterable
from typing import TypeVar

T = TypeVar("T")

SLICE = 100
"""Objects between two turns of the loop: at 10 to 30 µs each, 1 to 3 ms."""


async def sliced(things: Iterable[T], size: int = SLICE) -> AsyncIterator[T]:
    """The things one by one, with a turn of the event loop after each `size` of them.

    A collection that may change meanwhile is copied by the caller.
    """
    for at, thing in enumerate(things, 1):
        yield thing
        if at % size == 0:
            await asyncio.sleep(0)
