"""What the controller decides for one partition, case by case. The properties are in tests/property/cluster."""

from dataclasses import replace

import pytest

from headrace.cluster.controller import reconciled
from headrace.model.features import FIRST_LEVEL
from headrace.model.ids import NO_LEADER, BrokerId, LeaderEpoch
from headrace.model.image import BrokerInfo, BrokerState, ClusterImage, Endpoint, PartitionState

ACTIVE, STARTING, STOPPING, DEAD, BLANK, OLD = "active", "starting", "stopping", "dead", "blank", "old"
NONE = int(NO_LEADER)


def image_with(*states: str) -> ClusterImage:
    """Brokers 1, 2 … in these states."""
    brokers = {}
    for number, name in enumerate(states, 1):
        info = BrokerInfo(BrokerId(number), Endpoint("host", 1), is_alive=name != DEAD, data_dir="now")
        if name == BLANK:
            info = replace(info, state=BrokerState.STARTING, former_data_dir="before")
        elif name == OLD:
            info = replace(info, state=BrokerState.STARTING, max_level=FIRST_LEVEL)
        elif name != DEAD:
            info = replace(info, state=BrokerState(name))
        brokers[info.broker_id] = info
    return ClusterImage("cluster", NO_LEADER, brokers, {}, {}, {}, 1)


@pytest.mark.parametrize(
    ("states", "leader", "isr", "new_leader", "new_isr"),
    [
        # The leader dies: the first replica that is in sync takes over.
        ((DEAD, ACTIVE, ACTIVE), 1, (1, 2, 3), 2, (2, 3)),
        ((DEAD, ACTIVE, ACTIVE), 1, (1, 3), 3, (3,)),
        # Nobody who is not in sync is elected, and the last one in sync stays.
        ((DEAD, ACTIVE, ACTIVE), 1, (1,), NONE, (1,)),
        ((DEAD, DEAD, ACTIVE), 1, (1, 2), NONE, (1, 2)),
        # A follower dies.
        ((ACTIVE, DEAD, ACTIVE), 1, (1, 2, 3), 1, (1, 3)),
        # One that was restarted leaves, unless it is the best there is.
        ((ACTIVE, STARTING, ACTIVE), 1, (1, 2, 3), 1, (1, 3)),
        ((STARTING, ACTIVE, DEAD), 1, (1, 2), 2, (2,)),
        ((DEAD, STARTING, ACTIVE), NONE, (1, 2), 2, (2,)),
        # One that stops hands over, and leaves.
        ((STOPPING, ACTIVE, ACTIVE), 1, (1, 2, 3), 2, (2, 3)),
        ((ACTIVE, STOPPING, ACTIVE), 1, (1, 2, 3), 1, (1, 3)),
        # If nobody can take over, it goes on, and whoever is dead may still lead after it.
        ((STOPPING, DEAD, ACTIVE), 1, (1, 2), 1, (1, 2)),
        ((STOPPING, STARTING, ACTIVE), 1, (1, 2), 1, (1,)),
        # One that stops is not elected.
        ((DEAD, STOPPING, ACTIVE), 1, (1, 2), NONE, (1, 2)),
        # One without its data counts for nothing where another may have it.
        ((DEAD, BLANK, ACTIVE), 1, (1, 2), NONE, (1,)),
        ((DEAD, BLANK, ACTIVE), 2, (2,), NONE, (2,)),
        # One that does not know the feature level is not elected, and its copy is kept.
        ((DEAD, OLD, ACTIVE), 2, (2,), NONE, (2,)),
        ((ACTIVE, OLD, ACTIVE), 1, (1, 2, 3), 1, (1, 3)),
    ],
)
def test_who_leads_and_who_is_in_sync(
    states: tuple[str, ...], leader: int, isr: tuple[int, ...], new_leader: int, new_isr: tuple[int, ...]
) -> None:
    before = PartitionState(
        BrokerId(leader), LeaderEpoch(5), tuple(map(BrokerId, isr)), (BrokerId(1), BrokerId(2), BrokerId(3)), 7
    )
    after = reconciled(image_with(*states), before)
    assert (after.leader, after.isr) == (new_leader, new_isr)
    assert after.leader_epoch == (5 if new_leader == leader else 6)
    assert after.partition_epoch == (7 if after == before else 8)


def test_a_restarted_leader_that_nobody_can_replace_leads_with_a_new_epoch() -> None:
    before = PartitionState(BrokerId(1), LeaderEpoch(5), (BrokerId(1),), (BrokerId(1), BrokerId(2)), 7)
    after = reconciled(image_with(STARTING, ACTIVE), before)
    assert (after.leader, after.leader_epoch, after.isr) == (1, 6, (1,))
