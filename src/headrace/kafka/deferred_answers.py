"""Answers that rest on what a coordinator gives later."""

from collections.abc import Callable, Sequence
from typing import TypeVar

from headrace.coordinator.result import Result
from headrace.kafka.dispatch import Answer
from headrace.runtime.deferred import Deferred

A = TypeVar("A")


def answer_with(result: Deferred[Result[A]], build: Callable[[Result[A]], Answer]) -> Answer | Deferred[Answer]:
    """The answer that `build` makes of a result: at once if it is there, else when it comes."""
    return answer_with_all([result], lambda results: build(results[0]))


def answer_with_all(
    waited: Sequence[Deferred[Result[A]]], build: Callable[[list[Result[A]]], Answer]
) -> Answer | Deferred[Answer]:
    """The answer that `build` makes of all results, which are in the order of `waited`."""

    def hurry() -> None:
        for one in waited:
            one.hurry()

    later: Deferred[Answer] = Deferred(hurry)
    results: dict[int, Result[A]] = {}
    answer: list[Answer] = []

    def finish() -> None:
        answer.append(build([results[at] for at in range(len(waited))]))
        later.resolve(answer[0])

    def settled(at: int, result: Result[A]) -> None:
        results[at] = result
        if len(results) == len(waited):
            finish()

    for at, one in enumerate(waited):
        one.then(lambda result, at=at: settled(at, result))  # type: ignore[misc]
    if not waited:
        finish()
    return answer[0] if answer else later
