"""The APIs by which members of classic groups come, stay and go, in every version, through the wire format."""

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from .group_harness import DESCRIBE, HEARTBEAT, JOIN, LEAVE, SUBSCRIPTION, SYNC, Groups, started, versions


@versions(JOIN)
def test_join(groups: Groups, version: int) -> None:
    first = groups.join(version)
    if version >= 4:
        told = groups.answer(first)
        assert told.error_code is ErrorCode.member_id_required
        assert told.member_id.startswith("test-")
        first = groups.join(version, told.member_id)
    groups.wait(2_999)
    assert not first.done(), "an empty group waits for more members"
    groups.wait(1)
    joined = groups.answer(first)
    assert (joined.error_code, joined.generation_id, joined.protocol_name) == (ErrorCode.none, 1, "range")
    assert joined.leader == joined.member_id
    assert [(m.member_id, m.metadata) for m in joined.members] == [(joined.member_id, SUBSCRIPTION)]
    if version >= 7:
        assert joined.protocol_type == "consumer"


@versions(SYNC)
def test_followers_wait_for_the_leader(groups: Groups, version: int) -> None:
    tasks = [groups.join(3), groups.join(3)]
    groups.wait(6_000)
    leader, follower = sorted(map(groups.answer, tasks), key=lambda joined: -len(joined.members))
    assert [len(leader.members), len(follower.members)] == [2, 0]
    waiting = groups.sync(version, follower)
    assert not waiting.done()
    mine = groups.answer(groups.sync(version, leader))
    theirs = groups.answer(waiting)
    assert [mine.assignment, theirs.assignment] == [leader.member_id.encode(), follower.member_id.encode()]
    if version >= 5:
        assert (mine.protocol_type, mine.protocol_name) == ("consumer", "range")
        wrong = groups.answer(groups.sync(5, follower, protocol_name="sticky"))
        assert wrong.error_code is ErrorCode.inconsistent_group_protocol
    again = groups.answer(groups.sync(version, follower))
    assert again.assignment == follower.member_id.encode()
    stale = groups.answer(groups.sync(version, follower, generation_id=7))
    assert (stale.error_code, stale.assignment) == (ErrorCode.illegal_generation, b"")


@versions(HEARTBEAT)
def test_heartbeats_keep_a_member_alive(groups: Groups, version: int) -> None:
    joined = groups.stable()
    for _ in range(5):
        groups.wait(9_000)
        assert groups.heartbeat(joined, version) is ErrorCode.none
    assert groups.heartbeat(joined, version, generation_id=9) is ErrorCode.illegal_generation
    assert groups.heartbeat(joined, version, member_id="who") is ErrorCode.unknown_member_id
    assert groups.heartbeat(joined, version, group_id="none") is ErrorCode.unknown_member_id
    assert groups.heartbeat(joined, version, group_id="") is ErrorCode.invalid_group_id
    groups.wait(10_000)
    assert groups.heartbeat(joined, version) is ErrorCode.unknown_member_id


@versions(LEAVE)
def test_leave(groups: Groups, version: int) -> None:
    joined = groups.stable()
    who = {"member_id": joined.member_id, "group_instance_id": None, "reason": "done"}

    def leave(*members: Any) -> list[ErrorCode]:
        answer = groups.call(LEAVE, version, group_id="g", members=list(members), **members[0])
        if version < 3:
            return [answer.error_code]
        assert answer.error_code is ErrorCode.none
        return [member.error_code for member in answer.members]

    unknown = {"member_id": "who", "group_instance_id": None, "reason": None}
    assert leave(unknown) == [ErrorCode.unknown_member_id]
    assert leave(who, unknown) == [ErrorCode.none, ErrorCode.unknown_member_id][: 2 if version >= 3 else 1]
    assert leave(who) == [ErrorCode.unknown_member_id]
    assert groups.call(DESCRIBE, 6, groups=["g"], include_authorized_operations=False).groups[0].group_state == "Empty"
    answer = groups.call(LEAVE, version, group_id="none", members=[who], **who)
    code = answer.members[0].error_code if version >= 3 else answer.error_code
    assert code is ErrorCode.unknown_member_id


def test_members_vote_for_a_protocol(groups: Groups) -> None:
    votes = (["a", "b", "c"], ["c", "b"], ["b", "c"], ["b", "a", "c"])
    tasks = [groups.join(3, protocols=[{"name": name, "metadata": name.encode()} for name in names]) for names in votes]
    groups.wait(6_000)
    joined = [groups.answer(task) for task in tasks]
    assert {one.protocol_name for one in joined} == {"b"}
    (leader,) = (one for one in joined if one.members)
    assert {member.metadata for member in leader.members} == {b"b"}
    other = groups.answer(groups.join(3, protocols=[{"name": "z", "metadata": b""}]))
    assert other.error_code is ErrorCode.inconsistent_group_protocol
    other = groups.answer(groups.join(3, protocol_type="connect"))
    assert other.error_code is ErrorCode.inconsistent_group_protocol


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"session_timeout": timedelta(seconds=5.9)}, ErrorCode.invalid_session_timeout),
        ({"session_timeout": timedelta(minutes=31)}, ErrorCode.invalid_session_timeout),
        ({"group_id": ""}, ErrorCode.invalid_group_id),
        ({"protocols": []}, ErrorCode.inconsistent_group_protocol),
        ({"protocol_type": ""}, ErrorCode.inconsistent_group_protocol),
        ({"member_id": "who"}, ErrorCode.unknown_member_id),
    ],
)
@versions(JOIN)
def test_joins_that_are_refused(groups: Groups, version: int, fields: dict[str, Any], error: ErrorCode) -> None:
    answer = groups.answer(groups.join(version, **fields))
    assert (answer.error_code, answer.generation_id) == (error, -1)
    assert answer.member_id == fields.get("member_id", "")


def test_a_full_group_takes_nobody_else(tmp_path: Path) -> None:
    with started(tmp_path, group_max_size="2", group_initial_rebalance_delay_ms="0") as groups:
        groups.answer(groups.join(3))
        second = groups.join(3)
        third = groups.join(3)
        groups.wait(10_001)
        codes = {groups.answer(task).error_code for task in (second, third)}
        assert codes == {ErrorCode.none}, "the one that did not come back made room"
        full = groups.answer(groups.join(3))
        assert (full.error_code, full.member_id) == (ErrorCode.group_max_size_reached, "")


def test_a_member_that_does_not_come_back_is_left_out(groups: Groups) -> None:
    first = groups.stable()
    second = groups.join(3)
    assert groups.heartbeat(first) is ErrorCode.rebalance_in_progress
    groups.wait(9_000)
    groups.heartbeat(first)
    assert not second.done()
    groups.wait(11_000)
    joined = groups.answer(second)
    assert (joined.generation_id, joined.leader) == (2, joined.member_id)
    assert groups.heartbeat(first) is ErrorCode.unknown_member_id


def test_one_who_does_not_sync_is_left_out(groups: Groups) -> None:
    joined = groups.member()
    for _ in range(3):
        groups.wait(6_000)
        assert groups.heartbeat(joined) is ErrorCode.none
    groups.wait(6_000)
    assert groups.heartbeat(joined) is ErrorCode.unknown_member_id


def test_a_client_that_is_gone_or_a_broker_that_stops_ends_the_wait(groups: Groups) -> None:
    wants = groups.join(3)
    assert not wants.done()
    assert groups.harness.hurried() == 1
    assert groups.answer(wants).error_code is ErrorCode.coordinator_not_available
