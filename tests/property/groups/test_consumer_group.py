"""A consumer group under anything that may happen to it: no partition has two readers, and in the end all are read.

Clients are modelled as they are told to behave: they give up what they are not assigned any more before they say so,
take nothing that they were not assigned, and give up everything when they are refused. Answers get lost, clients vanish
or pause past their session, topics come, grow and go, and the broker starts anew from its log, compacted or not.
"""

from dataclasses import dataclass
from typing import Any
from uuid import UUID

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from tests.property.groups.group_log import GroupLog
from tests.property.profile import examples

from headrace.coordinator.machine import Outcome
from headrace.coordinator.result import Result
from headrace.groups.assignors import Assignment, TopicIdPartition
from headrace.groups.consumer import ConsumerGroup, Heartbeat
from headrace.groups.consumer_member import ConsumerMember
from headrace.groups.epoch_members import LEFT_FOR_NOW
from headrace.groups.group import JOIN, LEAVE, Beat, Convert, Effects, GroupLimits, Now, Reply
from headrace.groups.machine import GroupMachine
from headrace.model.errors import FencedMemberEpoch, GroupNotFound, UnknownMember, UnreleasedInstance
from headrace.model.ids import BrokerId, LeaderEpoch, TopicId, TopicName
from headrace.model.image import ClusterImage, PartitionState, TopicImage
from headrace.runtime.deferred import Deferred

GROUP = "g"
NAMES = ("a-1", "a-2", "b-1")
LIMITS = GroupLimits()
SESSION_MS = LIMITS.consumer.session_timeout_ms
REBALANCE_MS = 10_000
_STATE = PartitionState(BrokerId(0), LeaderEpoch(0), (BrokerId(0),), (BrokerId(0),))


@dataclass(eq=False)
class Client:
    member_id: str
    instance_id: str | None
    topics: tuple[str, ...]
    pattern: str | None
    epoch: int = JOIN
    owned: Assignment = frozenset()
    told: Assignment = frozenset()
    """What it was last told to read."""
    must_say_all: bool = True
    says_owned: bool = False
    """Whether it has to tell what it owns."""

    def beat(self) -> Heartbeat:
        says_all = self.must_say_all
        return Heartbeat(
            self.member_id,
            self.epoch,
            self.instance_id,
            rebalance_timeout_ms=REBALANCE_MS if says_all else -1,
            topics=self.topics if says_all else None,
            pattern=self.pattern if says_all else None,
            owned=self.owned if says_all or self.says_owned else None,
        )

    def hear(self, told: Beat) -> None:
        self.epoch = told.epoch
        self.must_say_all = self.says_owned = False
        if told.assignment is not None:
            self.told = told.assignment
            # Every assignment is acknowledged, also one that changes nothing.
            self.says_owned = self.owned <= self.told

    def abandon(self) -> None:
        self.epoch, self.owned, self.told, self.must_say_all = JOIN, frozenset(), frozenset(), True

    def give_up(self) -> None:
        if self.owned - self.told:
            self.owned &= self.told
            self.says_owned = True

    def take(self) -> None:
        if self.told - self.owned and not self.owned - self.told:
            self.owned = self.told
            self.says_owned = True


class ConsumerGroups(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.now = Now(0.0, 0)
        self.log = GroupLog()
        self.machine = GroupMachine(LIMITS)
        self.machine.loaded(0.0)
        self.clients: list[Client] = []
        self.made = 0
        self.counts = {"a-1": 3}
        self.ids = {"a-1": 1}
        self.revision = 1

    # -- the broker

    @property
    def image(self) -> ClusterImage:
        topics = {
            TopicName(name): TopicImage(TopicName(name), TopicId(UUID(int=self.ids[name])), (_STATE,) * count)
            for name, count in self.counts.items()
        }
        names: dict[UUID, TopicName] = {topic.topic_id: name for name, topic in topics.items()}
        return ClusterImage("c", BrokerId(0), {}, topics, names, {}, self.revision)

    def apply(self, effects: Effects) -> None:
        for effect in effects:
            if isinstance(effect, Outcome):
                self.log.write(self.machine, effect.records)
            elif isinstance(effect, Convert):
                self.machine.adopt(effect.group)
                continue
            for answer in effect.answer if isinstance(effect, Outcome) else (effect,):
                assert isinstance(answer, Reply)
                answer.waiter.resolve(answer.result)

    def ask(self, beat: Heartbeat) -> Beat:
        waiter: Deferred[Result[Beat]] = Deferred()
        answers: list[Result[Any]] = []
        waiter.then(answers.append)
        self.apply(self.machine.consumer_heartbeat(GROUP, beat, self.image, waiter, self.now))
        told = answers[0].get()
        assert isinstance(told, Beat)
        return told

    @property
    def group(self) -> ConsumerGroup | None:
        found = self.machine.groups.get(GROUP)
        return found if isinstance(found, ConsumerGroup) else None

    def members(self) -> dict[str, ConsumerMember]:
        return {} if self.group is None else {member.member_id: member for member in self.group.members}

    def heartbeat(self, client: Client, *, is_lost: bool = False) -> None:
        try:
            told = self.ask(client.beat())
        except (UnknownMember, FencedMemberEpoch, GroupNotFound):
            client.abandon()
        except UnreleasedInstance:
            assert client.epoch == JOIN
        else:
            if is_lost:
                client.must_say_all = True
            else:
                client.hear(told)

    # -- what may happen

    @precondition(lambda self: len(self.clients) < 5)
    @rule(
        instance=st.none() | st.sampled_from(["i1", "i2"]),
        topics=st.sampled_from([("a-1",), ("a-1", "b-1"), ("a-2",), ()]),
        pattern=st.sampled_from([None, None, "a-.*"]),
    )
    def start_client(self, instance: str | None, topics: tuple[str, ...], pattern: str | None) -> None:
        if instance is None or all(client.instance_id != instance for client in self.clients):
            self.made += 1
            client = Client(f"m{self.made}", instance, topics, pattern)
            self.clients.append(client)
            self.heartbeat(client)

    @precondition(lambda self: self.clients)
    @rule(which=st.integers(0, 4), is_lost=st.booleans())
    def one_heartbeat(self, which: int, is_lost: bool) -> None:
        self.heartbeat(self.clients[which % len(self.clients)], is_lost=is_lost)

    @precondition(lambda self: self.clients)
    @rule(which=st.integers(0, 4))
    def give_up(self, which: int) -> None:
        self.clients[which % len(self.clients)].give_up()

    @precondition(lambda self: self.clients)
    @rule(which=st.integers(0, 4))
    def take(self, which: int) -> None:
        self.clients[which % len(self.clients)].take()

    @precondition(lambda self: self.clients)
    @rule(which=st.integers(0, 4), topics=st.sampled_from([("a-1",), ("a-1", "b-1"), ("b-1",)]))
    def subscribe_anew(self, which: int, topics: tuple[str, ...]) -> None:
        client = self.clients[which % len(self.clients)]
        client.topics, client.must_say_all = topics, True

    @precondition(lambda self: self.clients)
    @rule(which=st.integers(0, 4), how=st.sampled_from(["leave", "crash", "crash", "for now"]))
    def end_client(self, which: int, how: str) -> None:
        client = self.clients.pop(which % len(self.clients))
        if how != "crash" and client.member_id in self.members():
            epoch = LEFT_FOR_NOW if how == "for now" and client.instance_id is not None else LEAVE
            client.owned = frozenset()
            self.ask(Heartbeat(client.member_id, epoch, client.instance_id))

    @rule(passing_ms=st.sampled_from([1_000.0, float(REBALANCE_MS), float(SESSION_MS)]))
    def time_passes(self, passing_ms: float) -> None:
        self.now = Now(self.now.ms + passing_ms, 0)
        if self.group is not None:
            due_ms = self.group.next_deadline_ms()
            if due_ms is not None and due_ms <= self.now.ms:
                self.apply(self.group.expire(self.image, self.now))

    @rule(rewrites=st.integers(0, 5))
    def upgrade(self, rewrites: int) -> None:
        self.log.upgrade(self.machine, rewrites)

    @rule(compacts=st.sampled_from([0, 0, 50, 90, 100]), drops=st.booleans())
    def restart(self, compacts: int, drops: bool) -> None:
        """`compacts` is the part of the log in percent that is compacted."""
        before = self.members()
        self.log.compact(len(self.log) * compacts // 100, drops_tombstones=drops)
        self.load()
        assert self.members() == before

    def load(self) -> None:
        self.machine = GroupMachine(LIMITS)
        self.log.load(self.machine)
        self.machine.loaded(self.now.ms)

    @precondition(lambda self: self.clients)
    @rule(which=st.integers(0, 4), kept=st.integers(0, 8))
    def crash_while_writing(self, which: int, kept: int) -> None:
        """Only the first records of what follows from a heartbeat are in the log, and nobody gets an answer."""
        client = self.clients[which % len(self.clients)]
        before = len(self.log)
        self.heartbeat(client, is_lost=True)
        self.log.cut(before + kept)
        self.load()

    @rule(name=st.sampled_from(NAMES), more=st.integers(1, 3))
    def grow_topic(self, name: str, more: int) -> None:
        self.revision += 1
        if name not in self.counts:
            self.ids[name] = self.revision
        self.counts[name] = self.counts.get(name, 0) + more

    @rule(name=st.sampled_from(NAMES))
    def delete_topic(self, name: str) -> None:
        self.revision += 1
        self.counts.pop(name, None)

    @rule()
    def settle(self) -> None:
        """Left alone, the group comes to rest with every partition read by somebody who wants it."""
        # Who does not say anything any more goes, static or not; the others stay.
        for _ in range(3):
            for _ in range(2 * len(self.clients) + 2):
                for client in self.clients:
                    self.heartbeat(client)
                    client.give_up()
                    self.heartbeat(client)
                    client.take()
                    self.heartbeat(client)
            if self.members().keys() <= {client.member_id for client in self.clients}:
                break
            self.time_passes(SESSION_MS / 2 + 1)
        if not self.clients:
            return
        assert self.group is not None
        assert self.group.state_name == "Stable"
        wanted = {
            TopicIdPartition(UUID(int=self.ids[name]), partition)
            for name, count in self.counts.items()
            for partition in range(count)
            if any(name in self.meant_by(one) for one in self.clients)
        }
        assert {place for client in self.clients for place in client.owned} == wanted
        assert sum(len(client.owned) for client in self.clients) == len(wanted)
        for giver in self.clients:
            for taker in self.clients:
                if any(self.names()[place.topic_id] in self.meant_by(taker) for place in giver.owned):
                    assert len(giver.owned) - len(taker.owned) <= 1

    def names(self) -> dict[UUID, str]:
        return {UUID(int=self.ids[name]): name for name in self.counts}

    def meant_by(self, client: Client) -> set[str]:
        return {name for name in NAMES if name in client.topics or (client.pattern and name.startswith("a-"))}

    # -- what must hold

    @invariant()
    def no_partition_has_two_owners(self) -> None:
        held = [place for member in self.members().values() for place in member.holds]
        assert len(held) == len(set(held))

    @invariant()
    def clients_read_only_what_is_theirs(self) -> None:
        """A client that would not be refused owns nothing that another may have."""
        members = self.members()
        for client in self.clients:
            member = members.get(client.member_id)
            if member is not None and client.epoch in (member.epoch, member.previous_epoch) and client.epoch != JOIN:
                would_be_heard = client.epoch == member.epoch or client.owned <= member.assigned
                assert not would_be_heard or client.owned <= member.holds

    @invariant()
    def epochs_are_in_order(self) -> None:
        if self.group is not None:
            assert self.group.target_epoch <= self.group.epoch
            assert all(member.epoch <= self.group.target_epoch for member in self.group.members)


TestConsumerGroups = ConsumerGroups.TestCase
TestConsumerGroups.settings = settings(max_examples=examples(150), stateful_step_count=40, deadline=None)


@pytest.mark.parametrize("kept", range(8))
def test_a_join_that_was_written_in_part_is_done_in_whole_later(kept: int) -> None:
    world = ConsumerGroups()
    world.grow_topic("a-1", 1)
    world.start_client(None, ("a-1",), None)
    world.settle()
    world.clients.append(Client("late", None, ("a-1",), None))
    world.crash_while_writing(1, kept)
    world.settle()
    assert [len(client.owned) for client in world.clients] == [2, 2]
