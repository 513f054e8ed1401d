"""The state machine of one partition of `__consumer_offsets`: its groups, their offsets, and the operations. Pure.

Offsets change only by records. Groups have soft state in addition to their records (`group.py`); a restart restores
them by replaying the records.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TypeVar, get_args
from uuid import UUID

from headrace.coordinator.formats import FormattedMachine
from headrace.coordinator.machine import Outcome
from headrace.coordinator.result import Result
from headrace.groups.classic import ClassicGroup
from headrace.groups.consumer import ConsumerGroup, Heartbeat, check_request
from headrace.groups.consumer_records import ConsumerGroupValue
from headrace.groups.conversion import to_consumer
from headrace.groups.group import JOIN, Beat, Convert, Effects, Group, GroupLimits, Listed, Now
from headrace.groups.kafka_records import KafkaGroupFormat
from headrace.groups.offsets import Committer, OffsetCommit, OffsetStore, Place
from headrace.groups.records import (
    ClassicValue,
    GroupKey,
    GroupRecord,
    Key,
    MsgpackGroupFormat,
    OffsetKey,
    OffsetValue,
    Value,
)
from headrace.groups.roster import rebalancing
from headrace.groups.share import ShareGroup, ShareHeartbeat
from headrace.groups.share import check_request as check_share_request
from headrace.groups.share_records import ShareGroupValue
from headrace.groups.streams import StreamsBeat, StreamsGroup, StreamsHeartbeat, check_streams_request
from headrace.groups.streams_records import StreamsGroupValue
from headrace.groups.subscription import CONSUMER
from headrace.model.errors import (
    GroupNotEmpty,
    GroupNotFound,
    HeadraceError,
    IllegalGeneration,
    OffsetMetadataTooLarge,
    SubscribedToTopic,
    UnknownMember,
    UnstableOffset,
)
from headrace.model.image import ClusterImage
from headrace.runtime.deferred import Deferred

A = TypeVar("A")
G = TypeVar("G", bound=Group)
GroupOutcome = Outcome[GroupRecord, A]

_KINDS: Mapping[type, type[ConsumerGroup | ShareGroup | StreamsGroup]] = {
    **dict.fromkeys(get_args(ConsumerGroupValue), ConsumerGroup),
    **dict.fromkeys(get_args(ShareGroupValue), ShareGroup),
    **dict.fromkeys(get_args(StreamsGroupValue), StreamsGroup),
}
"""The kind of group that a record of a value's type belongs to."""


Refused = dict[Place, HeadraceError]
"""The partitions whose operation was refused, with the error; all others succeeded."""

Fetched = OffsetValue | HeadraceError | None


class GroupMachine(FormattedMachine[Key, Value]):
    def __init__(self, limits: GroupLimits) -> None:
        super().__init__(MsgpackGroupFormat(), KafkaGroupFormat())
        self.groups: dict[str, Group] = {}
        self.offsets = OffsetStore()
        self._limits = limits
        self._is_loaded = False

    # -- replay

    def _old_records(self) -> Iterator[tuple[Key, Value | None]]:
        """Yield the records in the old format: offsets with their current value, unless a transaction may change it."""
        for key, value in self._formats.old_values():
            if not isinstance(key, OffsetKey):
                yield key, value
                continue
            place = key.group, key.topic, key.partition
            if not self.offsets.is_unstable(*place):
                yield key, self.offsets.get(*place)

    def apply(self, record: tuple[Key, Value | None], producer_id: int) -> None:
        key, value = record
        if isinstance(key, OffsetKey):
            assert value is None or isinstance(value, OffsetValue)
            self.offsets.replay(key, value, producer_id)
            if value is not None and key.group not in self.groups:
                self.groups[key.group] = ClassicGroup(key.group, self._limits, value.commit_ms)
        elif isinstance(value, ClassicValue):
            if not self._is_loaded:
                self.groups[key.group] = ClassicGroup.from_stored(key.group, value, self._limits)
        elif value is None and isinstance(key, GroupKey):
            self.groups.pop(key.group, None)
        else:
            group = self.groups.get(key.group)
            kind = _KINDS.get(type(value))
            if kind is not None and (group is None or group.kind != kind.kind):
                group = self.groups[key.group] = kind(key.group, self._limits)
            if group is not None:
                group.replay(key, value)

    def replay_end(self, producer_id: int, *, committed: bool) -> None:
        self.offsets.replay_end(producer_id, committed=committed)

    def loaded(self, now_ms: float) -> None:
        self._is_loaded = True
        for group in self.groups.values():
            group.start(Now(now_ms, 0))

    # -- lookup

    def group(self, group_id: str) -> Group:
        group = self.groups.get(group_id)
        if group is None:
            raise GroupNotFound(f"there is no group {group_id}")
        return group

    def find(self, group_id: str, kind: type[G]) -> G | None:
        """Return the group; None if there is none of this kind."""
        group = self.groups.get(group_id)
        return group if isinstance(group, kind) else None

    def of_kind(self, group_id: str, kind: type[G]) -> G:
        """Return the group; `GroupNotFound` if there is none, or it is of another kind."""
        self.group(group_id)
        group = self.find(group_id, kind)
        if group is None:
            raise GroupNotFound(f"the group {group_id} is not a {kind.kind} group")
        return group

    def for_member(self, group_id: str) -> Group:
        """Return the group for a request of a member of the classic protocol."""
        group = self.groups.get(group_id)
        if group is None:
            raise UnknownMember(f"there is no group {group_id}")
        return group

    def for_join(self, group_id: str, member_id: str, now: Now) -> Group:
        """Return the group to join by the classic protocol. It is created if there is none, unless the request has a
        member id."""
        group = self.groups.get(group_id)
        if group is None or group.yields_to_classic:
            if member_id:
                raise UnknownMember(f"there is no member {member_id} in the group {group_id}")
            group = self.groups[group_id] = ClassicGroup(group_id, self._limits, now.wall_ms)
        return group

    def consumer_heartbeat(
        self, group_id: str, beat: Heartbeat, image: ClusterImage, waiter: Deferred[Result[Beat]], now: Now
    ) -> Effects:
        """Handle a heartbeat, join or leave by the consumer protocol. A join creates the group if there is none,
        replaces an empty classic group, and upgrades a classic group with members."""
        check_request(beat, self._limits.consumer.assignors)
        classic = self.find(group_id, ClassicGroup)
        if beat.epoch != JOIN and classic is not None and classic.protocol_type == CONSUMER and self._can_upgrade:
            # The member was removed, and then the group was downgraded. A rejoin restores both; clients treat
            # GROUP_ID_NOT_FOUND as fatal.
            raise UnknownMember(f"the group {group_id} has no member {beat.member_id} of the consumer protocol")
        if beat.epoch != JOIN or (classic is None and group_id in self.groups):
            return self.of_kind(group_id, ConsumerGroup).heartbeat(beat, image, waiter, now)
        made = ConsumerGroup(group_id, self._limits)
        records: list[GroupRecord] = []
        if classic is not None and not classic.is_empty:
            for key, value in to_consumer(classic, image, self._limits):
                made.replay(key, value)
                records.append((key, value))
            made.start(now)
        effects = made.heartbeat(beat, image, waiter, now)
        waiting = [] if classic is None else classic.fail_waiters(Result(error=rebalancing(group_id)))
        return [*waiting, Outcome(records, ()), Convert(made), *effects]

    def share_heartbeat(
        self, group_id: str, beat: ShareHeartbeat, image: ClusterImage, waiter: Deferred[Result[Beat]], now: Now
    ) -> Effects:
        """Handle a heartbeat, join or leave in a share group. A join creates the group if there is none."""
        check_share_request(beat)
        if beat.epoch != JOIN or group_id in self.groups:
            return self.of_kind(group_id, ShareGroup).heartbeat(beat, image, waiter, now)
        made = ShareGroup(group_id, self._limits)
        effects = made.heartbeat(beat, image, waiter, now)
        return [Convert(made), *effects]

    def begin_share(self, group_id: str, topic_ids: Iterable[UUID]) -> GroupOutcome[None]:
        """Record that a share group has state in these topics. If there are any, a missing group is created."""
        group = self.of_kind(group_id, ShareGroup) if group_id in self.groups else ShareGroup(group_id, self._limits)
        return Outcome(group.begun(topic_ids), None)

    def forget_share(self, group_id: str, topic_ids: Iterable[UUID]) -> GroupOutcome[None]:
        """Record that a share group no longer has state in these topics."""
        return Outcome(self.of_kind(group_id, ShareGroup).forget_topics(topic_ids), None)

    def streams_heartbeat(
        self,
        group_id: str,
        beat: StreamsHeartbeat,
        image: ClusterImage,
        waiter: Deferred[Result[StreamsBeat]],
        now: Now,
    ) -> Effects:
        """Handle a heartbeat, join or leave in a streams group. A join creates the group if there is none, and replaces
        a classic group without members, whose offsets remain."""
        check_streams_request(beat)
        classic = self.find(group_id, ClassicGroup)
        is_new = group_id not in self.groups or (classic is not None and classic.is_idle)
        if beat.epoch != JOIN or not is_new:
            return self.of_kind(group_id, StreamsGroup).heartbeat(beat, image, waiter, now)
        made = StreamsGroup(group_id, self._limits)
        effects = made.heartbeat(beat, image, waiter, now)
        return [Convert(made), *effects]

    @property
    def _can_upgrade(self) -> bool:
        return self._limits.consumer.can_upgrade

    def adopt(self, group: Group) -> bool:
        """Add the group, or replace the one of the same id. Returns whether there was one."""
        was_there = group.group_id in self.groups
        self.groups[group.group_id] = group
        return was_there

    def listed(self) -> Iterable[Listed]:
        for group in self.groups.values():
            yield Listed(group.group_id, group.kind, group.state_name, group.protocol_type)

    # -- offsets

    def check_commit(
        self,
        group_id: str,
        by: Committer,
        now: Now,
        *,
        transactional: bool = False,
        commits: Sequence[OffsetCommit] = (),
    ) -> None:
        group = self.groups.get(group_id)
        if group is not None:
            group.check_commit(by, transactional=transactional, now=now, commits=commits)
        elif by.generation >= 0:
            raise IllegalGeneration(f"there is no group {group_id} with a generation {by.generation}")

    def commit(
        self, group_id: str, by: Committer, commits: Sequence[OffsetCommit], now: Now, *, retention_ms: int = -1
    ) -> GroupOutcome[Refused]:
        self.check_commit(group_id, by, now, commits=commits)
        return self.commit_records(group_id, commits, now, retention_ms=retention_ms)

    def commit_records(
        self, group_id: str, commits: Sequence[OffsetCommit], now: Now, *, retention_ms: int = -1
    ) -> GroupOutcome[Refused]:
        """Return the records of an accepted commit; those of a transaction go into a batch of its producer."""
        refused: Refused = {}
        records: list[GroupRecord] = []
        expire_ms = now.wall_ms + retention_ms if retention_ms >= 0 else -1
        limit = self._limits.offset_metadata_max_bytes
        for topic, partition, offset, leader_epoch, metadata in commits:
            if len(metadata) > limit:
                refused[topic, partition] = OffsetMetadataTooLarge(
                    f"the metadata of an offset has {len(metadata)} characters: offset.metadata.max.bytes is {limit}"
                )
                continue
            value = OffsetValue(offset, leader_epoch, metadata, now.wall_ms, expire_ms)
            records.append((OffsetKey(group_id, topic, partition), value))
        return Outcome(records, refused)

    def fetch(
        self,
        group_id: str,
        wanted: Mapping[str, Sequence[int]] | None,
        *,
        require_stable: bool,
        member_id: str | None = None,
        member_epoch: int = -1,
    ) -> dict[str, dict[int, Fetched]]:
        """Return the offsets of these partitions, or of all if None is given; None for a partition without one."""
        group = self.groups.get(group_id)
        if group is not None:
            group.check_fetch(member_id, member_epoch)
        elif member_id and member_epoch >= 0:
            raise UnknownMember(f"there is no group {group_id}")
        if wanted is None:
            everything: dict[str, list[int]] = {}
            for key in self.offsets.keys_of(group_id):
                everything.setdefault(key.topic, []).append(key.partition)
            wanted = everything
        return {
            topic: {partition: self._fetch(group_id, topic, partition, require_stable) for partition in partitions}
            for topic, partitions in wanted.items()
        }

    def _fetch(self, group_id: str, topic: str, partition: int, require_stable: bool) -> Fetched:
        if require_stable and self.offsets.is_unstable(group_id, topic, partition):
            return UnstableOffset(f"a transaction may still change the offset of {topic}-{partition}")
        return self.offsets.get(group_id, topic, partition)

    def delete_offsets(self, group_id: str, places: Iterable[Place]) -> GroupOutcome[Refused]:
        group = self.group(group_id)
        refused: Refused = {}
        records: list[GroupRecord] = []
        for topic, partition in places:
            if group.is_subscribed_to(topic):
                refused[topic, partition] = SubscribedToTopic(f"a member of {group_id} subscribes to {topic}")
            elif self.offsets.get(group_id, topic, partition) is not None or self.offsets.is_unstable(
                group_id, topic, partition
            ):
                records.append((OffsetKey(group_id, topic, partition), None))
        return Outcome(records, refused)

    # -- deletion and expiry

    def delete_group(self, group_id: str) -> GroupOutcome[None]:
        group = self.group(group_id)
        if not group.is_empty:
            raise GroupNotEmpty(f"the group {group_id} has members: stop them first")
        records = [(key, None) for key in self.offsets.keys_of(group_id)]
        return Outcome(records + list(group.tombstones()), None)

    def forget_topics(self, topics: Mapping[str, UUID]) -> GroupOutcome[None]:
        """Delete the state of deleted topics: it is not valid for a later topic of the same name."""
        records: list[GroupRecord] = [(key, None) for key in self.offsets.keys_in_topics(topics)]
        for group in self.groups.values():
            records.extend(group.forget_topics(topics.values()))
        return Outcome(records, None)

    def expire_offsets(self, wall_ms: int) -> GroupOutcome[int]:
        """Delete expired offsets, and groups that have neither members nor offsets."""
        records: list[GroupRecord] = []
        for group_id, group in self.groups.items():
            retained = gone = 0
            for (topic, partition), value in self.offsets.of_group(group_id):
                if self._has_expired(group, topic, value, wall_ms) and not self.offsets.is_unstable(
                    group_id, topic, partition
                ):
                    records.append((OffsetKey(group_id, topic, partition), None))
                    gone += 1
                else:
                    retained += 1
            if group.is_idle and not retained and (gone or not self.offsets.has_any(group_id)):
                records.extend(group.tombstones())
        return Outcome(records, len(records))

    def _has_expired(self, group: Group, topic: str, value: OffsetValue, wall_ms: int) -> bool:
        base_ms = group.offset_base_ms(topic, value)
        if base_ms is None:
            return False
        if value.expire_ms >= 0:
            return wall_ms >= value.expire_ms
        return wall_ms - base_ms >= self._limits.offsets_retention_ms
