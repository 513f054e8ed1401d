"""What is measured of a pool: the rate of one process while messages wait, and the backlog."""

from dataclasses import dataclass
from typing import Any

import pytest

from headrace.cli.work.load import PoolLoad
from headrace.client.work.messages import Backlog, Report, SourceBacklog, WorkerReport, WorkSource

QUEUE = WorkSource("queue", "emails")


@dataclass
class Process:
    number: int
    report: Report | None
    state: str = "running"


def process(number: int, handled: int, lag: int | None = None) -> Any:
    return Process(number, Report([WorkerReport(QUEUE.name, handled, 0, lag)], True))


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now_s = [100.0]
    monkeypatch.setattr("headrace.cli.work.load.time.monotonic", lambda: now_s[0])
    return now_s


@pytest.fixture
def pool(clock: list[float]) -> PoolLoad:
    found = PoolLoad()
    found.set_sources([QUEUE])
    return found


def waiting(count: int | None) -> Backlog:
    return Backlog([SourceBacklog(QUEUE.name, count, 3.0, 6)])


def test_the_rate_of_one_process(pool: PoolLoad, clock: list[float]) -> None:
    handled = 0
    for _ in range(5):
        pool.note(waiting(10_000))
        (found,) = pool.measure([process(1, handled), process(2, handled)])
        handled += 100
        clock[0] += 1.0
    assert found.each_per_s == pytest.approx(100)
    assert (found.waiting, found.oldest_s, found.cap) == (10_000, 3.0, 6)


def test_a_pool_that_keeps_up_is_not_measured(pool: PoolLoad, clock: list[float]) -> None:
    for second in range(5):
        pool.note(waiting(2))
        (found,) = pool.measure([process(1, 5 * second)])
        clock[0] += 1.0
    assert found.each_per_s is None


def test_a_process_that_died_takes_its_count_along(pool: PoolLoad, clock: list[float]) -> None:
    pool.note(waiting(10_000))
    pool.measure([process(1, 1_000), process(2, 1_000)])
    for step in range(1, 4):
        clock[0] += 1.0
        pool.note(waiting(10_000))
        (found,) = pool.measure([process(2, 1_000 + 50 * step)])
    assert found.each_per_s == pytest.approx(50)


def test_what_was_handled_during_a_reload_counts_once(pool: PoolLoad) -> None:
    pool.measure([process(1, 10)])
    pool.measure([process(2, 5)])
    pool.set_sources([QUEUE])
    pool.measure([process(2, 7)])
    assert pool.handled == {QUEUE.name: 17}


def test_an_old_backlog_is_not_known(pool: PoolLoad, clock: list[float]) -> None:
    pool.note(waiting(7))
    assert pool.measure([])[0].waiting == 7
    clock[0] += 11.0
    assert pool.measure([])[0].waiting is None


def test_without_figures_of_the_brokers_members_say_their_lag(pool: PoolLoad, clock: list[float]) -> None:
    pool.note(waiting(None))
    assert pool.measure([process(1, 0, lag=3), process(2, 0, lag=4)])[0].waiting == 7
    assert pool.measure([process(1, 0)])[0].waiting is None
