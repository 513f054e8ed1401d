"""The arithmetic of lag, and the time of the next record in a log."""

import pytest

from headrace.monitor.lag import LagFigures, lag_figures

NOW_MS = 1_700_000_100_000


@pytest.mark.parametrize(
    ("offset", "time_ms", "messages", "seconds"),
    [
        (20, None, 0, 0.0),
        (15, NOW_MS - 30_000, 5, 30.0),
        (5, NOW_MS - 90_000, 10, 90.0),
        (25, None, 0, 0.0),
        (19, None, 1, 0.0),
        (15, -1, 5, None),
        (15, NOW_MS + 500, 5, 0.0),
    ],
    ids=["caught up", "behind", "below the start", "past the end", "markers only", "without a time", "in the future"],
)
def test_lag_in_messages_and_seconds(offset: int, time_ms: int | None, messages: int, seconds: float | None) -> None:
    assert lag_figures(offset, 10, 20, time_ms, NOW_MS) == LagFigures(10, 20, messages, seconds)
