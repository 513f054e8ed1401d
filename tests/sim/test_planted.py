"""Bugs that are planted are found, each by a check of its kind: a simulation that finds nothing proves nothing."""

import re
from collections.abc import Iterable
from dataclasses import replace

import pytest

from headrace.testing.sim.course import Scenario
from headrace.testing.sim.linked import LinkedCourse
from headrace.testing.sim.runner import run_seed
from headrace.testing.sim.world import World
from tests.sim.plants import LINK_PLANTS, PLANTS, REVERSAL_PLANTS, Plant

SEEDS_MAX = 150
"""Most are found by the first seed or two, some need a certain trouble at a certain time."""


@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", PLANTS)
def test_a_planted_bug_is_found(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    _check_found(PLANTS[name], monkeypatch, linked=False)


@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", LINK_PLANTS)
def test_a_planted_bug_of_a_link_is_found(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    _check_found(LINK_PLANTS[name], monkeypatch, linked=True)


@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", REVERSAL_PLANTS)
def test_a_planted_bug_of_a_reversal_is_found(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    seeds = (seed for seed in range(SEEDS_MAX) if _reverses(seed))
    _check_found(REVERSAL_PLANTS[name], monkeypatch, linked=True, seeds=seeds)


def _reverses(seed: int) -> bool:
    return LinkedCourse(World(seed), Scenario.of_seed(seed)).reverses


def _check_found(
    planted: tuple[Plant, str],
    monkeypatch: pytest.MonkeyPatch,
    *,
    linked: bool,
    seeds: Iterable[int] = range(SEEDS_MAX),
) -> None:
    plant, anomalies = planted
    plant(monkeypatch)
    for seed in seeds:
        # Without queues, whose state could be what a broker finds to be wrong first.
        outcome = run_seed(seed, scenario=replace(Scenario.of_seed(seed), has_queues=False), linked=linked)
        if outcome.failure is not None:
            # A broker may find out itself, before anybody else can, that it breaks the invariant behind an anomaly.
            found_by = r"(Violation:|InvariantViolation: invariant)"
            assert re.match(rf"{found_by} ({anomalies})\b", outcome.failure), outcome.failure
            return
    pytest.fail(f"none of {SEEDS_MAX} seeds has found it")
