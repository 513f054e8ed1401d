"""What is said of a failure, and how often."""

import json
import logging

import pytest

from headrace.client.failures import FailureLog, describe_with_place, failure_of

log = logging.getLogger("test.failures")


def raised(text: str = "{") -> Exception:
    try:
        json.loads(text)
    except ValueError as error:
        return error
    raise AssertionError


def other() -> Exception:
    try:
        raise KeyError("item")
    except KeyError as error:
        return error


def test_the_place_is_in_the_code_of_the_user_not_in_a_library() -> None:
    failure = failure_of(raised())
    assert failure.type == "json.decoder.JSONDecodeError"
    assert failure.message.startswith("Expecting property name")
    assert failure.file == __file__
    assert failure.line == raised.__code__.co_firstlineno + 2


def test_an_error_that_was_never_raised_has_no_place() -> None:
    assert failure_of(ValueError("x"))[:2] == ("ValueError", "x")
    assert describe_with_place(ValueError("x")) == "ValueError: x"


@pytest.fixture
def clock() -> list[float]:
    return [1000.0]


@pytest.fixture
def failures(clock: list[float]) -> FailureLog:
    return FailureLog(log, "bill, orders", lambda: clock[0])


def test_the_traceback_comes_once_and_what_follows_is_counted(
    failures: FailureLog, clock: list[float], caplog: pytest.LogCaptureFixture
) -> None:
    for number in range(47):
        failures.failed(raised(), f"orders/0/{number} failed", "tried again")
    assert len(caplog.records) == 10
    assert [each.exc_info is not None for each in caplog.records] == [True] + [False] * 9
    assert "orders/0/3 failed" in caplog.messages[3]
    clock[0] += 60
    failures.tick()
    assert caplog.messages[-1] == (
        f"bill, orders: failed 37 more times in the last minute (tried again): json.decoder.JSONDecodeError at "
        f"{failure_of(raised()).place}"
    )
    failures.failed(raised(), "orders/0/99 failed", "tried again")
    assert caplog.records[-1].exc_info is not None


def test_each_kind_of_failure_has_its_own_traceback(failures: FailureLog, caplog: pytest.LogCaptureFixture) -> None:
    failures.failed(raised(), "a failed", "tried again")
    failures.failed(other(), "b failed", "tried again")
    failures.failed(raised(), "a is dead-lettered", "dead-lettered")
    assert [each.exc_info is not None for each in caplog.records] == [True, True, False]


def test_what_was_counted_is_told_at_the_end(failures: FailureLog, caplog: pytest.LogCaptureFixture) -> None:
    for _ in range(12):
        failures.failed(raised(), "a failed", "tried again", is_expected=True)
    failures.end()
    assert "failed 2 more times in 0 seconds" in caplog.messages[-1]
    assert not any(each.exc_info for each in caplog.records)
