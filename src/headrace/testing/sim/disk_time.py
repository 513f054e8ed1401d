"""Disks and threads in virtual time: a flush takes time, and may be in progress when the power fails."""

from collections.abc import Callable
from concurrent.futures import Executor, Future
from random import Random
from typing import Any, TypeVar

from headrace.storage.flusher import Flusher
from headrace.storage.log import Log
from headrace.storage.ticket import FlushTicket
from headrace.testing.sim.world import Process

T = TypeVar("T")


class FlushTimes:
    """The duration of syncs. A test may make the disk slow for a while."""

    def __init__(
        self, random: Random, *, usual_s: float = 0.001, slow_share: float = 0.05, slow_s: float = 0.1
    ) -> None:
        self._random = random
        self.usual_s = usual_s
        self.slow_share = slow_share
        self.slow_s = slow_s

    def next_s(self) -> float:
        longest_s = self.slow_s if self._random.random() < self.slow_share else self.usual_s
        return self._random.uniform(longest_s / 10, longest_s)


class SimFlusher(Flusher):
    """Production's group commit; the work of its threads runs in the broker's process after a delay instead."""

    def __init__(
        self, process: Process, times: FlushTimes, *, on_failed: Callable[[Log, BaseException], None] | None = None
    ) -> None:
        process.enter(lambda: Flusher.__init__(self, threads=0, on_failed=on_failed))
        self._work = _Syncs(process, times, self._finish)  # type: ignore[assignment]


class _Syncs:
    """Replaces the work queue of the flusher's threads."""

    def __init__(
        self, process: Process, times: FlushTimes, finish: Callable[[Log, FlushTicket, BaseException | None], None]
    ) -> None:
        self._process = process
        self._times = times
        self._finish = finish

    def put(self, work: tuple[Log, FlushTicket]) -> None:
        self._process.call_later(self._times.next_s(), self._sync, *work)

    def _sync(self, log: Log, ticket: FlushTicket) -> None:
        error: BaseException | None = None
        try:
            ticket.sync()
        except BaseException as problem:
            error = problem
        if not self._process.is_dead:
            self._process.call_soon(self._finish, log, ticket, error)


class InlineExecutor(Executor):
    """Runs submitted work at once, for code that uses an executor directly. See also `Process.run_in_executor`."""

    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> Future[T]:
        future: Future[T] = Future()
        try:
            future.set_result(fn(*args, **kwargs))
        except Exception as error:
            future.set_exception(error)
        return future
