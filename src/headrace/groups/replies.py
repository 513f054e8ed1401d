"""Deferred results of the group service."""

from collections.abc import Sequence
from typing import Any

from headrace.coordinator.result import Result
from headrace.groups.group import Reply
from headrace.model.errors import CoordinatorNotAvailable
from headrace.runtime.deferred import Deferred


def reply_all(replies: Sequence[Reply], committed: Result[Any]) -> None:
    """Send replies after the commit of their records, or the error of a failed commit."""
    for waiter, result in replies:
        waiter.resolve(result if committed.error is None else Result(error=committed.error))


def waiting() -> Deferred[Result[Any]]:
    """Return a result that waits for other members; an error if the client or the broker stops waiting."""
    answer: Deferred[Result[Any]] = Deferred(
        hurry=lambda: answer.resolve(Result(error=CoordinatorNotAvailable("the broker stops waiting: retry")))
    )
    return answer


def done(result: Result[Any]) -> Deferred[Result[Any]]:
    """Return a result that is already resolved."""
    answer: Deferred[Result[Any]] = Deferred()
    answer.resolve(result)
    return answer
