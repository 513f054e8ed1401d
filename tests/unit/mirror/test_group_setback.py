"""Which committed offsets are set back before a former source is truncated."""

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast
from uuid import UUID

import pytest

from headrace.mirror.group_setback import GroupSetback
from headrace.mirror.reports import SetGroupsBack
from headrace.mirror.source import GroupOffsets
from headrace.model.errors import HeadraceError, MirrorNotReady, NotEnoughReplicas, NotLeader, UnknownMember
from headrace.model.ids import NO_LEADER
from headrace.model.links import Mirror, MirrorState, Parting

TOPIC_ID = UUID(int=1)
PARTINGS = (Parting(0, 40, 90, 90), Parting(1, 10, 10, 10))
MIRROR = Mirror(
    TOPIC_ID, "us", "orders", UUID(int=2), "x", state=MirrorState.REVERSING, reversed_ms=5, partings=PARTINGS
)


class Groups:
    def __init__(self) -> None:
        self.committed: dict[str, dict[tuple[str, int], int]] = {
            "busy": {("orders", 0): 90},
            "idle": {("orders", 0): 90, ("orders", 1): 10, ("other", 0): 90},
            "slow": {("orders", 0): 40},
        }
        self.refusal: HeadraceError | None = None

    def names(self) -> list[str]:
        return list(self.committed)

    async def offsets(self, group: str) -> Mapping[tuple[str, int], int]:
        return self.committed[group]

    async def commit(self, group: str, offsets: GroupOffsets) -> None:
        if group == "busy":
            raise UnknownMember("it has members")
        if self.refusal is not None:
            raise self.refusal
        self.committed[group] |= {place: each.offset for place, each in offsets.items()}


class Shards:
    """The partitions of the offsets topic on this broker."""

    def __init__(self, epoch: int) -> None:
        self.leader_epoch = epoch
        self.is_leading = True

    def get(self, topic: str, index: int) -> "Shards":
        assert (topic, index) == ("__consumer_offsets", 0)
        return self

    def check_leading(self) -> None:
        if not self.is_leading:
            raise NotLeader("another broker leads it")


def made(groups: Groups, mirror: Mirror, *, leader: int = 1, epoch: int = 3) -> tuple[GroupSetback, Shards]:
    """Broker 1 of a cluster, where a broker leads the only partition of the offsets topic."""
    offsets = SimpleNamespace(partitions=(SimpleNamespace(leader=leader, leader_epoch=epoch),))
    orders = SimpleNamespace(name="orders", partitions=(None, None))
    image = SimpleNamespace(
        topics={"__consumer_offsets": offsets},
        topic_by_id={TOPIC_ID: orders}.get,
        mirrors={TOPIC_ID: mirror},
        is_alive=lambda broker_id: broker_id == 1,
    )
    shards, metadata = Shards(3), SimpleNamespace(image=image, broker_id=1)
    return GroupSetback(cast(Any, metadata), groups, cast(Any, shards), cast(Any, object())), shards


def test_offsets_past_the_parting_are_set_back_unless_the_group_has_members() -> None:
    groups = Groups()
    setback, _ = made(groups, MIRROR)
    asyncio.run(setback.everywhere(MIRROR))
    assert groups.committed == {
        "busy": {("orders", 0): 90},
        "idle": {("orders", 0): 40, ("orders", 1): 10, ("other", 0): 90},
        "slow": {("orders", 0): 40},
    }


def test_a_group_that_cannot_be_set_back_now_is_tried_again() -> None:
    groups = Groups()
    groups.refusal = NotEnoughReplicas("one replica is in sync")
    setback, _ = made(groups, MIRROR)
    with pytest.raises(NotEnoughReplicas):
        asyncio.run(setback.everywhere(MIRROR))


def test_no_group_is_missed_while_its_coordinator_moves() -> None:
    groups = Groups()
    for leader in (NO_LEADER, 2):
        setback, _ = made(groups, MIRROR, leader=leader)
        with pytest.raises(MirrorNotReady, match="no broker leads __consumer_offsets-0"):
            asyncio.run(setback.everywhere(MIRROR))
    setback, shards = made(groups, MIRROR, epoch=4)
    with pytest.raises(MirrorNotReady, match="is at the leader epoch 3, not 4"):
        asyncio.run(setback.everywhere(MIRROR))
    shards.is_leading = False
    with pytest.raises(NotLeader):
        asyncio.run(setback.everywhere(MIRROR))
    assert groups.committed == Groups().committed


def test_a_broker_that_does_not_know_the_reversal_yet_refuses() -> None:
    groups = Groups()
    older = replace(MIRROR, state=MirrorState.STOPPED, reversed_ms=4)
    for known in (older, replace(MIRROR, partings=PARTINGS[:1]), replace(MIRROR, partings=())):
        setback, _ = made(groups, known)
        with pytest.raises(MirrorNotReady, match="does not know yet"):
            asyncio.run(setback.serve(SetGroupsBack(TOPIC_ID, 5, {0: 3})))
    assert groups.committed == Groups().committed


def test_a_reversal_that_is_complete_sets_no_group_back() -> None:
    """A call that arrives late: members have read on since."""
    groups = Groups()
    setback, _ = made(groups, replace(MIRROR, state=MirrorState.MIRRORING))
    asyncio.run(setback.serve(SetGroupsBack(TOPIC_ID, 5, {0: 3})))
    assert groups.committed == Groups().committed
