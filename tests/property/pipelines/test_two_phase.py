"""The two-phase commit, stopped before and after every single step, also while another driver runs in between.

Rows are (batch, partition). Whatever happened, once a driver has run to the end each row is there once, nothing is open
but what a zombie opened after it, and nobody was told that rows are lost.
"""

import itertools
from collections.abc import Callable, Iterable
from contextlib import suppress

import pytest

from headrace.pipelines.sink.ledger import OpenTransaction, has_decided, task_transactional_id
from headrace.pipelines.sink.two_phase import (
    RowsLost,
    SinkError,
    SinkFenced,
    TransactionExpired,
    abandon,
    commit,
    take_over,
)

from .broker_model import SINK, TIMEOUT_MS, Cluster, Killed, Process

QUERY = "q"
BATCHES, PARTITIONS = 2, 2
EXPECTED = sorted(itertools.product(range(BATCHES), range(PARTITIONS)))
KINDS = list(itertools.product([True, False], [True, False]))
TWO_KINDS = [(True, True), (False, False)]
"""For what takes long: a broker of ours, and an old one of others."""


class Driver:
    """A Spark driver with its tasks, one after the other. `done` is Spark's own log of commits."""

    def __init__(self, process: Process, done: set[int], attempt: int = 0) -> None:
        self.process = process
        self.done = done
        self.attempt = attempt

    def run(self) -> None:
        for batch in range(BATCHES):
            if batch not in self.done:
                self.run_batch(batch)
                self.done.add(batch)

    def run_batch(self, batch: int) -> None:
        process = self.process
        held = take_over(process)
        try:
            staged = []
            if not has_decided(held.entry, QUERY, batch):
                staged = [self.stage(held.claim, batch, partition) for partition in range(PARTITIONS)]
            commit(process, held, QUERY, batch, staged)
        except SinkError:
            abandon(process, held.claim)
            raise

    def stage(self, claim: object, batch: int, partition: int) -> OpenTransaction:
        if not self.process.holds(claim):  # type: ignore[arg-type]
            raise SinkFenced("another driver has the sink")
        name = task_transactional_id(SINK, claim.epoch, partition, self.attempt)  # type: ignore[attr-defined]
        transaction = self.process.begin(name)
        self.process.put(transaction, (batch, partition))
        return transaction


def count_steps(cluster: Cluster) -> int:
    process = Process(cluster)
    Driver(process, set()).run()
    return process.steps


def stop_at(number: int, when: str, act: Callable[[], None]) -> Callable[[int, str], None]:
    def at_step(step: int, moment: str) -> None:
        if (step, moment) == (number, when):
            act()

    return at_step


def die() -> None:
    raise Killed


def places(total: int) -> Iterable[tuple[int, str]]:
    return itertools.product(range(total), ["before", "after"])


def finish(cluster: Cluster, done: set[int]) -> None:
    """A driver that nobody disturbs; then one that only looks after what zombies left."""
    Driver(Process(cluster), done).run()
    take_over(Process(cluster))
    assert sorted(cluster.visible) == EXPECTED
    assert cluster.open_ids() == []


@pytest.mark.parametrize(("bumps", "two_phase"), KINDS)
def test_a_driver_that_is_killed_at_any_step(bumps: bool, two_phase: bool) -> None:
    total = count_steps(Cluster(bumps_epoch=bumps, has_two_phase=two_phase))
    assert total > 20
    for number, when in places(total):
        cluster = Cluster(bumps_epoch=bumps, has_two_phase=two_phase)
        done: set[int] = set()
        with pytest.raises(Killed):
            Driver(Process(cluster, stop_at(number, when, die)), done).run()
        finish(cluster, done)


@pytest.mark.parametrize(("bumps", "two_phase"), TWO_KINDS)
def test_drivers_that_are_killed_at_any_two_steps(bumps: bool, two_phase: bool) -> None:
    total = count_steps(Cluster(bumps_epoch=bumps, has_two_phase=two_phase))
    for first, second in itertools.product(places(total), places(total)):
        cluster = Cluster(bumps_epoch=bumps, has_two_phase=two_phase)
        done: set[int] = set()
        with pytest.raises(Killed):
            Driver(Process(cluster, stop_at(*first, die)), done).run()
        with suppress(Killed):
            Driver(Process(cluster, stop_at(*second, die)), done).run()
        finish(cluster, done)


@pytest.mark.parametrize(("bumps", "two_phase"), TWO_KINDS)
def test_a_driver_that_sleeps_at_any_step_while_another_runs_and_is_killed_at_any_step(
    bumps: bool, two_phase: bool
) -> None:
    total = count_steps(Cluster(bumps_epoch=bumps, has_two_phase=two_phase))
    for (number, when), (second, second_when) in itertools.product(places(total), places(total + 1)):
        cluster = Cluster(bumps_epoch=bumps, has_two_phase=two_phase)
        done: set[int] = set()

        def other(
            cluster: Cluster = cluster, second: int = second, when: str = second_when, done: set[int] = done
        ) -> None:
            with suppress(Killed):
                Driver(Process(cluster, stop_at(second, when, die)), done).run()

        zombie = Process(cluster, stop_at(number, when, other))
        try:
            Driver(zombie, set()).run()
        except RowsLost:
            raise
        except SinkError:
            pass
        finish(cluster, done)


@pytest.mark.parametrize(("bumps", "two_phase"), KINDS)
def test_a_second_attempt_at_a_task_whose_first_never_ends(bumps: bool, two_phase: bool) -> None:
    """As speculation does: one of two attempts is taken, the other leaves its transaction open."""
    cluster = Cluster(bumps_epoch=bumps, has_two_phase=two_phase)
    process = Process(cluster)
    first, second = Driver(process, set(), attempt=0), Driver(process, set(), attempt=1)
    held = take_over(process)
    staged = [first.stage(held.claim, 0, 0), first.stage(held.claim, 0, 1)]
    second.stage(held.claim, 0, 0)
    commit(process, held, QUERY, 0, staged)
    assert sorted(cluster.visible) == [(0, 0), (0, 1)]
    assert cluster.open_ids() == []
    finish(cluster, {0})


@pytest.mark.parametrize("bumps", [True, False])
def test_a_transaction_that_expires_before_the_decision_fails_the_batch(bumps: bool) -> None:
    for two_phase in (True, False):
        cluster = Cluster(bumps_epoch=bumps, has_two_phase=two_phase)
        process = Process(cluster)
        driver = Driver(process, set())
        held = take_over(process)
        staged = [driver.stage(held.claim, 0, partition) for partition in range(PARTITIONS)]
        cluster.pass_time(TIMEOUT_MS + 1)
        with pytest.raises(TransactionExpired):
            commit(process, held, QUERY, 0, staged)
        abandon(process, held.claim)
        finish(cluster, set())


@pytest.mark.parametrize("bumps", [True, False])
def test_without_two_phase_commit_too_little_time_left_fails_the_batch(bumps: bool) -> None:
    cluster = Cluster(bumps_epoch=bumps, has_two_phase=False)
    process = Process(cluster)
    held = take_over(process)
    staged = [Driver(process, set()).stage(held.claim, 0, partition) for partition in range(PARTITIONS)]
    cluster.pass_time(TIMEOUT_MS * 3 // 4)
    with pytest.raises(TransactionExpired):
        commit(process, held, QUERY, 0, staged)


@pytest.mark.parametrize("bumps", [True, False])
@pytest.mark.parametrize("two_phase", [True, False])
def test_a_driver_that_is_down_for_days_after_the_decision(bumps: bool, two_phase: bool) -> None:
    """With two-phase commit nothing is lost; without it the loss is told, every time, until somebody acts."""
    total = count_steps(Cluster(bumps_epoch=bumps, has_two_phase=two_phase))
    told = 0
    for number, when in places(total):
        cluster = Cluster(bumps_epoch=bumps, has_two_phase=two_phase)
        done: set[int] = set()
        with pytest.raises(Killed):
            Driver(Process(cluster, stop_at(number, when, die)), done).run()
        cluster.pass_time(3 * 86_400_000)
        if two_phase:
            finish(cluster, done)
            continue
        try:
            finish(cluster, done)
        except RowsLost:
            told += 1
            with pytest.raises(RowsLost):
                take_over(Process(cluster))
    assert two_phase or told > 0
