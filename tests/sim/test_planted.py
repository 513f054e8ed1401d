"""Bugs that are planted are found, each by a check of its kind: a simulation that finds nothing proves nothing."""

import re

import pytest

from headrace.testing.sim.runner import run_seed
from tests.sim.plants import PLANTS

SEEDS_MAX = 150
"""Most are found by the first seed or two, some need a certain trouble at a certain time."""


@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", PLANTS)
def test_a_planted_bug_is_found(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    plant, anomalies = PLANTS[name]
    plant(monkeypatch)
    for seed in range(SEEDS_MAX):
        outcome = run_seed(seed)
        if outcome.failure is not None:
            # A broker may find out itself, before anybody else can, that it breaks the invariant behind an anomaly.
            found_by = r"(Violation:|InvariantViolation: invariant)"
            assert re.match(rf"{found_by} ({anomalies})\b", outcome.failure), outcome.failure
            return
    pytest.fail(f"none of {SEEDS_MAX} seeds has found it")
