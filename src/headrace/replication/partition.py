"""A partition: a log and this broker's role for it. A single broker always leads.

Guarantees:
- offsets are assigned in the order in which `append` is called, and only by the leader;
- the high watermark never goes back, and no consumer reads at or past it;
- under `flush.policy=ack` the high watermark covers only records on the disk of every replica in sync, so that every
  record that was consumed, or acknowledged with acks=all, survives a power failure (invariants 1 and 2);
- a commit waiter is notified of the commit, or that it is ruled out: the leader has changed, or the disk has failed.

A partition is made of parts: `leader.py` tracks the followers, `copier.py` is the follower's side, and `readable.py` is
the replica that all of them share, which consumers read. `mirrored.py` is what differs in a partition that mirrors one
of another cluster: it is read-only until it is promoted.
"""

import logging
from collections.abc import Awaitable, Callable, Iterable

from headrace.config.topic import TopicSettings
from headrace.model.errors import HeadraceError, NotLeader, OffsetNotAvailable, StorageFailed
from headrace.model.ids import NO_LEADER, BrokerId, LeaderEpoch, PartitionIndex, TopicId, TopicName
from headrace.model.image import PartitionState
from headrace.model.invariants import invariant
from headrace.model.links import Mirror, MirrorState
from headrace.observe.traffic import TopicTraffic
from headrace.quotas.stored_bytes import StoredRoom
from headrace.records.batch import BatchHeader, Buffer
from headrace.records.markers import Marker
from headrace.replication.backlog import BacklogGuard
from headrace.replication.copier import ReplicaCopier
from headrace.replication.deletion import delete_records
from headrace.replication.leader import Leading
from headrace.replication.mirrored import (
    append_mirrored,
    check_set_aside,
    finish_promotion,
    forget_idle_producers,
    is_follower_set_aside,
    read_only,
    starts_again,
)
from headrace.replication.readable import ReadableReplica, Role
from headrace.replication.waiters import CommitWaiters, DataWaiters
from headrace.storage.appender import AppendResult, ProducedBatch
from headrace.storage.log import Log
from headrace.storage.slice import Slice

_log = logging.getLogger(__name__)

_ALONE = BrokerId(0)


def _ignore_joinable(_: "Partition") -> None:
    """Does nothing: with a single replica there are no ISR changes."""


def _said(partition: "Partition", offset: int) -> None:
    """Logs the damage: there is no other replica to fetch from."""
    _log.error("%s is damaged at offset %d", partition, offset)


class Partition:
    __slots__ = (
        "_appended",
        "_broker_id",
        "_commit_waiters",
        "_is_frozen",
        "_leading",
        "_min_in_sync",
        "_visible_when_flushed",
        "aborted_within",
        "backlog",
        "before_readable",
        "check_epoch",
        "copier",
        "data_waiters",
        "diverges_at",
        "fetch_position",
        "index",
        "is_read_elsewhere",
        "is_writable",
        "leader_id",
        "log",
        "mirror",
        "on_damaged",
        "on_joinable",
        "replica",
        "replica_waiters",
        "slice",
        "state",
        "stored",
        "take_fetched",
        "topic",
        "topic_id",
        "traffic",
        "when_flushed",
    )

    def __init__(
        self,
        topic: TopicName,
        index: PartitionIndex,
        topic_id: TopicId,
        log: Log,
        leader_epoch: LeaderEpoch,
        *,
        appended: Callable[[Log], None],
        broker_id: BrokerId = _ALONE,
        high_watermark: int | None = None,
    ) -> None:
        """`appended` is called after each append, to request a flush.

        Without a `high_watermark` this is the only replica, and leads from the beginning. With one (from the
        checkpoint) it is idle until its role is set.
        """
        self.topic = topic
        self.index = index
        self.topic_id = topic_id
        self.log = log
        self._appended = appended
        self._visible_when_flushed = log.settings.flushes_before_ack
        self.is_read_elsewhere = False
        """Whether the leader has sent a consumer to a follower, which then needs the high watermark at once."""
        self.replica_waiters = DataWaiters()
        """Follower fetches, notified when the log grows."""
        self.replica = replica = ReadableReplica(topic, index, log, leader_epoch)
        self.copier = copier = ReplicaCopier(replica, appended=self._copied)
        copier.check_reversed = lambda offset: is_follower_set_aside(self.mirror, index, log, offset)
        copier.starts_again = lambda start: starts_again(self.mirror, index, log, start)
        # What fetches call is bound once, since a method that delegates costs each of them a call.
        self.data_waiters = replica.data_waiters
        self.slice = replica.slice
        self.check_epoch = replica.check_epoch
        self.diverges_at = replica.diverges_at
        self.aborted_within = replica.aborted_within
        self.fetch_position = copier.fetch_position
        self.take_fetched = copier.take_fetched
        self.when_flushed = copier.when_flushed
        self.on_joinable: Callable[[Partition], None] = _ignore_joinable
        """Called when a follower has caught up and may join the ISR."""
        self.on_damaged: Callable[[Partition, int], None] = _said
        """Called with the offset of a batch that is damaged on this broker's disk."""
        self._broker_id = broker_id
        self._commit_waiters = CommitWaiters()
        self.traffic: TopicTraffic | None = None
        """Where messages and bytes are counted; None if they are not."""
        self.backlog: BacklogGuard | None = None
        """The bound on the backlog, for producers; None if there is none."""
        self.stored: StoredRoom | None = None
        """The quotas of bytes stored by topics with a prefix, while it leads; None if there is none for it."""
        self.before_readable: Callable[[], None] | None = None
        """Called when the high watermark has moved, before consumers can read up to it."""
        self._min_in_sync = log.settings.min_insync_replicas
        self.mirror: Mirror | None = None
        """The mirror record of the topic; None if it never was a mirror topic. See `set_mirror`."""
        self._is_frozen = False
        self._leading: Leading | None = None
        self.state: PartitionState | None = None
        """The last state from the metadata store; None on a single broker."""
        if high_watermark is None:
            replica.role = Role.LEADER
            replica.is_leader = True
            self.leader_id = broker_id
            high_watermark = log.flushed_offset if self._visible_when_flushed else log.end_offset
        else:
            self.leader_id = NO_LEADER
        self.is_writable = replica.is_leader
        """Whether producers can write: it leads, and is no mirror. See `check_writable`."""
        log.restore_high_watermark(high_watermark)
        log.on_flushed = self._flushed

    def __str__(self) -> str:
        return f"{self.topic}-{self.index}"

    @property
    def settings(self) -> TopicSettings:
        return self.log.settings

    @property
    def role(self) -> Role:
        return self.replica.role

    @property
    def is_leader(self) -> bool:
        return self.replica.is_leader

    @property
    def leader_epoch(self) -> LeaderEpoch:
        return self.replica.leader_epoch

    @property
    def high_watermark(self) -> int:
        """Every record below it is committed, as far as this replica knows."""
        return self.log.high_watermark

    @property
    def last_stable_offset(self) -> int:
        """The end for read_committed consumers: the start of the oldest open transaction, or the high watermark."""
        return self.replica.last_stable_offset

    @property
    def in_sync_count(self) -> int:
        """The number of replicas in sync, including this one."""
        return 1 if self._leading is None else len(self._leading.state.isr)

    @property
    def has_others_in_sync(self) -> bool:
        """Whether another broker may be elected, which could lose records that only this one has."""
        return self._leading is not None and len(self._leading.maximal) > 1

    @property
    def is_replicated(self) -> bool:
        """Whether other brokers have replicas."""
        return self.state is not None and len(self.state.replicas) > 1

    @property
    def leading(self) -> Leading | None:
        """The state of the followers; None unless this broker leads and there are some."""
        return self._leading

    # Roles

    def lead(self, state: PartitionState, now_ms: float) -> bool:
        """Become leader, or apply a newer state as leader; True if the leader epoch is new here."""
        if state.leader_epoch < self.leader_epoch:
            return False
        is_new = not self.is_leader or state.leader_epoch != self.leader_epoch
        self.state = state
        self.replica.leader_epoch = state.leader_epoch
        self.leader_id = self._broker_id
        self.replica.role = Role.LEADER
        self.replica.is_leader = True
        if len(state.replicas) == 1:
            self._leading = None
        elif is_new or self._leading is None:
            end_offset = self.log.end_offset
            self._leading = Leading(self._broker_id, state, epoch_start_offset=end_offset, now_ms=now_ms)
        else:
            self._leading.update(state, now_ms)
        self.copier.release_waiters()
        self._update_writable()
        self._advance()
        return is_new

    def follow(self, state: PartitionState) -> bool:
        """Become follower; True if the leader epoch or the role has changed."""
        if state.leader_epoch < self.leader_epoch:
            return False
        is_new = self.role is not Role.FOLLOWER or state.leader_epoch != self.leader_epoch
        self._take_part(Role.FOLLOWER, state, state.leader)
        return is_new

    def idle(self, state: PartitionState | None = None) -> None:
        """Neither lead nor follow until the next change of role."""
        if state is not None and state.leader_epoch < self.leader_epoch:
            return
        self._take_part(Role.IDLE, state or self.state, NO_LEADER if state is None else state.leader)

    def _take_part(self, role: Role, state: PartitionState | None, leader_id: BrokerId) -> None:
        self.state = state
        self.leader_id = leader_id
        self.replica.role = role
        is_new_epoch = state is not None and state.leader_epoch != self.leader_epoch
        if state is not None:
            self.replica.leader_epoch = state.leader_epoch
        self.is_writable = False
        if self.is_leader:
            self.replica.is_leader = False
            self._leading = None
            self._commit_waiters.fail(self._not_leading())
        if is_new_epoch or role is Role.IDLE:
            self.copier.release_waiters()
        self.data_waiters.advanced()
        self.replica_waiters.advanced()

    # Mirrors

    def set_mirror(self, mirror: Mirror | None) -> None:
        """Apply the mirror record of the topic. A promoted partition that leads is completed and becomes writable."""
        if mirror is not self.mirror:
            self.mirror = mirror
            self._is_frozen = self._is_frozen and mirror is not None and mirror.state is MirrorState.REVERSING
            self._update_writable()

    def freeze(self) -> None:
        """End the time in which a topic that is being reversed takes markers: its log does not grow any more."""
        self._is_frozen = True

    @property
    def takes_markers(self) -> bool:
        """Whether open transactions may still end, though no producer writes: a reversal that has only begun."""
        mirror = self.mirror
        return (
            mirror is not None
            and mirror.state is MirrorState.REVERSING
            and not self._is_frozen
            and mirror.parting(self.index) is None
        )

    def drop_divergent(self, offset: int) -> None:
        """Truncate a reversed partition as its leader, to an offset where it parts from its new source. What is dropped
        was set aside. Followers truncate when they fetch: their history is compared with that of the leader."""
        check_set_aside(self.mirror, self.index, self.log, offset)
        self._truncate_leader(self.log.truncate_to, offset)

    def start_again(self, offset: int) -> None:
        """Drop the log of a reversed queue as its leader, so that all of it is copied from an offset on. Followers do
        so when they see where it starts."""
        is_due = starts_again(self.mirror, self.index, self.log, offset)
        invariant(is_due, 95, "only a reversed queue whose new home starts earlier is copied again")
        self._truncate_leader(self.log.truncate_fully_and_start_at, offset)

    def drop_damaged(self, offset: int) -> None:
        """Truncate a mirror partition as its leader to the first offset that its disk has lost, so that the rest is
        copied again. The caller knows that its source has that history."""
        invariant(self.is_mirror and offset == self.log.damaged_from, 92, "only a damaged copy is copied again")
        self._truncate_leader(self.log.truncate_to, offset)

    def _truncate_leader(self, truncate: Callable[[int], None], offset: int) -> None:
        self.check_leading()
        try:
            truncate(offset)
        except StorageFailed as error:
            if self.log.failure is not None:
                self.failed(error)
            raise
        if self._leading is not None:
            self._leading.truncated(self.log.end_offset)
        self.data_waiters.advanced()
        self.replica_waiters.advanced()

    @property
    def is_mirror(self) -> bool:
        """Whether nothing but the records of a source partition is appended."""
        return self.mirror is not None and self.mirror.is_read_only

    def _copied(self, log: Log) -> None:
        """After an append of batches of the leader."""
        self._appended(log)
        if self.is_mirror:
            forget_idle_producers(log)

    def append_mirrored(self, batches: memoryview) -> None:
        """Append whole batches of the source partition. If an error is raised, those before it have been appended."""
        self.check_leading()
        invariant(self.is_mirror, 93, "only a mirror takes batches of another cluster")
        try:
            append_mirrored(self.replica, batches)
        except StorageFailed as error:
            if self.log.failure is not None:
                self.failed(error)
            raise
        finally:
            self._grown()

    def _update_writable(self) -> None:
        self.is_writable = self.is_leader and self.mirror is None
        if self.is_leader and self.mirror is not None and not self.mirror.is_read_only:
            try:
                self.check_writable()
            except HeadraceError as error:
                _log.error("%s was promoted, and is not writable yet: %s", self, error)

    def check_writable(self) -> None:
        """Raise the reason if producers cannot write: `NotLeader`, `MirrorIsReadOnly`, or an error of the log.

        Completes a promotion that failed before, as on a full disk.
        """
        self.check_leading()
        mirror = self.mirror
        if mirror is not None:
            if mirror.is_read_only:
                raise read_only(self.topic, mirror)
            if finish_promotion(self.replica, mirror):
                self._grown()
        self.is_writable = True

    def check_leading(self) -> None:
        if not self.is_leader:
            raise self._not_leading()

    def _not_leading(self) -> NotLeader:
        who = "no broker" if self.leader_id == NO_LEADER else f"broker {self.leader_id}"
        return NotLeader(f"{self.topic}-{self.index} is not led by this broker: {who} leads it")

    # The leader and its followers

    def replica_fetched(
        self, replica_id: BrokerId, broker_epoch: int, offset: int, *, log_start_offset: int, now_ms: float
    ) -> None:
        """Record that a follower fetches from `offset`: it has everything below. The caller has checked its epoch, and
        that it does not diverge. `NotLeader` unless this broker leads and the follower is a replica."""
        leading = self.led_for(replica_id)
        invariant(offset <= self.log.end_offset, 29, "a replica has no more than its leader")
        if leading.fetched(
            replica_id,
            broker_epoch,
            offset,
            start_offset=log_start_offset,
            end_offset=self.log.end_offset,
            now_ms=now_ms,
        ):
            self._advance()
        if replica_id not in leading.state.isr and leading.can_join(replica_id, self.high_watermark):
            self.on_joinable(self)

    def led_for(self, replica_id: BrokerId) -> Leading:
        """The state of the followers. `NotLeader` unless this broker leads and knows `replica_id` as a replica: that
        broker may have learned of a change before the leader has."""
        leading = self._leading
        if leading is None or not leading.is_replica(replica_id):
            self.check_leading()
            raise NotLeader(f"broker {replica_id} is no replica of {self.topic}-{self.index}")
        return leading

    def note_caught_up(self, replica_id: BrokerId, at_ms: float) -> None:
        """Record that a follower was caught up at that time, though it did not fetch the partition again."""
        if self._leading is not None:
            self._leading.note_caught_up(replica_id, at_ms)

    def slice_for_replica(self, offset: int, max_bytes: int, *, at_least_one: bool) -> Slice | None:
        """Locate the bytes from `offset` on, committed or not, as they are on disk: encrypted ones stay encrypted."""
        cut = self.log.slice(offset, max_bytes, self.log.end_offset, at_least_one=at_least_one)
        return cut if cut is None or cut.cipher is None else cut._replace(cipher=None)

    def check_offsets_known(self) -> None:
        """Raise `OffsetNotAvailable` while a new leader has not learned the high watermark from its followers."""
        if self._leading is not None and self.high_watermark < self._leading.epoch_start_offset:
            raise OffsetNotAvailable(f"{self.topic}-{self.index} has a new leader without a high watermark yet")

    def reconfigure(self, settings: TopicSettings) -> None:
        """Apply changed settings; they take effect with the next append."""
        self.log.settings = settings
        self._visible_when_flushed = settings.flushes_before_ack
        self._min_in_sync = settings.min_insync_replicas
        if self.log.flushed_offset < self.log.end_offset:
            self._appended(self.log)
        if not self._visible_when_flushed:
            self.copier.release_waiters()
        if self.is_leader:
            self._advance()

    def append(self, batch: Buffer, header: BatchHeader) -> AppendResult:
        """Append one validated batch to the log. It is not committed yet: see `when_committed`."""
        if not self.is_writable:
            self.check_writable()
        try:
            result = self.log.append(batch, header, self.replica.leader_epoch)
        except StorageFailed as error:
            if self.log.failure is not None:
                self.failed(error)
            raise
        if not result.duplicate:
            self._grown()
            traffic = self.traffic
            if traffic is not None:
                traffic.messages_in += header.record_count
                traffic.bytes_in += len(batch)
        return result

    def append_run(self, batches: Iterable[ProducedBatch]) -> list[ProducedBatch]:
        """Append the first of several validated batches with one write; returns those. See `Log.append_run`."""
        if not self.is_writable:
            return []
        try:
            run = self.log.append_run(batches, self.replica.leader_epoch)
        except StorageFailed as error:
            if self.log.failure is not None:
                self.failed(error)
            raise
        if run:
            self._grown()
            traffic = self.traffic
            if traffic is not None:
                for records, header in run:
                    traffic.messages_in += header.record_count
                    traffic.bytes_in += len(records)
        return run

    def append_marker(self, producer_id: int, producer_epoch: int, marker: Marker) -> AppendResult:
        """End a producer's transaction on this partition."""
        if not self.is_writable:
            (self.check_leading if self.takes_markers else self.check_writable)()
        try:
            result = self.log.append_marker(producer_id, producer_epoch, marker, self.leader_epoch)
        except StorageFailed as error:
            if self.log.failure is not None:
                self.failed(error)
            raise
        self._grown()
        return result

    def _grown(self) -> None:
        self._appended(self.log)
        if self._leading is not None:
            if self.replica_waiters:
                self.replica_waiters.advanced()
        elif not self._visible_when_flushed:
            self._advance()

    def when_committed(self, offset: int, callback: Callable[[BaseException | None], None]) -> bool:
        """True if everything below `offset` is committed; otherwise call back when it is, or with an error."""
        if offset <= self.log.high_watermark:
            return True
        if self.replica.is_leader:
            self._commit_waiters.add(offset, callback)
        else:
            callback(self._not_leading())
        return False

    async def until_committed(self, offset: int) -> None:
        """Return when everything below `offset` is committed, or raise the error that rules it out."""
        if offset > self.high_watermark:
            self.check_leading()
            await self._commit_waiters.until(offset)

    def failed(self, error: BaseException) -> None:
        """Fail all waiters, because the log directory failed: nothing unflushed is acknowledged, and what is committed
        stays readable."""
        failure = error if isinstance(error, StorageFailed) else StorageFailed(str(error))
        self._commit_waiters.fail(failure)
        self.copier.failed(failure)

    def closed(self, error: BaseException) -> None:
        """Fail all waiters, because the partition is being closed, and drop what makes a cycle of references, so that
        its memory is freed at once and not by a garbage collection."""
        self._commit_waiters.fail(error)
        self.copier.failed(error)
        self.data_waiters.advanced()
        self.replica_waiters.advanced()
        self.log.on_flushed = None
        self.copier.forget_owner()

    async def delete_before(self, offset: int, in_worker: Callable[[Callable[[], None]], Awaitable[None]]) -> int:
        """Delete the records before `offset` (DeleteRecords), -1 means the high watermark; durable on return.

        Returns the new log start offset. `in_worker` runs disk I/O.
        """
        if self.mirror is not None and self.mirror.is_read_only:
            raise read_only(self.topic, self.mirror)
        start_offset = await delete_records(str(self), self.log, offset, in_worker)
        # Followers get the new start offset with their next response.
        self.data_waiters.advanced()
        return start_offset

    def _flushed(self, log: Log) -> None:
        if not self._visible_when_flushed:
            return
        if self.replica.is_leader:
            self._advance()
        else:
            self.copier.flushed(log.flushed_offset)

    def _advance(self) -> None:
        log = self.log
        committed = log.flushed_offset if self._visible_when_flushed else log.end_offset
        if self._leading is not None:
            committed = self._leading.committed(committed, self._min_in_sync)
        if committed <= log.high_watermark:
            return
        if self._visible_when_flushed:
            invariant(committed <= log.flushed_offset, 2, "only flushed records are committed")
        log.advance_high_watermark(committed)
        if self.before_readable is not None:
            self.before_readable()
        if self._commit_waiters:
            self._commit_waiters.advanced(committed)
        if self.data_waiters:
            self.data_waiters.advanced()
