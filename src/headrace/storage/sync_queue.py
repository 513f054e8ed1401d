"""The syncs of logs that wait for a thread: those of internal topics first.

Group members, transactions and queues wait for the internal topics, and the logs of busy producers are synced all the
time: a commit of offsets must not wait for each of those.
"""

from collections import deque
from contextlib import suppress
from queue import SimpleQueue
from typing import NamedTuple

from headrace.model.image import INTERNAL_TOPICS
from headrace.storage.log import Log
from headrace.storage.ticket import FlushTicket


class SyncWork(NamedTuple):
    log: Log
    ticket: FlushTicket


class SyncQueue:
    """Threads of two kinds take work: some take all, and some take urgent work only."""

    def __init__(self) -> None:
        self._urgent: deque[SyncWork] = deque()
        self._others: deque[SyncWork] = deque()
        # A token for each work, which wakes one thread. Of urgent work, each kind of thread gets one: whichever is
        # first does it, and the other finds nothing.
        self._tokens: SimpleQueue[bool] = SimpleQueue()
        self._urgent_tokens: SimpleQueue[bool] = SimpleQueue()

    def put(self, work: SyncWork) -> None:
        if work.log.directory.name.rpartition("-")[0] in INTERNAL_TOPICS:
            self._urgent.append(work)
            self._urgent_tokens.put(True)
        else:
            self._others.append(work)
        self._tokens.put(True)

    def get(self, *, urgent_only: bool) -> SyncWork | None:
        """The next work, when there is some; None when `end` was called for this thread."""
        tokens = self._urgent_tokens if urgent_only else self._tokens
        while tokens.get():
            for works in (self._urgent,) if urgent_only else (self._urgent, self._others):
                with suppress(IndexError):
                    return works.popleft()
        return None

    def end(self, *, urgent_only: bool) -> None:
        """Let one thread of this kind end, when the work before has begun."""
        (self._urgent_tokens if urgent_only else self._tokens).put(False)
