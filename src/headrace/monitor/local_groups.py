"""The groups that this broker coordinates: members, positions and lag."""

from typing import NamedTuple

from headrace.cluster.metadata import Metadata
from headrace.groups.group import Group, MemberView
from headrace.groups.machine import GroupMachine
from headrace.groups.records import OffsetValue
from headrace.groups.service import GroupService
from headrace.model.errors import HeadraceError
from headrace.model.ids import NO_LEADER, TopicName
from headrace.monitor.forecast import STEADY, TREND_POINTS, lag_trend
from headrace.monitor.history import FigureHistory
from headrace.monitor.lag import LagBook, LagFigures, Place
from headrace.monitor.loop_slices import sliced
from headrace.monitor.snapshots import (
    GroupDetail,
    GroupPartitionStat,
    GroupStat,
    GroupTopicLag,
    MemberStat,
)
from headrace.runtime.clock import Clock

_PROGRESS_EVERY_MS = 4_000.0
"""The shortest time over which the rate of a group is measured."""


Committed = list[tuple[Place, OffsetValue]]
"""The positions of a group."""


class Coordinated(NamedTuple):
    """A group of this broker, with the state machine that stores its offsets."""

    machine: GroupMachine
    group: Group

    def committed(self) -> Committed:
        return list(self.machine.offsets.of_group(self.group.group_id))


class TopicSum:
    """The lag of a group over partitions: the sum of the messages, the largest of the seconds; None if unknown."""

    __slots__ = ("messages", "partitions", "seconds")

    def __init__(self) -> None:
        self.partitions = 0
        self.messages: int | None = None
        self.seconds: float | None = None

    def add(self, figures: LagFigures | None) -> None:
        self.partitions += 1
        if figures is not None:
            self._count(figures.lag_messages, figures.lag_seconds)

    def merge(self, other: "TopicSum") -> None:
        if other.messages is not None:
            self._count(other.messages, other.seconds)

    def _count(self, messages: int, seconds: float | None) -> None:
        self.messages = messages if self.messages is None else self.messages + messages
        if seconds is not None and (self.seconds is None or seconds > self.seconds):
            self.seconds = seconds

    def lag(self, topic: str) -> GroupTopicLag:
        return GroupTopicLag(topic, self.partitions, self.messages, self.seconds)


class Progress(NamedTuple):
    """The position of a group: the sum of its committed offsets."""

    committed: int
    since_ms: float
    """Since when it is that; monotonic."""
    seen_ms: float
    per_s: float = 0.0

    def after(self, committed: int, now_ms: float) -> "Progress":
        moved, passed_ms = committed - self.committed, now_ms - self.seen_ms
        if passed_ms < _PROGRESS_EVERY_MS:
            return self
        return Progress(committed, now_ms if moved else self.since_ms, now_ms, max(0.0, 1000 * moved / passed_ms))


class LocalGroups:
    def __init__(
        self, *, metadata: Metadata, groups: GroupService, clock: Clock, lag: LagBook, history: FigureHistory
    ) -> None:
        self._metadata = metadata
        self._groups = groups
        self._clock = clock
        self._lag = lag
        self._history = history
        self._progress: dict[str, Progress] = {}
        """By group, of those that have committed offsets."""

    @property
    def count(self) -> int:
        return sum(len(shard.machine.groups) for shard in self._groups.coordinator.shards() if shard.is_active)

    def coordinated(self) -> list[Coordinated]:
        """The groups of this broker. Those of a shard that is loading are left out."""
        return [
            Coordinated(shard.machine, group)
            for shard in self._groups.coordinator.shards()
            if shard.is_active
            for group in shard.machine.groups.values()
        ]

    async def stats(self) -> list[GroupStat]:
        found = self.coordinated()
        positions: dict[Place, set[int]] = {}
        progress: dict[str, Progress] = {}
        now_ms = self._clock.monotonic_ms()
        stored: list[Committed] = []
        async for each in sliced(found):
            total = 0
            committed = each.committed()
            stored.append(committed)
            for place, value in committed:
                total += value.offset
                positions.setdefault(place, set()).add(value.offset)
            if committed:
                name = each.group.group_id
                before = self._progress.get(name)
                progress[name] = Progress(total, now_ms, now_ms) if before is None else before.after(total, now_ms)
        self._progress = progress
        await self._lag.refresh(positions, is_all=True)
        return [self._stat(*each) async for each in sliced(zip(found, stored, strict=True))]

    async def detail(self, name: str) -> GroupDetail | None:
        """A group of this broker; None if there is none."""
        try:
            shard = self._groups.coordinator.shard(name)
        except HeadraceError:
            return None
        group = shard.machine.groups.get(name)
        if group is None or not shard.is_active:
            return None
        found = Coordinated(shard.machine, group)
        await self._lag.refresh({place: (value.offset,) for place, value in found.committed()})
        members = group.member_views(self._metadata.image)
        return GroupDetail(
            self._stat(found, found.committed()),
            [_member_stat(member) for member in members],
            self._partitions(found, members),
        )

    def _stat(self, found: Coordinated, committed: Committed) -> GroupStat:
        group, wall_ms = found.group, self._clock.wall_ms()
        topics: dict[str, TopicSum] = {}
        last_commit_ms = None
        for place, value in committed:
            if last_commit_ms is None or value.commit_ms > last_commit_ms:
                last_commit_ms = value.commit_ms
            summed = topics.get(place[0])
            if summed is None:
                summed = topics[place[0]] = TopicSum()
            summed.add(self._lag.at(place, value.offset))
        total = TopicSum()
        for summed in topics.values():
            total.merge(summed)
        name = group.group_id
        progress = self._progress.get(name)
        return GroupStat(
            name,
            group.kind,
            group.state_name,
            group.protocol_type,
            group.member_count,
            self._metadata.broker_id,
            topics=[topics[topic].lag(topic) for topic in sorted(topics)],
            lag_messages=total.messages,
            lag_seconds=total.seconds,
            trend=self._trend(name, wall_ms),
            last_commit_ms=last_commit_ms,
            stalled_s=(self._clock.monotonic_ms() - progress.since_ms) / 1000 if progress and total.messages else None,
            consumed_per_s=0.0 if progress is None else progress.per_s,
        )

    def _trend(self, name: str, wall_ms: int) -> str:
        messages = self._history.last("group", name, "lag_messages", TREND_POINTS, wall_ms)
        if not messages:
            return STEADY
        return lag_trend(messages, self._history.last("group", name, "lag_seconds", TREND_POINTS, wall_ms))

    def _partitions(self, found: Coordinated, members: list[MemberView]) -> list[GroupPartitionStat]:
        owners = {
            (topic, partition): member.member_id
            for member in members
            for topic, partitions in member.assignment.items()
            for partition in partitions
            if self._metadata.image.has_partition(topic, partition)
        }
        committed = dict(found.committed())
        stats = []
        for topic, partition in sorted({*owners, *committed}):
            value = committed.get((topic, partition))
            figures = None if value is None else self._lag.at((topic, partition), value.offset)
            stats.append(
                GroupPartitionStat(
                    topic,
                    partition,
                    self._leader(topic, partition),
                    committed=-1 if value is None else value.offset,
                    start_offset=-1 if figures is None else figures.start_offset,
                    end_offset=-1 if figures is None else figures.end_offset,
                    lag_messages=None if figures is None else figures.lag_messages,
                    lag_seconds=None if figures is None else figures.lag_seconds,
                    member_id=owners.get((topic, partition), ""),
                    commit_ms=None if value is None else value.commit_ms,
                )
            )
        return stats

    def _leader(self, topic: str, partition: int) -> int:
        found = self._metadata.image.topics.get(TopicName(topic))
        if found is None or partition >= len(found.partitions):
            return NO_LEADER
        return found.partitions[partition].leader


def _member_stat(member: MemberView) -> MemberStat:
    return MemberStat(
        member.member_id,
        member.instance_id,
        member.client_id,
        member.client_host,
        {topic: list(partitions) for topic, partitions in member.assignment.items()},
    )
