"""Streams groups over an image of the cluster, for tests: members join, send heartbeats and commit."""

from typing import Any
from uuid import UUID

from tests.unit.groups.logged import LoggedGroups

from headrace.coordinator.result import Result
from headrace.groups.group import JOIN, CreateTopics, Effects, GroupLimits, Now, StreamsLimits
from headrace.groups.offsets import Committer, OffsetCommit
from headrace.groups.streams import StreamsBeat, StreamsGroup, StreamsHeartbeat
from headrace.groups.streams_records import InternalTopic, Subtopology, TopologyValue
from headrace.groups.streams_tasks import NO_TASKS, StreamsTask, TaskSet
from headrace.groups.streams_topology import StatusCode
from headrace.model.ids import BrokerId, LeaderEpoch, TopicId, TopicName
from headrace.model.image import ClusterImage, PartitionState, TopicImage
from headrace.runtime.deferred import Deferred

_STATE = PartitionState(BrokerId(0), LeaderEpoch(0), (BrokerId(0),), (BrokerId(0),))
SESSION_MS, DELAY_MS = 1_000, 100
PLAIN = TopologyValue(0, (Subtopology("0", ("lines",)),))
STATEFUL = TopologyValue(0, (Subtopology("0", ("lines",), changelog_topics=(InternalTopic("log"),)),))


class World(LoggedGroups):
    def __init__(self, topology: TopologyValue = PLAIN, *, delay_ms: int = 0, standbys: int = 0, **counts: int) -> None:
        self.standbys = standbys
        super().__init__(
            GroupLimits(
                streams=StreamsLimits(
                    session_timeout_of=lambda _: SESSION_MS,
                    standby_replicas_of=lambda _: self.standbys,
                    initial_delay_of=lambda _: delay_ms,
                    max_size=4,
                )
            )
        )
        self.topology = topology
        self.counts = counts or {"lines": 2, "log": 2}
        self.revision = 1
        self.wanted: tuple[InternalTopic, ...] = ()
        self.ms = 0.0

    @property
    def now(self) -> Now:
        return Now(self.ms, 0)

    @property
    def image(self) -> ClusterImage:
        topics = {
            TopicName(name): TopicImage(TopicName(name), TopicId(UUID(int=at + 1)), (_STATE,) * count)
            for at, (name, count) in enumerate(self.counts.items())
        }
        return ClusterImage("c", BrokerId(0), {}, topics, {}, {}, self.revision)

    def create(self, **counts: int) -> None:
        self.counts = {**self.counts, **counts}
        self.revision += 1

    def apply(self, effects: Effects) -> None:
        super().apply(effects)
        for effect in effects:
            if isinstance(effect, CreateTopics):
                self.wanted = tuple(effect.topics)

    def send(self, beat: StreamsHeartbeat) -> StreamsBeat:
        told: list[StreamsBeat] = []
        waiter: Deferred[Result[StreamsBeat]] = Deferred()
        waiter.then(lambda result: told.append(result.get()))
        self.apply(self.machine.streams_heartbeat("g", beat, self.image, waiter, self.now))
        return told[0]

    def beat(self, member_id: str, epoch: int, **fields: Any) -> StreamsBeat:
        return self.send(StreamsHeartbeat(member_id, epoch, **fields))

    def join(self, member_id: str, process_id: str | None = None, **fields: Any) -> StreamsBeat:
        said: dict[str, Any] = {
            "rebalance_timeout_ms": 500,
            "topology": self.topology,
            "owned": NO_TASKS,
            "process_id": process_id or f"p-{member_id}",
        }
        return self.beat(member_id, JOIN, **(said | fields))

    def members(self) -> dict[str, tuple[int, TaskSet]]:
        return {one.member_id: (one.epoch, one.assigned) for one in self.machine.of_kind("g", StreamsGroup).members}

    def expire(self, ms: float) -> None:
        self.ms += ms
        self.apply(self.machine.of_kind("g", StreamsGroup).expire(self.image, self.now))

    def commit(self, member_id: str, epoch: int, *partitions: int, transactional: bool = False) -> None:
        commits = [OffsetCommit("lines", partition, 1) for partition in partitions or (0,)]
        by = Committer(member_id, None, epoch)
        self.machine.check_commit("g", by, self.now, transactional=transactional, commits=commits)


def active(*partitions: int) -> TaskSet:
    return TaskSet(frozenset(StreamsTask("0", at) for at in partitions))


def codes(told: StreamsBeat) -> list[StatusCode]:
    return [status.code for status in told.statuses]
