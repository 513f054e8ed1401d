"""Work over many objects in slices, so that it never holds the event loop for long."""

import asyncio
from collections.abc import AsyncIterator, Iterable
from time import perf_counter
from typing import TypeVar

T = TypeVar("T")

SLICE_S = 0.002
"""After this time other work has its turn. A slice that were a number of objects would be too long for slow ones, and
for quick ones a list would wait for hundreds of turns of a busy loop."""
CHECKED_EVERY = 25
"""Objects between two looks at the clock: at 10 to 30 µs each less than 1 ms."""


async def sliced(things: Iterable[T], checked_every: int = CHECKED_EVERY) -> AsyncIterator[T]:
    """The things one by one, with a turn of the event loop after each `SLICE_S`.

    A collection that may change meanwhile is copied by the caller.
    """
    ends_s = perf_counter() + SLICE_S
    for at, thing in enumerate(things, 1):
        yield thing
        if at % checked_every == 0 and perf_counter() >= ends_s:
            await asyncio.sleep(0)
            ends_s = perf_counter() + SLICE_S
    if perf_counter() >= ends_s - SLICE_S / 2:
        # What the caller does next may begin a slice of its own.
        await asyncio.sleep(0)
