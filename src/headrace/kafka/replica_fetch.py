"""The fetch of a follower: records up to the end of the log. Its fetch offset reports how far it has replicated."""

import asyncio
from collections.abc import Iterable, Sequence

from headrace.kafka.changed_partitions import ChangedPartitions
from headrace.kafka.dispatch import Context
from headrace.kafka.fetch import NO_REPLICA, hosted_partition
from headrace.kafka.fetch_reads import PartitionSlice
from headrace.kafka.fetch_sessions import FetchPlan, PartitionFetch, PartitionKey
from headrace.model.errors import HeadraceError
from headrace.model.ids import BrokerId
from headrace.replication.partition import Partition
from headrace.replication.waiters import DataWaiter
from headrace.storage.slice import Slice

_LOOK_AT_ALL_EVERY_MS = 30_000.0


class FetchingReplica:
    """A follower as the client of one fetch (`FetchClient`).

    In a session, only partitions that may have changed are checked.
    """

    __slots__ = ("_changes", "_ctx", "_named", "_plan", "_replica_epoch", "_replica_id", "_waits_on")

    def __init__(self, ctx: Context, plan: FetchPlan, replica_id: BrokerId, replica_epoch: int) -> None:
        self._ctx = ctx
        self._plan = plan
        self._replica_id = replica_id
        self._replica_epoch = replica_epoch
        self._named = frozenset(key for key, _ in plan.wanted)
        self._waits_on: list[Partition] = []
        self._changes: ChangedPartitions | None = None
        ctx.peer.is_follower = True
        session = plan.session
        if session is not None:
            known = session.changes
            if isinstance(known, ChangedPartitions) and known.replica_id == replica_id:
                self._changes = known
            else:
                self._changes = ChangedPartitions(replica_id)
                ctx.services.fetch_sessions.only_for(session, self._changes)

    def note_progress(self) -> None:
        """Record how far the replica is: up to its fetch offset, if its leader epoch and history match this log."""
        now_ms = self._ctx.services.clock.monotonic_ms()
        changes, session = self._changes, self._plan.session
        requested: Iterable[tuple[PartitionKey, PartitionFetch]] = self._plan.wanted
        if changes is not None and session is not None:
            for key in self._plan.forgotten:
                changes.forget(key)
            if changes.broker_epoch != self._replica_epoch:
                # The replica has a new broker epoch: record all of its offsets under it.
                changes.broker_epoch = self._replica_epoch
                requested = session.wanted.items()
            changes.contact_ms = now_ms
            if now_ms - changes.looked_at_all_ms > _LOOK_AT_ALL_EVERY_MS:
                changes.looked_at_all_ms = now_ms
                changes.due.update(dict.fromkeys(session.wanted))
        for key, wanted in requested:
            if changes is not None:
                changes.due[key] = None
            try:
                partition = self.partition(key)
                if changes is not None:
                    changes.watch(key, partition)
                self._count(partition, wanted, now_ms)
            except HeadraceError:
                continue  # The slice reports the error.

    def _count(self, partition: Partition, wanted: PartitionFetch, now_ms: float) -> None:
        partition.check_epoch(wanted.current_leader_epoch)
        log = partition.log
        is_sound = log.start_offset <= wanted.offset <= log.end_offset and wanted.current_leader_epoch >= 0
        if is_sound and partition.diverges_at(wanted.last_fetched_epoch, wanted.offset) is None:
            partition.replica_fetched(
                self._replica_id,
                self._replica_epoch,
                wanted.offset,
                log_start_offset=wanted.log_start_offset,
                now_ms=now_ms,
            )

    def partition(self, key: PartitionKey) -> Partition:
        partition = hosted_partition(self._ctx, key)
        partition.check_leading()
        # A replica that the leader does not know yet is refused, so that it retries: in an idle partition nothing
        # else would make it report its offset.
        partition.led_for(self._replica_id)
        return partition

    def wanted(self) -> Iterable[tuple[PartitionKey, PartitionFetch]]:
        changes, session = self._changes, self._plan.session
        if changes is None or session is None:
            return self._plan.wanted
        return [(key, session.wanted[key]) for key in changes.due if key in session.wanted]

    def preferred_replica(self, partition: Partition, offset: int) -> int:
        return NO_REPLICA

    def must_name(self, key: PartitionKey) -> bool:
        """Whether this request names the partition: the replica may have ignored earlier answers about it.

        It ignores them while it has no leader, and where a later request changes the partition, which may arrive here
        before the earlier one is answered.
        """
        return key in self._named

    def must_be_answered(self) -> bool:
        return self._changes is not None and self._changes.is_pressing

    def slice(
        self, partition: Partition, offset: int, max_bytes: int, waiter: DataWaiter, *, at_least_one: bool
    ) -> Slice | None:
        if self._is_throttled(partition):
            now_ms = self._ctx.services.clock.monotonic_ms()
            wait_ms = self._ctx.services.leader_throttle.wait_ms(now_ms)
            if wait_ms > 0:
                asyncio.get_running_loop().call_later(wait_ms / 1000, waiter.data_arrived)
                return None
        return partition.slice_for_replica(offset, max_bytes, at_least_one=at_least_one)

    def _is_throttled(self, partition: Partition) -> bool:
        """Whether a reassignment adds this replica, and it has not caught up yet."""
        state = partition.state
        return (
            state is not None
            and bool(state.adding)
            and self._replica_id in state.adding
            and self._replica_id not in state.isr
        )

    def wait(self, waiter: DataWaiter, found: Sequence[PartitionSlice]) -> None:
        if self._changes is not None:
            self._changes.wake = waiter.data_arrived
            return
        for item in found:
            if item.partition is not None:
                item.partition.replica_waiters.add(waiter)
                self._waits_on.append(item.partition)

    def stop_waiting(self, waiter: DataWaiter) -> None:
        if self._changes is not None:
            self._changes.wake = None
        for partition in self._waits_on:
            partition.replica_waiters.remove(waiter)
        self._waits_on.clear()

    def note_answered(self, found: Sequence[PartitionSlice]) -> None:
        """Charge the throttle, and clear `due` for the partitions that this answer covers in full."""
        services = self._ctx.services
        for item in found:
            if item.slice is None or item.partition is None:
                continue
            if item.partition.traffic is not None:
                item.partition.traffic.replicated_out += item.slice.length
            if self._is_throttled(item.partition):
                services.leader_throttle.spend(item.slice.length, services.clock.monotonic_ms())
        if self._changes is not None and self._plan.session is not None:
            self._changes.is_pressing = False
            wanted = self._plan.session.wanted
            for item in found:
                is_left_over = (
                    item.partition is not None
                    and item.slice is None
                    and item.part.diverging is None
                    and wanted[item.key].offset < item.partition.log.end_offset
                )
                if not is_left_over:
                    self._changes.due.pop(item.key, None)
