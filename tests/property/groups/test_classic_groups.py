"""A classic group under random interleavings of its members' steps, time, commits, and restarts at any record.

The shard is a list of records: some committed, the rest on the way. Answers leave when what they rest on is committed,
as `coordinator/shard.py` promises. A restart keeps the committed records and any number of those on the way.
"""

from collections.abc import Callable
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from tests.property.groups.group_log import GroupLog
from tests.property.profile import examples

from headrace.coordinator.machine import Outcome
from headrace.coordinator.result import Result
from headrace.groups.classic import ClassicGroup
from headrace.groups.classic_protocol import JoinRequest
from headrace.groups.generation import GroupState
from headrace.groups.group import Effects, GroupLimits, Now, Reply
from headrace.groups.machine import GroupMachine
from headrace.groups.offsets import Committer, OffsetCommit
from headrace.model.errors import (
    FencedInstance,
    GroupError,
    IllegalGeneration,
    MemberIdRequired,
    RebalanceInProgress,
    UnknownMember,
)
from headrace.model.ids import BrokerId
from headrace.model.image import ClusterImage
from headrace.runtime.deferred import Deferred

IMAGE = ClusterImage("c", BrokerId(0), {}, {}, {}, {}, 1)
GROUP, TOPIC, PARTITIONS = "g", "t", 6
LIMITS = GroupLimits(initial_rebalance_delay_ms=3000, min_session_timeout_ms=1, max_size=5)
INSTANCES = (None, None, None, "s1", "s1", "s2")
CLIENTS = range(len(INSTANCES))


class Client:
    """What a member knows. Two clients share an instance id: one of them is the zombie of the other."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.instance_id = INSTANCES[number]
        self.reset()

    def reset(self) -> None:
        self.member_id = ""
        self.lost()

    def lost(self) -> None:
        """It has to join again."""
        self.generation = -1
        self.members: tuple[str, ...] = ()
        self.owned: frozenset[int] = frozenset()
        self.waits = False


class Groups(RuleBasedStateMachine):
    @initialize()
    def begin(self) -> None:
        self.machine = GroupMachine(LIMITS)
        self.machine.loaded(0)
        self.now = Now(0.0, 1_000_000)
        self.log = GroupLog()
        self.committed = 0
        self.answers: list[tuple[int, Reply]] = []
        self.clients = [Client(number) for number in CLIENTS]
        self.ids = 0
        self.restarts = 0
        self.owners: dict[tuple[int, int], str] = {}
        self.offset = 0
        self.written: list[tuple[int, int, int]] = []
        """Position in the log behind it, partition, offset: every commit that is in the log."""
        self.acked: dict[int, int] = {}
        self.replaced: set[str] = set()
        self.holders: dict[str, str] = {}
        self.last_generation = 0

    # -- the shell around the machine

    def write(self, records: Any) -> int:
        return self.log.write(self.machine, records)

    def apply(self, effects: Effects) -> None:
        for effect in effects:
            if isinstance(effect, Reply):
                effect.waiter.resolve(effect.result)
            else:
                assert isinstance(effect, Outcome)
                end = self.write(effect.records)
                self.answers += [(end, answer) for answer in effect.answer]

    def tell(self, waiter: Deferred[Any] | None, event: Callable[[], Effects]) -> None:
        try:
            self.apply(event())
        except GroupError as error:
            if waiter is not None:
                waiter.resolve(Result(error=error))

    def waiter(self, client: Client, got: Callable[[Result[Any]], None]) -> Deferred[Any]:
        waiter: Deferred[Any] = Deferred()
        client.waits = True
        restarts = self.restarts

        def answered(result: Result[Any]) -> None:
            if restarts == self.restarts:
                client.waits = False
                got(result)

        waiter.then(answered)
        return waiter

    @property
    def group(self) -> ClassicGroup | None:
        found = self.machine.groups.get(GROUP)
        assert found is None or isinstance(found, ClassicGroup)
        return found

    # -- members

    @rule(
        number=st.sampled_from(CLIENTS), protocols=st.sampled_from([("a", "b"), ("b", "a"), ("b",)]), old=st.booleans()
    )
    def join(self, number: int, protocols: tuple[str, ...], old: bool) -> None:
        client = self.clients[number]
        if client.waits:
            return
        self.ids += 1
        wants = JoinRequest(
            client.member_id, client.instance_id, f"c{number}", "/h", 10_000, 20_000, "consumer",
            tuple((name, b"") for name in protocols), f"id-{self.ids}",
            needs_known_id=not old, can_skip_assignment=not old,
        )  # fmt: skip

        def got(result: Result[Any]) -> None:
            error = result.error
            if isinstance(error, MemberIdRequired):
                client.member_id = error.member_id
            elif isinstance(error, UnknownMember | FencedInstance):
                client.reset()
            elif error is None:
                joined = result.get()
                client.member_id, client.generation = joined.member_id, joined.generation
                if joined.leader == client.member_id and not joined.skip_assignment:
                    client.members = tuple(member.member_id for member in joined.members)
                    assert client.member_id in client.members
                if client.instance_id is not None:
                    before = self.holders.get(client.instance_id)
                    if before not in (None, client.member_id):
                        self.replaced.add(before or "")
                    self.holders[client.instance_id] = client.member_id

        client.lost()
        waiter = self.waiter(client, got)
        self.tell(
            waiter,
            lambda: self.machine.for_join(GROUP, wants.member_id, self.now).classic_join(
                wants, IMAGE, waiter, self.now
            ),
        )

    @rule(number=st.sampled_from(CLIENTS))
    def sync(self, number: int) -> None:
        client = self.clients[number]
        if client.waits or client.generation < 0:
            return
        assignments = {
            member: bytes(range(PARTITIONS))[at :: len(client.members)] for at, member in enumerate(client.members)
        }
        generation = client.generation

        def got(result: Result[Any]) -> None:
            if isinstance(result.error, UnknownMember | FencedInstance):
                client.reset()
            elif result.error is not None:
                client.lost()
            else:
                client.owned = frozenset(result.get().assignment)
                who = client.instance_id or client.member_id
                for partition in client.owned:
                    owner = self.owners.setdefault((generation, partition), who)
                    assert owner == who, f"{partition} has two owners in generation {generation}"

        waiter = self.waiter(client, got)
        self.tell(
            waiter,
            lambda: self.machine.for_member(GROUP).classic_sync(
                Committer(client.member_id, client.instance_id, generation),
                (None, None),
                assignments,
                IMAGE,
                waiter,
                self.now,
            ),
        )

    @rule(number=st.sampled_from(CLIENTS))
    def heartbeat(self, number: int) -> None:
        client = self.clients[number]
        try:
            self.machine.for_member(GROUP).classic_heartbeat(
                Committer(client.member_id, client.instance_id, client.generation), IMAGE, self.now
            )
            assert client.member_id not in self.replaced
        except (UnknownMember, FencedInstance):
            if not client.waits:
                client.reset()
        except (RebalanceInProgress, IllegalGeneration):
            if not client.waits:
                client.lost()

    @rule(number=st.sampled_from(CLIENTS))
    def leave(self, number: int) -> None:
        client = self.clients[number]

        def left() -> Effects:
            results, effects = self.machine.for_member(GROUP).classic_leave(
                [(client.member_id, client.instance_id)], IMAGE, self.now
            )
            if client.member_id in self.replaced:
                assert results[0] is not None
            return effects

        if not client.waits and client.member_id:
            self.tell(None, left)
            client.reset()

    @rule(number=st.sampled_from(CLIENTS), partition=st.integers(0, PARTITIONS - 1))
    def commit(self, number: int, partition: int) -> None:
        client = self.clients[number]
        self.offset += 1
        offset = self.offset
        by = Committer(client.member_id, client.instance_id, client.generation)
        try:
            outcome = self.machine.commit(GROUP, by, [OffsetCommit(TOPIC, partition, offset)], self.now)
        except (UnknownMember, FencedInstance, RebalanceInProgress, IllegalGeneration):
            return
        group = self.group
        if client.generation >= 0:
            assert client.member_id not in self.replaced, "a fenced member committed"
            assert group is not None
            assert client.generation == group.generation
        elif group is not None:
            assert group.state is GroupState.EMPTY
        end = self.write(outcome.records)
        self.written.append((end, partition, offset))
        waiter: Deferred[Any] = Deferred()
        waiter.then(lambda _: self.acked.__setitem__(partition, offset))
        self.answers.append((end, Reply(waiter, Result())))

    # -- time, disk, crashes

    @rule(ms=st.sampled_from([1, 500, 3_000, 9_000, 25_000]))
    def wait(self, ms: int) -> None:
        end = self.now.ms + ms
        while True:
            group = self.group
            due = None if group is None else group.next_deadline_ms()
            if group is None or due is None or due > end:
                break
            self.now = Now(max(due, self.now.ms), self.now.wall_ms)
            self.apply(group.expire(IMAGE, self.now))
            later = group.next_deadline_ms()
            assert later is None or later > self.now.ms, "it would wake up for ever"
        self.now = Now(end, self.now.wall_ms + ms)

    @rule(rewrites=st.integers(0, 5))
    def upgrade(self, rewrites: int) -> None:
        self.log.upgrade(self.machine, rewrites)

    @rule()
    def flush(self) -> None:
        self.committed = len(self.log)
        answers, self.answers = self.answers, []
        for _, (waiter, result) in answers:
            waiter.resolve(result)

    @rule(kept=st.integers(0, 5))
    def restart(self, kept: int) -> None:
        self.log.cut(self.committed + kept)
        self.written = [one for one in self.written if one[0] <= len(self.log)]
        self.committed = len(self.log)
        self.answers = []
        self.restarts += 1
        self.machine = GroupMachine(LIMITS)
        self.log.load(self.machine)
        self.machine.loaded(self.now.ms)
        for client in self.clients:
            if client.waits:
                client.lost()

    # -- what holds

    @invariant()
    def offsets_are_the_last_ones_written(self) -> None:
        last = {partition: offset for _, partition, offset in self.written}
        found = {partition: value.offset for (_, partition), value in self.machine.offsets.of_group(GROUP)}
        assert found == last
        assert all(found[partition] >= offset for partition, offset in self.acked.items())

    @invariant()
    def nobody_is_lost(self) -> None:
        group = self.group
        if group is None:
            return
        assert (group.state is GroupState.EMPTY) == (not group.members)
        assert group.leader is None or group.leader in group.members
        assert len(group.members) <= LIMITS.max_size + sum(name is not None for name in INSTANCES)
        if group.members:
            assert group.next_deadline_ms() is not None, "its members could stay for ever"
        instances = [member.instance_id for member in group.members.values() if member.instance_id]
        assert len(set(instances)) == len(instances)

    def teardown(self) -> None:
        """In the end, if everybody joins and syncs, the group is stable and every partition has one owner."""
        if not hasattr(self, "machine"):
            return
        for _ in range(40):
            self.flush()
            for client in self.clients:
                if client.number == 4:
                    continue  # The second holder of an instance id would fence the first for ever.
                if client.generation < 0:
                    self.join(client.number, ("a", "b"), old=False)
                elif not client.owned:
                    self.sync(client.number)
                else:
                    self.heartbeat(client.number)
            self.wait(1_000)
        group = self.group
        assert group is not None
        assert group.state is GroupState.STABLE
        owned = [partition for client in self.clients if client.number != 4 for partition in client.owned]
        assert sorted(owned) == list(range(PARTITIONS))


TestGroups = Groups.TestCase
TestGroups.settings = settings(max_examples=examples(300), stateful_step_count=70, deadline=None)
