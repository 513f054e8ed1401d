"""Offsets of streams groups: which members may commit and fetch them."""

import pytest
from tests.unit.groups.streams_world import World, active

from headrace.groups.group import LEAVE
from headrace.groups.streams import StreamsGroup
from headrace.model.errors import (
    IllegalGeneration,
    StaleMemberEpoch,
    UnknownMember,
)


def test_only_members_commit() -> None:
    world = World()
    world.join("a")
    world.commit("a", 2)
    for epoch in (1, 3):
        with pytest.raises(StaleMemberEpoch):
            world.commit("a", epoch)
        with pytest.raises(IllegalGeneration):
            world.commit("a", epoch, transactional=True)
    for member_id, epoch in (("b", 2), ("", -1)):
        with pytest.raises(UnknownMember):
            world.commit(member_id, epoch)
    world.commit("", -1, transactional=True)
    world.beat("a", LEAVE)
    world.commit("", -1)


def test_a_commit_of_an_earlier_epoch_counts_for_what_the_member_has_had_since() -> None:
    world = World(lines=3)
    world.join("a")
    world.join("b")
    world.beat("a", 2)
    world.beat("a", 2, owned=active(0, 1))
    assert world.beat("b", 3).tasks == active(2)
    world.machine = world.restarted()
    world.commit("a", 2, 0, 1, transactional=True)
    world.commit("a", 3, 2)
    for partitions in ((2,), (0, 2)):
        with pytest.raises(IllegalGeneration):
            world.commit("a", 2, *partitions, transactional=True)
    world.beat("b", LEAVE)
    assert world.beat("a", 3).tasks == active(0, 1, 2)
    world.commit("a", 3, 0, 1)
    with pytest.raises(StaleMemberEpoch):
        world.commit("a", 3, 2)
    world.commit("a", world.members()["a"][0], 2)


def test_a_commit_from_before_a_member_joined_again_does_not_count() -> None:
    world = World()
    world.join("a")
    world.join("b")
    told = world.join("a")
    assert (told.epoch, told.tasks) == (3, active(0))
    world.commit("a", 3, 0, transactional=True)
    with pytest.raises(IllegalGeneration):
        world.commit("a", 2, 0, transactional=True)
    world.beat("a", LEAVE)
    world.beat("b", 3)
    epoch = world.join("a").epoch
    for earlier in range(1, epoch):
        with pytest.raises(IllegalGeneration):
            world.commit("a", earlier, 0, transactional=True)


def test_only_members_at_their_epoch_fetch_offsets() -> None:
    world = World()
    world.join("a")
    group = world.machine.of_kind("g", StreamsGroup)
    group.check_fetch(None, -1)
    group.check_fetch("a", 2)
    with pytest.raises(StaleMemberEpoch):
        group.check_fetch("a", 1)
    with pytest.raises(UnknownMember):
        group.check_fetch("b", 2)
