"""The last hour of figures: rings of points, the bound on series, and histories of several brokers put together."""

import pytest

from headrace.monitor.forecast import FALLING, RISING, STEADY, full_in_s, lag_trend, trend
from headrace.monitor.history import POINTS, FigureHistory, merge_histories
from headrace.monitor.rates import RateTable
from headrace.monitor.snapshots import HistoryData

STEP_MS = 10_000
START_MS = 1_700_000_000_000


def test_points_are_read_in_order_with_gaps_where_nothing_was_seen() -> None:
    history = FigureHistory(100)
    for step in (0, 1, 4):
        history.add("topic", "orders", START_MS + step * STEP_MS, {"rate": float(step + 1), "size": None})
    found = history.read("topic", "orders", START_MS + 5 * STEP_MS + 9_999)
    assert found.end_ms == START_MS + 5 * STEP_MS
    assert found.series == {"rate": [1.0, 2.0, None, None, 5.0, None], "size": [None] * 6}


def test_a_point_is_replaced_within_its_step() -> None:
    history = FigureHistory(100)
    history.add("topic", "orders", START_MS, {"rate": 1.0})
    history.add("topic", "orders", START_MS + 5_000, {"rate": 3.0})
    assert history.read("topic", "orders", START_MS).series == {"rate": [3.0]}


def test_the_point_of_a_rate_is_the_mean_of_its_step() -> None:
    history = FigureHistory(100)
    for at_ms, value in ((0, 6.0), (3_000, 0.0), (6_000, 3.0), (10_000, 8.0)):
        history.add("queue", "jobs", START_MS + at_ms, {"sent_per_s": value})
    assert history.read("queue", "jobs", START_MS + STEP_MS).series == {"sent_per_s": [3.0, 8.0]}


def test_the_history_of_a_deleted_topic_is_dropped() -> None:
    history = FigureHistory(100)
    for kind, name in (("topic", "gone"), ("topic", "orders"), ("group", "gone")):
        history.add(kind, name, START_MS, {"rate": 1.0})
    history.drop_unless("topic", lambda name: name == "orders")
    assert history.size == 2
    assert history.read("topic", "gone", START_MS).series == {}
    assert history.read("topic", "orders", START_MS).series == {"rate": [1.0]}


def test_points_older_than_an_hour_are_gone() -> None:
    history = FigureHistory(100)
    for step in range(POINTS + 10):
        history.add("topic", "orders", START_MS + step * STEP_MS, {"rate": float(step)})
    (values,) = history.read("topic", "orders", START_MS + (POINTS + 9) * STEP_MS).series.values()
    assert values == [float(step) for step in range(10, POINTS + 10)]


def test_the_number_of_series_is_bounded_and_the_idlest_object_makes_room() -> None:
    history = FigureHistory(4)
    history.add("topic", "old", START_MS, {"a": 1.0, "b": 1.0})
    history.add("topic", "busy", START_MS, {"a": 1.0, "b": 1.0})
    later_ms = START_MS + 20 * STEP_MS
    history.add("topic", "busy", later_ms, {"a": 1.0, "b": 1.0})
    history.add("topic", "new", later_ms, {"a": 2.0, "b": 2.0})
    assert history.size == 4
    assert history.read("topic", "old", later_ms).series == {}
    assert history.read("topic", "new", later_ms).series == {"a": [2.0], "b": [2.0]}
    # All have been active just now.
    history.add("topic", "another", later_ms, {"a": 2.0, "b": 2.0})
    assert history.read("topic", "another", later_ms).series == {}


def test_objects_without_activity_get_no_history_and_lose_it_after_an_hour() -> None:
    history = FigureHistory(100)
    history.add("group", "caught-up", START_MS, {"lag": 0.0})
    assert history.size == 0
    history.add("group", "behind", START_MS, {"lag": 3.0})
    history.add("group", "behind", START_MS + STEP_MS, {"lag": 0.0})
    history.drop_idle(START_MS + (POINTS - 1) * STEP_MS)
    assert history.size == 1
    history.drop_idle(START_MS + POINTS * STEP_MS)
    assert history.size == 0


def test_histories_of_brokers_are_summed_and_times_are_the_largest() -> None:
    end_ms = START_MS + 100 * STEP_MS
    merged = merge_histories(
        [
            HistoryData(end_ms, {"rate": [1.0, 2.0, None], "lag_seconds": [5.0, None, 1.0], "p99_ms": [1.0, 1.0, 1.0]}),
            # One step behind: its last point is the one before the last.
            HistoryData(end_ms - STEP_MS, {"rate": [10.0, 20.0], "lag_seconds": [4.0, 9.0], "p99_ms": [7.0, None]}),
            HistoryData(end_ms, {}),
        ],
        end_ms + 3_000,
    )
    assert merged.end_ms == end_ms
    assert merged.series == {
        "rate": [11.0, 22.0, None],
        "lag_seconds": [5.0, 9.0, 1.0],
        "p99_ms": [7.0, 1.0, 1.0],
    }


def test_rates_are_those_of_the_last_sample() -> None:
    rates = RateTable()
    rates.note("a", (100, 0), 0.0)
    rates.finish(0.0)
    assert rates.of("a") is None
    rates.note("a", (150, 10), 5_000.0)
    rates.note("b", (7, 7), 5_000.0)
    rates.finish(5_000.0)
    assert rates.of("a") == (10.0, 2.0)
    assert rates.of("b") is None
    # It began again, then it is gone.
    rates.note("a", (3, 20), 6_000.0)
    rates.finish(6_000.0)
    assert rates.of("a") == (0.0, 10.0)
    rates.note("new", (8, 0), 7_000.0, began_at_zero=True)
    rates.finish(7_000.0)
    assert rates.of("a") is None
    assert rates.of("new") == (8.0, 0.0)


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([], STEADY),
        ([1.0, 2.0], STEADY),
        ([0.0, 10.0, 20.0, 30.0], RISING),
        ([30.0, None, 20.0, 10.0], FALLING),
        ([1000.0, 1010.0, 990.0, 1005.0], STEADY),
        ([0.0, 0.3, 0.0, 0.3], STEADY),
        ([0.0] * 20 + [100.0] * 30, STEADY),
    ],
)
def test_the_trend_of_the_last_minutes(values: list[float | None], expected: str) -> None:
    assert trend(values) == expected


def test_a_group_that_stands_still_falls_behind_in_seconds() -> None:
    assert lag_trend([5.0] * 10, [float(each) * 10 for each in range(10)]) == RISING
    assert lag_trend([50.0, 40.0, 30.0, 20.0], [10.0, 20.0, 30.0, 40.0]) == FALLING


def test_when_a_disk_is_full() -> None:
    filling = [(float(at), 10_000.0 - 50.0 * at) for at in range(0, 100, 5)]
    assert full_in_s(filling) == pytest.approx((10_000 - 50 * 95) / 50)
    assert full_in_s([(at, 10_000.0 + at) for at, _ in filling]) is None
    assert full_in_s(filling[:5]) is None
    assert full_in_s([]) is None
