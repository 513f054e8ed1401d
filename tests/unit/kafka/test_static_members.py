"""Members with an instance id, through the wire format: whoever comes with it takes the place."""

from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from .group_harness import LEAVE, SUBSCRIPTION, Groups


def test_a_static_member_that_restarts_keeps_its_place(groups: Groups) -> None:
    old = groups.stable(group_instance_id="i1")
    joining = groups.join(9, group_instance_id="i1")
    new = groups.answer(joining)
    assert (new.error_code, new.generation_id, new.skip_assignment) == (ErrorCode.none, old.generation_id, True)
    assert new.member_id != old.member_id
    assert new.leader == new.member_id
    assert [member.group_instance_id for member in new.members] == ["i1"]
    synced = groups.answer(groups.sync(5, new, group_instance_id="i1", assignments=[]))
    assert synced.assignment == old.member_id.encode(), "the assignment stands"
    fenced = ErrorCode.fenced_instance_id
    assert groups.heartbeat(old, group_instance_id="i1") is fenced
    assert groups.commit(9, member=old, group_instance_id="i1") is fenced
    assert groups.answer(groups.join(9, old.member_id, group_instance_id="i1")).error_code is fenced
    assert groups.answer(groups.sync(5, old, group_instance_id="i1")).error_code is fenced
    assert groups.commit(9, member=new, group_instance_id="i1") is ErrorCode.none
    groups.load()
    assert groups.heartbeat(new, group_instance_id="i1") is ErrorCode.none
    assert groups.heartbeat(old, group_instance_id="i1") is fenced


def test_before_v9_a_leader_that_restarts_is_told_that_another_one_leads(groups: Groups) -> None:
    old = groups.stable(group_instance_id="i1")
    new = groups.answer(groups.join(5, group_instance_id="i1"))
    assert (new.leader, new.members, new.generation_id) == (old.member_id, (), old.generation_id)


def test_a_static_member_replaced_during_a_rebalance_stays_replaced_over_a_restart(groups: Groups) -> None:
    old = groups.stable(group_instance_id="i1")
    other = groups.join(3)
    assert not other.done()
    new = groups.join(9, group_instance_id="i1")
    assert groups.answer(new).error_code is ErrorCode.none
    groups.load()
    assert groups.heartbeat(old, group_instance_id="i1") is ErrorCode.fenced_instance_id
    assert groups.commit(9, member=old, group_instance_id="i1") is ErrorCode.fenced_instance_id
    again = groups.join(9, groups.answer(new).member_id, group_instance_id="i1")
    assert groups.answer(again).error_code is ErrorCode.none


def reading(*partitions: int) -> dict[str, Any]:
    """The subscription of a cooperative member that reads these partitions."""
    owned = b"\x00\x00\x00\x01" + b"\x00\x05topic" + indexes(partitions) if partitions else b"\x00\x00\x00\x00"
    return {"protocols": [{"name": "range", "metadata": SUBSCRIPTION + owned}]}


def indexes(partitions: tuple[int, ...]) -> bytes:
    return b"".join(number.to_bytes(4, "big") for number in (len(partitions), *partitions))


def assigned(member_id: str, *partitions: int) -> dict[str, Any]:
    told = b"\x00\x00\x00\x00\x00\x01" + b"\x00\x05topic" + indexes(partitions) + b"\xff\xff\xff\xff"
    return {"member_id": member_id, "assignment": told}


@pytest.mark.parametrize("is_broker_restarted", [False, True])
@pytest.mark.parametrize("had", [(0, 1), (0,)], ids=["two", "one"])
def test_a_static_member_that_dies_while_it_gives_up_a_partition_joins_again_in_its_place(
    had: tuple[int, ...], is_broker_restarted: bool, groups: Groups
) -> None:
    """It had both partitions and was left one: the other goes to the newcomer once all have joined again."""
    first = groups.stable(group_instance_id="i1")
    newcomer = groups.join(9, group_instance_id="i2")
    leader = groups.answer(groups.join(9, first.member_id, group_instance_id="i1", **reading(*had)))
    joined = groups.answer(newcomer)
    shares = [assigned(leader.member_id, 0), assigned(joined.member_id)]
    for member, name, told in ((leader, "i1", shares), (joined, "i2", [])):
        synced = groups.answer(groups.sync(5, member, group_instance_id=name, assignments=told))
        assert synced.error_code is ErrorCode.none
    if is_broker_restarted:
        groups.load()
    successor = groups.join(9, group_instance_id="i1", **reading())
    if had == (0,):
        assert groups.answer(successor).generation_id == leader.generation_id, "nothing is owed: all goes on"
        assert groups.heartbeat(joined, group_instance_id="i2") is ErrorCode.none
        return
    assert not successor.done()
    assert groups.heartbeat(joined, group_instance_id="i2") is ErrorCode.rebalance_in_progress
    again = groups.join(9, joined.member_id, group_instance_id="i2", **reading())
    assert groups.answer(successor).generation_id == leader.generation_id + 1
    assert groups.answer(again).error_code is ErrorCode.none
    assert groups.heartbeat(leader, group_instance_id="i1") is ErrorCode.fenced_instance_id


def test_an_operator_removes_a_static_member_by_its_instance_id(groups: Groups) -> None:
    joined = groups.stable(group_instance_id="i1")
    leaving = [{"member_id": "", "group_instance_id": name, "reason": None} for name in ("i1", "i2")]
    answer = groups.call(LEAVE, 5, group_id="g", members=leaving)
    assert [one.error_code for one in answer.members] == [ErrorCode.none, ErrorCode.unknown_member_id]
    assert groups.heartbeat(joined, group_instance_id="i1") is ErrorCode.unknown_member_id


def test_an_id_that_was_given_to_a_dynamic_member_does_not_take_the_place_of_a_static_one(groups: Groups) -> None:
    old = groups.stable(group_instance_id="i1")
    given = groups.answer(groups.join(9))
    assert given.error_code is ErrorCode.member_id_required
    stolen = groups.answer(groups.join(9, given.member_id, group_instance_id="i1"))
    assert stolen.error_code is ErrorCode.fenced_instance_id
    assert groups.commit(9, member=old, group_instance_id="i1") is ErrorCode.none
