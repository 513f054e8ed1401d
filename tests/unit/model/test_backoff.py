import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.model.backoff import ExponentialDelay, RetryDelays


def test_doubles_up_to_the_limit() -> None:
    delay = ExponentialDelay(0.02, 0.25)
    assert [delay.after(failures) for failures in range(1, 7)] == pytest.approx([0.02, 0.04, 0.08, 0.16, 0.25, 0.25])


@given(st.floats(0, 10), st.floats(1, 10), st.floats(10, 100), st.integers(1, 10**9))
def test_never_shrinks_and_never_exceeds_the_limit(first: float, factor: float, limit: float, failures: int) -> None:
    delay = ExponentialDelay(first, limit, factor)
    assert first <= delay.after(failures) <= delay.after(failures + 1) <= limit


def test_no_first_delay_means_no_delay_at_all() -> None:
    assert ExponentialDelay(0, 60).after(10_000) == 0


def test_a_success_starts_again_with_the_first_delay() -> None:
    delays = RetryDelays(ExponentialDelay(1, 60))
    assert [delays.next(), delays.next(), delays.next()] == [1, 2, 4]
    delays.reset()
    assert delays.next() == 1
