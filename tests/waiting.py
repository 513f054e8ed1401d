"""Waiting in tests for what tells nobody that it has come about."""

import asyncio
import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

PATIENCE_S = 120.0


def until(look: Callable[[], T], what: str | Callable[[], str] = "", timeout_s: float = PATIENCE_S) -> T:
    """What `look` gives once that is true. If it is not in time, the error says `what` is missing."""
    end = time.monotonic() + timeout_s
    while not (found := look()):
        assert time.monotonic() < end, f"waited {timeout_s:g} s in vain: {what() if callable(what) else what}"
        time.sleep(0.02)
    return found


async def until_async(look: Callable[[], object], timeout_s: float = PATIENCE_S) -> None:
    """Returns once what `look` gives is true."""
    async with asyncio.timeout(timeout_s):
        while not look():  # noqa: ASYNC110 - what is waited for has no event
            await asyncio.sleep(0.005)
