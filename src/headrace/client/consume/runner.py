"""Runs the loops of handlers and workers concurrently until a signal, a call of `stop`, or the failure of one."""

import threading
from collections.abc import Iterable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from signal import Signals
from typing import Protocol

from headrace.client.health import WorkerMonitor
from headrace.client.signals import stopping_on

_WAKE_S = 0.5


class Loop(Protocol):
    """The loop of a handler, or of a worker of a queue."""

    monitor: WorkerMonitor

    def run(self) -> None:
        """Returns after `stop`, or raises."""

    def stop(self) -> None:
        """Finish the messages being handled. Safe to call from any thread and from a signal handler."""

    def discard(self) -> None:
        """Release all resources, without running or after it."""


def start(loops: Sequence[Loop]) -> "list[Future[None]]":
    """Run each loop on a thread of its own; when one fails, the others are stopped."""
    futures: list[Future[None]] = []
    start_into(futures, loops)
    return futures


def start_into(futures: "list[Future[None]]", loops: Sequence[Loop]) -> None:
    """Like `start`, for a caller that must know those that run if it is interrupted."""
    for loop in loops:
        future: Future[None] = Future()
        future.set_running_or_notify_cancel()
        thread = threading.Thread(target=_run, args=(loop, future, loops), name="headrace-handler", daemon=True)
        thread.start()
        futures.append(future)


def _run(loop: Loop, future: "Future[None]", loops: Sequence[Loop]) -> None:
    loop.monitor.started()
    try:
        loop.run()
    except BaseException as error:
        loop.monitor.ended(error)
        future.set_exception(error)
        stop_all(loops)
    else:
        loop.monitor.ended(None)
        future.set_result(None)


def stop_all(loops: Sequence[Loop]) -> None:
    for each in loops:
        each.stop()


def run_until_stopped(loops: Sequence[Loop], signals: Iterable[Signals]) -> None:
    """Run until `stop` or one of the signals; the messages being handled are finished. Raises the error of a loop."""
    futures: list[Future[None]] = []
    with stopping_on(signals, lambda: stop_all(loops)):
        try:
            start_into(futures, loops)
            wait_for(futures)
        except BaseException:
            # A signal handler of the program may raise here, at any point.
            stop_all(loops)
            wait_quietly(futures)
            raise


def wait_for(futures: "Iterable[Future[None]]") -> None:
    """Wait until all loops have ended. Raises what one of them raised."""
    pending = set(futures)
    finished: set[Future[None]] = set()
    while pending:
        # In slices, so that signals are served on every platform.
        done, pending = wait(pending, timeout=_WAKE_S, return_when=FIRST_COMPLETED)
        finished |= done
    for future in finished:
        future.result()


def wait_quietly(futures: "Iterable[Future[None]]") -> None:
    """Wait until all loops have ended. What they raised was logged, and gives way to another error."""
    wait(list(futures))
