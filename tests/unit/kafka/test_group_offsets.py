"""The APIs of committed offsets in every version, through the wire format."""

from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest
from kio.schema.errors import ErrorCode

from headrace.groups.records import OffsetKey, OffsetValue
from headrace.protocol.codec import make

from .group_harness import COMMIT, FETCH, LEAVE, LIST, OFFSET_DELETE, Groups, versions


@versions(COMMIT)
def test_commit(groups: Groups, version: int) -> None:
    joined = groups.stable()
    assert groups.commit(version, 5, member=joined) is ErrorCode.none
    assert groups.commit(version, 6) is ErrorCode.unknown_member_id, "a stranger, while there are members"
    stale: Any = make(type(joined), **{**vars_of(joined), "generation_id": 9})
    assert groups.commit(version, 6, member=stale) is ErrorCode.illegal_generation
    assert groups.commit(version, 6, member=joined, partition=2) is ErrorCode.unknown_topic_or_partition
    assert (
        groups.commit(version, 6, member=joined, committed_metadata="x" * 4097) is ErrorCode.offset_metadata_too_large
    )
    assert groups.offset() == 5
    other = groups.join(3)
    assert not other.done()
    assert groups.commit(version, 7, member=joined) is ErrorCode.none, "before it joins again"
    assert groups.offset() == 7


def vars_of(entity: Any) -> dict[str, Any]:
    return {name: getattr(entity, name) for name in entity.__dataclass_fields__}


@versions(COMMIT)
def test_commit_without_a_group(groups: Groups, version: int) -> None:
    assert groups.commit(version, 11, group_id="simple") is ErrorCode.none
    assert groups.offset(group="simple") == 11
    assert groups.commit(version, 1, group_id="none", generation_id_or_member_epoch=3) is ErrorCode.illegal_generation
    topic = {"name": "nope", "topic_id": UUID(int=5), "partitions": [{"partition_index": 0, "committed_offset": 1,
             "committed_leader_epoch": -1, "committed_metadata": None}]}  # fmt: skip
    expected = ErrorCode.unknown_topic_id if version >= 10 else ErrorCode.unknown_topic_or_partition
    assert groups.commit(version, topics=[topic]) is expected


@versions(FETCH)
def test_fetch(groups: Groups, version: int) -> None:
    assert groups.commit(9, 5) is ErrorCode.none
    answer = groups.fetch(version)
    found, none = answer.topics[0].partitions
    assert (found.committed_offset, found.metadata, found.error_code) == (5, "m", ErrorCode.none)
    assert (none.committed_offset, none.metadata, none.error_code) == (-1, "", ErrorCode.none)
    if version >= 5:
        assert (found.committed_leader_epoch, none.committed_leader_epoch) == (3, -1)
    if version >= 2:
        everything = groups.fetch(version, topics=None)
        assert [part.partition_index for part in everything.topics[0].partitions] == [0]
        assert groups.fetch(version, "nobody", topics=None).topics == ()
    if version >= 10:
        unknown = groups.fetch(version, topics=[{"topic_id": UUID(int=5), "partition_indexes": [0]}])
        assert unknown.topics[0].partitions[0].error_code is ErrorCode.unknown_topic_id
    if version >= 8:
        both = groups.call(
            FETCH, version, require_stable=False,
            groups=[{"group_id": name, "member_id": None, "member_epoch": -1, "topics": None} for name in ("g", "h")],
        )  # fmt: skip
        assert [(group.group_id, len(group.topics)) for group in both.groups] == [("g", 1), ("h", 0)]


@pytest.mark.parametrize("committed", [True, False])
def test_offsets_of_a_transaction_count_when_it_commits(groups: Groups, committed: bool) -> None:
    assert groups.commit(9, 5) is ErrorCode.none
    machine = groups.shard.machine
    machine.apply((OffsetKey("g", "topic", 0), OffsetValue(9, -1, "", 0)), 77)
    for version in (7, 8, 9, 10):
        unstable, other = groups.fetch(version, require_stable=True).topics[0].partitions
        assert (unstable.error_code, unstable.committed_offset) == (ErrorCode.unstable_offset_commit, -1)
        assert other.error_code is ErrorCode.none
    assert groups.offset() == 5, "whoever does not ask for stable ones gets the last committed"
    machine.replay_end(77, committed=committed)
    assert groups.fetch(10, require_stable=True).topics[0].partitions[0].committed_offset == (9 if committed else 5)


def test_delete_offsets(groups: Groups) -> None:
    assert groups.commit(9, 5, partition=1) is ErrorCode.none
    joined = groups.stable()

    def delete(group: str = "g") -> Any:
        topics = [{"name": name, "partitions": [{"partition_index": 1}]} for name in ("topic", "nope")]
        return groups.call(OFFSET_DELETE, 0, group_id=group, topics=topics)

    assert delete("none").error_code is ErrorCode.group_id_not_found
    assert delete().topics[0].partitions[0].error_code is ErrorCode.group_subscribed_to_topic
    groups.call(LEAVE, 0, group_id="g", member_id=joined.member_id)
    codes = [topic.partitions[0].error_code for topic in delete().topics]
    assert codes == [ErrorCode.none, ErrorCode.unknown_topic_or_partition]
    assert groups.fetch(10, topics=None).topics == ()


def test_offsets_and_groups_expire(groups: Groups) -> None:
    week_ms = 7 * 24 * 3600 * 1000
    joined = groups.stable()
    assert groups.commit(9, 5, member=joined) is ErrorCode.none
    groups.clock.advance(2 * week_ms)
    assert groups.heartbeat(joined) is ErrorCode.none
    groups.wait(0)
    assert groups.offset() == 5, "in use"
    groups.call(LEAVE, 0, group_id="g", member_id=joined.member_id)
    groups.wait(week_ms - 600_000)
    assert groups.offset() == 5
    groups.wait(2 * 600_000)
    assert groups.offset() == -1
    assert groups.call(LIST, 0).groups == ()
    assert groups.commit(2, 5, group_id="short", retention_time=timedelta(hours=1)) is ErrorCode.none
    groups.wait(3600_000 - 600_000)
    assert groups.offset(group="short") == 5
    groups.wait(2 * 600_000)
    assert groups.offset(group="short") == -1


def test_offsets_go_with_their_topic(groups: Groups) -> None:
    assert groups.commit(9, 5) is ErrorCode.none
    groups.harness.run(groups.harness.metadata.delete_topic("topic"))
    groups.topic_id = groups.harness.create("topic", 2)
    assert groups.offset() == -1
