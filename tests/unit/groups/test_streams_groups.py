"""Streams groups: who is in them, what each gets, what each is told, and what a restart finds."""

from typing import Any

import pytest
from tests.unit.groups.streams_world import DELAY_MS, PLAIN, SESSION_MS, STATEFUL, World, active, codes

from headrace.coordinator.machine import InternalRecord
from headrace.coordinator.result import Result
from headrace.groups.classic_protocol import JoinRequest
from headrace.groups.consumer import Heartbeat
from headrace.groups.consumer_records import CurrentKey, MemberKey
from headrace.groups.epoch_members import LEFT_FOR_NOW
from headrace.groups.group import JOIN, LEAVE
from headrace.groups.offsets import Committer, OffsetCommit
from headrace.groups.share import ShareHeartbeat
from headrace.groups.streams import StreamsGroup, StreamsHeartbeat
from headrace.groups.streams_endpoints import EndpointPartitions
from headrace.groups.streams_member import StreamsMember
from headrace.groups.streams_records import InternalTopic, StreamsMemberValue, Subtopology, TopologyValue
from headrace.groups.streams_state import StreamsDraft, StreamsState
from headrace.groups.streams_tasks import NO_TASKS, StreamsTask, TaskSet
from headrace.groups.streams_topology import StatusCode
from headrace.model.errors import (
    FencedInstance,
    FencedMemberEpoch,
    GroupFull,
    GroupNotEmpty,
    GroupNotFound,
    IllegalGeneration,
    InconsistentProtocol,
    InvalidTopology,
    InvalidTopologyEpoch,
    ProtocolError,
    RecordTooLarge,
    SubscribedToTopic,
    UnknownMember,
    UnreleasedInstance,
)
from headrace.runtime.deferred import Deferred


def test_the_first_member_has_all_tasks() -> None:
    world = World()
    told = world.join("a")
    assert (told.epoch, told.tasks, codes(told)) == (2, active(0, 1), [])
    assert world.beat("a", 2).tasks is None
    assert world.machine.groups["g"].state_name == "Stable"


def test_a_task_moves_when_its_owner_has_given_it_up() -> None:
    world = World()
    world.join("a")
    joined = world.join("b")
    assert (joined.epoch, joined.tasks) == (3, NO_TASKS)
    told = world.beat("a", 2)
    assert (told.epoch, told.tasks) == (2, active(0))
    assert world.beat("b", 3).tasks is None
    assert world.beat("a", 2, owned=active(0, 1)).epoch == 2
    assert world.beat("b", 3).tasks is None
    assert world.beat("a", 2, owned=active(0)).epoch == 3
    assert world.beat("b", 3).tasks == active(1)
    assert world.machine.groups["g"].state_name == "Stable"


def test_a_restart_finds_everything() -> None:
    world = World(STATEFUL, standbys=1)
    world.join("a", instance_id="i", rack_id="r", endpoint=("h", 1), tags=(("zone", "z"),))
    world.join("b")
    world.beat("a", 2)
    before = world.machine.of_kind("g", StreamsGroup)
    world.machine = world.restarted()
    after = world.machine.of_kind("g", StreamsGroup)
    assert list(after.members) == list(before.members)
    assert (after.epoch, after.target_epoch, after.topology) == (before.epoch, before.target_epoch, before.topology)
    assert world.beat("a", 2, owned=active(0)).epoch == 3


def test_nobody_has_tasks_before_the_topics_are_there() -> None:
    world = World(STATEFUL, other=1)
    told = world.join("a")
    assert (told.tasks, codes(told), world.wanted) == (NO_TASKS, [StatusCode.MISSING_SOURCE_TOPICS], ())
    world.create(lines=2)
    told = world.beat("a", told.epoch)
    assert codes(told) == [StatusCode.MISSING_INTERNAL_TOPICS]
    assert world.wanted == (InternalTopic("log", 2),)
    assert world.machine.groups["g"].state_name == "NotReady"
    world.create(log=2)
    told = world.beat("a", told.epoch)
    assert (told.tasks, codes(told)) == (active(0, 1), [])
    world.counts.pop("lines")
    world.create()
    assert world.beat("a", told.epoch).tasks == NO_TASKS


def test_a_topic_that_grows_brings_more_tasks() -> None:
    world = World()
    world.join("a")
    world.create(lines=3)
    assert world.beat("a", 2).tasks == active(0, 1, 2)


def test_an_empty_group_waits_for_more_members() -> None:
    world = World(delay_ms=DELAY_MS)
    first, second = world.join("a"), world.join("b")
    assert (first.epoch, first.tasks, codes(first)) == (1, NO_TASKS, [StatusCode.ASSIGNMENT_DELAYED])
    assert (second.epoch, second.tasks) == (1, NO_TASKS)
    world.ms += DELAY_MS
    assert world.beat("a", 1).tasks == active(0)
    assert world.beat("b", 1).tasks == active(1)
    assert codes(world.join("c")) == []


def test_standbys_are_in_another_process() -> None:
    world = World(STATEFUL, standbys=1)
    world.join("a", "p1")
    world.join("b", "p2")
    world.beat("a", 2)
    told = world.beat("a", 2, owned=active(0))
    assert told.tasks == TaskSet(frozenset({StreamsTask("0", 0)}), frozenset({StreamsTask("0", 1)}))
    assert world.beat("b", 3).tasks == TaskSet(frozenset({StreamsTask("0", 1)}), frozenset({StreamsTask("0", 0)}))
    world.standbys = 0
    assert world.beat("b", 3).tasks == active(1)


def test_what_one_member_of_a_process_has_no_other_one_gets_in_any_role() -> None:
    task = StreamsTask("0", 1)
    state = StreamsState("g")
    for name, process_id, holds in (
        ("a", "p1", TaskSet(frozenset({task}))),
        ("b", "p1", NO_TASKS),
        ("c", "p2", TaskSet(standby=frozenset({task}))),
        ("d", "p2", NO_TASKS),
        ("e", "p3", NO_TASKS),
    ):
        member = StreamsMember(name, StreamsMemberValue(process_id=process_id), epoch=5, revoking=holds)
        state.replay(MemberKey("g", name), member.about)
        state.replay(CurrentKey("g", name), member.current())
    draft = StreamsDraft(state)
    both = TaskSet(frozenset({task}), frozenset({task}))
    available = {name: draft.available(one, both) for name, one in draft.members.items()}
    free = {name: (bool(tasks.active), bool(tasks.standby)) for name, tasks in available.items()}
    assert free == {
        "a": (True, True),
        "b": (False, False),
        "c": (False, True),
        "d": (False, False),
        "e": (False, True),
    }
    draft.remove("a")
    left = [draft.available(draft.members[name], both) for name in "bcde"]
    assert [bool(tasks.active) for tasks in left] == [True, True, False, True]


def test_a_member_that_missed_an_answer_is_told_again() -> None:
    world = World()
    world.join("a")
    world.join("b")
    world.beat("a", 2)
    world.beat("a", 2, owned=active(0))
    assert world.beat("b", 3).tasks == active(1)
    assert world.beat("b", 3, owned=NO_TASKS).tasks == active(1)
    assert world.beat("a", 2, owned=active(0)).epoch == 3


def test_who_is_at_another_epoch_must_join_again() -> None:
    world = World()
    world.join("a")
    for epoch, owned in ((1, active(0)), (3, NO_TASKS), (7, None)):
        with pytest.raises(FencedMemberEpoch):
            world.beat("a", epoch, owned=owned)
    with pytest.raises(UnknownMember):
        world.beat("b", 2)
    assert world.join("a").tasks == active(0, 1)


def test_who_is_silent_is_removed() -> None:
    world = World()
    world.join("a")
    world.join("b")
    world.expire(SESSION_MS - 1)
    assert world.members().keys() == {"a", "b"}
    world.beat("b", 3)
    world.expire(1)
    assert world.members().keys() == {"b"}
    assert world.beat("b", 3).tasks == active(0, 1)
    with pytest.raises(UnknownMember):
        world.beat("a", 2)


def test_who_does_not_give_up_its_tasks_in_time_is_removed() -> None:
    world = World()
    world.join("a")
    world.join("b")
    for _ in range(5):
        world.beat("a", 2)
        world.beat("b", 3)
        world.expire(100)
    assert world.members().keys() == {"b"}


def test_leaving_frees_tasks() -> None:
    world = World()
    world.join("a")
    world.join("b")
    assert world.beat("a", LEAVE).epoch == LEAVE
    assert world.beat("b", 3).tasks == active(0, 1)
    world.beat("b", LEAVE)
    assert world.machine.groups["g"].state_name == "Empty"


def test_a_static_member_has_its_tasks_when_it_is_back() -> None:
    world = World()
    world.join("a", instance_id="i")
    with pytest.raises(UnreleasedInstance):
        world.join("b", instance_id="i")
    world.beat("a", LEFT_FOR_NOW, instance_id="i")
    with pytest.raises(IllegalGeneration):
        world.commit("a", 2, transactional=True)
    assert world.join("b", instance_id="i").tasks == active(0, 1)
    with pytest.raises(FencedInstance):
        world.beat("a", 2, instance_id="i")
    assert world.members().keys() == {"b"}


def test_a_static_member_that_does_not_come_back_is_removed() -> None:
    world = World()
    world.join("a", instance_id="i")
    world.beat("a", LEFT_FOR_NOW, instance_id="i")
    world.expire(SESSION_MS)
    assert world.machine.groups["g"].is_empty


def test_the_topology_of_a_group_with_members_stays() -> None:
    world = World()
    world.join("a")
    other = TopologyValue(0, (Subtopology("0", ("lines",), changelog_topics=(InternalTopic("log"),)),))
    with pytest.raises(InvalidTopology):
        world.join("b", topology=other)
    with pytest.raises(InvalidTopologyEpoch):
        world.join("b", topology=TopologyValue(1, PLAIN.subtopologies))
    assert world.members().keys() == {"a"}
    world.beat("a", LEAVE)
    world.join("b", topology=TopologyValue(1, other.subtopologies))
    assert world.machine.of_kind("g", StreamsGroup).topology == TopologyValue(1, other.subtopologies)


def test_a_member_with_an_older_topology_has_no_tasks() -> None:
    world = World(TopologyValue(1, PLAIN.subtopologies))
    world.join("a")
    told = world.join("b", topology=PLAIN)
    assert codes(told) == [StatusCode.STALE_TOPOLOGY]
    world.beat("a", LEAVE)
    assert world.beat("b", told.epoch).tasks is None


def test_one_member_ends_the_application_for_all() -> None:
    world = World()
    world.join("a")
    world.join("b")
    assert codes(world.beat("a", 2, shuts_down=True)) == [StatusCode.SHUTDOWN_APPLICATION]
    assert codes(world.beat("b", 3)) == [StatusCode.SHUTDOWN_APPLICATION]
    world.beat("a", LEAVE)
    world.beat("b", LEAVE)
    assert codes(world.join("c")) == []


def test_members_are_told_who_can_be_asked_for_what() -> None:
    world = World()
    told = world.join("a", endpoint=("h1", 80))
    assert told.endpoints == (EndpointPartitions("h1", 80, (("lines", (0, 1)),), ()),)
    assert world.beat("a", 2, endpoints_epoch=told.endpoints_epoch).endpoints is None
    world.join("b", endpoint=("h2", 80))
    world.beat("a", 2)
    world.beat("a", 2, owned=active(0))
    told = world.beat("b", 3, endpoints_epoch=told.endpoints_epoch)
    assert told.endpoints == (
        EndpointPartitions("h1", 80, (("lines", (0,)),), ()),
        EndpointPartitions("h2", 80, (("lines", (1,)),), ()),
    )
    world.machine = world.restarted()
    assert world.beat("b", 3, endpoints_epoch=told.endpoints_epoch).endpoints is None


def test_a_group_is_deleted_with_all_of_its_records() -> None:
    world = World()
    world.join("a")
    world.write(world.machine.commit("g", Committer("a", None, 2), [OffsetCommit("lines", 0, 5)], world.now).records)
    assert isinstance(world.machine.delete_offsets("g", [("lines", 0)]).answer["lines", 0], SubscribedToTopic)
    with pytest.raises(GroupNotEmpty):
        world.machine.delete_group("g")
    world.beat("a", LEAVE)
    world.write(world.machine.delete_group("g").records)
    assert not world.machine.groups
    last: dict[bytes, InternalRecord] = {one.key: one for one in world.log}
    assert all(one.value is None for one in last.values())


CLASSIC = JoinRequest("", None, "c", "h", 10_000, 1_000, "consumer", (("range", b""),), "m")


def test_groups_of_other_kinds_stay_what_they_are() -> None:
    world = World()
    world.join("a")
    image, now = world.image, world.now
    waiter: Deferred[Result[Any]] = Deferred()
    consumer = Heartbeat("x", JOIN, rebalance_timeout_ms=1, topics=("lines",), owned=frozenset())
    with pytest.raises(GroupNotFound):
        world.machine.consumer_heartbeat("g", consumer, image, waiter, now)
    with pytest.raises(GroupNotFound):
        world.machine.share_heartbeat("g", ShareHeartbeat("x", JOIN, topics=("lines",)), image, waiter, now)
    with pytest.raises(InconsistentProtocol):
        world.machine.for_join("g", "", now).classic_join(CLASSIC, image, waiter, now)
    with pytest.raises(UnknownMember):
        world.machine.for_member("g").classic_heartbeat(Committer("x", None, 1), image, now)
    world.apply(world.machine.consumer_heartbeat("c", consumer, image, waiter, now))
    joins = StreamsHeartbeat("a", JOIN, rebalance_timeout_ms=1, topology=PLAIN, process_id="p")
    with pytest.raises(GroupNotFound):
        world.machine.streams_heartbeat("c", joins, image, waiter, now)
    with pytest.raises(GroupNotFound):
        world.machine.streams_heartbeat("none", StreamsHeartbeat("a", 1), image, waiter, now)


def test_an_application_goes_on_from_the_offsets_of_a_classic_group() -> None:
    world = World()
    world.write(world.machine.commit("g", Committer(), [OffsetCommit("lines", 0, 5)], world.now).records)
    assert world.machine.groups["g"].kind == "classic"
    assert world.join("a").tasks == active(0, 1)
    world.machine = world.restarted()
    assert world.machine.groups["g"].kind == "streams"
    assert world.machine.offsets.get("g", "lines", 0) is not None


def test_a_classic_group_with_members_is_not_taken() -> None:
    world = World()
    group = world.machine.for_join("g", "", world.now)
    world.apply(group.classic_join(CLASSIC, world.image, Deferred(), world.now))
    with pytest.raises(GroupNotFound):
        world.join("a")


def test_there_is_an_end_to_members() -> None:
    world = World()
    for name in "abcd":
        world.join(name)
    with pytest.raises(GroupFull):
        world.join("e")
    world.join("a")


@pytest.mark.parametrize(
    "change",
    [
        {"member_id": ""},
        {"instance_id": " "},
        {"epoch": -3},
        {"epoch": LEFT_FOR_NOW},
        {"epoch": 3},
        {"rebalance_timeout_ms": -1},
        {"owned": active(0)},
        {"process_id": None},
        {"topology": None},
    ],
)
def test_what_no_member_may_say_is_refused(change: dict[str, Any]) -> None:
    world = World()
    right = StreamsHeartbeat("a", JOIN, rebalance_timeout_ms=1, topology=PLAIN, owned=NO_TASKS, process_id="p")
    with pytest.raises(ProtocolError):
        world.send(right._replace(**change))


def test_what_does_not_fit_into_a_record_is_refused() -> None:
    world = World()
    huge = (InternalTopic("log", settings=(("retention.ms", "1" * 600_000),)),)
    with pytest.raises(RecordTooLarge):
        world.join("a", topology=TopologyValue(0, (Subtopology("0", ("lines",), changelog_topics=huge),)))
    with pytest.raises(RecordTooLarge):
        world.join("a", tags=(("zone", "z" * 70_000),))
    assert not world.log


def test_another_client_id_does_not_move_tasks() -> None:
    world = World()
    world.join("a", client_id="one")
    told = world.beat("a", 2, client_id="two")
    assert told.epoch == 2
    assert [one.about.client_id for one in world.machine.of_kind("g", StreamsGroup).members] == ["two"]
