"""Histograms: buckets, sums and quantiles."""

import math

from hypothesis import given
from hypothesis import strategies as st

from headrace.observe.histogram import LATENCY_BOUNDS_S, Histogram, quantile


def test_a_value_on_a_bound_is_in_its_bucket() -> None:
    found = Histogram((1.0, 2.0))
    for value in (0.5, 1.0, 1.5, 2.0, 7.0):
        found.observe(value)
    assert found.counts == [2, 2, 1]
    assert list(found.cumulative()) == [(1.0, 2), (2.0, 4), (math.inf, 5)]
    assert (found.count, found.total) == (5, 12.0)


def test_quantiles_are_interpolated_and_end_at_the_last_bound() -> None:
    found = Histogram((1.0, 2.0))
    assert found.quantile(0.5) is None
    for value in (0.5, 1.5, 1.6, 1.7):
        found.observe(value)
    assert found.quantile(0.25) == 1.0
    assert found.quantile(1.0) == 2.0
    found.observe(100.0)
    assert found.quantile(1.0) == 2.0


def test_a_quantile_of_the_time_between_two_readings() -> None:
    found = Histogram((1.0, 2.0))
    found.observe(1.5)
    before = list(found.counts)
    found.observe(0.5)
    since = [now - then for now, then in zip(found.counts, before, strict=True)]
    assert quantile(found.bounds, since, 0.5) == 0.5


@given(st.lists(st.floats(min_value=0, max_value=9.9), min_size=1, max_size=200), st.floats(0.01, 1.0))
def test_a_quantile_is_in_the_bucket_of_the_exact_one(values: list[float], share: float) -> None:
    found = Histogram(LATENCY_BOUNDS_S)
    for value in values:
        found.observe(value)
    exact = sorted(values)[max(0, math.ceil(share * len(values)) - 1)]
    upper = next(bound for bound in LATENCY_BOUNDS_S if exact <= bound)
    lower = max((bound for bound in LATENCY_BOUNDS_S if bound < upper), default=0.0)
    quantile_found = found.quantile(share)
    assert quantile_found is not None
    assert lower <= quantile_found <= upper + 1e-9
