import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.client.backoff import Backoff


def test_doubles_up_to_the_cap() -> None:
    backoff = Backoff(initial_s=1, factor=2, cap_s=5, jitter=0)
    assert [backoff.delay_s(failures, 0.5) for failures in range(1, 6)] == [1, 2, 4, 5, 5]


def test_attempts_count_the_first_try() -> None:
    assert Backoff(attempts=1).is_spent(1)
    assert not Backoff(attempts=3).is_spent(2)
    assert Backoff(attempts=3).is_spent(3)
    assert not Backoff(attempts=None).is_spent(10**9)


@given(
    st.floats(0, 10), st.floats(1, 10), st.floats(10, 100), st.floats(0, 1), st.integers(1, 10_000), st.floats(0, 0.999)
)
def test_the_wait_stays_within_its_bounds(
    initial_s: float, factor: float, cap_s: float, jitter: float, failures: int, chance: float
) -> None:
    backoff = Backoff(initial_s=initial_s, factor=factor, cap_s=cap_s, jitter=jitter)
    longest_s = backoff.delay_s(failures, 0)
    assert 0 <= longest_s <= cap_s
    assert longest_s * (1 - jitter) <= backoff.delay_s(failures, chance) * (1 + 1e-9)
    assert backoff.delay_s(failures, chance) <= longest_s
    assert backoff.delay_s(failures + 1, 0) >= longest_s


@pytest.mark.parametrize(
    "wrong", [{"initial_s": 40}, {"initial_s": -1}, {"factor": 0.5}, {"attempts": 0}, {"jitter": 1.1}]
)
def test_refuses_what_makes_no_sense(wrong: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=next(iter(wrong))):
        Backoff(**wrong)  # type: ignore[arg-type]
