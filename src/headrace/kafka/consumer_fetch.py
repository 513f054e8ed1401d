"""The fetch of a consumer: committed records, from the leader or from a follower in its rack."""

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from headrace.kafka.dispatch import Context, Delivered
from headrace.kafka.fetch import NO_REPLICA, READ_COMMITTED, hosted_partition
from headrace.kafka.fetch_reads import PartitionSlice
from headrace.kafka.fetch_sessions import FetchPlan, PartitionFetch, PartitionKey
from headrace.kafka.grants import TopicGrants
from headrace.kafka.permissions import READ_TOPIC, not_authorized
from headrace.model.errors import HeadraceError, UnknownTopicId
from headrace.protocol.fast import TopicKey
from headrace.replication.partition import Partition
from headrace.replication.readable import Role
from headrace.replication.waiters import DataWaiter
from headrace.security.authorizer import Authorizer
from headrace.storage.slice import Slice

_FOLLOWERS_SERVE_FROM = 11

Denied = Mapping[TopicKey | None, HeadraceError]
"""The topics that a consumer may not read, each with its error."""
_NONE_DENIED: Denied = MappingProxyType({})


class FetchingConsumer:
    """A consumer as the client of one fetch (`FetchClient`)."""

    __slots__ = ("_committed", "_ctx", "_denied", "_plan", "_rack", "_waits_on")

    def __init__(self, ctx: Context, request: Any, plan: FetchPlan) -> None:
        self._ctx = ctx
        self._plan = plan
        self._rack: str = getattr(request, "rack_id", "")
        self._committed = request.isolation_level == READ_COMMITTED
        self._waits_on: list[Partition] = []
        self._denied = _NONE_DENIED

    def note_progress(self) -> None:
        """No-op: a consumer's fetch offset does not affect replication."""

    def wanted(self) -> Iterable[tuple[PartitionKey, PartitionFetch]]:
        # Checked each time, since a permission may be revoked while the fetch waits for data.
        authorizer = self._ctx.services.security.authorizer
        self._denied = _NONE_DENIED if authorizer is None else self._denied_topics(authorizer)
        return self._plan.wanted

    def _denied_topics(self, authorizer: Authorizer) -> Denied:
        peer = self._ctx.peer
        grants = peer.grants
        if grants.given_by is not authorizer or grants.given_to is not peer.subject:
            grants.renew(authorizer, peer.subject)
        granted = grants.readable
        last: TopicKey | None = None
        for (topic, _), _ in self._plan.wanted:
            if topic is not last:
                if topic not in granted:
                    return self._check_topics(granted)
                last = topic
        return _NONE_DENIED

    def _check_topics(self, granted: set[TopicKey]) -> Denied:
        denied: dict[TopicKey | None, HeadraceError] = {}
        topic_names = self._ctx.services.metadata.image.topic_names
        for topic in dict.fromkeys(topic for (topic, _), _ in self._plan.wanted):
            name = topic if isinstance(topic, str) or topic is None else topic_names.get(topic)
            if name is None:
                denied[topic] = UnknownTopicId(f"there is no topic with id {topic}")
            elif not self._ctx.allows(READ_TOPIC, name):
                denied[topic] = not_authorized(READ_TOPIC, name)
            elif topic is not None:
                TopicGrants.add(granted, topic)
        return denied

    def partition(self, key: PartitionKey) -> Partition:
        if self._denied and key.topic in self._denied:
            raise self._denied[key.topic]
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
        delivered = self._ctx.peer.delivered
        if delivered:
            self._count_delivered(partition, delivered.pop(partition, None), offset)
        return partition.slice(offset, max_bytes, committed=self._committed, at_least_one=at_least_one)

    @staticmethod
    def _count_delivered(partition: Partition, delivered: Delivered | None, offset: int) -> None:
        """Count the records of the previous fetch, now that its consumer goes on from `offset`."""
        if delivered is not None and delivered.offset < offset <= delivered.limit and partition.traffic is not None:
            partition.traffic.messages_out += offset - delivered.offset

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
        """Count bytes and records: when the consumer goes on, where the slice does not know its last offset."""
        for item, (_, wanted) in zip(found, self._plan.wanted, strict=True):
            cut, partition = item.slice, item.partition
            if cut is None or partition is None or (traffic := partition.traffic) is None:
                continue
            traffic.bytes_out += cut.length
            if cut.end_offset >= 0:
                traffic.messages_out += cut.end_offset - wanted.offset
            else:
                self._ctx.peer.delivered[partition] = Delivered(wanted.offset, partition.high_watermark)
