"""A group that changes its protocol while it has no members, and what a restart then finds."""

from typing import Any

import pytest
from tests.unit.groups.logged import LoggedGroups

from headrace.coordinator.result import Result
from headrace.groups.classic import ClassicGroup
from headrace.groups.consumer import ConsumerGroup, Heartbeat
from headrace.groups.group import JOIN, LEAVE, GroupLimits, Now
from headrace.groups.offsets import Committer, OffsetCommit
from headrace.model.errors import GroupNotEmpty, GroupNotFound, UnknownMember, UnsupportedAssignor
from headrace.model.ids import BrokerId
from headrace.model.image import ClusterImage
from headrace.runtime.deferred import Deferred

LIMITS = GroupLimits()
NOW = Now(0.0, 0)
IMAGE = ClusterImage("c", BrokerId(0), {}, {}, {}, {}, 1)


class World(LoggedGroups):
    def __init__(self) -> None:
        super().__init__(LIMITS)

    def heartbeat(self, beat: Heartbeat) -> None:
        waiter: Deferred[Result[Any]] = Deferred()
        self.apply(self.machine.consumer_heartbeat("g", beat, IMAGE, waiter, NOW))

    def join(self, member_id: str = "m") -> None:
        self.heartbeat(Heartbeat(member_id, JOIN, rebalance_timeout_ms=1, topics=("t",), owned=frozenset()))


def test_a_classic_group_without_members_becomes_a_consumer_group_and_keeps_its_offsets() -> None:
    world = World()
    world.write(world.machine.commit("g", Committer(), [OffsetCommit("t", 0, 7)], NOW).records)
    assert isinstance(world.machine.group("g"), ClassicGroup)
    world.join()
    for machine in (world.machine, world.restarted()):
        group = machine.of_kind("g", ConsumerGroup)
        assert [member.member_id for member in group.members] == ["m"]
        found = machine.offsets.get("g", "t", 0)
        assert found is not None
        assert found.offset == 7
        with pytest.raises(GroupNotFound):
            machine.of_kind("g", ClassicGroup)
        with pytest.raises(UnknownMember):
            machine.check_commit("g", Committer(), NOW)


def test_a_join_that_is_refused_leaves_a_classic_group_what_it_is() -> None:
    world = World()
    world.write(world.machine.commit("g", Committer(), [OffsetCommit("t", 0, 7)], NOW).records)
    with pytest.raises(GroupNotFound):
        world.heartbeat(Heartbeat("m", 3))
    with pytest.raises(UnsupportedAssignor):
        world.heartbeat(Heartbeat("m", JOIN, rebalance_timeout_ms=1, topics=("t",), owned=frozenset(), assignor="best"))
    assert isinstance(world.machine.group("g"), ClassicGroup)


def test_a_consumer_group_that_is_empty_becomes_classic_when_a_classic_member_joins() -> None:
    world = World()
    world.join()
    assert isinstance(world.machine.for_join("g", "", NOW), ConsumerGroup)
    world.heartbeat(Heartbeat("m", LEAVE))
    assert isinstance(world.machine.group("g"), ConsumerGroup)
    assert isinstance(world.machine.for_join("g", "", NOW), ClassicGroup)


def test_a_consumer_group_is_deleted_when_it_is_empty_only_and_stays_deleted() -> None:
    world = World()
    world.join()
    with pytest.raises(GroupNotEmpty):
        world.machine.delete_group("g")
    world.heartbeat(Heartbeat("m", LEAVE))
    world.write(world.machine.delete_group("g").records)
    for machine in (world.machine, world.restarted()):
        assert not machine.groups


def test_a_consumer_group_without_members_and_offsets_is_forgotten() -> None:
    world = World()
    world.join()
    world.write(world.machine.expire_offsets(10**15).records)
    assert "g" in world.machine.groups
    world.heartbeat(Heartbeat("m", LEAVE))
    world.write(world.machine.expire_offsets(10**15).records)
    assert not world.machine.groups


def test_offsets_that_a_member_may_need_do_not_expire() -> None:
    world = World()
    world.join()
    epoch = next(iter(world.machine.of_kind("g", ConsumerGroup).members)).epoch
    commits = [OffsetCommit("t", 0, 7), OffsetCommit("other", 0, 7)]
    world.write(world.machine.commit("g", Committer("m", None, epoch), commits, NOW).records)
    world.write(world.machine.expire_offsets(LIMITS.offsets_retention_ms + 1).records)
    assert world.machine.offsets.get("g", "t", 0) is not None
    assert world.machine.offsets.get("g", "other", 0) is None
