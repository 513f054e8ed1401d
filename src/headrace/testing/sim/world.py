"""Virtual time and processes: everything in a simulation is an event in this one queue.

A simulated process is an event loop of its own (`Process`), so its tasks and timers can be paused or killed as a whole
while the others continue. The world takes the earliest event, moves the clock there, and runs its process until it has
nothing more to do at that instant. Nothing sleeps, there are no threads, and all randomness comes from one seed: the
same seed gives the same run.

Processes interact only through `World.post`: an event in the other's loop, after a delay.
"""

import asyncio
import contextvars
import heapq
import logging
from collections import deque
from collections.abc import Callable, Coroutine, Generator
from concurrent.futures import Executor
from contextlib import suppress
from random import Random
from types import CoroutineType
from typing import Any, NoReturn, TypeVar
from zlib import crc32

from headrace.model.errors import StorageFailed

T = TypeVar("T")

_HANDLES_AT_ONE_INSTANT_MAX = 200_000
_START_WALL_MS = 1_700_000_000_000
_AWAITS_WHILE_ENDING_MAX = 100
_WORK_MIN_S, _WORK_MAX_S = 0.000_05, 0.002
"""The duration of work in a worker thread."""


class SimulationError(AssertionError):
    """The simulated program is stuck, spins without time advancing, or left an unhandled error."""


class World:
    """The event queue, the virtual clock and the random generator of a simulation."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.random = Random(seed)
        self.now_s = 0.0
        self.trace = Trace(self)
        self.on_step: list[Callable[[Process], None]] = []
        """Called after each event, with its process."""
        self.events = 0
        self._queue: list[tuple[float, int, Process, asyncio.Handle]] = []
        self._sequence = 0
        self._errors: list[tuple[Process, str, BaseException | None]] = []
        self._processes: list[Process] = []

    def process(self, name: str) -> "Process":
        process = Process(self, name)
        self._processes.append(process)
        return process

    def close(self) -> None:
        """End every process after the run, so that no pending task is left for the garbage collector to report."""
        for process in self._processes:
            process.die()
        for process in self._processes:
            process.reap()
        self._processes.clear()
        self._queue.clear()

    def post(self, process: "Process", delay_s: float, callback: Callable[..., object], *args: Any) -> asyncio.Handle:
        """Schedule a callback in a process after a delay; skipped if the process is dead by then."""
        handle = asyncio.Handle(callback, args, process, None)
        self._push(self.now_s + delay_s, process, handle)
        return handle

    def post_at(self, process: "Process", when_s: float, callback: Callable[..., object], *args: Any) -> asyncio.Handle:
        """Like `post`, at a point in time. Events at the same time run in the order of posting; a delay is added to the
        clock and rounded, and so does not preserve the order of simultaneous events."""
        handle = asyncio.Handle(callback, args, process, None)
        self._push(max(when_s, self.now_s), process, handle)
        return handle

    def run(self, process: "Process", main: Coroutine[Any, Any, T], *, limit_s: float = 3600.0) -> T:
        """Run events until `main`, a task of `process`, is done; returns its result. `limit_s` is in virtual time."""
        task = process.enter(lambda: process.create_task(main))
        try:
            self.run_until(task.done, limit_s=limit_s)
        except BaseException:
            process.enter(task.cancel)
            raise
        return task.result()

    def run_until(self, is_done: Callable[[], bool], *, limit_s: float = 3600.0) -> None:
        end_s = self.now_s + limit_s
        while not is_done():
            if not self._queue:
                raise SimulationError("deadlock: there are no more events, and the condition does not hold")
            if self._queue[0][0] > end_s:
                raise SimulationError(f"not done within {limit_s:g} s of virtual time")
            self.step()

    def run_for(self, duration_s: float) -> None:
        """Run the events of this much virtual time."""
        end_s = self.now_s + duration_s
        while self._queue and self._queue[0][0] <= end_s:
            self.step()
        self.now_s = end_s

    def step(self) -> None:
        """Run the next event, and everything that its process does at that instant."""
        when_s, _, process, handle = heapq.heappop(self._queue)
        if process.is_dead or handle.cancelled():
            return
        if process.is_paused:
            process.held.append(handle)
            return
        if when_s > self.now_s:
            self.now_s = when_s
        self.events += 1
        process.ready.append(handle)
        self._drain(process)

    def drained(self, process: "Process") -> None:
        if self._errors:
            self._raise_error()
        for stepped in self.on_step:
            stepped(process)

    def failed(self, process: "Process", message: str, error: BaseException | None) -> None:
        """Record an unhandled error of a process, which ends the run."""
        self._errors.append((process, message, error))

    def schedule(self, delay_s: float, process: "Process", handle: asyncio.Handle) -> None:
        self._push(self.now_s + delay_s, process, handle)

    def schedule_at(self, when_s: float, process: "Process", handle: asyncio.Handle) -> None:
        self._push(max(when_s, self.now_s), process, handle)

    def _push(self, when_s: float, process: "Process", handle: asyncio.Handle) -> None:
        self._sequence += 1
        heapq.heappush(self._queue, (when_s, self._sequence, process, handle))

    def _drain(self, process: "Process") -> None:
        ready = process.ready
        left = _HANDLES_AT_ONE_INSTANT_MAX
        asyncio._set_running_loop(process)
        try:
            while ready:
                handle = ready.popleft()
                if not handle.cancelled():
                    handle._run()
                left -= 1
                if not left:
                    raise SimulationError(f"{process.name} spins: it never becomes idle at {self.now_s:.6f} s")
        finally:
            asyncio._set_running_loop(None)
        if process.is_dead:
            process.reap()
        self.drained(process)

    def _raise_error(self) -> NoReturn:
        process, message, error = self._errors[0]
        self._errors.clear()
        if isinstance(error, AssertionError):
            raise error
        raise SimulationError(f"an unhandled error in {process.name}: {message}: {error!r}") from error


# Most methods of an event loop are about sockets and child processes: here they raise `NotImplementedError`.
_AnyLoop: Any = asyncio.AbstractEventLoop


class Process(_AnyLoop):  # type: ignore[misc]
    """The event loop of one simulated process. Made by `World.process`."""

    def __init__(self, world: World, name: str) -> None:
        self.world = world
        self.name = name
        self.is_dead = False
        self.is_paused = False
        self.ready: deque[asyncio.Handle] = deque()
        self.held: list[asyncio.Handle] = []
        """Callbacks that became due while the process was paused."""
        self.on_death: list[Callable[[], None]] = []
        """Called when the process dies, as the system closes its connections."""
        self.on_reaped: list[Callable[[], None]] = []
        """Called when nothing of a dead process can have an effect any more."""
        self._tasks: dict[asyncio.Task[Any], None] = {}

    def __repr__(self) -> str:
        return f"<process {self.name}>"

    # Called by the world

    def enter(self, work: Callable[[], T]) -> T:
        """Call `work` as if it ran in this process, from outside of any process or from another one."""
        before = asyncio._get_running_loop()
        asyncio._set_running_loop(self)
        try:
            result = work()
        finally:
            asyncio._set_running_loop(before)
        if self.ready and not self.is_dead:
            self._wake()
        return result

    def pause(self) -> None:
        """Like SIGSTOP: nothing runs, time advances."""
        self.is_paused = True

    def resume(self) -> None:
        self.is_paused = False
        for handle in self.held:
            self.world.schedule(0.0, self, handle)
        self.held.clear()

    def die(self) -> None:
        """Like SIGKILL: nothing of it runs any more. The rest of its current step has no effect outside.

        A process that dies in its own step is reaped by the world, any other by its killer.
        """
        if self.is_dead:
            return
        self.is_dead = True
        self.ready.clear()
        self.held.clear()
        for callback in self.on_death:
            callback()

    def reap(self) -> None:
        """Close the tasks of a dead process, now and not when the garbage collector finds them."""
        before = asyncio._get_running_loop()
        asyncio._set_running_loop(self)
        try:
            for task in tuple(self._tasks):
                task._log_destroy_pending = False  # type: ignore[attr-defined]
                coroutine = task.get_coro()
                assert isinstance(coroutine, CoroutineType)
                _end(coroutine)
        finally:
            asyncio._set_running_loop(before)
        self._tasks.clear()
        self.on_death.clear()
        self.ready.clear()
        callbacks, self.on_reaped = self.on_reaped, []
        for callback in callbacks:
            callback()

    # The event loop interface

    def time(self) -> float:
        return self.world.now_s

    def get_debug(self) -> bool:
        return False

    def is_running(self) -> bool:
        return True

    def is_closed(self) -> bool:
        return False

    def call_soon(
        self, callback: Callable[..., object], *args: Any, context: contextvars.Context | None = None
    ) -> asyncio.Handle:
        handle = asyncio.Handle(callback, args, self, context)
        if not self.is_dead:
            if not self.ready and asyncio._get_running_loop() is not self:
                self._wake()
            self.ready.append(handle)
        return handle

    call_soon_threadsafe = call_soon

    def call_later(
        self, delay: float, callback: Callable[..., object], *args: Any, context: contextvars.Context | None = None
    ) -> asyncio.TimerHandle:
        return self.call_at(self.world.now_s + max(0.0, delay), callback, *args, context=context)

    def call_at(
        self, when: float, callback: Callable[..., object], *args: Any, context: contextvars.Context | None = None
    ) -> asyncio.TimerHandle:
        timer = asyncio.TimerHandle(when, callback, args, self, context)
        if not self.is_dead:
            self.world.schedule_at(when, self, timer)
        return timer

    def create_future(self) -> asyncio.Future[Any]:
        return asyncio.Future(loop=self)

    def create_task(
        self,
        coro: Coroutine[Any, Any, T] | Generator[Any, None, T],
        *,
        name: object = None,
        context: contextvars.Context | None = None,
    ) -> asyncio.Task[T]:
        assert isinstance(coro, Coroutine)
        task: asyncio.Task[T] = asyncio.Task(coro, loop=self, name=None if name is None else str(name), context=context)
        if self.is_dead:
            task._log_destroy_pending = False  # type: ignore[attr-defined]
            coro.close()
        else:
            self._tasks[task] = None
            task.add_done_callback(self._forget)
        return task

    def run_in_executor(self, executor: Executor | None, func: Callable[..., T], *args: Any) -> asyncio.Future[T]:
        """Run `func` after a delay, in this process and at one instant: work in threads appears atomic."""
        future: asyncio.Future[T] = asyncio.Future(loop=self)

        def work() -> None:
            if future.cancelled():
                return
            try:
                result = func(*args)
            except StopIteration as error:
                future.set_exception(RuntimeError(str(error)))
            except Exception as error:
                future.set_exception(error)
            else:
                future.set_result(result)

        self.call_later(self.world.random.uniform(_WORK_MIN_S, _WORK_MAX_S), work)
        return future

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        if not self.is_dead:
            self.world.failed(self, str(context.get("message")), context.get("exception"))

    def default_exception_handler(self, context: dict[str, Any]) -> None:
        self.call_exception_handler(context)

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None: ...

    def _forget(self, task: asyncio.Task[Any]) -> None:
        self._tasks.pop(task, None)

    def _wake(self) -> None:
        self.world.post(self, 0.0, _nothing)


def _nothing() -> None: ...


def _end(coroutine: "CoroutineType[Any, Any, Any]") -> None:
    """Close a coroutine, after those that it awaits. While being closed it may reach an await in a `finally`."""
    for _ in range(_AWAITS_WHILE_ENDING_MAX):
        if isinstance(coroutine.cr_await, CoroutineType):
            _end(coroutine.cr_await)
        with suppress(BaseException):
            coroutine.close()
        if coroutine.cr_frame is None:
            return


class ProcessClock:
    """The clock of one process: monotonic, and with a wall time that is skewed and may jump."""

    def __init__(self, world: World, *, skew_ms: int = 0) -> None:
        self._world = world
        self.skew_ms = skew_ms

    def wall_ms(self) -> int:
        return _START_WALL_MS + int(self._world.now_s * 1000) + self.skew_ms

    def monotonic_ms(self) -> float:
        return self._world.now_s * 1000.0

    def monotonic_s(self) -> float:
        return self._world.now_s


class Trace(logging.Handler):
    """The trace of a run, for people: its last lines, each with its virtual time and process."""

    def __init__(self, world: World, *, lines_max: int = 4000) -> None:
        super().__init__(logging.INFO)
        self._world = world
        self.lines: deque[tuple[float, str, str, tuple[Any, ...]]] = deque(maxlen=lines_max)
        self.alarms: list[str] = []
        """Logged errors with a traceback: unexpected, unless a disk has failed."""
        self.digest = 0
        """A checksum of the trace: equal for two runs of a seed."""

    def note(self, who: str, what: str, *args: Any) -> None:
        self.lines.append((self._world.now_s, who, what, args))
        self.digest = crc32(f"{self._world.now_s:.9f} {who} {what}".encode(), self.digest)

    def emit(self, record: logging.LogRecord) -> None:
        process = asyncio._get_running_loop()
        name = process.name if isinstance(process, Process) else "-"
        if isinstance(process, Process) and process.is_dead:
            return
        text = record.getMessage()
        if record.exc_info is not None and record.exc_info[1] is not None:
            text = f"{text}: {record.exc_info[1]!r}"
            if record.levelno >= logging.ERROR and not isinstance(record.exc_info[1], StorageFailed):
                self.alarms.append(f"{name}: {text}")
        self.note(name, "%s: %s", record.levelname.lower(), text)

    def text(self, last: int = 400) -> str:
        lines = list(self.lines)[-last:]
        return "\n".join(f"{at_s:12.6f} {who:>10}  {what % args if args else what}" for at_s, who, what, args in lines)
