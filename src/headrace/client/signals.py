"""Which signals stop a client: those that the rest of the process does not handle.

A web server, a test runner or a program of the user that handles SIGTERM stays in charge of it, and stops the client
when its own shutdown comes to that.
"""

import asyncio
import signal
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

from headrace.client.kafka.librdkafka import log

USUAL = (signal.SIGINT, signal.SIGTERM)


def chosen(wanted: Iterable[int] | None) -> tuple[signal.Signals, ...]:
    """The signals to handle: those that are `wanted`, or, without them, SIGINT and SIGTERM where they have Python's own
    handlers and this is the main thread."""
    is_main = threading.current_thread() is threading.main_thread()
    if wanted is None:
        return tuple(each for each in USUAL if is_main and _is_unhandled(signal.getsignal(each)))
    found = tuple(signal.Signals(each) for each in wanted)
    if found and not is_main:
        raise ValueError("signals can be handled on the main thread only: call run(signals=()) here, and stop()")
    return found


def _is_unhandled(handler: Any) -> bool:
    if handler in (signal.SIG_DFL, signal.default_int_handler):
        return True
    # asyncio.run cancels the main task on Ctrl-C: that is a default, too.
    return isinstance(getattr(getattr(handler, "func", None), "__self__", None), asyncio.Runner)


@contextmanager
def stopping_on(numbers: Iterable[signal.Signals], stop: Callable[[], None]) -> Iterator[None]:
    """The first of these signals calls `stop`; a second one takes effect as without this handler. A handler that
    other code installs meanwhile stays."""

    def on_signal(number: int, _: FrameType | None) -> None:
        log.info("%s: finishing the messages in flight", signal.Signals(number).name)
        restore()
        stop()

    def restore() -> None:
        for each, before in previous.items():
            if signal.getsignal(each) is on_signal:
                signal.signal(each, before)

    previous = {each: signal.getsignal(each) for each in numbers}
    for each in previous:
        signal.signal(each, on_signal)
    try:
        yield
    finally:
        restore()
