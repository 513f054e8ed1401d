"""Answers that a coroutine makes while the connection goes on with its next requests."""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from headrace.runtime.deferred import Deferred

log = logging.getLogger(__name__)

A = TypeVar("A")

_RUNNING: set["asyncio.Task[Any]"] = set()
"""A loop keeps no hold on its tasks."""


def answer_later(
    work: Coroutine[Any, Any, A],
    failed: Callable[[BaseException], A],
    *,
    hurry: Callable[[], None] | None = None,
    size_bytes: int = 0,
) -> Deferred[A]:
    """What `work` returns, or what `failed` makes of its error. `hurry` is called when nobody waits any more."""
    later: Deferred[A] = Deferred(hurry, size_bytes=size_bytes)
    task = asyncio.get_running_loop().create_task(work)
    _RUNNING.add(task)

    def done(task: "asyncio.Task[A]") -> None:
        _RUNNING.discard(task)
        error = asyncio.CancelledError() if task.cancelled() else task.exception()
        if error is None:
            later.resolve(task.result())
            return
        # Whatever it was, the client gets an answer: nothing behind this one could be answered otherwise.
        if not task.cancelled():
            log.error("a request failed", exc_info=error)
        later.resolve(failed(error))

    task.add_done_callback(done)
    return later
