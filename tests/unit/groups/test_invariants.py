"""Groups notice a state that their invariants rule out, before anybody is told of it."""

from collections.abc import Mapping
from typing import Any
from uuid import UUID

import pytest
from tests.unit.groups.logged import LoggedGroups

from headrace.coordinator.result import Result
from headrace.groups import streams, targets
from headrace.groups.assignors import Assignment, Subscriber, TopicIdPartition
from headrace.groups.consumer import Heartbeat
from headrace.groups.consumer_member import ConsumerMember
from headrace.groups.consumer_records import CurrentKey, MemberKey
from headrace.groups.consumer_state import ConsumerState
from headrace.groups.group import JOIN, GroupLimits, Now, StreamsLimits
from headrace.groups.streams import StreamsHeartbeat
from headrace.groups.streams_member import StreamsMember
from headrace.groups.streams_records import Subtopology, TopologyValue
from headrace.groups.streams_state import StreamsState
from headrace.groups.streams_tasks import StreamsTask, TaskSet
from headrace.model.ids import BrokerId, LeaderEpoch, TopicId, TopicName
from headrace.model.image import ClusterImage, PartitionState, TopicImage
from headrace.model.invariants import InvariantViolation
from headrace.runtime.deferred import Deferred

TOPIC_ID = UUID(int=1)
PLACE = TopicIdPartition(TOPIC_ID, 0)
TASK = StreamsTask("0", 0)
NOW = Now(0.0, 0)
_STATE = PartitionState(BrokerId(0), LeaderEpoch(0), (BrokerId(0),), (BrokerId(0),))
_TOPIC = TopicImage(TopicName("t"), TopicId(TOPIC_ID), (_STATE, _STATE))
IMAGE = ClusterImage("c", BrokerId(0), {}, {_TOPIC.name: _TOPIC}, {TOPIC_ID: _TOPIC.name}, {}, 1)


@pytest.mark.parametrize(
    ("state", "members", "number"),
    [
        (
            ConsumerState("g"),
            [ConsumerMember("a", assigned=frozenset([PLACE])), ConsumerMember("b", revoking=frozenset([PLACE]))],
            23,
        ),
        (
            StreamsState("g"),
            [
                StreamsMember("a", assigned=TaskSet(frozenset([TASK]))),
                StreamsMember("b", assigned=TaskSet(frozenset([TASK]))),
            ],
            59,
        ),
    ],
    ids=["consumer", "streams"],
)
def test_nothing_is_given_to_a_member_while_another_one_has_it(state: Any, members: Any, number: int) -> None:
    one, two = members
    state.replay(MemberKey("g", "a"), one.about)
    state.replay(CurrentKey("g", "a"), one.current())
    state.loaded()
    state.replay(CurrentKey("g", "a"), one.current())
    with pytest.raises(InvariantViolation, match=f"invariant {number}:"):
        state.replay(CurrentKey("g", "b"), two.current())


def _first_to_all(members: Mapping[str, Subscriber], counts: Mapping[UUID, int]) -> dict[str, Assignment]:
    return {member_id: frozenset([PLACE]) for member_id in members}


def _join(world: LoggedGroups, member_id: str) -> None:
    beat = Heartbeat(member_id, JOIN, rebalance_timeout_ms=1, topics=("t",), owned=frozenset())
    waiter: Deferred[Result[Any]] = Deferred()
    world.apply(world.machine.consumer_heartbeat("g", beat, IMAGE, waiter, NOW))


def test_an_assignor_that_forgets_a_partition_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(targets, "ASSIGNORS", {"uniform": _first_to_all})
    with pytest.raises(InvariantViolation, match="invariant 24: as many"):
        _join(LoggedGroups(GroupLimits()), "a")


def test_an_assignor_that_gives_a_partition_to_two_members_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    world = LoggedGroups(GroupLimits())
    _join(world, "a")
    monkeypatch.setattr(targets, "ASSIGNORS", {"uniform": _first_to_all})
    with pytest.raises(InvariantViolation, match="invariant 24: no partition"):
        _join(world, "b")


def test_an_assignor_that_forgets_a_task_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams, "assign_tasks", lambda workers, *_: dict.fromkeys(workers, TaskSet(frozenset([TASK]))))
    world = LoggedGroups(GroupLimits(streams=StreamsLimits(initial_delay_of=lambda _: 0)))
    topology = TopologyValue(0, (Subtopology("0", source_topics=("t",)),))
    beat = StreamsHeartbeat("a", JOIN, rebalance_timeout_ms=1, topology=topology, process_id="p")
    with pytest.raises(InvariantViolation, match="invariant 60"):
        world.machine.streams_heartbeat("g", beat, IMAGE, Deferred(), NOW)
