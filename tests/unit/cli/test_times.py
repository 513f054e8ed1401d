from datetime import UTC, datetime

import pytest

from headrace.cli.errors import BadArgument
from headrace.cli.times import parse_duration, parse_time, parse_time_to_come

NOW = datetime(2026, 1, 31, 12, 0, tzinfo=UTC)
NOW_MS = int(NOW.timestamp() * 1000)


@pytest.mark.parametrize(
    ("text", "expected_ms"),
    [
        ("5m ago", NOW_MS - 300_000),
        ("1h30m ago", NOW_MS - 5_400_000),
        ("2d", NOW_MS - 2 * 86_400_000),
        ("10 s ago", NOW_MS - 10_000),
        ("2026-01-31T12:00:00Z", NOW_MS),
        ("2026-01-31T13:00:00+01:00", NOW_MS),
        ("1700000000000", 1_700_000_000_000),
    ],
)
def test_times_as_people_write_them(text, expected_ms):
    assert parse_time(text, NOW) == expected_ms


@pytest.mark.parametrize(
    ("text", "expected_ms"),
    [
        ("in 5m", NOW_MS + 300_000),
        ("1h30m", NOW_MS + 5_400_000),
        ("2026-01-31T12:00:00Z", NOW_MS),
        ("1700000000000", 1_700_000_000_000),
    ],
)
def test_what_is_to_happen_counts_from_now(text, expected_ms):
    assert parse_time_to_come(text, NOW) == expected_ms


@pytest.mark.parametrize("text", ["", "in", "tomorrow", "5m ago", "2026-13-01"])
def test_what_is_no_time_to_come_is_refused_with_an_example(text):
    with pytest.raises(BadArgument, match="is not a time to come: write 2030"):
        parse_time_to_come(text, NOW)


@pytest.mark.parametrize("text", ["", "ago", "yesterday", "5 minutes", "2026-13-01"])
def test_what_is_no_time_is_refused_with_an_example(text):
    with pytest.raises(BadArgument, match="is not a time"):
        parse_time(text, NOW)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("500ms", 0.5),
        ("30", 30),
        ("30s", 30),
        ("1.5s", 1.5),
        ("5m", 300),
        ("1h30m", 5400),
        ("4d", 345_600),
        ("1 h", 3600),
    ],
)
def test_durations(text: str, seconds: float) -> None:
    assert parse_duration(text) == seconds


@pytest.mark.parametrize("text", ["", "s", "-1s", "soon", "5m ago", "1w"])
def test_what_is_no_duration_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(BadArgument, match="write 500ms, 30s"):
        parse_duration(text)
