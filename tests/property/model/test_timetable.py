"""Due times follow from the rule alone, wherever one begins to look."""

from datetime import UTC, datetime, timedelta
from itertools import islice, pairwise
from zoneinfo import ZoneInfo

import pytest
from cronsim import CronSim
from hypothesis import given
from hypothesis import strategies as st

from headrace.model.errors import SettingsError
from headrace.model.timetable import Period, Timetable, period_ms, read_timetable

DAY_MS = 86_400_000
FIELDS = (
    st.sampled_from(["*", "*/7", "0", "30", "5,50", "10-20"]),
    st.sampled_from(["*", "*/2", "*/5", "1", "2", "3", "0-3", "2,3", "23"]),
    st.sampled_from(["*", "1", "*/2", "25-31", "L"]),
    st.sampled_from(["*", "3", "10", "*/3"]),
    st.sampled_from(["*", "SUN", "MON-FRI", "0", "7"]),
)
EXPRESSIONS = st.tuples(*FIELDS).map(" ".join)
ZONES = st.sampled_from(["UTC", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Asia/Kathmandu"])
CHANGES = (datetime(2026, 3, 29, tzinfo=UTC), datetime(2026, 10, 25, tzinfo=UTC), datetime(2026, 11, 1, tzinfo=UTC))
TIMES = st.builds(
    lambda day, minutes, ms: int((day + timedelta(minutes=minutes)).timestamp() * 1000) + ms,
    st.sampled_from([*CHANGES, datetime(2027, 2, 28, tzinfo=UTC)]),
    st.integers(-600, 900),
    st.integers(0, 59_999),
)


def walked(timetable: Timetable, after_ms: int, until_ms: int) -> list[int]:
    found: list[int] = []
    at_ms: int | None = timetable.next_after(after_ms)
    while at_ms is not None and at_ms <= until_ms:
        found.append(at_ms)
        at_ms = timetable.next_after(at_ms)
    return found


@given(EXPRESSIONS, ZONES, TIMES)
def test_a_due_time_does_not_depend_on_where_one_begins(expression: str, zone: str, at_ms: int) -> None:
    timetable = read_timetable(f"cron {expression}", zone)
    long_before = datetime.fromtimestamp(at_ms // 1000 - 3 * 86_400, ZoneInfo(zone))
    all_dues = (round(each.timestamp()) * 1000 for each in CronSim(expression, long_before))
    expected = next((due_ms for due_ms in all_dues if due_ms > at_ms), None)
    assert timetable.next_after(at_ms) == expected


@given(EXPRESSIONS, ZONES, TIMES, st.integers(0, 4 * DAY_MS), st.integers(1, 20))
def test_the_latest_are_the_end_of_all(expression: str, zone: str, after_ms: int, length_ms: int, most: int) -> None:
    timetable = read_timetable(f"cron {expression}", zone)
    dues = timetable.latest(after_ms, after_ms + length_ms, most)
    assert dues == sorted(set(dues))
    every = list(islice(walked(timetable, after_ms, after_ms + length_ms), 6000))
    assert dues == every[-most:]


@given(st.integers(100, 10**7), st.integers(0, 10**12), st.integers(0, 10**5), st.integers(1, 20))
def test_periods(period: int, after_ms: int, length_ms: int, most: int) -> None:
    timetable = Period(period)
    dues = walked(timetable, after_ms, after_ms + length_ms)
    assert timetable.latest(after_ms, after_ms + length_ms, most) == dues[-most:]
    assert all(due_ms % period == 0 for due_ms in dues)
    assert all(b - a == period for a, b in pairwise(dues))


def in_zone(due_ms: int | None, zone: str) -> str:
    assert due_ms is not None
    return datetime.fromtimestamp(due_ms / 1000, ZoneInfo(zone)).isoformat(timespec="minutes")


@pytest.mark.parametrize(
    ("expression", "day", "expected"),
    [
        ("30 2 * * *", "2026-03-29", ["2026-03-29T03:00+02:00", "2026-03-30T02:30+02:00"]),
        ("30 2 * * *", "2026-10-25", ["2026-10-25T02:30+02:00", "2026-10-26T02:30+01:00"]),
        ("30 * * * *", "2026-03-29", ["2026-03-29T00:30+01:00", "2026-03-29T01:30+01:00", "2026-03-29T03:30+02:00"]),
        ("0 6 * * *", "2026-10-24", ["2026-10-24T06:00+02:00", "2026-10-25T06:00+01:00"]),
    ],
)
def test_when_the_clocks_change(expression: str, day: str, expected: list[str]) -> None:
    zone = "Europe/Berlin"
    at_ms = int(datetime.fromisoformat(day).replace(tzinfo=ZoneInfo(zone)).timestamp() * 1000)
    timetable = read_timetable(f"cron {expression}", zone)
    found = []
    for _ in expected:
        at_ms = timetable.next_after(at_ms) or 0
        found.append(in_zone(at_ms, zone))
    assert found == expected


def test_periods_in_words() -> None:
    expected = {
        "5 minutes": 300_000,
        "1.5 hours": 5_400_000,
        "day": DAY_MS,
        "250 ms": 250,
        "30s": 30_000,
        "2 weeks": 14 * DAY_MS,
    }
    assert {text: period_ms(text) for text in expected} == expected
    for text in ("", "5", "0 seconds", "-1 minute", "1.00001 s", "9999999999 days", "5 fortnights"):
        with pytest.raises(SettingsError):
            period_ms(text)
