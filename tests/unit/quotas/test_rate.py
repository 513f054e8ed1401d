"""Rates and delays are those of Kafka."""

from random import Random

import pytest

from headrace.quotas.bucket import TokenBucket
from headrace.quotas.rate import RateWindows, SampledRate, rounded

from .java_rate import JavaRate

WINDOWS = RateWindows()


def test_the_example_of_kafkas_own_test() -> None:
    """Ten windows of 400 bytes, then 2,300 in a half window: 6,300 / 10.5 s = 600/s, 100/500 * 10.5 s = 2.1 s."""
    rate = SampledRate(WINDOWS)
    for second in range(10):
        rate.record(400, second * 1000)
        assert rate.delay_ms(500, second * 1000) == 0
    rate.record(2300, 10_500)
    assert rate.measure(10_500) == pytest.approx(600)
    assert rate.delay_ms(500, 10_500) == 2100
    # After the delay two samples with less than the quota have left the window: 5,500 / 10.6 s.
    assert rate.delay_ms(500, 12_600) == 400


@pytest.mark.parametrize(
    ("used", "bound", "delay_ms"),
    [
        (10_000, 1000, 0),  # the quota of the ten windows that are missing
        (10_001, 1000, 1),
        (20_000, 1000, 10_000),
        (1_000_000, 1000, 990_000),  # delays of byte rates are not capped
        (11, 1.1, 0),
        (12, 1.1, 909),
    ],
)
def test_a_client_that_begins_with_a_burst(used: float, bound: float, delay_ms: int) -> None:
    rate = SampledRate(WINDOWS)
    rate.record(used, 5000)
    assert rate.delay_ms(bound, 5000) == delay_ms


@pytest.mark.parametrize("seed", range(20))
def test_rates_are_those_of_kafkas_code(seed: int) -> None:
    random = Random(seed)
    windows = RateWindows(random.choice((1, 2, 5, 11)), random.choice((100, 1000, 3000)))
    now_ms = random.randrange(10_000)
    ours, java = SampledRate(windows), JavaRate(*windows)
    for _ in range(300):
        value = random.choice((0, 1, 100, 12_345, -50))
        java.record(value, now_ms)
        if random.random() < 0.5:
            assert ours.charge(value, 700, now_ms) == java.throttle_ms(700, now_ms)
        else:
            ours.record(value, now_ms)
        if random.random() < 0.7:
            assert ours.measure(now_ms) == pytest.approx(java.measure(now_ms))
            assert ours.window_ms(now_ms) == java.window_size(now_ms)
            assert ours.delay_ms(700, now_ms) == java.throttle_ms(700, now_ms)
        now_ms += int(random.expovariate(1 / random.choice((1, 50, windows.window_ms, 5 * windows.window_ms))))


def test_a_use_that_is_taken_back_leaves_no_trace() -> None:
    rate = SampledRate(WINDOWS)
    rate.record(5000, 0)
    rate.record(100_000, 10)
    assert rate.delay_ms(1000, 10) > 0
    rate.record(-100_000, 10)
    assert rate.delay_ms(1000, 10) == 0
    assert rate.measure(10) == pytest.approx(5000 / 10.01)


def test_a_bucket_allows_a_burst_and_then_the_rate() -> None:
    bucket = TokenBucket(WINDOWS, 2.0, 0)
    assert bucket.tokens(0) == 22
    bucket.take(32, 0)
    assert bucket.delay_ms(0) == 5000  # ten tokens are owed at two each second
    assert bucket.delay_ms(4999) == 1
    assert bucket.delay_ms(5000) == 0
    assert bucket.tokens(60_000) == 22
    bucket.take(-5, 60_000)
    assert bucket.tokens(60_000) == 22  # never more than the burst


def test_a_bucket_with_another_quota() -> None:
    bucket = TokenBucket(WINDOWS, 10.0, 0)
    bucket.change(1.0, 1000)
    assert bucket.tokens(1000) == 11
    bucket.take(21, 1000)
    assert bucket.delay_ms(1000) == 10_000


def test_half_a_millisecond_is_rounded_up_as_in_java() -> None:
    assert [rounded(each) for each in (0.4, 0.5, 1.5, 2.5)] == [0, 1, 2, 3]
