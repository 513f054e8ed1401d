"""Runs the loops of handlers and workers side by side until they are told to stop: by a signal, by a call, or by one
of them failing."""

import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from contextlib import contextmanager
from types import FrameType
from typing import Protocol

from headrace.client.librdkafka import log

_WAKE_S = 0.5


class Loop(Protocol):
    """What `Client.run` runs: the loop of a handler, or of a worker of a queue."""

    def run(self) -> None:
        """Returns after `stop`, or raises."""

    def stop(self) -> None:
        """Finish what is in hand. May be called from anywhere, also a signal handler."""

    def discard(self) -> None:
        """Let go of everything without running, or after it."""


def start(loops: Sequence[Loop]) -> "list[Future[None]]":
    """Run each loop on a thread of its own; when one fails, the others are stopped."""
    futures: list[Future[None]] = []
    for loop in loops:
        future: Future[None] = Future()
        future.set_running_or_notify_cancel()
        threading.Thread(target=_run, args=(loop, future, loops), name="headrace-handler", daemon=True).start()
        futures.append(future)
    return futures


def _run(loop: Loop, future: "Future[None]", loops: Sequence[Loop]) -> None:
    try:
        loop.run()
    except BaseException as error:
        future.set_exception(error)
        for each in loops:
            each.stop()
    else:
        future.set_result(None)


def run_until_stopped(loops: Sequence[Loop]) -> None:
    """Run until `stop`, SIGTERM or Ctrl-C; the messages in hand are finished. Raises what a loop raised."""

    def stop_all() -> None:
        for loop in loops:
            loop.stop()

    with _stopping_on_signals(stop_all):
        pending = set(start(loops))
        finished: set[Future[None]] = set()
        while pending:
            # In slices, so that signals are served on every platform.
            done, pending = wait(pending, timeout=_WAKE_S, return_when=FIRST_COMPLETED)
            finished |= done
    for future in finished:
        future.result()


@contextmanager
def _stopping_on_signals(stop: Callable[[], None]) -> Iterator[None]:
    """The first SIGTERM or Ctrl-C calls `stop`; a second one takes effect at once. Elsewhere than on the main thread
    signals are left alone, as Python wants it."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def on_signal(number: int, _: FrameType | None) -> None:
        log.info("%s: finishing the messages in hand", signal.Signals(number).name)
        for each, before in previous.items():
            signal.signal(each, before)
        stop()

    previous = {each: signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM)}
    for each in previous:
        signal.signal(each, on_signal)
    try:
        yield
    finally:
        for each, before in previous.items():
            signal.signal(each, before)
