"""Cleaning here and now, without threads and without an event loop: `Cleaner(…, run=inline)`, and `drive` its steps."""

from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

_T = TypeVar("_T")


async def inline(work: Callable[[], Any]) -> Any:
    return work()


def drive(steps: Coroutine[Any, Any, _T]) -> _T:
    """Run what the cleaner does with `run=inline` to its end, here and now, without an event loop."""
    try:
        steps.send(None)
    except StopIteration as done:
        result: _T = done.value
        return result
    steps.close()
    raise RuntimeError("the work waits for an event loop: make the cleaner with run=inline")
