"""Groups to the letter: a member of every version, and which refusal is told how. Holds for Apache Kafka, too."""

import uuid
from collections.abc import Iterator
from typing import Any

import pytest

from tests.waiting import until

from . import batches, raw_client, subject
from .classic_members import SUBSCRIPTION, Member
from .fixtures import running
from .raw_client import Error
from .subject import Subject

VERSIONS = range(10)
"""Of JoinGroup; the other APIs of membership have fewer, and are asked at the closest one."""


class Group:
    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap
        self.name = f"g-{uuid.uuid4().hex[:8]}"
        self.members: list[Member] = []

    def member(self, version: int = 9, instance_id: str | None = None) -> Member:
        self.members.append(Member(self.bootstrap, self.name, version, instance_id))
        return self.members[-1]

    def describe(self) -> Any:
        return self.members[0].connection.call(raw_client.DESCRIBE_GROUPS, 5, groups=[self.name]).groups[0]

    def await_members(self, count: int) -> None:
        """Wait until the joins of so many are at the broker: one that comes later would need all to join again."""
        until(lambda: len(self.describe().members) == count, "members")


@pytest.fixture(scope="module")
def quick_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Subject]:
    one = subject.make(
        tmp_path_factory.mktemp("groups"),
        {"group.initial.rebalance.delay.ms": "0", "group.min.session.timeout.ms": "100", "group.max.size": "5"},
    )
    with running(one):
        with raw_client.Connection(one.bootstrap) as connection:
            raw_client.create_topic(one.bootstrap, "t", 1)
            raw_client.until_coordinated(connection)
        yield one


@pytest.fixture
def group(quick_broker: Subject) -> Iterator[Group]:
    one = Group(quick_broker.bootstrap)
    yield one
    for member in one.members:
        member.connection.close()


@pytest.mark.parametrize("version", VERSIONS)
def test_the_life_of_a_member(group: Group, version: int) -> None:
    one = group.member(version)
    joined = one.join()
    assert (joined.error_code, joined.generation_id, joined.leader) == (Error.none, 1, one.member_id)
    assert one.commit("t", 1) is Error.rebalance_in_progress, "nobody has been assigned anything yet"
    synced = one.sync()
    assert (synced.error_code, synced.assignment) == (Error.none, one.member_id.encode())
    assert one.heartbeat() is Error.none
    assert one.commit("t", 1) is Error.none
    other = group.member(version)
    other.send_join()
    if version >= 4:
        assert other.receive_join().error_code is Error.member_id_required
        other.send_join()
    while one.heartbeat() is Error.none:
        pass
    assert one.heartbeat() is Error.rebalance_in_progress
    assert one.commit("t", 2) is Error.none
    assert one.join().error_code is Error.none
    assert other.receive_join().error_code is Error.none
    assert (one.generation, other.generation, one.leader, len(one.members)) == (2, 2, one.member_id, 2)
    assert one.sync().error_code is Error.none
    assert other.sync().assignment == other.member_id.encode()
    assert group.describe().group_state == "Stable"
    assert one.leave() is Error.none
    assert one.heartbeat() is Error.unknown_member_id
    assert other.heartbeat() is Error.rebalance_in_progress
    assert other.join().error_code is Error.none
    assert (other.generation, other.leader) == (3, other.member_id)
    assert other.leave() is Error.none
    assert group.describe().group_state == "Empty"


def test_what_is_refused(group: Group) -> None:
    one = group.member()
    assert one.join(session_timeout=50).error_code is Error.invalid_session_timeout
    assert one.join(session_timeout=1_800_001).error_code is Error.invalid_session_timeout
    assert one.join(protocols=[]).error_code is Error.inconsistent_group_protocol
    assert one.join(protocol_type="").error_code is Error.inconsistent_group_protocol
    assert one.join(group_id="").error_code is Error.invalid_group_id
    assert one.join(member_id="who").error_code is Error.unknown_member_id
    assert one.sync(member_id="who").error_code is Error.unknown_member_id
    assert one.join().error_code is Error.none
    assert one.sync(generation_id=5).error_code is Error.illegal_generation
    assert one.sync(protocol_name="sticky").error_code is Error.inconsistent_group_protocol
    assert one.sync(protocol_type="connect").error_code is Error.inconsistent_group_protocol
    assert one.sync().error_code is Error.none
    assert one.heartbeat(generation_id=5) is Error.illegal_generation
    assert one.heartbeat(member_id="who") is Error.unknown_member_id
    assert one.heartbeat(group_id="") is Error.invalid_group_id
    assert one.heartbeat(group_instance_id="who") is Error.unknown_member_id
    assert one.commit("t", 1, generation_id_or_member_epoch=5) is Error.illegal_generation
    assert one.commit("t", 1, member_id="who") is Error.unknown_member_id
    assert one.commit("t", 1, generation_id_or_member_epoch=-1, member_id="") is Error.unknown_member_id
    assert one.commit("nope", 1) is Error.unknown_topic_or_partition
    stranger = group.member()
    assert stranger.join(protocol_type="connect").error_code is Error.inconsistent_group_protocol
    assert stranger.join(protocols=[{"name": "z", "metadata": b""}]).error_code is Error.inconsistent_group_protocol
    assert one.heartbeat() is Error.none, "none of this disturbed the group"


@pytest.mark.parametrize("version", [5, 9])
def test_static_members_are_replaced_and_fenced(group: Group, version: int) -> None:
    old = group.member(version, "i")
    assert old.join().error_code is Error.none
    assert old.sync().error_code is Error.none
    new = group.member(version, "i")
    joined = new.join()
    assert (joined.error_code, joined.generation_id) == (Error.none, old.generation)
    if version >= 9:
        assert (joined.skip_assignment, joined.leader, len(joined.members)) == (True, new.member_id, 1)
    else:
        assert (joined.leader, joined.members) == (old.member_id, ())
    new.members = ()
    assert new.sync().assignment == old.member_id.encode()
    for code in (old.heartbeat(), old.commit("t", 3), old.sync().error_code, old.leave(), old.join().error_code):
        assert code is Error.fenced_instance_id
    assert new.commit("t", 4) is Error.none
    assert new.leave() is Error.none


def test_members_vote(group: Group) -> None:
    votes = (["a", "b", "c"], ["c", "b"], ["b", "c"])
    members = [group.member(3) for _ in votes]
    for at, (one, names) in enumerate(zip(members, votes, strict=True)):
        one.send_join(protocols=[{"name": name, "metadata": name.encode()} for name in names])
        if at == 0:
            assert one.receive_join().protocol_name == "a"
            assert one.sync(protocol_name=None).error_code is Error.none
    group.await_members(len(votes))
    joined = members[0].join(protocols=[{"name": name, "metadata": name.encode()} for name in votes[0]])
    assert joined.protocol_name == "b"
    assert {one.metadata for one in joined.members} == {b"b"}


def test_a_full_group(group: Group) -> None:
    members = [group.member(3) for _ in range(5)]
    members[0].join()
    for one in members[1:]:
        one.send_join()
    group.await_members(5)
    assert len(members[0].join().members) == 5
    refused = group.member(9).join()
    assert (refused.error_code, refused.member_id) == (Error.group_max_size_reached, "")


def test_a_simple_consumer(group: Group) -> None:
    one = group.member()
    assert one.commit("t", 7) is Error.none
    described = group.describe()
    assert (described.group_state, described.protocol_type, described.members) == ("Empty", "", ())
    fetched = one.connection.call(
        raw_client.OFFSET_FETCH, 7, group_id=group.name, topics=[{"name": "t", "partition_indexes": [0, 5]}]
    )
    assert [(part.committed_offset, part.error_code) for part in fetched.topics[0].partitions] == [
        (7, Error.none),
        (-1, Error.none),
    ]
    assert one.commit("t", 8, generation_id_or_member_epoch=2) in (Error.illegal_generation, Error.unknown_member_id)
    long = {"partition_index": 0, "committed_offset": 9, "committed_leader_epoch": -1, "committed_metadata": "x" * 4097}
    assert one.commit("t", 9, topics=[{"name": "t", "partitions": [long]}]) is Error.offset_metadata_too_large
    deleted = one.connection.call(raw_client.DELETE_GROUPS, 2, groups_names=[group.name, "nobody", ""])
    assert {result.group_id: result.error_code for result in deleted.results} == {
        group.name: Error.none,
        "nobody": Error.group_id_not_found,
        "": Error.group_id_not_found,
    }
    assert group.describe().group_state == "Dead"


def test_offsets_are_deleted_unless_in_use(group: Group) -> None:
    one = group.member()
    assert one.commit("t", 7) is Error.none
    assert one.join().error_code is Error.none
    assert one.sync().error_code is Error.none
    places = {"group_id": group.name, "topics": [{"name": "t", "partitions": [{"partition_index": 0}]}]}
    answer = one.connection.call(raw_client.OFFSET_DELETE, 0, places)
    assert answer.topics[0].partitions[0].error_code is Error.group_subscribed_to_topic
    deleted = one.connection.call(raw_client.DELETE_GROUPS, 2, groups_names=[group.name])
    assert deleted.results[0].error_code is Error.non_empty_group
    assert one.leave() is Error.none
    answer = one.connection.call(raw_client.OFFSET_DELETE, 0, places)
    assert (answer.error_code, answer.topics[0].partitions[0].error_code) == (Error.none, Error.none)
    assert one.connection.call(raw_client.OFFSET_DELETE, 0, {**places, "group_id": "nobody"}).error_code is (
        Error.group_id_not_found
    )


def test_nameless_groups(group: Group) -> None:
    one = group.member()
    assert one.connection.call(raw_client.DESCRIBE_GROUPS, 5, groups=[""]).groups[0].group_state == "Dead"
    assert (
        one.connection.call(raw_client.LEAVE_GROUP, 5, group_id="", members=[{}]).error_code is Error.invalid_group_id
    )
    assert one.sync(group_id="").error_code is Error.invalid_group_id
    assert one.commit("t", 7, group_id="") is Error.none, "from the time when offsets needed no group"
    fetched = one.connection.call(raw_client.OFFSET_FETCH, 7, group_id="", topics=None)
    assert [part.committed_offset for part in fetched.topics[0].partitions] == [7]


@pytest.mark.parametrize("version", [6])
def test_a_group_that_is_not_there(group: Group, version: int) -> None:
    one = group.member()
    (dead,) = one.connection.call(raw_client.DESCRIBE_GROUPS, version, groups=["nobody"]).groups
    assert (dead.group_state, dead.error_code) == ("Dead", Error.group_id_not_found)
    assert one.connection.call(raw_client.OFFSET_FETCH, 7, group_id="nobody", topics=None).topics == ()
    assert one.heartbeat() is Error.unknown_member_id
    assert one.leave() is Error.unknown_member_id


def test_two_leave_at_once_and_a_static_one_is_removed(group: Group) -> None:
    first, second = group.member(9, "i1"), group.member(9, "i2")
    assert first.join().error_code is Error.none
    assert first.sync().error_code is Error.none
    second.send_join()
    while first.heartbeat() is Error.none:
        pass
    assert first.join().error_code is Error.none
    assert second.receive_join().error_code is Error.none
    leaving = [{"member_id": "", "group_instance_id": "i1"}, {"member_id": "", "group_instance_id": "who"},
               {"member_id": "x", "group_instance_id": "i2"}, {"member_id": second.member_id},
               {"member_id": "who"}]  # fmt: skip
    answer = first.connection.call(raw_client.LEAVE_GROUP, 5, group_id=group.name, members=leaving)
    assert answer.error_code is Error.none
    assert [one.error_code for one in answer.members] == [
        Error.none, Error.unknown_member_id, Error.fenced_instance_id, Error.none, Error.unknown_member_id,
    ]  # fmt: skip
    assert group.describe().group_state == "Empty"


def test_a_rejoin_of_a_follower_that_changed_nothing_disturbs_nobody(group: Group) -> None:
    leader, follower = group.member(3), group.member(3)
    leader.join()
    follower.send_join()
    while leader.heartbeat() is Error.none:
        pass
    leader.join()
    follower.receive_join()
    assert follower.join().error_code is Error.none, "still in the join's generation"
    assert leader.join().members, "the leader, too"
    assert leader.sync().error_code is Error.none
    assert follower.join().generation_id == 2
    assert leader.heartbeat() is Error.none
    assert follower.sync().assignment == follower.member_id.encode()
    follower.send_join(protocols=[{"name": "range", "metadata": SUBSCRIPTION + b"x"}])
    while leader.heartbeat() is Error.none:
        pass
    assert leader.join().generation_id == 3
    assert follower.receive_join().generation_id == 3


def test_clients_do_not_write_to_the_groups_topic(group: Group) -> None:
    body = raw_client.produce_body("__consumer_offsets", batches.batch([b"v"]))
    answer = group.member().connection.call(raw_client.PRODUCE, 9, body)
    assert answer.responses[0].partition_responses[0].error_code is Error.invalid_topic_exception
