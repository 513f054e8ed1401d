"""Group commit: one sync of a log covers everything that was appended while the previous one ran.

A log has at most one sync in progress. Requests made in one iteration of the event loop start together at its end,
those made during a sync start the next one. Syncs of different logs run in parallel in a few threads; one more is for
the logs of internal topics only, which are first for the others, too.

Under `flush.policy=ack` every append requests a flush. Under `os` a flush is due by `flush.messages`, by `flush.ms` and
when a segment was closed, so that the recovery point advances.
"""

import logging
from asyncio import AbstractEventLoop, Event, TimerHandle, get_running_loop
from collections.abc import Callable
from threading import Thread
from time import monotonic

from headrace.model.errors import DiskFull, HeadraceError
from headrace.observe.histogram import COUNT_BOUNDS, LATENCY_BOUNDS_S, Histogram
from headrace.storage.between_syncs import BetweenSyncs
from headrace.storage.log import Log
from headrace.storage.sync_queue import SyncQueue, SyncWork
from headrace.storage.ticket import FlushTicket

_log = logging.getLogger(__name__)

_RETRY_WHEN_FULL_S = 1.0
_NEVER_MS = 2**53
"""Times past this mean never: they do not fit the event loop's clock."""


class Flusher:
    """Flushes logs in a few threads; belongs to the event loop it is made in. Calls `Log.on_flushed` after a flush."""

    def __init__(self, *, threads: int = 4, on_failed: Callable[[Log, BaseException], None] | None = None) -> None:
        """`on_failed` is called in the event loop after a sync has failed and its log takes no more writes."""
        self._loop: AbstractEventLoop = get_running_loop()
        self._on_failed = on_failed
        self._wanted: dict[Log, None] = {}
        self._running: set[Log] = set()
        self._again: set[Log] = set()
        self._timers: dict[Log, TimerHandle] = {}
        self._launching = False
        self._stopping = False
        self._idle = Event()
        self.times = Histogram(LATENCY_BOUNDS_S)
        """Seconds of each sync."""
        self.sizes = Histogram(COUNT_BOUNDS)
        """Offsets that each flush has made durable."""
        self.failures = 0
        self.between_syncs = BetweenSyncs()
        self._work = SyncQueue()
        # The first is for urgent work only. Without threads the owner replaces the queue, as the simulation does.
        self._threads = [
            Thread(target=self._serve, args=(i == 0,), name=f"flush-{i}", daemon=True)
            for i in range(threads + 1 if threads else 0)
        ]
        for thread in self._threads:
            thread.start()

    def request(self, log: Log) -> None:
        """Flush everything appended to `log` so far, soon."""
        if log in self._running:
            self._again.add(log)
            return
        self._wanted[log] = None
        if not self._launching:
            self._launching = True
            self._loop.call_soon(self._launch)

    def appended(self, log: Log) -> None:
        """Request a flush after an append if the topic's settings require it."""
        settings = log.settings
        if (
            settings.flush_policy == "ack"
            or log.has_unsynced_segments
            or log.end_offset - log.flushed_offset >= settings.flush_messages
        ):
            self.request(log)
        elif settings.flush_ms < _NEVER_MS and log not in self._timers:
            self._timers[log] = self._loop.call_later(settings.flush_ms / 1000, self._on_timer, log)

    async def settled(self) -> None:
        """Return when no requested flush is pending or in progress."""
        while self._running or self._launching:
            self._idle.clear()
            await self._idle.wait()

    async def stop(self) -> None:
        """Wait for flushes in progress, then end the threads. Pending requests are left to `Log.close`."""
        self._stopping = True
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()
        self._wanted.clear()
        self._again.clear()
        await self.settled()
        for i in range(len(self._threads)):
            self._work.end(urgent_only=i == 0)
        for thread in self._threads:
            thread.join()

    def _on_timer(self, log: Log) -> None:
        self._timers.pop(log, None)
        if log.end_offset > log.flushed_offset:
            self.request(log)

    def _launch(self) -> None:
        self._launching = False
        wanted, self._wanted = self._wanted, {}
        for log in wanted:
            if log in self._running:
                # The end of the previous sync has started one: two at once would write the same files.
                self._again.add(log)
            else:
                self._begin(log)
        if not self._running:
            self._idle.set()

    def _begin(self, log: Log) -> None:
        if self._stopping:
            return
        try:
            ticket = log.begin_flush()
        except HeadraceError:
            # Closed or failed meanwhile: the waiters have been notified.
            return
        if ticket is not None:
            self._running.add(log)
            if self._threads:
                self.between_syncs.note_begun()
            self._work.put(SyncWork(log, ticket))

    def _serve(self, urgent_only: bool) -> None:
        while (work := self._work.get(urgent_only=urgent_only)) is not None:
            log, ticket = work
            error: BaseException | None = None
            began_s = monotonic()
            try:
                ticket.sync()
            except BaseException as problem:
                error = problem
            try:
                self._loop.call_soon_threadsafe(self._finish, log, ticket, error, monotonic() - began_s)
            except RuntimeError:
                return  # the event loop is closed, and with it all waiters
            work = log = ticket = None  # type: ignore[assignment]

    def _finish(self, log: Log, ticket: FlushTicket, error: BaseException | None, took_s: float = 0.0) -> None:
        self._running.discard(log)
        again = log in self._again
        self._again.discard(log)
        if error is None:
            self.times.observe(took_s)
            self.sizes.observe(max(0, ticket.end_offset - log.flushed_offset))
            log.complete_flush(ticket)
            again = again or log.flushed_offset < ticket.end_offset
        elif isinstance(error, DiskFull) and not self._stopping:
            self.failures += 1
            _log.warning("%s", error)
            self._timers.setdefault(log, self._loop.call_later(_RETRY_WHEN_FULL_S, self._on_timer, log))
        elif not log.is_closed:
            self.failures += 1
            log.fail(error)
            if self._on_failed is not None:
                self._on_failed(log, error)
        if again:
            self._begin(log)
        if not self._running:
            self._idle.set()
            self.between_syncs.note_idle()
