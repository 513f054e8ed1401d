"""A group machine, its log and its clients, and everything that may happen to them."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from tests.property.groups.group_log import GroupLog
from tests.property.groups.mixed_clients import (
    GROUP,
    REBALANCE_MS,
    SESSION_MS,
    TOPIC,
    TOPIC_ID,
    ClassicClient,
    ConsumerClient,
)

from headrace.coordinator.machine import Outcome
from headrace.coordinator.result import Result
from headrace.groups.assignors import TopicIdPartition
from headrace.groups.classic import ClassicGroup
from headrace.groups.consumer import ConsumerGroup, Heartbeat
from headrace.groups.epoch_members import LEFT_FOR_NOW
from headrace.groups.group import JOIN, Beat, ConsumerLimits, Convert, Effects, GroupLimits, Now, Reply
from headrace.groups.machine import GroupMachine
from headrace.groups.offsets import Committer, OffsetCommit
from headrace.model.errors import GroupError, RebalanceInProgress
from headrace.model.ids import BrokerId, LeaderEpoch, TopicId, TopicName
from headrace.model.image import ClusterImage, PartitionState, TopicImage
from headrace.runtime.deferred import Deferred

_STATE = PartitionState(BrokerId(0), LeaderEpoch(0), (BrokerId(0),), (BrokerId(0),))


class World(RuleBasedStateMachine):
    @initialize(cooperates=st.booleans(), policy=st.sampled_from(["both", "both", "upgrade"]))
    def begin(self, cooperates: bool = False, policy: str = "both") -> None:
        self.cooperates = cooperates
        self.limits = GroupLimits(
            initial_rebalance_delay_ms=0,
            consumer=ConsumerLimits(session_timeout_ms=SESSION_MS, can_downgrade=policy == "both"),
        )
        self.now = Now(0.0, 0)
        self.log = GroupLog()
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
        self.log.load(self.machine)
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
        return frozenset(TopicIdPartition(TOPIC_ID, number) for number in partitions)

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
            elif isinstance(effect, Reply):
                effect.waiter.resolve(effect.result)
            else:
                assert isinstance(effect, Outcome), "there are no streams groups here"
                self.log.write(self.machine, effect.records)
                for answer in effect.answer:
                    answer.waiter.resolve(answer.result)

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
                done = self.machine.commit(GROUP, by, [OffsetCommit(TOPIC, partition, at + 1)], self.now)
            except GroupError:
                return
            assert at + 1 > self.committed(partition)
            self.log.write(self.machine, done.records)
            client.positions[partition] = at + 1

    @rule(passing_ms=st.sampled_from([1_000.0, float(REBALANCE_MS), float(SESSION_MS)]))
    def time_passes(self, passing_ms: float) -> None:
        self.now = Now(self.now.ms + passing_ms, 0)
        for _ in range(3):
            due_ms = None if self.group is None else self.group.next_deadline_ms()
            if self.group is not None and due_ms is not None and due_ms <= self.now.ms:
                self.apply(self.group.expire(self.image, self.now))

    @rule(compacts=st.sampled_from([0, 0, 50, 90, 100]), drops=st.booleans())
    def restart(self, compacts: int, drops: bool) -> None:
        """`compacts` is the part of the log in percent that is compacted."""
        self.log.compact(len(self.log) * compacts // 100, drops_tombstones=drops)
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
        self.log.cut(before + kept)
        self.hears = True
        self.load()

    @rule(rewrites=st.integers(0, 5))
    def upgrade(self, rewrites: int) -> None:
        self.log.upgrade(self.machine, rewrites)

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
