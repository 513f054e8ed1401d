"""This broker's part of the figures, computed from its own objects when asked.

Everything is done in slices (`loop_slices.py`): 10,000 partitions are 50 slices of about 2 ms.
"""

from headrace.cluster.metadata import Metadata
from headrace.model.errors import HeadraceError
from headrace.model.ids import TopicName
from headrace.monitor.lag import lag_figures
from headrace.monitor.log_times import LogTimes
from headrace.monitor.loop_slices import sliced
from headrace.monitor.rates import RateTable
from headrace.monitor.snapshots import (
    MAX_SHOWN_PARTITIONS,
    NO_RATES,
    LedTopic,
    PartitionStat,
    QueueStat,
    Rates,
    SharePartitionStat,
    TransactionStat,
)
from headrace.queues.local import LocalQueue
from headrace.queues.service import QueueService
from headrace.queues.share.partition import SharePartition, SharePosition
from headrace.replication.partition import Partition
from headrace.replication.partitions import PartitionTable
from headrace.runtime.clock import Clock
from headrace.transactions.records import TransactionEntry
from headrace.transactions.service import TransactionService

RateKey = tuple[str, int]
Place = tuple[Partition, int]
"""A partition and an offset."""


def rate_key(partition: Partition) -> RateKey:
    """The key of a partition in a `RateTable`."""
    return partition.topic, partition.index


class LocalView:
    def __init__(
        self,
        *,
        metadata: Metadata,
        partitions: PartitionTable,
        transactions: TransactionService,
        queues: QueueService,
        clock: Clock,
        times: LogTimes,
        rates: RateTable,
    ) -> None:
        self._metadata = metadata
        self._partitions = partitions
        self._transactions = transactions
        self._queues = queues
        self._clock = clock
        self._times = times
        self._rates = rates

    # -- topics

    async def topics(self) -> list[LedTopic]:
        """The topics of which this broker leads partitions."""
        sums: dict[str, tuple[int, int, int, Rates]] = {}
        async for partition in sliced(tuple(self._partitions.all())):
            if not partition.is_leader:
                continue
            log = partition.log
            count, size_bytes, messages, rates = sums.get(partition.topic, (0, 0, 0, NO_RATES))
            own = self._rates.of(rate_key(partition))
            sums[partition.topic] = (
                count + 1,
                size_bytes + log.size_bytes,
                messages + max(0, log.high_watermark - log.start_offset),
                rates if own is NO_RATES else rates + own,
            )
        return [LedTopic(topic, *figures) for topic, figures in sums.items()]

    def partitions(self, topic: str) -> list[PartitionStat]:
        """The partitions of a topic that this broker leads."""
        return [self._partition(each) for each in self._partitions.of_topic(TopicName(topic)) if each.is_leader]

    def _partition(self, partition: Partition) -> PartitionStat:
        log, state, own = partition.log, partition.state, self._metadata.broker_id
        return PartitionStat(
            partition.topic,
            partition.index,
            own,
            leader_epoch=partition.leader_epoch,
            replicas=(own,) if state is None else state.replicas,
            isr=(own,) if state is None else state.isr,
            start_offset=log.start_offset,
            end_offset=log.high_watermark,
            last_stable_offset=partition.last_stable_offset,
            log_end_offset=log.end_offset,
            size_bytes=log.size_bytes,
            rates=self._rates.of(rate_key(partition)),
            follower_lag=_follower_lag(partition),
        )

    # -- queues

    async def queues(self) -> list[QueueStat]:
        """The queues that this broker leads."""
        hosted = self._queues.hosted()
        oldest = await self._ages([each for queue in hosted if (each := _oldest(queue)) is not None])
        return [self._queue(queue, oldest) async for queue in sliced(hosted)]

    async def _ages(self, wanted: list[Place]) -> dict[RateKey, float | None]:
        """The ages in seconds of the next records of partitions."""
        now_ms = self._clock.wall_ms()
        found = await self._times.positions([(partition, [offset]) for partition, offset in wanted])
        return {
            (each.topic, each.partition): None if time_ms is None or time_ms < 0 else max(0, now_ms - time_ms) / 1000
            for each in found
            for time_ms in each.times
        }

    def _queue(self, queue: LocalQueue, oldest: dict[RateKey, float | None]) -> QueueStat:
        host = queue.host
        settings, partition = host.settings, host.partition
        counts = host.engine.counts() if host.has_engine else None
        return QueueStat(
            partition.topic,
            settings.is_fifo,
            self._metadata.broker_id,
            dead_letter_queue=settings.dead_letter or None,
            visible=None if counts is None else counts.available,
            in_flight=None if counts is None else counts.in_flight,
            delayed=None if counts is None else counts.delayed,
            oldest_age_s=oldest.get(rate_key(partition)),
            size_bytes=partition.log.size_bytes,
        )

    # -- share groups

    async def shares(self) -> list[SharePartitionStat]:
        """The share groups in the partitions that this broker leads, where members have fetched."""
        found = [each for share in self._queues.shares.opened() if (each := _share_position(share)) is not None]
        now_ms = self._clock.wall_ms()
        times = await self._times.positions([(share.partition, [position.start_offset]) for share, position in found])
        return [
            SharePartitionStat(
                share.group_id,
                share.partition.topic,
                share.partition.index,
                position.start_offset,
                position.lag,
                share.in_flight,
                self._metadata.broker_id,
                lag_figures(position.start_offset, at.start_offset, at.end_offset, at.times[0], now_ms).lag_seconds,
            )
            for (share, position), at in zip(found, times, strict=True)
        ]

    # -- transactions

    @property
    def open_transactions(self) -> int:
        return sum(
            entry.started_ms >= 0
            for shard in self._transactions.coordinator.shards()
            if shard.is_active
            for entry in shard.machine.transactions.values()
        )

    async def transactions(self) -> list[TransactionStat]:
        """The transactional ids that this broker coordinates. Those of a shard that is loading are left out."""
        found = [
            item
            for shard in self._transactions.coordinator.shards()
            if shard.is_active
            for item in shard.machine.transactions.items()
        ]
        return [self._transaction(*item) async for item in sliced(found)]

    def _transaction(self, transactional_id: str, entry: TransactionEntry) -> TransactionStat:
        return TransactionStat(
            transactional_id,
            entry.producer_id,
            entry.producer_epoch,
            entry.state.value,
            self._metadata.broker_id,
            entry.timeout_ms,
            entry.updated_ms,
            started_ms=None if entry.started_ms < 0 else entry.started_ms,
            partition_count=len(entry.partitions),
            partitions=sorted(entry.partitions)[:MAX_SHOWN_PARTITIONS],
        )


def _oldest(queue: LocalQueue) -> Place | None:
    """Where the oldest message of a queue is that is not deleted; None if there is none, or the queue is loading."""
    host = queue.host
    if not host.has_engine or host.engine.head >= host.engine.indexed_to:
        return None
    return host.partition, host.engine.head


def _share_position(share: SharePartition) -> tuple[SharePartition, SharePosition] | None:
    try:
        return share, share.position()
    except HeadraceError:
        # It was closed meanwhile.
        return None


def _follower_lag(partition: Partition) -> tuple[tuple[int, int], ...]:
    leading, state, end_offset = partition.leading, partition.state, partition.log.end_offset
    if leading is None or state is None:
        return ()
    found = ((broker_id, leading.progress(broker_id)) for broker_id in state.replicas)
    return tuple(
        (broker_id, end_offset - max(0, progress.offset)) for broker_id, progress in found if progress is not None
    )
