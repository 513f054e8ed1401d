"""The groups that this broker coordinates: members, positions and lag."""

from collections.abc import Iterator
from functools import partial
from typing import NamedTuple

from headrace.cluster.metadata import Metadata
from headrace.groups.group import Group, MemberView
from headrace.groups.machine import GroupMachine
from headrace.groups.service import GroupService
from headrace.model.errors import HeadraceError
from headrace.model.ids import NO_LEADER, TopicName
from headrace.monitor.forecast import TREND_POINTS, lag_trend
from headrace.monitor.history import History
from headrace.monitor.lag import LagBook, LagFigures, Position
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


class Coordinated(NamedTuple):
    """A group of this broker, with the state machine that stores its offsets."""

    machine: GroupMachine
    group: Group

    def positions(self) -> Iterator[Position]:
        for (topic, partition), value in self.machine.offsets.of_group(self.group.group_id):
            yield Position(topic, partition, value.offset)

    def last_commit_ms(self) -> int | None:
        return max((value.commit_ms for _, value in self.machine.offsets.of_group(self.group.group_id)), default=None)


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
        self, *, metadata: Metadata, groups: GroupService, clock: Clock, lag: LagBook, history: History
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
        positions: list[Position] = []
        progress: dict[str, Progress] = {}
        now_ms = self._clock.monotonic_ms()
        async for each in sliced(found):
            own = tuple(each.positions())
            positions += own
            if own:
                name, committed = each.group.group_id, sum(position.offset for position in own)
                before = self._progress.get(name)
                progress[name] = (
                    Progress(committed, now_ms, now_ms) if before is None else before.after(committed, now_ms)
                )
        self._progress = progress
        await self._lag.refresh(positions, is_all=True)
        return [self._stat(each) async for each in sliced(found)]

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
        await self._lag.refresh(tuple(found.positions()))
        members = group.member_views(self._metadata.image)
        return GroupDetail(
            self._stat(found), [_member_stat(member) for member in members], self._partitions(found, members)
        )

    def _stat(self, found: Coordinated) -> GroupStat:
        group = found.group
        topics = _by_topic([(position, self._lag.at(position)) for position in found.positions()])
        known = [each.lag_messages for each in topics if each.lag_messages is not None]
        seconds = [each.lag_seconds for each in topics if each.lag_seconds is not None]
        progress, name, wall_ms = self._progress.get(group.group_id), group.group_id, self._clock.wall_ms()
        last = partial(self._history.last, "group", name, count=TREND_POINTS, wall_ms=wall_ms)
        return GroupStat(
            name,
            group.kind,
            group.state_name,
            group.protocol_type,
            group.member_count,
            self._metadata.broker_id,
            topics=topics,
            lag_messages=sum(known) if known else None,
            lag_seconds=max(seconds, default=None),
            trend=lag_trend(last(series="lag_messages"), last(series="lag_seconds")),
            last_commit_ms=found.last_commit_ms(),
            stalled_s=(self._clock.monotonic_ms() - progress.since_ms) / 1000 if progress and sum(known) else None,
            consumed_per_s=0.0 if progress is None else progress.per_s,
        )

    def _partitions(self, found: Coordinated, members: list[MemberView]) -> list[GroupPartitionStat]:
        owners = {
            (topic, partition): member.member_id
            for member in members
            for topic, partitions in member.assignment.items()
            for partition in partitions
            if self._metadata.image.has_partition(topic, partition)
        }
        committed = dict(found.machine.offsets.of_group(found.group.group_id))
        stats = []
        for topic, partition in sorted({*owners, *committed}):
            value = committed.get((topic, partition))
            figures = None if value is None else self._lag.at(Position(topic, partition, value.offset))
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


def _by_topic(positions: list[tuple[Position, LagFigures | None]]) -> list[GroupTopicLag]:
    by_topic: dict[str, list[LagFigures | None]] = {}
    for (topic, _, _), figures in positions:
        by_topic.setdefault(topic, []).append(figures)
    return [_topic_lag(topic, found) for topic, found in sorted(by_topic.items())]


def _topic_lag(topic: str, found: list[LagFigures | None]) -> GroupTopicLag:
    known = [each for each in found if each is not None]
    messages = sum(each.lag_messages for each in known) if known else None
    seconds = max((each.lag_seconds for each in known if each.lag_seconds is not None), default=None)
    return GroupTopicLag(topic, len(found), messages, seconds)


def _member_stat(member: MemberView) -> MemberStat:
    return MemberStat(
        member.member_id,
        member.instance_id,
        member.client_id,
        member.client_host,
        {topic: list(partitions) for topic, partitions in member.assignment.items()},
    )
