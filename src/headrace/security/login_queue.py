"""Runs the slow steps of logins in a few threads that take turns between addresses.

Computing a password's hash takes milliseconds of a core. The threads have a low priority, so that a flood of logins
leaves the cores to the event loop, and one address that floods does not keep clients of other addresses waiting.
"""

import asyncio
import os
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import TypeVar

THREADS = 2
MAX_WAITING = 2048
MAX_WAITING_PER_ADDRESS = 256
_NICE = 10

_T = TypeVar("_T")


class LoginsBusy(Exception):
    """More clients log in at this moment than a broker serves at a time."""


class LoginQueue:
    """A thread pool whose waiting steps are bounded, per address and in total."""

    def __init__(
        self,
        threads: int = THREADS,
        max_waiting: int = MAX_WAITING,
        max_waiting_per_address: int = MAX_WAITING_PER_ADDRESS,
    ) -> None:
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="login", initializer=_lower_priority)
        self._free = threads
        self._max_waiting = max_waiting
        self._max_per_address = max_waiting_per_address
        self._waiting: dict[str, deque[asyncio.Future[None]]] = {}
        """By address, in the order of their turns. An address without waiting steps has no entry."""
        self._waiting_count = 0

    def close(self) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)

    async def run(self, address: str, step: Callable[[], _T]) -> _T:
        """Run a step in a thread when it is its address's turn; `LoginsBusy` if too many wait."""
        await self._turn(address)
        try:
            return await asyncio.get_running_loop().run_in_executor(self._pool, step)
        finally:
            self._next_turn()

    async def _turn(self, address: str) -> None:
        if self._free:
            self._free -= 1
            return
        waiting = self._waiting.get(address, ())
        if self._waiting_count >= self._max_waiting or len(waiting) >= self._max_per_address:
            raise LoginsBusy
        turn = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(address, deque()).append(turn)
        self._waiting_count += 1
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self._next_turn()
            raise

    def _next_turn(self) -> None:
        """Give the thread that is free now to the next address that waits."""
        while self._waiting:
            address = next(iter(self._waiting))
            turns = self._waiting.pop(address)
            turn = turns.popleft()
            self._waiting_count -= 1
            if turns:
                self._waiting[address] = turns
            if not turn.done():
                turn.set_result(None)
                return
        self._free += 1


def _lower_priority() -> None:
    """Let this thread yield to the others of the process; where the system knows no such priorities, it does not."""
    with suppress(OSError, AttributeError):
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _NICE)
