"""Daemon threads, which never keep a program from ending, and how their results are waited for."""

import asyncio
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Executor, Future
from contextvars import copy_context
from functools import partial
from typing import Any, ParamSpec, TypeVar

_IDLE_S = 10.0

P = ParamSpec("P")
T = TypeVar("T")


class DaemonThreads(Executor):
    """Up to `maximum` threads, started when they are needed, and ended when they are not.

    The interpreter waits at its end for the threads of a `ThreadPoolExecutor`, and so for whatever hangs in one. For
    these it does not. A call runs in the context of the caller (`contextvars`), as with `asyncio.to_thread`.
    """

    def __init__(self, maximum: int, name: str) -> None:
        self._maximum = maximum
        self._name = name
        self._lock = threading.Condition()
        self._queue: deque[tuple[Future[Any], Callable[[], Any]]] = deque()
        self._threads: list[threading.Thread] = []
        self._idle = 0
        self._is_shut = False
        self._generation = 0

    def submit(self, function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> "Future[T]":
        future: Future[T] = Future()
        with self._lock:
            if self._is_shut:
                raise RuntimeError(f"the threads {self._name} are shut down")
            self._queue.append((future, partial(copy_context().run, function, *args, **kwargs)))
            if len(self._queue) > self._idle and len(self._threads) < self._maximum:
                thread = threading.Thread(target=self._run, args=(self._generation,), name=self._name, daemon=True)
                self._threads.append(thread)
                thread.start()
            self._lock.notify()
        return future

    def _run(self, generation: int) -> None:
        while True:
            with self._lock:
                self._idle += 1
                self._lock.wait_for(lambda: self._queue or self._is_shut or self._generation != generation, _IDLE_S)
                self._idle -= 1
                if not self._queue:
                    self._threads.remove(threading.current_thread())
                    return
                future, call = self._queue.popleft()
            if future.set_running_or_notify_cancel():
                try:
                    future.set_result(call())
                except BaseException as error:
                    future.set_exception(error)
            del future, call

    def release_idle(self) -> None:
        """End the idle threads. Later calls start new ones."""
        with self._lock:
            self._generation += 1
            self._lock.notify_all()

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """No more calls. Those that wait are still made, unless they are cancelled."""
        with self._lock:
            self._is_shut = True
            if cancel_futures:
                for future, _ in self._queue:
                    future.cancel()
            self._lock.notify_all()
            threads = list(self._threads)
        if wait:
            for thread in threads:
                thread.join()


def within(timeout_s: float, function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
    """Call on a thread, and wait for it no longer than this: then `TimeoutError`, and the call goes on by itself."""
    thread = DaemonThreads(1, "headrace-call")
    future = thread.submit(function, *args, **kwargs)
    thread.shutdown(wait=False)
    return future.result(timeout_s)


async def result_of(future: "Future[T]") -> T:
    """Await the result of a thread. Cancelling the caller does not cancel the work."""
    return await asyncio.shield(asyncio.wrap_future(future))
