"""Synchronous log cleaning, without threads and without an event loop: `Cleaner(…, run=inline)`, and `drive`."""

from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

_T = TypeVar("_T")


async def inline(work: Callable[[], Any]) -> Any:
    return work()


def drive(steps: Coroutine[Any, Any, _T]) -> _T:
    """Run a coroutine of a cleaner with `run=inline` to its end, without an event loop."""
    try:
        steps.send(None)
    except StopIteration as done:
        result: _T = done.value
        return result
    steps.close()
    raise RuntimeError("the coroutine awaits an event loop: create the cleaner with run=inline")
