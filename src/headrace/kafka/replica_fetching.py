"""The fetch of a follower: what it asks for tells how far it is."""

import asyncio
from collections.abc import Iterable, Sequence
from typing import Any

from headrace.kafka.attention import Attention
from headrace.kafka.dispatch import Answer, Context
from headrace.kafka.fetch_sessions import FetchPlan, FetchSession, PartitionFetch, PartitionKey
from headrace.kafka.fetching import Fetch, PartitionSlice
from headrace.model.errors import HeadraceError
from headrace.model.ids import BrokerId
from headrace.protocol.fast import FetchedPartition
from headrace.replication.partition import Partition
from headrace.runtime.deferred import Deferred
from headrace.storage.log import Slice

_LOOK_AT_ALL_EVERY_MS = 30_000.0


class ReplicaFetch(Fetch):
    """The fetch of a follower. In a session, only partitions are looked at where something may have happened."""

    __slots__ = ("_attention", "_named", "_replica_epoch", "_replica_id")

    def __init__(self, ctx: Context, request: Any, plan: FetchPlan, replica_id: BrokerId, replica_epoch: int) -> None:
        super().__init__(ctx, request, plan)
        self._replica_id = replica_id
        self._replica_epoch = replica_epoch
        self._named = frozenset(key for key, _ in plan.wanted)
        self._attention: Attention | None = None
        session = plan.session
        if session is not None:
            known = session.attention
            if isinstance(known, Attention) and known.replica_id == replica_id:
                self._attention = known
            else:
                self._attention = Attention(replica_id)
                ctx.services.fetch_sessions.only_for(session, self._attention)

    def run(self) -> Answer | Deferred[Answer]:
        self._take_note()
        return super().run()

    def _take_note(self) -> None:
        """What a replica asks for tells how far it is; it counts when its leader epoch and its history are ours."""
        now_ms = self._ctx.services.clock.monotonic_ms()
        attention, session = self._attention, self._plan.session
        told: Iterable[tuple[PartitionKey, PartitionFetch]] = self._plan.wanted
        if attention is not None and session is not None:
            for key in self._plan.forgotten:
                attention.forget(key)
            if attention.broker_epoch != self._replica_epoch:
                # It has another place in the cluster: what it told under the former one is told again.
                attention.broker_epoch = self._replica_epoch
                told = session.wanted.items()
            attention.contact_ms = now_ms
            if now_ms - attention.looked_at_all_ms > _LOOK_AT_ALL_EVERY_MS:
                attention.looked_at_all_ms = now_ms
                attention.due.update(dict.fromkeys(session.wanted))
        for key, wanted in told:
            if attention is not None:
                attention.due[key] = None
            try:
                partition = self._partition(key)
                if attention is not None:
                    attention.watch(key, partition)
                self._count(partition, wanted, now_ms)
            except HeadraceError:
                continue  # The look that follows says why.

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

    def _partition(self, key: PartitionKey) -> Partition:
        partition = super()._partition(key)
        # One that the leader does not know yet is refused, so that it tells again how far it is: nothing else would
        # make it do so where nothing is written.
        partition.led_for(self._replica_id)
        return partition

    def _wanted(self) -> Iterable[tuple[PartitionKey, PartitionFetch]]:
        attention, session = self._attention, self._plan.session
        if attention is None or session is None:
            return self._plan.wanted
        return [(key, session.wanted[key]) for key in attention.due if key in session.wanted]

    def _is_news(self, session: FetchSession, key: PartitionKey, part: FetchedPartition) -> bool:
        """What this request names is always answered: what earlier answers said of it may have been passed over.

        A replica does so while it follows nobody, and where a later request says something else, which may arrive
        here before the answer to the earlier one is made.
        """
        return session.is_news(key, part) or key in self._named

    def _is_enough(self, found: Sequence[PartitionSlice]) -> bool:
        is_pressing = self._attention is not None and self._attention.is_pressing
        return self._wait_ms <= 0 or is_pressing or self._has_enough(found)

    def _may_ask_follower(self, partition: Partition) -> bool:
        return False

    def _slice(self, partition: Partition, offset: int, max_bytes: int, *, at_least_one: bool) -> Slice | None:
        if self._is_throttled(partition):
            now_ms = self._ctx.services.clock.monotonic_ms()
            wait_ms = self._ctx.services.leader_throttle.wait_ms(now_ms)
            if wait_ms > 0:
                asyncio.get_running_loop().call_later(wait_ms / 1000, self.data_arrived)
                return None
        return partition.slice_for_replica(offset, max_bytes, at_least_one=at_least_one)

    def _is_throttled(self, partition: Partition) -> bool:
        """Whether a reassignment brings this replica in, and it has not caught up yet."""
        state = partition.state
        return (
            state is not None
            and bool(state.adding)
            and self._replica_id in state.adding
            and self._replica_id not in state.isr
        )

    def _wait_on(self, found: Sequence[PartitionSlice]) -> None:
        if self._attention is not None:
            self._attention.wake = self.data_arrived
            return
        for item in found:
            if item.partition is not None:
                item.partition.replica_waiters.add(self)
                self._waits_on.append(item.partition)

    def _wait_no_more(self) -> None:
        if self._attention is not None:
            self._attention.wake = None
        for partition in self._waits_on:
            partition.replica_waiters.remove(self)
        self._waits_on.clear()

    def _read(self, found: Sequence[PartitionSlice]) -> Answer | Deferred[Answer]:
        services = self._ctx.services
        for item in found:
            if item.slice is not None and item.partition is not None and self._is_throttled(item.partition):
                services.leader_throttle.spend(item.slice.length, services.clock.monotonic_ms())
        if self._attention is not None and self._plan.session is not None:
            self._attention.is_pressing = False
            wanted = self._plan.session.wanted
            for item in found:
                is_left_over = (
                    item.partition is not None
                    and item.slice is None
                    and item.part.diverging is None
                    and wanted[item.key].offset < item.partition.log.end_offset
                )
                if not is_left_over:
                    self._attention.due.pop(item.key, None)
        return super()._read(found)
