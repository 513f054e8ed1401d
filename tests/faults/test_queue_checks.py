"""The checker of queues finds each kind of anomaly, and nothing in a history that is as it should be."""

from typing import Any

import pytest

from tests.faults.queue_checks import problems


def got(at: float, count: int, *, asked: float | None = None) -> dict[str, Any]:
    asked = at - 0.1 if asked is None else asked
    return {"event": "got", "id": "i", "body": "b", "at": at, "asked": asked, "count": count}


def told(event: str, at: float) -> dict[str, Any]:
    return {"event": event, "id": "i", "body": "b", "at": at}


def found(*events: dict[str, Any], acked: str = "b") -> list[str]:
    return problems(events, {acked}, visibility_s=5)


@pytest.mark.parametrize(
    "events",
    [
        [got(1, 1), told("deleted", 2)],
        [got(1, 1), got(6.5, 2), told("deleted", 7)],
        [got(1, 1), told("back", 1.1), got(1.2, 2)],
        # A receive that was asked before the deletion may be answered after it is known.
        [got(1, 1), got(9, 2, asked=6.8), told("deleted", 7)],
        [got(1, 1)],
    ],
)
def test_nothing_is_wrong(events: list[dict[str, Any]]) -> None:
    assert found(*events) == []


@pytest.mark.parametrize(
    ("events", "sentence"),
    [
        ([], "nobody got it"),
        ([got(1, 1), told("deleted", 2), got(9, 2)], "after its deletion"),
        ([got(1, 1), got(3, 2)], "received again"),
        ([got(1, 1), told("back", 0.5), got(3, 2)], "received again"),
        ([got(1, 1), got(9, 1)], "the same count"),
    ],
)
def test_each_kind_is_found(events: list[dict[str, Any]], sentence: str) -> None:
    (problem,) = found(*events)
    assert sentence in problem
