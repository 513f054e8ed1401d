"""A streams group under anything that may happen to it: no task has two owners, and in the end all are done evenly.

Clients are modelled as they are told to behave: they give up what they are not assigned any more before they say so,
take nothing that they were not assigned, and give up everything when they are refused. Answers get lost, clients vanish
or pause past their session, topics come, grow and go, internal topics are created late, standbys are turned on and off,
and the broker starts anew from its log, compacted, torn or whole. (Invariants 59 and 60.)
"""

from dataclasses import dataclass
from typing import Any
from uuid import UUID

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from tests.property.profile import examples

from headrace.coordinator.machine import InternalRecord, Outcome
from headrace.coordinator.result import Result
from headrace.groups.epoch_members import LEFT_FOR_NOW
from headrace.groups.group import JOIN, LEAVE, Convert, CreateTopics, Effects, GroupLimits, Now, Reply, StreamsLimits
from headrace.groups.machine import GroupMachine
from headrace.groups.offsets import Committer, OffsetCommit
from headrace.groups.streams import StreamsBeat, StreamsGroup, StreamsHeartbeat
from headrace.groups.streams_member import StreamsMember
from headrace.groups.streams_records import InternalTopic, Subtopology, TopologyValue
from headrace.groups.streams_tasks import NO_TASKS, StreamsTask, Tasks, TaskSet
from headrace.model.errors import FencedMemberEpoch, GroupError, GroupNotFound, UnknownMember, UnreleasedInstance
from headrace.model.ids import BrokerId, LeaderEpoch, TopicId, TopicName
from headrace.model.image import ClusterImage, PartitionState, TopicImage
from headrace.runtime.deferred import Deferred

GROUP = "g"
SESSION_MS, REBALANCE_MS, DELAY_MS = 45_000, 10_000, 1_000
_STATE = PartitionState(BrokerId(0), LeaderEpoch(0), (BrokerId(0),), (BrokerId(0),))
TOPOLOGY = TopologyValue(
    0,
    (
        Subtopology("0", ("lines",), repartition_sink_topics=("g-words",)),
        Subtopology("1", (), (InternalTopic("g-words"),), (), (InternalTopic("g-counted"),)),
    ),
)


def commits_of(tasks: Tasks) -> list[OffsetCommit]:
    return [OffsetCommit("lines" if task.subtopology == "0" else "g-words", task.partition, 1) for task in tasks]


@dataclass(eq=False)
class Client:
    member_id: str
    instance_id: str | None
    process_id: str
    epoch: int = JOIN
    owned: TaskSet = NO_TASKS
    told: TaskSet = NO_TASKS
    """What it was last told to have."""
    says_owned: bool = True

    def beat(self) -> StreamsHeartbeat:
        if self.epoch == JOIN:
            return StreamsHeartbeat(
                self.member_id,
                JOIN,
                self.instance_id,
                rebalance_timeout_ms=REBALANCE_MS,
                topology=TOPOLOGY,
                owned=NO_TASKS,
                process_id=self.process_id,
            )
        owned = self.owned if self.says_owned else None
        return StreamsHeartbeat(self.member_id, self.epoch, self.instance_id, owned=owned)

    def hear(self, told: StreamsBeat) -> None:
        self.epoch = told.epoch
        self.says_owned = False
        if told.tasks is not None:
            self.told = told.tasks
            self.says_owned = self.owned <= self.told

    def abandon(self) -> None:
        self.epoch, self.owned, self.told, self.says_owned = JOIN, NO_TASKS, NO_TASKS, True

    def give_up(self) -> None:
        if self.owned - self.told:
            self.owned &= self.told
            self.says_owned = True

    def take(self) -> None:
        if self.told - self.owned and not self.owned - self.told:
            self.owned = self.told
            self.says_owned = True


class StreamsGroups(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.now = Now(0.0, 0)
        self.log: list[InternalRecord] = []
        self.standbys = 0
        self.limits = GroupLimits(
            streams=StreamsLimits(
                session_timeout_of=lambda _: SESSION_MS,
                standby_replicas_of=lambda _: self.standbys,
                initial_delay_of=lambda _: DELAY_MS,
            )
        )
        self.machine = GroupMachine(self.limits)
        self.machine.use_kafka_format()
        self.machine.loaded(0.0)
        self.clients: list[Client] = []
        self.made = 0
        self.counts = {"lines": 3}
        self.to_create: dict[str, int] = {}
        self.revision = 1
        self.sent: list[tuple[Committer, frozenset[StreamsTask]]] = []
        """Commits on their way, with the tasks that they are of."""

    # -- the broker

    @property
    def image(self) -> ClusterImage:
        topics = {
            TopicName(name): TopicImage(TopicName(name), TopicId(UUID(int=at + 1)), (_STATE,) * self.counts[name])
            for at, name in enumerate(("lines", "g-words", "g-counted"))
            if name in self.counts
        }
        names: dict[UUID, TopicName] = {topic.topic_id: name for name, topic in topics.items()}
        return ClusterImage("c", BrokerId(0), {}, topics, names, {}, self.revision)

    def apply(self, effects: Effects) -> None:
        for effect in effects:
            match effect:
                case Outcome(records, answers):
                    for record in records:
                        self.log.extend(self.machine.encode(record))
                        self.machine.apply(record, -1)
                    for answer in answers:
                        answer.waiter.resolve(answer.result)
                case Convert(group):
                    self.machine.adopt(group)
                case CreateTopics(_, topics):
                    self.to_create = {topic.name: topic.partitions for topic in topics}
                case Reply(waiter, result):
                    waiter.resolve(result)

    def ask(self, beat: StreamsHeartbeat) -> StreamsBeat:
        waiter: Deferred[Result[StreamsBeat]] = Deferred()
        answers: list[Result[Any]] = []
        waiter.then(answers.append)
        self.apply(self.machine.streams_heartbeat(GROUP, beat, self.image, waiter, self.now))
        told = answers[0].get()
        assert isinstance(told, StreamsBeat)
        return told

    @property
    def group(self) -> StreamsGroup | None:
        found = self.machine.groups.get(GROUP)
        return found if isinstance(found, StreamsGroup) else None

    def members(self) -> dict[str, StreamsMember]:
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
                client.says_owned = True
            else:
                client.hear(told)

    # -- what may happen

    @precondition(lambda self: len(self.clients) < 5)
    @rule(instance=st.none() | st.sampled_from(["i1", "i2"]), process=st.sampled_from(["p1", "p2", "p3"]))
    def start_client(self, instance: str | None, process: str) -> None:
        if instance is None or all(client.instance_id != instance for client in self.clients):
            self.made += 1
            client = Client(f"m{self.made}", instance, process)
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
    @rule(which=st.integers(0, 4), how=st.sampled_from(["leave", "crash", "crash", "for now"]))
    def end_client(self, which: int, how: str) -> None:
        client = self.clients.pop(which % len(self.clients))
        if how != "crash" and client.member_id in self.members():
            epoch = LEFT_FOR_NOW if how == "for now" and client.instance_id is not None else LEAVE
            client.owned = NO_TASKS
            self.ask(StreamsHeartbeat(client.member_id, epoch, client.instance_id))

    @rule(passing_ms=st.sampled_from([1_000.0, float(REBALANCE_MS), float(SESSION_MS)]))
    def time_passes(self, passing_ms: float) -> None:
        self.now = Now(self.now.ms + passing_ms, 0)
        if self.group is not None:
            due_ms = self.group.next_deadline_ms()
            if due_ms is not None and due_ms <= self.now.ms:
                self.apply(self.group.expire(self.image, self.now))

    @precondition(lambda self: self.clients)
    @rule(which=st.integers(0, 4))
    def send_commit(self, which: int) -> None:
        client = self.clients[which % len(self.clients)]
        if client.epoch > JOIN and client.owned.active:
            self.sent.append((Committer(client.member_id, None, client.epoch), client.owned.active))

    @precondition(lambda self: self.sent)
    @rule(which=st.integers(0, 9))
    def a_commit_arrives(self, which: int) -> None:
        """However late it is: it is accepted only if nobody else can have worked on its tasks since."""
        by, tasks = self.sent.pop(which % len(self.sent))
        try:
            self.machine.check_commit(GROUP, by, self.now, transactional=True, commits=commits_of(tasks))
        except GroupError:
            return
        owners = {task: name for name, one in self.members().items() for task in one.holds.active}
        assert all(owners.get(task, by.member_id) == by.member_id for task in tasks)

    @rule(compacts=st.booleans())
    def restart(self, compacts: bool) -> None:
        before = self.members()
        if compacts:
            last = {one.key: at for at, one in enumerate(self.log)}
            self.log = [one for at, one in enumerate(self.log) if last[one.key] == at and one.value is not None]
        self.load()
        assert self.members() == before

    def load(self) -> None:
        self.machine = GroupMachine(self.limits)
        self.machine.use_kafka_format()
        for one in self.log:
            self.machine.replay(one, -1)
        self.machine.loaded(self.now.ms)

    @precondition(lambda self: self.clients)
    @rule(which=st.integers(0, 4), kept=st.integers(0, 10))
    def crash_while_writing(self, which: int, kept: int) -> None:
        """Only the first records of what follows from a heartbeat are in the log, and nobody gets an answer."""
        client = self.clients[which % len(self.clients)]
        before = len(self.log)
        self.heartbeat(client, is_lost=True)
        self.log = self.log[: before + kept]
        self.load()

    @rule(which=st.integers(0, 2))
    def create_a_topic(self, which: int) -> None:
        for name in sorted(self.to_create)[which : which + 1]:
            self.revision += 1
            self.counts[name] = self.to_create.pop(name)

    @rule(more=st.integers(1, 3))
    def grow_source(self, more: int) -> None:
        self.delete_topics()
        self.counts["lines"] = self.counts.get("lines", 0) + more

    @rule()
    def delete_topics(self) -> None:
        self.revision += 1
        self.to_create.clear()
        for name in ("g-words", "g-counted"):
            self.counts.pop(name, None)

    @rule()
    def delete_source(self) -> None:
        self.delete_topics()
        self.counts.pop("lines", None)

    @rule(standbys=st.integers(0, 2))
    def change_standbys(self, standbys: int) -> None:
        self.standbys = standbys

    @rule()
    def settle(self) -> None:
        """Left alone, the group comes to rest with every task done by somebody."""
        self.counts.setdefault("lines", 2)
        self.revision += 1
        for _ in range(3):
            for _ in range(2 * len(self.clients) + 3):
                self.time_passes(DELAY_MS)
                for client in self.clients:
                    self.heartbeat(client)
                    client.give_up()
                    self.heartbeat(client)
                    client.take()
                    self.heartbeat(client)
                    for at in (1, 0):
                        self.create_a_topic(at)
            if self.members().keys() <= {client.member_id for client in self.clients}:
                break
            self.time_passes(SESSION_MS / 2 + 1)
        if not self.clients:
            return
        assert self.group is not None
        assert self.group.state_name == "Stable"
        tasks = {StreamsTask(name, at) for name in ("0", "1") for at in range(self.counts["lines"])}
        assert {task for client in self.clients for task in client.owned.active} == tasks
        sizes = [len(client.owned.active) for client in self.clients]
        assert sum(sizes) == len(tasks)
        assert max(sizes) - min(sizes) <= 1
        replicas = min(self.standbys, len({client.process_id for client in self.clients}) - 1)
        standbys = [task for client in self.clients for task in client.owned.standby]
        assert sorted(standbys) == sorted(task for task in tasks if task.subtopology == "1" for _ in range(replicas))

    # -- what must hold

    @invariant()
    def no_task_has_two_owners(self) -> None:
        held = [task for member in self.members().values() for task in member.holds.active]
        assert len(held) == len(set(held))

    @invariant()
    def a_process_has_a_task_once(self) -> None:
        """In any role: its members share a directory. One that joins with another process id keeps what it had."""
        for process_id in ("p1", "p2", "p3"):
            inside = [one for one in self.members().values() if one.about.process_id == process_id]
            if all(one.about.instance_id is None for one in inside):
                held = [task for one in inside for role in (one.holds.active, one.holds.standby) for task in role]
                assert len(held) == len(set(held))

    @invariant()
    def clients_have_only_what_is_theirs(self) -> None:
        """A client that would not be refused owns nothing that another may have."""
        members = self.members()
        for client in self.clients:
            member = members.get(client.member_id)
            if member is not None and client.epoch in (member.epoch, member.previous_epoch) and client.epoch != JOIN:
                would_be_heard = client.epoch == member.epoch or client.owned <= member.assigned
                assert not would_be_heard or client.owned <= member.holds

    @invariant()
    def who_may_commit_has_given_up_nothing(self) -> None:
        """No two clients whose commits would be accepted have the same task."""
        owned: list[StreamsTask] = []
        for client in self.clients:
            try:
                by, commits = Committer(client.member_id, None, client.epoch), commits_of(client.owned.active)
                self.machine.check_commit(GROUP, by, self.now, commits=commits)
            except GroupError:
                continue
            owned.extend(client.owned.active)
        assert len(owned) == len(set(owned))

    @invariant()
    def epochs_are_in_order(self) -> None:
        if self.group is not None:
            assert self.group.target_epoch <= self.group.epoch
            assert all(member.epoch <= self.group.target_epoch for member in self.group.members)


TestStreamsGroups = StreamsGroups.TestCase
TestStreamsGroups.settings = settings(max_examples=examples(150), stateful_step_count=40, deadline=None)


@pytest.mark.parametrize("kept", range(10))
def test_a_join_that_was_written_in_part_is_done_in_whole_later(kept: int) -> None:
    world = StreamsGroups()
    world.grow_source(1)
    world.start_client(None, "p1")
    world.settle()
    world.clients.append(Client("late", None, "p2"))
    world.crash_while_writing(1, kept)
    world.settle()
    assert [len(client.owned.active) for client in world.clients] == [4, 4]
