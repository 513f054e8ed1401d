"""Awaits what a coordinator's shard answers once it is committed."""

import asyncio
from collections.abc import Generator
from typing import Any, TypeVar

from headrace.coordinator.result import Result
from headrace.model.errors import HeadraceError
from headrace.runtime.deferred import Deferred

A = TypeVar("A")


class PendingResult(Deferred[Result[A]]):
    """A result that is awaited, or given to a callback, which needs no task."""

    __slots__ = ()

    def __await__(self) -> Generator[Any, None, A]:
        return committed(self).__await__()


def finished(answer: A) -> PendingResult[A]:
    """A result that is there already."""
    found: PendingResult[A] = PendingResult()
    found.resolve(Result(answer))
    return found


def refused(error: HeadraceError) -> PendingResult[Any]:
    """The result of an operation that has failed already."""
    found: PendingResult[Any] = PendingResult()
    found.resolve(Result(error=error))
    return found


async def committed(deferred: Deferred[Result[A]]) -> A:
    """The answer. Raises the error that the operation failed with. A caller that is cancelled hurries the operation."""
    future: asyncio.Future[Result[A]] = asyncio.get_running_loop().create_future()

    def settle(result: Result[A]) -> None:
        # The caller may have been cancelled.
        if not future.done():
            future.set_result(result)

    deferred.then(settle)
    try:
        return (await future).get()
    except asyncio.CancelledError:
        deferred.hurry()
        raise
