"""Finds what holds up the event loop, for a developer or an operator who looks for the cause of late answers.

A thread asks the loop for a sign of life, by a callback, a few hundred times a second. If there is none for a while,
it looks at what the loop's thread is doing, and once the loop answers, at where the time has gone:

    collection  the garbage collector ran, in whichever thread: no other can run Python meanwhile
    running     the loop's thread used a processor: the stack says for what
    scheduler   the loop's thread was ready, and the operating system gave the processor to others
    blocked     the loop's thread waited: for a system call (see the stack), or for the interpreter's lock while other
                threads ran, which are named with their processor time

A stall is found for certain if it is twice as long as the threshold, and reported without the part before the sign of
life was asked for. Where the time of the scheduler is not known (no /proc), it counts as blocked.

This costs 4 to 7 % of a processor, so it runs only while `event.loop.stall.ms` is set.
"""

import gc
import logging
import os
import sys
import threading
import time
from asyncio import AbstractEventLoop, Runner
from collections import Counter
from contextlib import suppress
from pathlib import Path
from types import FrameType
from typing import NamedTuple

_log = logging.getLogger(__name__)

COLLECTION, RUNNING, SCHEDULER, BLOCKED = CAUSES = ("collection", "running", "scheduler", "blocked")
_FRAMES_SHOWN = 6
_THREAD_SHOWN_NS = 1_000_000


class Stall(NamedTuple):
    """One time in which the loop did nothing else."""

    took_ns: int
    collection_ns: int
    running_ns: int
    """Processor time of the loop's thread, without collections."""
    scheduler_ns: int
    stack: str
    """What the loop's thread was doing when it was found, the innermost call first."""
    others: dict[str, int]
    """Processor time of other threads meanwhile, in ns."""

    @property
    def blocked_ns(self) -> int:
        return max(0, self.took_ns - self.collection_ns - self.running_ns - self.scheduler_ns)

    @property
    def cause(self) -> str:
        """Where most of the time has gone."""
        times = (self.collection_ns, self.running_ns, self.scheduler_ns, self.blocked_ns)
        return CAUSES[times.index(max(times))]

    def __str__(self) -> str:
        parts = {
            COLLECTION: self.collection_ns,
            RUNNING: self.running_ns,
            SCHEDULER: self.scheduler_ns,
            BLOCKED: self.blocked_ns,
        }
        times = ", ".join(f"{name} {spent / 1e6:.1f} ms" for name, spent in parts.items())
        others = ", ".join(f"{name} {spent / 1e6:.1f} ms" for name, spent in self.others.items())
        return (
            f"the event loop was held up for {self.took_ns / 1e6:.1f} ms ({self.cause}: {times}"
            f"{'; other threads: ' + others if others else ''}) in {self.stack or 'the loop itself'}"
        )


class CollectionTimes:
    """The time that garbage collections took, by `gc.callbacks`: of the whole process."""

    def __init__(self) -> None:
        self.total_ns = 0
        self._began_ns = 0

    def start(self) -> None:
        gc.callbacks.append(self._note)

    def stop(self) -> None:
        with suppress(ValueError):
            gc.callbacks.remove(self._note)

    def _note(self, phase: str, _: dict[str, int]) -> None:
        now_ns = time.perf_counter_ns()
        if phase == "start":
            self._began_ns = now_ns
        elif self._began_ns:
            self.total_ns += now_ns - self._began_ns
            self._began_ns = 0


class _Reading(NamedTuple):
    """The clocks at one moment."""

    at_ns: int
    loop_cpu_ns: int
    loop_ready_ns: int
    """How long the loop's thread has been ready without a processor, since it was started."""
    collection_ns: int
    cpu_ns: dict[str, int]
    """By thread, without the loop's."""


class StallFinder:
    """Watches the event loop in whose thread `start` is called."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        """Stalls by cause."""
        self.times_ns: Counter[str] = Counter()
        """Their time by cause."""
        self._watch: _Watch | None = None
        self._is_closed = False

    def set_threshold(self, threshold_ms: int, loop: AbstractEventLoop) -> None:
        """Report stalls from this length on; 0 ends it. Called in the loop's thread."""
        if self._watch is not None and self._watch.threshold_ms == threshold_ms:
            return
        self._stop()
        if threshold_ms and not self._is_closed and sys.platform == "linux":
            self._watch = _Watch(self, loop, threshold_ms)
            self._watch.start()

    def close(self) -> None:
        """End it for good."""
        self._is_closed = True
        self._stop()

    def found(self, stall: Stall) -> None:
        self.counts[stall.cause] += 1
        self.times_ns[stall.cause] += stall.took_ns
        _log.log(logging.DEBUG if stall.cause == SCHEDULER else logging.WARNING, "%s", stall)

    def _stop(self) -> None:
        if self._watch is not None:
            self._watch.stop()
            self._watch = None


class _Watch:
    """The thread that asks, while there is a threshold."""

    def __init__(self, finder: StallFinder, loop: AbstractEventLoop, threshold_ms: int) -> None:
        self.threshold_ms = threshold_ms
        self._finder = finder
        self._loop = loop
        self._owner = threading.get_ident()
        self._owner_task = threading.get_native_id()
        self._collections = CollectionTimes()
        self._schedstat = _schedstat(self._owner_task)
        self._answered = threading.Event()
        self._answered_ns = self._answered_cpu_ns = 0
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="stall-finder", daemon=True)

    def start(self) -> None:
        self._collections.start()
        self._thread.start()

    def stop(self) -> None:
        self._stopping.set()
        self._answered.set()
        self._thread.join()
        self._collections.stop()
        if self._schedstat is not None:
            os.close(self._schedstat)

    def _run(self) -> None:
        period_s = self.threshold_ms / 1000
        while not self._stopping.wait(period_s):
            self._answered.clear()
            if self._stopping.is_set():
                return  # before a wait that would not end
            try:
                self._loop.call_soon_threadsafe(self._answer)
            except RuntimeError:
                return  # the event loop is closed
            before = self._reading()
            if self._answered.wait(period_s):
                continue
            stack = _stack(sys._current_frames().get(self._owner))
            self._answered.wait()
            if not self._stopping.is_set():
                self._report(before, stack)

    def _answer(self) -> None:
        """In the loop's thread."""
        self._answered_ns, self._answered_cpu_ns = time.monotonic_ns(), time.thread_time_ns()
        self._answered.set()

    def _report(self, before: _Reading, stack: str) -> None:
        after = self._reading()
        took_ns = self._answered_ns - before.at_ns
        if took_ns < self.threshold_ms * 1_000_000:
            return  # this thread was late, not the loop
        collection_ns = after.collection_ns - before.collection_ns
        running_ns = max(0, self._answered_cpu_ns - before.loop_cpu_ns - collection_ns)
        spent = {name: cpu_ns - before.cpu_ns.get(name, cpu_ns) for name, cpu_ns in after.cpu_ns.items()}
        self._finder.found(
            Stall(
                took_ns,
                collection_ns,
                running_ns,
                min(after.loop_ready_ns - before.loop_ready_ns, max(0, took_ns - collection_ns - running_ns)),
                stack,
                {name: cpu_ns for name, cpu_ns in spent.items() if cpu_ns >= _THREAD_SHOWN_NS},
            )
        )

    def _reading(self) -> _Reading:
        cpu_ns: dict[str, int] = {}
        for thread in threading.enumerate():
            if thread.native_id not in (None, self._owner_task, self._thread.native_id):
                # A thread may have ended meanwhile.
                with suppress(OSError):
                    cpu_ns[thread.name] = _cpu_ns(thread.native_id or 0)
        ready_ns = 0
        if self._schedstat is not None:
            ready_ns = int(os.pread(self._schedstat, 80, 0).split()[1])
        return _Reading(time.monotonic_ns(), _cpu_ns(self._owner_task), ready_ns, self._collections.total_ns, cpu_ns)


def _cpu_ns(task: int) -> int:
    """The processor time of a thread by its id, by Linux's clock for it. `OSError` if there is no such thread."""
    return time.clock_gettime_ns((~task << 3) | 6)


def _schedstat(task: int) -> int | None:
    """The open file with a thread's times in the scheduler; None if the system has none."""
    try:
        return os.open(f"/proc/self/task/{task}/schedstat", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None


def _stack(frame: FrameType | None) -> str:
    """The calls within the loop's callback; empty if the loop itself ran, or a callback in C."""
    calls: list[str] = []
    while frame is not None and len(calls) < _FRAMES_SHOWN and frame.f_code is not Runner.run.__code__:
        code = frame.f_code
        calls.append(f"{code.co_qualname} ({Path(code.co_filename).name}:{frame.f_lineno})")
        frame = frame.f_back
    return " < ".join(calls)
