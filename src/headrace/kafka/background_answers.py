"""Answers that a background task computes while the connection handles its next requests."""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from headrace.runtime.deferred import Deferred

log = logging.getLogger(__name__)

A = TypeVar("A")

_RUNNING: set["asyncio.Task[Any]"] = set()
"""Strong references: the event loop holds its tasks only weakly."""


def answer_later(
    work: Coroutine[Any, Any, A],
    failed: Callable[[BaseException], A],
    *,
    hurry: Callable[[], None] | None = None,
    size_bytes: int = 0,
) -> Deferred[A]:
    """Run `work` as a task and answer with its result, or with `failed(error)`.

    `hurry` is called when the answer must not wait any longer: the connection drains or is lost.
    """
    later: Deferred[A] = Deferred(hurry, size_bytes=size_bytes)
    task = asyncio.get_running_loop().create_task(work)
    _RUNNING.add(task)

    def done(task: "asyncio.Task[A]") -> None:
        _RUNNING.discard(task)
        error = asyncio.CancelledError() if task.cancelled() else task.exception()
        if error is None:
            later.resolve(task.result())
            return
        # Answer on any error: answers are sent in order, so a missing one would block all later ones.
        if not task.cancelled():
            log.error("a request failed", exc_info=error)
        later.resolve(failed(error))

    task.add_done_callback(done)
    return later
