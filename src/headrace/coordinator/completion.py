"""Awaits what a coordinator's shard answers once it is committed."""

import asyncio
from typing import TypeVar

from headrace.coordinator.result import Result
from headrace.runtime.deferred import Deferred

A = TypeVar("A")


async def committed(deferred: Deferred[Result[A]]) -> A:
    """The answer. Raises the error that the operation failed with."""
    future: asyncio.Future[Result[A]] = asyncio.get_running_loop().create_future()

    def settle(result: Result[A]) -> None:
        # The caller may have been cancelled.
        if not future.done():
            future.set_result(result)

    deferred.then(settle)
    return (await future).get()
