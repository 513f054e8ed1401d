"""Awaits what a coordinator's shard answers once it is committed."""

import asyncio
from collections.abc import Callable, Generator
from typing import Any, TypeVar

from headrace.coordinator.result import Result
from headrace.model.errors import HeadraceError
from headrace.runtime.deferred import Deferred

A = TypeVar("A")


class PendingResult(Deferred[Result[A]]):
    """A result that is awaited, or given to a callback, which needs no task."""

    __slots__ = ("_instead", "_rescue")

    def __init__(self, hurry: Callable[[], None] | None = None) -> None:
        super().__init__(hurry)
        self._rescue: Callable[[HeadraceError], PendingResult[A] | None] | None = None
        self._instead: PendingResult[A] | None = None
        """The result that stands for an error."""

    def rescue(self, instead: "Callable[[HeadraceError], PendingResult[A] | None]") -> None:
        """Let another result stand for an error: that of the same operation, done again. None: the error stands. To be
        called once, before the result is there."""
        self._rescue = instead

    def resolve(self, value: Result[A]) -> None:
        rescue = self._rescue
        if rescue is not None and not self._done:
            self._rescue = None
            if value.error is not None and (instead := rescue(value.error)) is not None:
                self._done = True
                self._instead = instead
                callback, self._callback, self._hurry = self._callback, None, None
                if callback is not None:
                    instead.then(callback)
                return
        super().resolve(value)

    def then(self, callback: Callable[[Result[A]], None]) -> None:
        if self._instead is None:
            super().then(callback)
        else:
            self._instead.then(callback)

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
