"""Results that are given to a callback, and another result that stands for an error."""

from typing import Any

from headrace.coordinator.completion import PendingResult
from headrace.coordinator.result import Result
from headrace.model.errors import HeadraceError, NotLeader, UnknownQueue


def rescued(hurried: list[str] | None = None) -> tuple[PendingResult[int], PendingResult[int], list[Result[int]]]:
    """A result, the one that stands for NotLeader, and what a caller has got."""
    first: PendingResult[int] = PendingResult(lambda: (hurried or []).append("first"))
    again: PendingResult[int] = PendingResult()

    def instead(error: HeadraceError) -> PendingResult[int] | None:
        return again if isinstance(error, NotLeader) else None

    first.rescue(instead)
    return first, again, []


def test_an_answer_needs_no_rescue() -> None:
    first, again, got = rescued()
    first.then(got.append)
    first.resolve(Result(1))
    assert [result.get() for result in got] == [1]
    assert not again.done


def test_another_result_stands_for_an_error() -> None:
    first, again, got = rescued()
    first.then(got.append)
    first.resolve(Result(error=NotLeader("moved")))
    assert got == []
    again.resolve(Result(2))
    assert [result.get() for result in got] == [2]


def test_a_caller_may_ask_after_the_error() -> None:
    first, again, got = rescued()
    first.resolve(Result(error=NotLeader("moved")))
    first.then(got.append)
    assert got == []
    again.resolve(Result(2))
    assert [result.get() for result in got] == [2]


def test_an_error_that_is_not_rescued_stands() -> None:
    first, again, got = rescued()
    first.then(got.append)
    first.resolve(Result(error=UnknownQueue("gone")))
    assert [type(result.error) for result in got] == [UnknownQueue]
    assert not again.done


def test_the_first_operation_cannot_answer_once_another_stands_for_it() -> None:
    hurried: list[Any] = []
    first, again, got = rescued(hurried)
    first.then(got.append)
    first.resolve(Result(error=NotLeader("too late")))
    # As a write that took too long, and ends all the same.
    assert first.done
    first.resolve(Result(1))
    first.hurry()
    assert got == []
    assert hurried == []
    again.resolve(Result(error=NotLeader("still")))
    assert [type(result.error) for result in got] == [NotLeader]
