"""The statistics of the gate: a regression is found, and noise is not taken for one."""

from random import Random

import pytest
from bench.harness.regressions import Judgement, Outcome, Turns, judged, judged_turns

QUIET = [1.004, 0.997, 1.001, 0.995, 1.003]


def measured(ratio: float, seed: int, *, layout: float, machine: float, sets: int = 5) -> Judgement:
    """A judgement on sets of processes that differ by chance, by these standard deviations; 9 turns of each."""
    rng = Random(seed)
    found = []
    for _ in range(sets):
        before, after, control = ([30 * rng.gauss(1, machine) for _ in range(9)] for _ in range(3))
        factor = ratio * rng.gauss(1, layout)
        found.append(Turns(before, [each * factor for each in after], control))
    return judged_turns(found, 0.03)


def test_finds_a_regression() -> None:
    found = judged([1.10, 1.08, 1.12, 1.09, 1.11], QUIET, 0.03)
    assert found.outcome is Outcome.SLOWER
    assert found.ratio == pytest.approx(1.10, abs=0.001)
    assert found.control == pytest.approx(1.0, abs=0.001)


def test_finds_an_improvement() -> None:
    assert judged([0.80, 0.82, 0.79, 0.81, 0.80], QUIET, 0.03).outcome is Outcome.FASTER


def test_the_same_code_is_the_same() -> None:
    assert judged(QUIET, QUIET[::-1], 0.03).outcome is Outcome.SAME


def test_less_than_the_tolerance_is_no_regression() -> None:
    slightly = [1.02, 1.021, 1.019, 1.02, 1.02]
    assert judged(slightly, QUIET, 0.03).outcome is Outcome.SAME
    assert judged(slightly, QUIET, 0.01).outcome is Outcome.SLOWER


def test_one_set_of_processes_that_is_off_is_no_regression() -> None:
    assert judged([1.40, 0.99, 1.01, 1.0, 1.0], QUIET, 0.03).outcome is not Outcome.SLOWER


def test_what_the_control_shows_as_well_is_noise() -> None:
    assert judged([1.08, 1.07, 1.09, 1.08, 1.08], [1.12, 0.9, 1.1, 0.88, 1.11], 0.03).outcome is not Outcome.SLOWER


def test_one_set_is_not_enough_to_judge() -> None:
    assert judged([1.5], [1.0], 0.03).outcome is Outcome.UNCLEAR


def test_much_noise_is_unclear() -> None:
    assert judged([1.3, 0.8, 1.25, 0.75, 0.95], QUIET, 0.03).outcome is Outcome.UNCLEAR


def test_noise_is_seldom_taken_for_a_regression() -> None:
    runs = [measured(1.0, seed, layout=0.03, machine=0.05) for seed in range(400)]
    assert sum(run.outcome is Outcome.SLOWER for run in runs) <= 400 * 0.03


def test_ten_percent_are_nearly_always_found_in_that_noise() -> None:
    runs = [measured(1.10, seed, layout=0.03, machine=0.05) for seed in range(400)]
    assert sum(run.outcome is Outcome.SLOWER for run in runs) >= 400 * 0.9


def test_turns_are_compared_one_by_one() -> None:
    """The machine was slow for half of the time, and one turn was disturbed: neither is seen in the ratios."""
    pace = [1.0, 1.0, 1.0, 2.0, 2.0]
    turns = Turns([10 * each for each in pace], [11 * each for each in pace], [10 * each for each in pace])
    turns.after[1] *= 5
    assert turns.ratio() == pytest.approx(1.1)
    assert turns.control_ratio() == pytest.approx(1.0)


def test_the_mean_of_both_earlier_processes_is_what_counts() -> None:
    turns = Turns([9.0] * 3, [10.0] * 3, [16.0] * 3)
    assert turns.ratio() == pytest.approx(10 / 12)
    assert turns.control_ratio() == pytest.approx(16 / 9)
