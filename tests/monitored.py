"""Asks the monitor of a broker that runs in the test's process."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

from headrace.monitor.monitor import Monitor
from headrace.testing.broker import Broker
from tests.waiting import PATIENCE_S

A = TypeVar("A")

_TIMEOUT_S = 60.0


def eventually(look: Callable[[], A], is_wanted: Callable[[A], bool]) -> A:
    """What `look` gives once that is as wanted; figures may be a second old."""
    end_s = time.monotonic() + PATIENCE_S
    while not is_wanted(found := look()):
        assert time.monotonic() < end_s, f"waited in vain; now it is {found}"
        time.sleep(0.05)
    return found


def ask_monitor(broker: Broker, question: Callable[[Monitor], Awaitable[A]]) -> A:
    """The answer of the broker's monitor, asked on the broker's own event loop."""
    services, loop = broker._running_app()._services, broker._loop
    assert services is not None
    assert loop is not None
    monitor = services.monitor

    async def ask() -> A:
        return await question(monitor)

    return asyncio.run_coroutine_threadsafe(ask(), loop).result(_TIMEOUT_S)
