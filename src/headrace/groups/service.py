"""The group coordinator of a broker: finds the shard of a group, applies the effects of groups, and runs their timers.

Persisted changes are answered when they are committed (`coordinator/shard.py`). Joins and syncs wait in their group
until the phase ends, the shard is lost or reloads, the client disconnects, or the broker stops. There is one timer per
group and one for retention, on one heap.
"""

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Executor
from contextlib import suppress
from functools import partial
from typing import Any, TypeVar
from uuid import UUID, uuid4

from headrace.cluster.metadata import Metadata
from headrace.config.broker import BrokerSettings
from headrace.coordinator.coordinator import Coordinator
from headrace.coordinator.machine import Outcome
from headrace.coordinator.result import Result
from headrace.coordinator.shard import Shard
from headrace.groups.classic import ClassicGroup
from headrace.groups.classic_protocol import Joined, JoinRequest, Synced
from headrace.groups.consumer import ConsumerGroup, Heartbeat
from headrace.groups.group import Beat, Convert, CreateTopics, Effects, Group, Listed, Now, Reply
from headrace.groups.internal_topics import InternalTopics
from headrace.groups.limits import limits_from
from headrace.groups.machine import Fetched, GroupMachine, GroupOutcome, Refused
from headrace.groups.offsets import Committer, OffsetCommit, Place
from headrace.groups.replies import done, reply_all, waiting
from headrace.groups.retention import OffsetRetention
from headrace.groups.share import ShareGroup, ShareHeartbeat
from headrace.groups.streams import StreamsBeat, StreamsGroup, StreamsHeartbeat
from headrace.model.errors import HeadraceError, InvalidGroupId, NotCoordinator
from headrace.model.image import OFFSETS_TOPIC, ClusterImage
from headrace.replication.partitions import PartitionTable
from headrace.runtime.clock import Clock
from headrace.runtime.deferred import Deferred

A = TypeVar("A")
H = TypeVar("H", Heartbeat, ShareHeartbeat, StreamsHeartbeat)
GroupShard = Shard[GroupMachine]

log = logging.getLogger(__name__)


class GroupService:
    def __init__(
        self,
        settings: BrokerSettings,
        *,
        metadata: Metadata,
        partitions: PartitionTable,
        clock: Clock,
        workers: Executor,
        new_id: Callable[[], str] = lambda: str(uuid4()),
    ) -> None:
        """`new_id` returns the random part of a member id."""
        self._clock = clock
        self._metadata = metadata
        self._new_id = new_id
        limits = limits_from(settings, metadata.group_settings)
        self.coordinator: Coordinator[GroupMachine] = Coordinator(
            OFFSETS_TOPIC,
            partition_count=settings.offsets_topic_num_partitions,
            topic_settings={
                "cleanup.policy": "compact",
                "compression.type": "producer",
                "segment.bytes": str(settings.offsets_topic_segment_bytes),
            },
            make_machine=lambda _: GroupMachine(limits),
            metadata=metadata,
            partitions=partitions,
            clock=clock,
            workers=workers,
            on_loaded=self._loaded,
            on_lost=self._lost,
        )
        self._retention = OffsetRetention(self.coordinator, clock, settings.offsets_retention_check_interval_ms)
        self._internal_topics = InternalTopics(metadata)
        metadata.subscribe(self._image_changed)

    # -- lifecycle

    def start(self) -> None:
        self.coordinator.start()
        self._retention.start()

    async def stop(self) -> None:
        await self._internal_topics.stop()
        await self.coordinator.stop()

    # -- membership

    def join(self, group_id: str, wants: JoinRequest) -> Deferred[Result[Joined]]:
        if not wants.member_id:
            self._make_way(group_id)
        return self._do(
            group_id,
            lambda machine, now: machine.for_join(group_id, wants.member_id, now),
            lambda group, waiter, now: group.classic_join(wants, self._metadata.image, waiter, now),
        )

    def _make_way(self, group_id: str) -> None:
        """Delete a group of a kind that a new classic member cannot join. Its offsets remain."""
        with suppress(HeadraceError):
            shard = self._any_shard(group_id)
            group = shard.machine.groups.get(group_id)
            if group is not None and group.is_deleted_for_classic:
                shard.run(lambda _: Outcome(group.tombstones(), None))

    def new_member_id(self, prefix: str) -> str:
        return f"{prefix}-{self._new_id()}"

    def sync(
        self,
        group_id: str,
        by: Committer,
        protocol: tuple[str | None, str | None],
        assignments: Mapping[str, bytes],
    ) -> Deferred[Result[Synced]]:
        return self._do(
            group_id,
            lambda machine, _: machine.for_member(group_id),
            lambda group, waiter, now: group.classic_sync(by, protocol, assignments, self._metadata.image, waiter, now),
        )

    def heartbeat(self, group_id: str, by: Committer) -> None:
        """Handle a heartbeat of the classic protocol. Raises the error of the response."""
        shard = self._shard(group_id)
        group = shard.machine.for_member(group_id)
        try:
            group.classic_heartbeat(by, self._metadata.image, self._now())
        finally:
            if group.is_hastened_by_heartbeats:
                self._arm(shard, group_id)

    def leave(
        self, group_id: str, leaving: Sequence[tuple[str, str | None]]
    ) -> Deferred[Result[list[HeadraceError | None]]]:
        """Remove members. Returns one result for each, when the removal is committed."""

        def leave(group: Group, waiter: Deferred[Any], now: Now) -> Effects:
            results, effects = group.classic_leave(leaving, self._metadata.image, now)
            return [*effects, Outcome((), [Reply(waiter, Result(results))])]

        return self._do(group_id, lambda machine, _: machine.for_member(group_id), leave)

    def consumer_heartbeat(self, group_id: str, beat: Heartbeat) -> Deferred[Result[Beat]]:
        """Handle a heartbeat, join or leave by the consumer protocol."""
        return self._beat(group_id, beat, GroupMachine.consumer_heartbeat)

    def share_heartbeat(self, group_id: str, beat: ShareHeartbeat) -> Deferred[Result[Beat]]:
        """Handle a heartbeat, join or leave in a share group."""
        return self._beat(group_id, beat, GroupMachine.share_heartbeat)

    def streams_heartbeat(self, group_id: str, beat: StreamsHeartbeat) -> Deferred[Result[StreamsBeat]]:
        """Handle a heartbeat, join or leave in a streams group."""
        return self._beat(group_id, beat, GroupMachine.streams_heartbeat)

    def _beat(
        self,
        group_id: str,
        beat: H,
        heartbeat: Callable[[GroupMachine, str, H, ClusterImage, Deferred[Result[A]], Now], Effects],
    ) -> Deferred[Result[A]]:
        answer: Deferred[Result[A]] = Deferred()
        try:
            shard = self._shard(group_id)
            effects = heartbeat(shard.machine, group_id, beat, self._metadata.image, answer, self._now())
        except HeadraceError as error:
            return done(Result(error=error))
        self._apply(shard, effects)
        self._arm(shard, group_id)
        return answer

    # -- offsets

    def commit(
        self, group_id: str, by: Committer, commits: Sequence[OffsetCommit], *, retention_ms: int = -1
    ) -> Deferred[Result[Refused]]:
        now = self._now()
        return self._run(
            group_id, lambda machine: machine.commit(group_id, by, commits, now, retention_ms=retention_ms)
        )

    def commit_in_transaction(
        self, group_id: str, by: Committer, commits: Sequence[OffsetCommit], producer_id: int, producer_epoch: int
    ) -> Deferred[Result[Refused]]:
        """Write offsets in a producer's transaction. The caller has checked that the producer may write."""
        try:
            shard, now = self._shard(group_id), self._now()
            shard.machine.check_commit(group_id, by, now, transactional=True, commits=commits)
            records, refused = shard.machine.commit_records(group_id, commits, now)
        except HeadraceError as error:
            return done(Result(error=error))
        if not records:
            return done(Result(refused))
        return shard.write_in_transaction(records, producer_id, producer_epoch, refused)

    def fetch(
        self,
        group_id: str,
        wanted: Mapping[str, Sequence[int]] | None,
        *,
        require_stable: bool = False,
        member_id: str | None = None,
        member_epoch: int = -1,
    ) -> Deferred[Result[dict[str, dict[int, Fetched]]]]:
        return self._run(
            group_id,
            lambda machine: Outcome(
                (),
                machine.fetch(
                    group_id,
                    wanted,
                    require_stable=require_stable,
                    member_id=member_id,
                    member_epoch=member_epoch,
                ),
            ),
        )

    def delete_offsets(self, group_id: str, places: Iterable[Place]) -> Deferred[Result[Refused]]:
        return self._run(group_id, lambda machine: machine.delete_offsets(group_id, places))

    # -- groups

    def classic(self, group_id: str) -> ClassicGroup:
        """Return a classic group; `GroupNotFound` if there is none with this id."""
        return self._any_shard(group_id).machine.of_kind(group_id, ClassicGroup)

    def consumer(self, group_id: str) -> ConsumerGroup:
        """Return a consumer group; `GroupNotFound` if there is none with this id."""
        return self._shard(group_id).machine.of_kind(group_id, ConsumerGroup)

    def share(self, group_id: str) -> ShareGroup:
        """Return a share group; `GroupNotFound` if there is none with this id."""
        return self._shard(group_id).machine.of_kind(group_id, ShareGroup)

    def streams(self, group_id: str) -> StreamsGroup:
        """Return a streams group; `GroupNotFound` if there is none with this id."""
        return self._shard(group_id).machine.of_kind(group_id, StreamsGroup)

    def internal_topics_problem(self, group_id: str) -> str | None:
        """Why the last attempt to create internal topics of a streams group failed; None if it did not."""
        return self._internal_topics.problem(group_id)

    def is_share(self, group_id: str) -> bool:
        """Whether there is a share group with this id. Raises the error if this broker is not its coordinator."""
        return self._any_shard(group_id).machine.find(group_id, ShareGroup) is not None

    def begin_share(self, group_id: str, topic_ids: Iterable[UUID]) -> Deferred[Result[None]]:
        """Record that a share group has state in these topics. A missing group is created."""
        if not group_id:
            return done(Result(error=InvalidGroupId("a group must have a name")))
        return self._run(group_id, lambda machine: machine.begin_share(group_id, topic_ids))

    def forget_share(self, group_id: str, topic_ids: Iterable[UUID]) -> Deferred[Result[None]]:
        """Record that a share group no longer has state in these topics."""
        return self._run(group_id, lambda machine: machine.forget_share(group_id, topic_ids))

    def listed(self) -> list[Listed]:
        """Return all groups that this broker coordinates; `CoordinatorLoading` while a shard is loading."""
        groups: list[Listed] = []
        for shard in self.coordinator.shards():
            shard.check()
            groups.extend(shard.machine.listed())
        return groups

    def delete_group(self, group_id: str) -> Deferred[Result[None]]:
        return self._run(group_id, lambda machine: machine.delete_group(group_id))

    # -- execution

    def _now(self) -> Now:
        return Now(self._clock.monotonic_ms(), self._clock.wall_ms())

    def _shard(self, group_id: str) -> GroupShard:
        if not group_id:
            raise InvalidGroupId("a group must have a name")
        return self._any_shard(group_id)

    def _any_shard(self, group_id: str) -> GroupShard:
        shard = self.coordinator.shard(group_id)
        shard.check()
        return shard

    def _run(self, group_id: str, operation: Callable[[GroupMachine], GroupOutcome[A]]) -> Deferred[Result[A]]:
        """Run an operation on stored state. Offsets may be stored under an empty group id, as in old versions."""
        try:
            shard = self._any_shard(group_id)
        except HeadraceError as error:
            return done(Result(error=error))
        return shard.run(lambda _: operation(shard.machine))

    def _do(
        self,
        group_id: str,
        find: Callable[[GroupMachine, Now], Group],
        tell: Callable[[Group, Deferred[Result[Any]], Now], Effects],
    ) -> Deferred[Result[Any]]:
        """Call a group, and apply the effects that it returns. The group resolves the result."""
        answer, now = waiting(), self._now()
        try:
            shard = self._shard(group_id)
            group = find(shard.machine, now)
        except HeadraceError as error:
            return done(Result(error=error))
        try:
            self._apply(shard, tell(group, answer, now))
        except HeadraceError as error:
            answer.resolve(Result(error=error))
        self._arm(shard, group_id)
        return answer

    def _apply(self, shard: GroupShard, effects: Effects) -> None:
        for effect in effects:
            if isinstance(effect, Reply):
                effect.waiter.resolve(effect.result)
                continue
            if isinstance(effect, Convert):
                if shard.machine.adopt(effect.group):
                    log.info("the group %s uses the %s protocol from now on", effect.group.group_id, effect.group.kind)
                continue
            if isinstance(effect, CreateTopics):
                self._internal_topics.create(effect.group_id, effect.topics)
                continue
            shard.run(lambda _, outcome=effect: outcome).then(partial(reply_all, effect.answer))  # type: ignore[misc]

    # -- time

    def _arm(self, shard: GroupShard, group_id: str) -> None:
        """Set the timer of a group to its next deadline. A heartbeat moves the deadline later, not the timer."""
        timers, key = self.coordinator.timers, ("group", group_id)
        group = shard.machine.groups.get(group_id)
        deadline_ms = None if group is None else group.next_deadline_ms()
        if deadline_ms is None:
            timers.cancel(key)
        elif timers.deadline_of(key) != deadline_ms:
            timers.set(key, deadline_ms, partial(self._expire, shard, shard.machine, group_id))

    def _expire(self, shard: GroupShard, machine: GroupMachine, group_id: str) -> None:
        group = machine.groups.get(group_id)
        if group is not None and shard.machine is machine and shard.is_active:
            self._apply(shard, group.expire(self._metadata.image, self._now()))
            self._arm(shard, group_id)

    # -- events

    def _loaded(self, shard: GroupShard) -> None:
        for group_id in shard.machine.groups:
            self._arm(shard, group_id)

    def _lost(self, shard: GroupShard) -> None:
        """Fail all waiters of a shard that this broker lost, or whose state is invalid."""
        lost: Result[Any] = Result(error=NotCoordinator(f"the coordinator on {shard.partition} has moved"))
        for group in shard.machine.groups.values():
            self.coordinator.timers.cancel(("group", group.group_id))
            for waiter, result in group.fail_waiters(lost):
                waiter.resolve(result)

    async def _image_changed(self, old: ClusterImage, new: ClusterImage) -> None:
        gone = {
            name: topic.topic_id
            for name, topic in old.topics.items()
            if (now := new.topics.get(name)) is not topic and (now is None or now.topic_id != topic.topic_id)
        }
        if gone:
            for shard in self.coordinator.shards():
                if shard.is_active:
                    shard.run(lambda _, shard=shard: shard.machine.forget_topics(gone))  # type: ignore[misc]
