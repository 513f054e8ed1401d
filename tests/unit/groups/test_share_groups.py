"""Share groups: who is in them, what each gets, and what a restart finds."""

from dataclasses import replace
from uuid import UUID

import pytest
from tests.unit.groups.logged import LoggedGroups

from headrace.coordinator.result import Result
from headrace.groups.assignors import Assignment, Subscriber, TopicIdPartition, assign_shared
from headrace.groups.classic import ClassicGroup
from headrace.groups.classic_protocol import JoinRequest
from headrace.groups.consumer import Heartbeat
from headrace.groups.group import JOIN, LEAVE, Beat, GroupLimits, Now, ShareMemberLimits
from headrace.groups.offsets import Committer, OffsetCommit
from headrace.groups.share import ShareGroup, ShareHeartbeat
from headrace.model.errors import (
    FencedMemberEpoch,
    GroupFull,
    GroupNotEmpty,
    GroupNotFound,
    InconsistentProtocol,
    ProtocolError,
    UnknownMember,
)
from headrace.model.ids import BrokerId, LeaderEpoch, TopicId, TopicName
from headrace.model.image import ClusterImage, PartitionState, TopicImage
from headrace.runtime.deferred import Deferred

LIMITS = GroupLimits(share=ShareMemberLimits(session_timeout_of=lambda _: 1000, max_size=3))
NOW = Now(0.0, 0)
T = UUID(int=1)


def image(partitions: int, revision: int = 1) -> ClusterImage:
    state = PartitionState(BrokerId(0), LeaderEpoch(0), (BrokerId(0),), (BrokerId(0),))
    topic = TopicImage(TopicName("t"), TopicId(T), (state,) * partitions)
    empty = ClusterImage("c", BrokerId(0), {}, {}, {}, {}, 1)
    return replace(empty, topics={TopicName("t"): topic}, revision=revision)


class World(LoggedGroups):
    def __init__(self, partitions: int = 1) -> None:
        super().__init__(LIMITS)
        self.image = image(partitions)

    def beat(self, member_id: str, epoch: int, topics: tuple[str, ...] | None = None, now: Now = NOW) -> Beat:
        told: list[Beat] = []
        waiter: Deferred[Result[Beat]] = Deferred()
        waiter.then(lambda result: told.append(result.get()))
        heartbeat = ShareHeartbeat(member_id, epoch, topics=topics)
        self.apply(self.machine.share_heartbeat("g", heartbeat, self.image, waiter, now))
        return told[0]

    def join(self, member_id: str) -> Beat:
        return self.beat(member_id, JOIN, ("t",))


def places(*partitions: int) -> Assignment:
    return frozenset(TopicIdPartition(T, at) for at in partitions)


def test_members_share_the_partition_that_there_is() -> None:
    world = World()
    assert world.join("a") == Beat("a", 1, places(0))
    assert world.join("b") == Beat("b", 2, places(0))
    # What did not change is not told again.
    assert world.beat("a", 1) == Beat("a", 2, None)
    assert world.beat("a", 1, ("t",)) == Beat("a", 2, places(0))
    group = world.restarted().of_kind("g", ShareGroup)
    assert group.state_name == "Stable"
    assert {name: member.epoch for name, member in group.members.items()} == {"a": 2, "b": 2}
    assert group.about.begun == (T,)


def test_a_topic_that_grows_is_spread_at_the_next_heartbeats() -> None:
    world = World(1)
    world.join("a")
    epoch = world.join("b").epoch
    world.image = image(2, revision=2)
    told = [world.beat("a", 1), world.beat("b", epoch)]
    had = [places(0) if beat.assignment is None else beat.assignment for beat in told]
    assert had[0] | had[1] == places(0, 1)
    assert len(had[0]) == len(had[1]) == 1


def test_a_member_that_left_or_is_late_is_gone_and_others_get_its_share() -> None:
    world = World(2)
    world.join("a")
    world.join("b")
    world.beat("b", LEAVE)
    with pytest.raises(UnknownMember):
        world.beat("b", 2)
    assert world.beat("a", 1).assignment in (None, places(0, 1))
    group = world.machine.of_kind("g", ShareGroup)
    assert group.next_deadline_ms() == 1000
    world.apply(group.expire(world.image, Now(1000.0, 0)))
    assert group.is_empty
    assert group.state_name == "Empty"
    for machine in (world.machine, world.restarted()):
        assert machine.of_kind("g", ShareGroup).is_empty
        assert not list(machine.expire_offsets(10**15).records), "a share group is never forgotten by itself"


def test_who_is_behind_or_unknown_is_refused() -> None:
    world = World()
    with pytest.raises(GroupNotFound):
        world.beat("a", 1)
    epoch = world.join("a").epoch
    with pytest.raises(FencedMemberEpoch):
        world.beat("a", epoch + 1)
    for wrong in (ShareHeartbeat("", JOIN, topics=("t",)), ShareHeartbeat("a", -2), ShareHeartbeat("a", JOIN)):
        with pytest.raises(ProtocolError):
            world.machine.share_heartbeat("g", wrong, world.image, Deferred(), NOW)
    world.join("b")
    world.join("c")
    with pytest.raises(GroupFull):
        world.join("d")


def test_a_topic_that_is_deleted_has_no_state_in_the_group_any_more() -> None:
    world = World()
    world.join("a")
    world.write(world.machine.forget_topics({"t": T}).records)
    assert world.restarted().of_kind("g", ShareGroup).about.begun == ()


def test_a_share_group_is_no_other_group() -> None:
    world = World()
    world.join("a")
    machine = world.machine
    with pytest.raises(GroupNotFound):
        machine.consumer_heartbeat(
            "g",
            Heartbeat("m", JOIN, rebalance_timeout_ms=1, topics=("t",), owned=frozenset()),
            world.image,
            Deferred(),
            NOW,
        )
    wants = JoinRequest("", None, "c", "h", 10_000, 1_000, "consumer", (("range", b""),), "m")
    with pytest.raises(InconsistentProtocol):
        machine.for_join("g", "", NOW).classic_join(wants, world.image, Deferred(), NOW)
    with pytest.raises(UnknownMember):
        machine.for_member("g").classic_heartbeat(Committer("a", None, 1), world.image, NOW)
    with pytest.raises(GroupNotFound):
        machine.commit("g", Committer(), [OffsetCommit("t", 0, 1)], NOW)
    assert machine.fetch("g", None, require_stable=False) == {}
    with pytest.raises(GroupNotFound):
        machine.of_kind("g", ClassicGroup)
    with pytest.raises(GroupNotEmpty):
        machine.delete_group("g")
    world.beat("a", LEAVE)
    world.write(machine.delete_group("g").records)
    for each in (machine, world.restarted()):
        assert list(each.listed()) == []
    world.write(machine.commit("g", Committer(), [OffsetCommit("t", 0, 1)], NOW).records)
    with pytest.raises(GroupNotFound):
        world.join("a")


@pytest.mark.parametrize(("members", "partitions"), [(1, 5), (3, 3), (5, 3), (7, 2), (4, 1)])
def test_every_partition_has_a_member_and_every_member_a_partition(members: int, partitions: int) -> None:
    subscribers = {f"m{at}": Subscriber(frozenset([T])) for at in range(members)}
    assigned = assign_shared(subscribers, {T: partitions})
    crowds = [sum(TopicIdPartition(T, at) in places for places in assigned.values()) for at in range(partitions)]
    loads = [len(places) for places in assigned.values()]
    assert min(crowds) >= 1
    assert max(crowds) - min(crowds) <= 1
    assert min(loads) >= 1
    assert max(loads) - min(loads) <= 1
    again = assign_shared({name: Subscriber(frozenset([T]), assigned[name]) for name in subscribers}, {T: partitions})
    assert again == assigned, "who may stay stays"
