"""Groups listed, described, deleted and found again after a restart, through the wire format."""

from kio.schema.errors import ErrorCode

from headrace.coordinator.shard import ShardState

from .group_harness import DELETE, DESCRIBE, LEAVE, LIST, SUBSCRIPTION, Groups, versions


@versions(DESCRIBE)
def test_describe(groups: Groups, version: int) -> None:
    joined = groups.stable(group_instance_id="i1")
    asked = {"include_authorized_operations": True}
    described, dead = groups.call(DESCRIBE, version, groups=["g", "none"], **asked).groups
    assert (described.group_state, described.protocol_type, described.protocol_data) == ("Stable", "consumer", "range")
    (member,) = described.members
    assert (member.member_id, member.client_id, member.client_host) == (joined.member_id, "test", "/10.1.2.3")
    assert (member.member_metadata, member.member_assignment) == (SUBSCRIPTION, joined.member_id.encode())
    assert dead.group_state == "Dead"
    assert dead.error_code is (ErrorCode.group_id_not_found if version >= 6 else ErrorCode.none)
    if version >= 3:
        assert described.authorized_operations > 0
    if version >= 4:
        assert member.group_instance_id == "i1"


@versions(LIST)
def test_list(groups: Groups, version: int) -> None:
    groups.stable()
    assert groups.commit(9, 5, group_id="simple") is ErrorCode.none

    def listed(states: tuple[str, ...] = (), types: tuple[str, ...] = ()) -> list[str]:
        answer = groups.call(LIST, version, states_filter=states, types_filter=types)
        assert answer.error_code is ErrorCode.none
        if version >= 5:
            assert {group.group_type for group in answer.groups} <= {"classic"}
        return sorted(group.group_id for group in answer.groups)

    assert listed() == ["g", "simple"]
    if version >= 4:
        assert listed(("stable",)) == ["g"]
        assert listed(("Empty", "Dead")) == ["simple"]
    if version >= 5:
        assert listed(types=("Classic",)) == ["g", "simple"]
        assert listed(types=("consumer",)) == []


@versions(DELETE)
def test_delete(groups: Groups, version: int) -> None:
    joined = groups.stable()
    assert groups.commit(9, 5, member=joined) is ErrorCode.none

    def delete(*names: str) -> list[ErrorCode]:
        return [one.error_code for one in groups.call(DELETE, version, groups_names=names).results]

    assert delete("g", "none") == [ErrorCode.non_empty_group, ErrorCode.group_id_not_found]
    groups.call(LEAVE, 0, group_id="g", member_id=joined.member_id)
    assert delete("g") == [ErrorCode.none]
    assert delete("g") == [ErrorCode.group_id_not_found]
    groups.load()
    assert groups.call(LIST, 0).groups == ()
    assert groups.offset() == -1


def test_a_restart_finds_members_assignments_generation_and_offsets(groups: Groups) -> None:
    joined = groups.stable()
    assert groups.commit(9, 5, member=joined) is ErrorCode.none
    groups.load()
    assert groups.heartbeat(joined) is ErrorCode.none
    assert groups.answer(groups.sync(5, joined)).assignment == joined.member_id.encode()
    assert groups.commit(9, 6, member=joined) is ErrorCode.none
    assert groups.offset() == 6
    groups.wait(10_000)
    assert groups.heartbeat(joined) is ErrorCode.unknown_member_id, "its session began anew with the restart"


def test_a_coordinator_that_loads_says_so(groups: Groups) -> None:
    joined = groups.stable()
    groups.shard.state = ShardState.LOADING
    loading = ErrorCode.coordinator_load_in_progress
    assert groups.heartbeat(joined) is loading
    assert groups.commit(9, member=joined) is loading
    assert groups.answer(groups.join(9, joined.member_id)).error_code is loading
    assert groups.answer(groups.sync(5, joined)).error_code is loading
    assert groups.fetch(10).error_code is loading
    assert groups.fetch(1).topics[0].partitions[0].error_code is loading
    assert groups.call(LIST, 5, states_filter=(), types_filter=()).error_code is loading
    described = groups.call(DESCRIBE, 6, groups=["g"], include_authorized_operations=False).groups[0]
    assert described.error_code is loading
    assert groups.call(DELETE, 2, groups_names=("g",)).results[0].error_code is loading
    member = {"member_id": joined.member_id, "group_instance_id": None, "reason": None}
    assert groups.call(LEAVE, 5, group_id="g", members=[member]).error_code is loading
