"""How many threads an automatic worker uses, in virtual time, for work of any kind."""

import random
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.client.queue.concurrency import MOST_THREADS, ThreadLimit

Rate = Callable[[int], float]


def waiting(seconds: float) -> Rate:
    """Work that waits for something outside."""
    return lambda threads: threads / seconds


def computing(per_s: float) -> Rate:
    """Work that one processor does, whatever the number of threads."""
    return lambda threads: per_s


def served(per_s: float, seconds: float) -> Rate:
    """Work that waits for a service with a limit."""
    return lambda threads: min(per_s, threads / seconds)


def run(limit: ThreadLimit, rate: Rate, seconds: float, *, noise: float = 0.0, start_s: float = 0.0) -> list[int]:
    """The number of threads, second by second."""
    chance, counts, finished, now_s = random.Random(1), [], 0.0, start_s
    while now_s < start_s + seconds:
        now_s += 0.25
        finished += rate(limit.threads) * 0.25 * (1 + noise * chance.uniform(-1, 1))
        while finished >= 1:
            limit.finished()
            finished -= 1
        limit.tick(now_s)
        counts.append(limit.threads)
    return counts


@pytest.mark.parametrize("noise", [0.0, 0.05])
def test_work_that_waits_gets_all_threads_within_ten_seconds(noise: float) -> None:
    assert run(ThreadLimit(0.0), waiting(0.05), 10, noise=noise)[-1] == MOST_THREADS


def test_work_of_the_processor_goes_down_to_few_threads() -> None:
    counts = run(ThreadLimit(0.0), computing(200), 60)
    assert counts[-1] == 1
    assert max(counts) <= 8


def test_work_of_the_processor_with_noise() -> None:
    counts = run(ThreadLimit(0.0), computing(200), 300, noise=0.1)
    assert sum(counts[-400:]) / 400 <= 6


def test_a_service_with_a_limit_gets_about_as_many_threads_as_it_serves() -> None:
    counts = run(ThreadLimit(0.0), served(400, 0.05), 300)
    steady = counts[-400:]
    assert 15 <= sum(steady) / len(steady) <= 26, "twenty are served at a time"


def test_follows_work_that_changes() -> None:
    limit = ThreadLimit(0.0)
    assert run(limit, waiting(0.05), 30)[-1] == MOST_THREADS
    assert run(limit, computing(200), 400, start_s=30)[-1] <= 4
    assert run(limit, waiting(0.05), 400, start_s=430)[-1] == MOST_THREADS


def test_slow_work_is_measured_over_longer_windows() -> None:
    assert run(ThreadLimit(0.0), waiting(4.0), 120)[-1] >= 32


def test_nothing_changes_while_threads_are_idle() -> None:
    limit = ThreadLimit(0.0)
    for second in range(1, 60):
        limit.finished()
        limit.idle()
        limit.tick(float(second))
        assert limit.threads == 4


def test_without_messages_nothing_changes() -> None:
    limit = ThreadLimit(0.0)
    assert not any(limit.tick(float(second)) for second in range(100))


@given(st.integers(1, 100), st.lists(st.tuples(st.floats(0.01, 20), st.integers(0, 500), st.integers(0, 50))))
def test_bounded(maximum: int, windows: list[tuple[float, int, int]]) -> None:
    limit, now_s = ThreadLimit(0.0, maximum), 0.0
    for passed_s, finished, idle in windows:
        now_s += passed_s
        for _ in range(finished):
            limit.finished()
        for _ in range(idle):
            limit.idle()
        limit.tick(now_s)
        assert 1 <= limit.threads <= maximum
