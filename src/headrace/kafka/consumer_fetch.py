"""The fetch of a consumer: committed records, from the leader or from a follower in its rack."""

from collections.abc import Iterable, Sequence
from typing import Any

from headrace.kafka.dispatch import Context
from headrace.kafka.fetch import NO_REPLICA, READ_COMMITTED, PartitionSlice, hosted_partition
from headrace.kafka.fetch_sessions import FetchPlan, PartitionFetch, PartitionKey
from headrace.replication.partition import Partition
from headrace.replication.readable import Role
from headrace.replication.waiters import DataWaiter
from headrace.storage.log import Slice

_FOLLOWERS_SERVE_FROM = 11


class FetchingConsumer:
    """A consumer as the client of one fetch (`FetchClient`)."""

    __slots__ = ("_committed", "_ctx", "_plan", "_rack", "_waits_on")

    def __init__(self, ctx: Context, request: Any, plan: FetchPlan) -> None:
        self._ctx = ctx
        self._plan = plan
        self._rack: str = getattr(request, "rack_id", "")
        self._committed = request.isolation_level == READ_COMMITTED
        self._waits_on: list[Partition] = []

    def note_progress(self) -> None:
        """No-op: a consumer's fetch offset does not affect replication."""

    def wanted(self) -> Iterable[tuple[PartitionKey, PartitionFetch]]:
        return self._plan.wanted

    def partition(self, key: PartitionKey) -> Partition:
        partition = hosted_partition(self._ctx, key)
        if not partition.is_leader and (
            self._ctx.version < _FOLLOWERS_SERVE_FROM or partition.role is not Role.FOLLOWER
        ):
            partition.check_leading()
        return partition

    def preferred_replica(self, partition: Partition, offset: int) -> int:
        """Return a follower in the consumer's rack that has the offset (KIP-392), or -1."""
        leading, services = partition.leading, self._ctx.services
        if not self._rack or leading is None or self._rack == services.settings.broker_rack:
            return NO_REPLICA
        brokers = services.metadata.image.brokers
        for broker_id in leading.readers(offset):
            broker = brokers.get(broker_id)
            if broker is not None and broker.is_alive and broker.rack == self._rack:
                partition.is_read_elsewhere = True
                return broker_id
        return NO_REPLICA

    def slice(
        self,
        partition: Partition,
        offset: int,
        max_bytes: int,
        waiter: DataWaiter,
        *,
        at_least_one: bool,
    ) -> Slice | None:
        return partition.slice(offset, max_bytes, committed=self._committed, at_least_one=at_least_one)

    def must_be_answered(self) -> bool:
        return not self._plan.wanted

    def wait(self, waiter: DataWaiter, found: Sequence[PartitionSlice]) -> None:
        for item in found:
            if item.partition is not None:
                item.partition.data_waiters.add(waiter)
                self._waits_on.append(item.partition)

    def stop_waiting(self, waiter: DataWaiter) -> None:
        for partition in self._waits_on:
            partition.data_waiters.remove(waiter)
        self._waits_on.clear()

    def must_name(self, key: PartitionKey) -> bool:
        return False

    def note_answered(self, found: Sequence[PartitionSlice]) -> None:
        """No-op: a consumer has no state besides its session."""
