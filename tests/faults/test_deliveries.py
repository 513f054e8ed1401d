"""A topic is copied while workers and broker are killed with SIGKILL: each delivery guarantee keeps its promise."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.faults.copying import Copy, Plan, copy_under_kills
from tests.faults.promises import Delivery, check
from tests.faults.sdk_worker import BATCH
from tests.interop.subject import Subject

SDK = "tests.faults.sdk_worker"
WORKERS: dict[str, tuple[Delivery, tuple[str, ...]]] = {
    "at-most-once": ("at-most-once", (SDK, "at-most-once")),
    "at-least-once": ("at-least-once", (SDK, "at-least-once")),
    "exactly-once": ("exactly-once", (SDK, "exactly-once")),
    "exactly-once-confluent-kafka": ("exactly-once", ("tests.faults.transformer",)),
}
FEW = Plan(20_000, 2_500, kill_every_s=(1.0, 2.0), seed=4, most_kills=4)
MILLION = Plan(1_000_000, 15_000, kill_every_s=(1.5, 4.0), seed=2)


@pytest.fixture(params=WORKERS)
def copied(
    request: pytest.FixtureRequest, own_broker: Callable[..., Subject], tmp_path: Path, say: Callable[[str], None]
) -> Callable[[Plan], Copy]:
    """Copy with the workers of each delivery guarantee, and hold them to its promise."""
    delivery, workers = WORKERS[request.param]

    def copy(plan: Plan) -> Copy:
        broker = own_broker(group_initial_rebalance_delay_ms="0")
        made = copy_under_kills(broker, plan, *workers, folder=tmp_path, say=say)
        assert made.toll.broker > 0
        assert made.toll.worker > 0
        check(delivery, made.outcome, most_lost=BATCH * made.toll.crashes)
        return made

    return copy


@pytest.mark.timeout(400)
def test_a_copy_keeps_its_promise(copied: Callable[[Plan], Copy]) -> None:
    copied(FEW)


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_a_copy_of_a_million_keeps_its_promise(copied: Callable[[Plan], Copy]) -> None:
    assert copied(MILLION).toll.killed >= 10
