"""Reads of fetches that may wait for the disk: in worker threads, those of followers before those of consumers.

A consumer that reads old data keeps a thread and the disk busy. So only half of the worker threads read for consumers
at a time, further ones wait in line, and the other threads are there for followers, whose fetches commit records, and
for searches in logs.

A sync of a log waits behind the reads that the disk has already been given, so reads for consumers are given to it by
pieces, and none while a sync is in progress. That wait is bounded: on a broker that syncs all the time they go on, a
piece of 128 KiB each `_GIVE_WAY_S`. Where syncs are rare (`storage/between_syncs.py`) pieces are larger, and what
consumers will read next is read ahead (`kafka/ordered_reads.py`), after what they wait for.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from concurrent.futures import Executor
from typing import Any, NamedTuple

from headrace.storage.between_syncs import BetweenSyncs
from headrace.storage.slice import PIECE_BYTES

_QUIET_PIECE_BYTES = 1024 * 1024
_GIVE_WAY_S = 0.005
"""The longest wait for the end of syncs before a piece is read."""


class ColdRead(NamedTuple):
    """A read for a consumer."""

    work: Callable[[], Any]
    done: Callable[[asyncio.Future[Any]], None]


class ColdReads:
    """Belongs to the event loop that calls it."""

    __slots__ = ("_ahead", "_between_syncs", "_consumer_threads", "_reading", "_waiting", "_workers")

    def __init__(self, workers: Executor, threads: int, between_syncs: BetweenSyncs | None = None) -> None:
        """`workers` has that many threads."""
        self._workers = workers
        self._between_syncs = between_syncs
        self._consumer_threads = max(1, threads // 2)
        self._reading = 0
        self._waiting: deque[ColdRead] = deque()
        """Reads for consumers; a connection has few of them, since what it has in flight is bounded."""
        self._ahead: deque[ColdRead] = deque()
        """Reads that no consumer waits for yet."""

    @property
    def waiting_count(self) -> int:
        return len(self._waiting)

    def run(
        self, work: Callable[[], Any], done: Callable[[asyncio.Future[Any]], None], *, is_follower: bool
    ) -> ColdRead | None:
        """Do blocking work, and call `done` with its future. That of followers does not wait for consumers.

        Returns the read if it waits in line.
        """
        if is_follower:
            asyncio.get_running_loop().run_in_executor(self._workers, work).add_done_callback(done)
            return None
        read = ColdRead(work, done)
        self._waiting.append(read)
        self._begin()
        return read if self._waiting and self._waiting[-1] is read else None

    def run_ahead(self, work: Callable[[], Any], done: Callable[[asyncio.Future[Any]], None]) -> ColdRead:
        """Like `run` for a consumer, when no consumer waits for a read. The caller bounds how many there are."""
        read = ColdRead(work, done)
        self._ahead.append(read)
        self._begin()
        return read

    def is_disk_quiet(self) -> bool:
        """Whether more may be read than consumers wait for. Called in any thread."""
        return self._between_syncs is None or self._between_syncs.is_quiet

    def may_read_ahead(self) -> bool:
        """Whether to go on with what no consumer waits for. Called in any thread."""
        return not self._waiting and self.is_disk_quiet()

    def give_way(self) -> int:
        """Wait for the end of the syncs in progress, but not for long; returns how many bytes to read then.

        Called in worker threads.
        """
        if self.is_disk_quiet():
            return _QUIET_PIECE_BYTES
        if self._between_syncs is not None:
            self._between_syncs.wait(_GIVE_WAY_S)
        return PIECE_BYTES

    def leave(self, read: ColdRead) -> bool:
        """Take a read out of the line; False if it has begun."""
        for line in (self._waiting, self._ahead):
            if read in line:
                line.remove(read)
                return True
        return False

    def _begin(self) -> None:
        while (self._waiting or self._ahead) and self._reading < self._consumer_threads:
            read = self._waiting.popleft() if self._waiting else self._ahead.popleft()
            self._reading += 1
            future = asyncio.get_running_loop().run_in_executor(self._workers, read.work)
            future.add_done_callback(self._ended)
            future.add_done_callback(read.done)

    def _ended(self, _: asyncio.Future[Any]) -> None:
        self._reading -= 1
        self._begin()
