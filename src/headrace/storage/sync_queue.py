"""The syncs of logs that wait for a thread: those of internal topics first.

Group members, transactions and queues wait for the internal topics, and the logs of busy producers are synced all the
time: a commit of offsets must not wait for each of those.

Work goes straight to a thread that waits, the one that has waited for the shortest time: its data is still in the
processor's caches, and no other thread wakes up.
"""

from collections import deque
from threading import Lock
from typing import NamedTuple

from headrace.model.image import INTERNAL_TOPICS
from headrace.storage.log import Log
from headrace.storage.ticket import FlushTicket


class SyncWork(NamedTuple):
    log: Log
    ticket: FlushTicket


class _IdleThread:
    """A thread that waits for work."""

    __slots__ = ("_wake", "_work")

    def __init__(self) -> None:
        self._work: SyncWork | None = None
        self._wake = Lock()
        self._wake.acquire()

    def give(self, work: SyncWork | None) -> None:
        self._work = work
        self._wake.release()

    def take(self) -> SyncWork | None:
        """The work that is given, when it is; None to end the thread."""
        self._wake.acquire()
        return self._work


class SyncQueue:
    """Threads of two kinds take work: some take all, and some take urgent work only."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._urgent: deque[SyncWork] = deque()
        self._others: deque[SyncWork] = deque()
        self._idle: dict[bool, list[_IdleThread]] = {True: [], False: []}
        """The threads that wait, by whether they take urgent work only; the last began to wait last."""
        self._ends = {True: 0, False: 0}
        """How many threads of each kind are to end and have not taken note."""

    def put(self, work: SyncWork) -> None:
        is_urgent = work.log.directory.name.rpartition("-")[0] in INTERNAL_TOPICS
        with self._lock:
            idle = self._idle[True] if is_urgent and self._idle[True] else self._idle[False]
            if not idle:
                (self._urgent if is_urgent else self._others).append(work)
                return
            thread = idle.pop()
        thread.give(work)

    def get(self, *, urgent_only: bool) -> SyncWork | None:
        """The next work, when there is some; None when `end` was called for this thread."""
        with self._lock:
            if self._urgent:
                return self._urgent.popleft()
            if self._others and not urgent_only:
                return self._others.popleft()
            if self._ends[urgent_only]:
                self._ends[urgent_only] -= 1
                return None
            thread = _IdleThread()
            self._idle[urgent_only].append(thread)
        return thread.take()

    def end(self, *, urgent_only: bool) -> None:
        """Let one thread of this kind end, when the work before has begun."""
        with self._lock:
            if not self._idle[urgent_only]:
                self._ends[urgent_only] += 1
                return
            thread = self._idle[urgent_only].pop()
        thread.give(None)
