"""Three brokers and etcd are harmed in every way there is while clients work: nothing that was promised is broken.

The histories that the clients write are checked for every anomaly of `docs/testing.md`; the seed is in what is printed.
"""

import os
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest

from headrace.testing.checkers import report
from tests.faults.episodes import run
from tests.faults.nemesis import possible
from tests.faults.testbed import BROKERS, DISKS, Testbed
from tests.interop import subject

pytestmark = pytest.mark.skipif(not subject.IS_HEADRACE, reason="about a cluster of Headrace")

RETRIABLE = ("NOT_COORDINATOR", "COORDINATOR_NOT_AVAILABLE", "COORDINATOR_LOAD_IN_PROGRESS", "REBALANCE_IN_PROGRESS")
"""What a group member may be told while its coordinator moves, and librdkafka leaves to the application."""
SHORT = ("kill leader", "cut from etcd", "pause", "power cut of all", "stop", "kill client")
EPISODES = int(os.environ.get("FAULT_EPISODES", "110"))
SEED = int(os.environ.get("FAULT_SEED", "1"))


@pytest.mark.timeout(900)
def test_a_short_life_with_every_kind_of_fault(tmp_path: Path, say: Callable[[str], None]) -> None:
    with Testbed(tmp_path) as bed:
        faults = [name for name in SHORT if name in possible(bed)]
        verdict = run(bed, tmp_path, faults, seed=1, per_second=50, is_small=True, say=say)
    assert not verdict.anomalies, report(verdict.anomalies)


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_a_hundred_faults(tmp_path: Path, say: Callable[[str], None]) -> None:
    """Each kind as often as any other, in an order that the seed gives."""
    say(f"FAULT_SEED={SEED} FAULT_EPISODES={EPISODES}")
    with Testbed(tmp_path, with_clock=True) as bed:
        names = possible(bed)
        order = (names * (EPISODES // len(names) + 1))[:EPISODES]
        Random(SEED).shuffle(order)
        verdict = run(bed, tmp_path, order, seed=SEED, per_second=50, say=say)
    assert not verdict.anomalies, report(verdict.anomalies)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_rolling_restart_is_an_error_to_no_client(tmp_path: Path, say: Callable[[str], None]) -> None:
    """Every broker is stopped as planned and started again, twice: clients try again by themselves where they must."""
    with Testbed(tmp_path, with_network=False, with_disks=False) as bed:
        restarts = [f"stop broker {broker_id}" for broker_id in BROKERS * 2]
        verdict = run(bed, tmp_path, restarts, seed=1, per_second=50, say=say)
    assert not verdict.anomalies, report(verdict.anomalies)
    assert verdict.unclean_ends == 0
    errors = [end.error or "" for end in verdict.history.ends.values() if end.fate != "ok"]
    assert [error for error in errors if not any(code in error for code in RETRIABLE)] == []


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_what_was_not_synced_is_lost_and_that_is_found(tmp_path: Path, say: Callable[[str], None]) -> None:
    """With flush.policy=os a power cut of everything must lose something, or the tests above prove nothing."""
    with Testbed(tmp_path) as bed:
        if DISKS in bed.lacks:
            pytest.skip(bed.lacks[DISKS])
        hopeful = {"flush.policy": "os"}
        verdict = run(bed, tmp_path, ["power cut of all"], seed=1, per_second=50, topic_settings=hopeful, say=say)
    assert 9 in {one.number for one in verdict.anomalies}
