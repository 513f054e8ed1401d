"""Answers built from a coordinator's deferred results."""

from collections.abc import Callable, Sequence
from typing import TypeVar

from headrace.coordinator.result import Result
from headrace.runtime.deferred import Deferred

T = TypeVar("T")
A = TypeVar("A")


def answer_with(result: Deferred[Result[T]], build: Callable[[Result[T]], A]) -> A | Deferred[A]:
    """Build the answer from a result: at once if it is ready, else deferred."""
    return answer_with_all([result], lambda results: build(results[0]))


def answer_with_all(waited: Sequence[Deferred[Result[T]]], build: Callable[[list[Result[T]]], A]) -> A | Deferred[A]:
    """Build the answer when all results are ready; they are passed in the order of `waited`."""

    def hurry() -> None:
        for one in waited:
            one.hurry()

    later: Deferred[A] = Deferred(hurry)
    results: dict[int, Result[T]] = {}
    answer: list[A] = []

    def finish() -> None:
        answer.append(build([results[at] for at in range(len(waited))]))
        later.resolve(answer[0])

    def settled(at: int, result: Result[T]) -> None:
        results[at] = result
        if len(results) == len(waited):
            finish()

    for at, one in enumerate(waited):
        one.then(lambda result, at=at: settled(at, result))  # type: ignore[misc]
    if not waited:
        finish()
    return answer[0] if answer else later
