"""This broker's part of the figures, computed from its own objects when asked.

Everything is done in slices (`loop_slices.py`): 10,000 partitions are 50 slices of about 2 ms.
"""

from headrace.cluster.metadata import Metadata
from headrace.model.errors import HeadraceError
from headrace.model.ids import TopicName
from headrace.monitor.broker_snapshot import LedTopic
from headrace.monitor.lag import LagBook
from headrace.monitor.loop_slices import sliced
from headrace.monitor.rates import RateTable
from headrace.monitor.snapshots import (
    MAX_SHOWN_PARTITIONS,
    NO_RATES,
    PartitionStat,
    QueueStat,
    Rates,
    SharePartitionStat,
    TransactionStat,
)
from headrace.queues.local import LocalQueue
from headrace.queues.service import QueueService
from headrace.queues.share.partition import SharePartition
from headrace.replication.partition import Partition
from headrace.replication.partitions import PartitionTable
from headrace.transactions.records import TransactionEntry
from headrace.transactions.service import TransactionService

RateKey = tuple[str, int]


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
        lag: LagBook,
        rates: RateTable,
    ) -> None:
        self._metadata = metadata
        self._partitions = partitions
        self._transactions = transactions
        self._queues = queues
        self._lag = lag
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
        return [self._queue(queue) async for queue in sliced(hosted, 50)]

    def queue(self, name: str) -> QueueStat | None:
        for queue in self._queues.hosted():
            if queue.hosted.name == name:
                return self._queue(queue)
        return None

    def _queue(self, queue: LocalQueue) -> QueueStat:
        host = queue.host
        settings, partition = host.settings, host.partition
        visible = in_flight = delayed = None
        if host.has_engine:
            engine = host.engine
            counts = engine.counts()
            visible, in_flight, delayed = counts.available, counts.in_flight, counts.delayed
        return QueueStat(
            partition.topic,
            settings.is_fifo,
            self._metadata.broker_id,
            dead_letter_queue=settings.dead_letter or None,
            visible=visible,
            in_flight=in_flight,
            delayed=delayed,
            size_bytes=partition.log.size_bytes,
        )

    # -- share groups

    async def shares(self) -> list[SharePartitionStat]:
        """The share groups in the partitions that this broker leads, where members have fetched."""
        opened = self._queues.shares.opened()
        found = [self._share(each) async for each in sliced(opened, 50)]
        return [each for each in found if each is not None]

    def _share(self, share: SharePartition) -> SharePartitionStat | None:
        partition = share.partition
        try:
            position = share.position()
        except HeadraceError:
            # It was closed meanwhile.
            return None
        return SharePartitionStat(
            share.group_id,
            partition.topic,
            partition.index,
            position.start_offset,
            position.lag,
            share.in_flight,
            self._metadata.broker_id,
        )

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


def _follower_lag(partition: Partition) -> tuple[tuple[int, int], ...]:
    leading, state, end_offset = partition.leading, partition.state, partition.log.end_offset
    if leading is None or state is None:
        return ()
    found = ((broker_id, leading.progress(broker_id)) for broker_id in state.replicas)
    return tuple(
        (broker_id, end_offset - max(0, progress.offset)) for broker_id, progress in found if progress is not None
    )
