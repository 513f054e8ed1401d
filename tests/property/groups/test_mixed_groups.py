"""A group whose members change from one protocol to the other and back, under anything that may happen to it.

Clients of the classic protocol, eager or cooperative, and of the consumer protocol come and go, answers get lost,
clients vanish, partitions are added, and the broker starts anew from its log, compacted or cut in the middle of what it
was writing. Whoever would be heard reads nothing that another one reads, committed offsets never go back, and left
alone the group comes to rest with every partition read.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from uuid import UUID

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from headrace.coordinator.machine import Entry
from headrace.coordinator.shard import Result
from headrace.groups.assignors import Place
from headrace.groups.classic import ClassicGroup
from headrace.groups.consumer import ConsumerGroup, Heartbeat
from headrace.groups.group import JOIN, LEAVE, Answer, Beat, ConsumerLimits, Convert, Effects, GroupLimits, Now
from headrace.groups.machine import Commit, Committer, GroupMachine
from headrace.groups.members import Joined, JoinRequest, Synced
from headrace.groups.reconciliation import LEFT_FOR_NOW
from headrace.groups.subscription import (
    CONSUMER,
    Subscription,
    read_assignment,
    read_subscription,
    write_assignment,
)
from headrace.model.errors import GroupError, IllegalGeneration, MemberIdRequired, RebalanceInProgress, UnknownMember
from headrace.model.ids import BrokerId, LeaderEpoch, TopicId, TopicName
from headrace.model.image import ClusterImage, PartitionState, TopicImage
from headrace.runtime.deferred import Deferred

GROUP, TOPIC, TOPIC_ID = "g", "t", UUID(int=1)
SESSION_MS, REBALANCE_MS = 30_000, 10_000
_STATE = PartitionState(BrokerId(0), LeaderEpoch(0), (BrokerId(0),), (BrokerId(0),))


def subscription(owned: frozenset[int]) -> bytes:
    """Version 1: the topic, no user data, what is owned. An assignment is the same but for the list of topics."""
    return b"\0\1\0\0\0\1\0\1t\xff\xff\xff\xff" + write_assignment(1, [(TOPIC, tuple(owned))] if owned else ())[2:-4]


def test_subscriptions_are_read() -> None:
    assert read_subscription(subscription(frozenset({3}))) == Subscription(1, frozenset({TOPIC}), ((TOPIC, (3,)),))
    assert read_subscription(subscription(frozenset())) == Subscription(1, frozenset({TOPIC}))
    assert read_subscription(subscription(frozenset({3}))[:-1]) is None


class Client:
    """What clients of both protocols are: where they are in what they own."""

    def __init__(self, instance_id: str | None) -> None:
        self.instance_id = instance_id
        self.positions: dict[int, int] = {}

    member_id = ""
    epoch = -1

    @property
    def owned(self) -> frozenset[int]:
        return frozenset(self.positions)

    def keep(self, partitions: frozenset[int]) -> None:
        self.positions = {number: at for number, at in self.positions.items() if number in partitions}

    def take(self, partitions: frozenset[int], committed: Callable[[int], int]) -> None:
        for number in partitions - self.owned:
            self.positions[number] = committed(number)


class ClassicClient(Client):
    def __init__(self, instance_id: str | None, *, cooperates: bool) -> None:
        super().__init__(instance_id)
        self.cooperates = cooperates
        self.does: Callable[[World, ClassicClient], None] = ClassicClient.join
        self.waits = False
        self.members: dict[str, frozenset[int]] = {}
        """What each member owns, for the one that leads."""

    def step(self, world: "World") -> None:
        if not self.waits:
            self.does(self, world)

    def join(self, world: "World") -> None:
        if not self.cooperates:
            self.keep(frozenset())
        name = "cooperative" if self.cooperates else "eager"
        world.made += 1
        wants = JoinRequest(
            self.member_id,
            self.instance_id,
            "",
            "",
            SESSION_MS,
            REBALANCE_MS,
            CONSUMER,
            ((name, subscription(self.owned)),),
            f"c{world.made}",
            needs_known_id=True,
        )

        def tell(waiter: Deferred[Result[Joined]]) -> Effects:
            group = world.machine.for_join(GROUP, self.member_id, world.now)
            if isinstance(group, ClassicGroup):
                return group.join(wants, waiter, world.now)
            return group.classic_join(wants, world.image, waiter, world.now)

        world.ask(self, tell, self.joined)

    def joined(self, world: "World", told: Joined) -> None:
        self.member_id, self.epoch, self.does = told.member_id, told.generation, ClassicClient.sync
        self.members = {}
        if told.leader == told.member_id:
            for other in told.members:
                said = read_subscription(other.subscription)
                assert said is not None
                self.members[other.member_id] = frozenset(n for _, numbers in said.owned for n in numbers)

    def sync(self, world: "World") -> None:
        shares = {
            member_id: write_assignment(1, [(TOPIC, tuple(share))]) for member_id, share in self.assign(world).items()
        }

        def tell(waiter: Deferred[Result[Synced]]) -> Effects:
            group, by = world.machine.for_member(GROUP), (self.member_id, self.instance_id, self.epoch)
            if isinstance(group, ClassicGroup):
                return group.sync(*by, (None, None), shares, waiter, world.now)
            return group.classic_sync(*by, (None, None), world.image, waiter, world.now)

        world.ask(self, tell, self.synced)

    def assign(self, world: "World") -> dict[str, frozenset[int]]:
        """In turn, but nothing that another one still owns: its owner has to give it up first."""
        order = sorted(self.members)
        owners = {number: name for name, owned in self.members.items() for number in owned}
        shares: dict[str, set[int]] = {name: set() for name in order}
        for number in range(world.partitions):
            name = order[number % len(order)] if order else ""
            if name and owners.get(number, name) == name:
                shares[name].add(number)
        return {name: frozenset(share) for name, share in shares.items()}

    def synced(self, world: "World", told: Synced) -> None:
        read = read_assignment(told.assignment)
        assert read is not None
        assigned = frozenset(number for _, numbers in read for number in numbers)
        gave_up = bool(self.owned - assigned)
        self.keep(assigned)
        self.take(assigned, world.committed)
        self.does = ClassicClient.join if gave_up else ClassicClient.beat

    def beat(self, world: "World") -> None:
        def tell(_: Any) -> Effects:
            group, by = world.machine.for_member(GROUP), (self.member_id, self.instance_id, self.epoch)
            if isinstance(group, ClassicGroup):
                group.heartbeat(*by, world.now)
            else:
                group.classic_heartbeat(*by, world.image, world.now)
            return []

        world.ask(self, tell, lambda *_: None)
        self.waits = False

    def refused(self, error: Exception) -> None:
        self.does = ClassicClient.join
        if isinstance(error, RebalanceInProgress):
            return
        self.keep(frozenset())
        self.epoch = -1
        if isinstance(error, MemberIdRequired):
            self.member_id = error.member_id
        elif not isinstance(error, IllegalGeneration):
            self.member_id = ""

    def leave(self, world: "World") -> None:
        def tell(_: Any) -> Effects:
            group = world.machine.for_member(GROUP)
            if isinstance(group, ClassicGroup):
                return group.leave([(self.member_id, self.instance_id)], world.now)[1]
            return group.classic_leave([(self.member_id, self.instance_id)], world.image, world.now)[1]

        world.ask(self, tell, lambda *_: None)


class ConsumerClient(Client):
    def __init__(self, member_id: str, instance_id: str | None) -> None:
        super().__init__(instance_id)
        self.member_id = member_id
        self.epoch = JOIN
        self.told: frozenset[int] = frozenset()
        self.says_all = True
        self.waits = False

    def step(self, world: "World") -> None:
        self.keep(self.told)
        owned = frozenset(self.owned)
        beat = Heartbeat(
            self.member_id,
            self.epoch,
            self.instance_id,
            rebalance_timeout_ms=REBALANCE_MS if self.says_all else -1,
            topics=(TOPIC,) if self.says_all else None,
            owned=world.places(owned),
        )
        self.says_all = True  # unless there is an answer
        world.ask(self, lambda waiter: world.heartbeat(beat, waiter), self.hear)

    def hear(self, world: "World", told: Beat) -> None:
        self.epoch, self.says_all = told.epoch, False
        if told.assignment is not None:
            self.told = frozenset(place.partition for place in told.assignment)
        if not self.owned - self.told:
            self.take(self.told, world.committed)

    def refused(self, error: Exception) -> None:
        self.keep(frozenset())
        self.epoch, self.told, self.says_all = JOIN, frozenset(), True

    def leave(self, world: "World", epoch: int = LEAVE) -> None:
        beat = Heartbeat(self.member_id, epoch, self.instance_id)
        world.ask(self, lambda waiter: world.heartbeat(beat, waiter), lambda *_: None)


class World(RuleBasedStateMachine):
    @initialize(cooperates=st.booleans(), policy=st.sampled_from(["both", "both", "upgrade"]))
    def begin(self, cooperates: bool = False, policy: str = "both") -> None:
        self.cooperates = cooperates
        self.limits = GroupLimits(
            initial_rebalance_delay_ms=0,
            consumer=ConsumerLimits(session_timeout_ms=SESSION_MS, can_downgrade=policy == "both"),
        )
        self.now = Now(0.0, 0)
        self.log: list[Entry] = []
        self.clients: list[ClassicClient | ConsumerClient] = []
        self.made = self.lives = 0
        self.partitions = 4
        self.revision = 1
        self.hears = True
        """Whether answers arrive."""
        self.load()

    # -- the broker

    def load(self) -> None:
        self.lives += 1
        self.machine = GroupMachine(self.limits)
        for one in self.log:
            self.machine.replay(one, -1)
        self.machine.loaded(self.now.ms)
        for client in self.clients:
            if client.waits:
                client.waits = False
                client.refused(RebalanceInProgress("the connection is gone"))

    @property
    def image(self) -> ClusterImage:
        topic = TopicImage(TopicName(TOPIC), TopicId(TOPIC_ID), (_STATE,) * self.partitions)
        return ClusterImage("c", BrokerId(0), {}, {topic.name: topic}, {TOPIC_ID: topic.name}, {}, self.revision)

    def places(self, partitions: frozenset[int]) -> Any:
        return frozenset(Place(TOPIC_ID, number) for number in partitions)

    def heartbeat(self, beat: Heartbeat, waiter: Deferred[Result[Beat]]) -> Effects:
        return self.machine.consumer_heartbeat(GROUP, beat, self.image, waiter, self.now)

    def ask(
        self,
        client: ClassicClient | ConsumerClient,
        tell: Callable[[Deferred[Any]], Effects],
        told: Callable[["World", Any], None],
    ) -> None:
        lives, hears = self.lives, self.hears
        waiter: Deferred[Result[Any]] = Deferred()

        def answered(result: Result[Any]) -> None:
            if lives != self.lives:
                return
            client.waits = False
            if not hears:
                if isinstance(client, ClassicClient) and client.does is ClassicClient.beat:
                    return
                # It asks again.
            elif result.error is not None:
                client.refused(result.error)
            else:
                told(self, result.get())

        client.waits = True
        waiter.then(answered)
        try:
            self.apply(tell(waiter))
        except GroupError as error:
            waiter.resolve(Result(error=error))

    def apply(self, effects: Effects) -> None:
        for effect in effects:
            if isinstance(effect, Convert):
                self.machine.adopt(effect.group)
            elif isinstance(effect, Answer):
                effect.waiter.resolve(effect.result)
            else:
                self.write(effect.entries)
                for answer in effect.answers:
                    answer.waiter.resolve(answer.result)

    def write(self, entries: Any) -> None:
        for one in entries:
            self.log.append(one)
            self.machine.replay(one, -1)

    def committed(self, partition: int) -> int:
        found = self.machine.offsets.get(GROUP, TOPIC, partition)
        return 0 if found is None else found.offset

    @property
    def group(self) -> ClassicGroup | ConsumerGroup | None:
        found = self.machine.groups.get(GROUP)
        assert found is None or isinstance(found, ClassicGroup | ConsumerGroup)
        return found

    # -- what may happen

    @precondition(lambda self: len(self.clients) < 5)
    @rule(kind=st.sampled_from(["classic", "consumer"]), instance=st.none() | st.sampled_from(["i1", "i2"]))
    def start_client(self, kind: str, instance: str | None) -> None:
        if instance is not None and any(client.instance_id == instance for client in self.clients):
            return
        if kind == "classic":
            self.clients.append(ClassicClient(instance, cooperates=self.cooperates))
        else:
            self.made += 1
            self.clients.append(ConsumerClient(f"k{self.made}", instance))
        self.clients[-1].step(self)

    @precondition(lambda self: self.clients)
    @rule(which=st.integers(0, 4), hears=st.sampled_from([True, True, True, False]), times=st.integers(1, 3))
    def step(self, which: int, hears: bool, times: int) -> None:
        self.hears = hears
        for _ in range(times):
            self.clients[which % len(self.clients)].step(self)
        self.hears = True

    @precondition(lambda self: self.clients)
    @rule(which=st.integers(0, 4), how=st.sampled_from(["leave", "leave", "crash", "for now"]))
    def end_client(self, which: int, how: str) -> None:
        client = self.clients.pop(which % len(self.clients))
        client.keep(frozenset())
        if how == "for now" and isinstance(client, ConsumerClient) and client.instance_id is not None:
            client.leave(self, LEFT_FOR_NOW)
        elif how == "leave":
            client.leave(self)

    @precondition(lambda self: self.clients)
    @rule(which=st.integers(0, 4))
    def commit(self, which: int) -> None:
        client = self.clients[which % len(self.clients)]
        for partition, at in client.positions.items():
            by = Committer(client.member_id, client.instance_id, client.epoch)
            try:
                done = self.machine.commit(GROUP, by, [Commit(TOPIC, partition, at + 1)], self.now)
            except GroupError:
                return
            assert at + 1 > self.committed(partition)
            self.write(done.entries)
            client.positions[partition] = at + 1

    @rule(passing_ms=st.sampled_from([1_000.0, float(REBALANCE_MS), float(SESSION_MS)]))
    def time_passes(self, passing_ms: float) -> None:
        self.now = Now(self.now.ms + passing_ms, 0)
        for _ in range(3):
            due_ms = None if self.group is None else self.group.next_deadline_ms()
            if self.group is not None and due_ms is not None and due_ms <= self.now.ms:
                self.apply(self.group.expire(self.image, self.now))

    @rule(compacts=st.booleans())
    def restart(self, compacts: bool) -> None:
        if compacts:
            last = {one.key: at for at, one in enumerate(self.log)}
            self.log = [one for at, one in enumerate(self.log) if last[one.key] == at and one.value is not None]
        self.load()

    @precondition(lambda self: self.clients)
    @rule(which=st.integers(0, 4), kept=st.integers(0, 12), leaves=st.booleans())
    def crash_while_writing(self, which: int, kept: int, leaves: bool) -> None:
        """Only the first records of what follows from a request are in the log, and nobody gets an answer."""
        with self.crashing(kept):
            client = self.clients[which % len(self.clients)]
            if leaves:
                client.keep(frozenset())
                self.clients.remove(client)
                client.leave(self)
            else:
                client.step(self)

    @contextmanager
    def crashing(self, kept: int) -> Iterator[None]:
        before, self.hears = len(self.log), False
        yield
        self.log, self.hears = self.log[: before + kept], True
        self.load()

    @rule()
    def grow(self) -> None:
        if self.partitions < 8:
            self.partitions += 1
            self.revision += 1

    @rule()
    def settle(self) -> None:
        """Left alone, the group comes to rest, is of the right kind, and every partition is read by somebody."""
        for _ in range(4):
            for _ in range(6 * len(self.clients) + 6):
                for client in self.clients:
                    client.step(self)
            # Who does not say anything any more goes; the others stay.
            self.time_passes(SESSION_MS / 2)
        for _ in range(6 * len(self.clients) + 6):
            for client in self.clients:
                client.step(self)
        if not self.clients:
            return
        read = [number for client in self.clients for number in client.owned]
        is_classic = isinstance(self.group, ClassicGroup)
        # Leaders of classic groups look after the topics that grow, which is not modelled.
        assert len(read) == len(set(read))
        assert is_classic or sorted(read) == list(range(self.partitions))
        if any(isinstance(client, ConsumerClient) for client in self.clients):
            assert not is_classic
        elif self.limits.consumer.can_downgrade:
            assert is_classic
            assert len(read) >= 4

    # -- what must hold

    def is_heard(self, client: ClassicClient | ConsumerClient) -> bool:
        """Whether it could commit or heartbeat, so that what it reads is its own."""
        group = self.group
        if isinstance(group, ClassicGroup):
            member_ids = group.members.keys()
            return isinstance(client, ClassicClient) and (
                client.member_id in member_ids and client.epoch == group.generation
            )
        members = {} if group is None else {member.member_id: member for member in group.members}
        member = members.get(client.member_id)
        return member is not None and client.epoch == member.epoch and client.epoch != JOIN

    @invariant()
    def nobody_who_is_heard_reads_what_another_reads(self) -> None:
        read = [number for client in self.clients if self.is_heard(client) for number in client.owned]
        assert len(read) == len(set(read)), [(c.member_id, c.epoch, c.owned) for c in self.clients]

    @invariant()
    def members_of_the_consumer_protocol_are_in_consumer_groups(self) -> None:
        group = self.group
        if isinstance(group, ConsumerGroup):
            held = [place for member in group.members for place in member.holds]
            assert len(held) == len(set(held))
            assert all(member.epoch <= group.target_epoch <= group.epoch for member in group.members)


TestMixedGroups = World.TestCase
TestMixedGroups.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)


def world(*, cooperates: bool = False, policy: str = "both") -> World:
    made = World()
    made.begin(cooperates, policy)
    return made


@pytest.mark.parametrize("cooperates", [False, True])
def test_a_group_is_rolled_to_the_other_protocol_and_back(cooperates: bool) -> None:
    one = world(cooperates=cooperates)
    for kinds in (["classic", "classic"], ["consumer", "consumer"], ["classic", "classic"]):
        for kind in kinds:
            before = len(one.clients)
            one.start_client(kind, None)
            one.settle()
            assert sum(len(client.owned) for client in one.clients) == 4
            assert all(client.owned for client in one.clients[-4:])
            for which in range(before):
                one.commit(which)
            if before == 2:
                one.end_client(0, "leave")
                one.settle()
        assert one.group is not None
        assert one.group.kind == kinds[0]


@pytest.mark.parametrize("kept", range(10))
@pytest.mark.parametrize("cooperates", [False, True])
def test_a_change_of_the_protocol_that_was_written_in_part_is_made_up_for(kept: int, cooperates: bool) -> None:
    one = world(cooperates=cooperates)
    for _ in range(2):
        one.start_client("classic", None)
    one.settle()
    one.clients.append(ConsumerClient("late", None))
    one.crash_while_writing(2, kept, leaves=False)
    one.settle()
    one.crash_while_writing(2, kept, leaves=True)
    one.settle()
    one.restart(compacts=True)
    one.settle()
    assert [len(client.owned) for client in one.clients] == [2, 2]


@pytest.mark.parametrize("holder", ["classic", "consumer"])
def test_a_static_member_comes_back_with_the_other_protocol(holder: str) -> None:
    one = world()
    other = "consumer" if holder == "classic" else "classic"
    for kind, instance in ((holder, "i1"), (holder, "i2")):
        one.start_client(kind, instance)
    one.settle()
    for instance in ("i1", "i2"):
        one.end_client(0, "for now" if holder == "consumer" else "crash")
        one.start_client(other, instance)
        for _ in range(20):
            for client in one.clients:
                client.step(one)
        assert sorted(len(client.owned) for client in one.clients) == [2, 2], instance
    assert one.group is not None
    assert one.group.kind == other


def test_without_downgrades_classic_members_stay_in_a_consumer_group_and_follow_its_topics() -> None:
    one = world(policy="upgrade")
    one.start_client("classic", None)
    one.start_client("consumer", None)
    one.settle()
    one.end_client(1, "leave")
    one.grow()
    one.settle()
    assert isinstance(one.group, ConsumerGroup)
    assert len(one.clients[0].owned) == 5


def test_a_classic_member_that_does_not_do_what_it_is_told_is_removed() -> None:
    one = world()
    one.start_client("classic", None)
    one.settle()
    silent = one.clients[0]
    one.start_client("consumer", None)
    assert isinstance(silent, ClassicClient)
    silent.step(one)
    assert silent.does is ClassicClient.join
    for _ in range(2):
        one.time_passes(REBALANCE_MS / 2)
        one.clients[1].step(one)
    assert len(one.clients[1].owned) == 4
    silent.step(one)
    assert not silent.owned
    one.settle()
    assert [len(client.owned) for client in one.clients] == [2, 2]


def test_what_members_still_read_in_the_middle_of_a_rebalance_is_not_given_to_others() -> None:
    one = world(cooperates=True)
    one.start_client("classic", None)
    one.settle()
    first = one.clients[0]
    # Two more join, the second of them before the first generation of the two is assigned.
    for _ in range(2):
        one.start_client("classic", None)
        one.clients[-1].step(one)
        first.step(one)
        first.step(one)
    assert isinstance(one.group, ClassicGroup)
    assert one.group.state_name != "Stable"
    assert len(first.owned) == 4
    one.start_client("consumer", None)
    for _ in range(3):
        one.clients[-1].step(one)
        one.nobody_who_is_heard_reads_what_another_reads()
    assert isinstance(one.group, ConsumerGroup)
    assert not one.clients[-1].owned
    one.settle()
    assert [len(client.owned) for client in one.clients] == [1, 1, 1, 1]


def test_the_last_claim_to_a_partition_that_nobody_was_assigned_holds() -> None:
    """The answer to the sync that took partitions from a member was lost, and nobody else has them yet."""
    one = world(cooperates=True)
    one.start_client("classic", None)
    one.settle()
    first = one.clients[0]
    one.start_client("classic", None)
    second = one.clients[1]
    second.step(one)
    first.step(one)
    first.step(one)
    one.hears = False
    first.step(one)
    one.hears = True
    second.step(one)
    assert one.group is not None
    assert (one.group.state_name, len(first.owned), len(second.owned)) == ("Stable", 4, 0)
    one.start_client("consumer", None)
    for _ in range(3):
        one.clients[-1].step(one)
        one.nobody_who_is_heard_reads_what_another_reads()
    assert not one.clients[-1].owned


def test_a_member_that_was_away_while_its_group_became_classic_brings_it_back() -> None:
    one = world()
    one.start_client("classic", None)
    one.start_client("consumer", None)
    one.settle()
    away = one.clients.pop()
    one.settle()
    assert isinstance(one.group, ClassicGroup)
    beat = Heartbeat(away.member_id, away.epoch, owned=one.places(away.owned))
    with pytest.raises(UnknownMember):
        one.heartbeat(beat, Deferred())
    one.clients.append(away)
    one.settle()
    assert isinstance(one.group, ConsumerGroup)
    assert [len(client.owned) for client in one.clients] == [2, 2]
