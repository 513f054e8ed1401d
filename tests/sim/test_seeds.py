"""Clusters in trouble: a hundred seeds, and twenty of two clusters with a link. `make sim` runs more of them."""

import pytest

from headrace.testing.sim.runner import check_seed

SEEDS = 100
LINKED_SEEDS = 20
TOGETHER = 10
"""Seeds in one test: enough to be worth its name, few enough to be shared among processes."""


# A run takes a third of a second; the rest is for machines that are busy with something else.
@pytest.mark.timeout(900)
@pytest.mark.parametrize("first", range(0, SEEDS, TOGETHER))
def test_nothing_is_lost_whatever_happens(first: int) -> None:
    for seed in range(first, first + TOGETHER):
        check_seed(seed)


@pytest.mark.timeout(900)
@pytest.mark.parametrize("first", range(0, LINKED_SEEDS, TOGETHER))
def test_a_mirror_is_the_source_and_loses_nothing_after_its_promotion(first: int) -> None:
    for seed in range(first, first + TOGETHER):
        check_seed(seed, linked=True)
