"""This broker's part of the figures, computed from its own objects when asked.

Everything is done in slices (`loop_slices.py`): 10,000 partitions are 50 slices of about 2 ms.
"""

from collections.abc import Sequence

from headrace.cluster.metadata import Metadata
from headrace.model.errors import HeadraceError
from headrace.model.ids import TopicName
from headrace.monitor.calls import LedPartitions
from headrace.monitor.forecast import TREND_POINTS, trend
from headrace.monitor.history import FigureHistory
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

Place = tuple[Partition, int]
"""A partition and an offset."""

TOPIC, PARTITION, QUEUE = "topic", "partition", "queue"
"""The kinds of keys in a `RateTable`."""


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
        history: FigureHistory,
    ) -> None:
        self._metadata = metadata
        self._partitions = partitions
        self._transactions = transactions
        self._queues = queues
        self._clock = clock
        self._times = times
        self._rates = rates
        self._history = history

    # -- rates

    async def note_counters(self, now_ms: float) -> None:
        """Note everything that is counted, for its rates."""
        led = [partition for partition in self._partitions.all() if partition.is_leader]
        async for partition in sliced(led):
            log = partition.log
            key = PARTITION, partition.topic, partition.index
            self._rates.note(key, (log.end_offset, log.size_bytes), now_ms)
        if self._partitions.traffic is None:
            self._note_growth(led, now_ms)
        else:
            async for topic, traffic in sliced(tuple(self._partitions.traffic.topics.items())):
                counted = traffic.messages_in, traffic.bytes_in, traffic.messages_out, traffic.bytes_out
                self._rates.note((TOPIC, topic), counted, now_ms, began_at_zero=True)
        async for queue in sliced(self._queues.hosted()):
            counts = queue.host.messages
            partition = queue.host.partition
            # Kafka clients may send messages as well, by writing to the topic.
            moved = partition.log.end_offset, counts.received, counts.deleted
            self._rates.note((QUEUE, partition.topic), moved, now_ms)

    def _note_growth(self, led: Sequence[Partition], now_ms: float) -> None:
        """Without counters (metrics.enable), what was written shows in the logs."""
        sums: dict[str, tuple[int, int]] = {}
        for partition in led:
            messages, size_bytes = sums.get(partition.topic, (0, 0))
            sums[partition.topic] = messages + partition.log.end_offset, size_bytes + partition.log.size_bytes
        for topic, (messages, size_bytes) in sums.items():
            self._rates.note((TOPIC, topic), (messages, size_bytes, 0, 0), now_ms)

    def total_rates(self) -> Rates:
        """The sum over all topics, without internal ones."""
        topics = (name for name, topic in self._metadata.image.topics.items() if not topic.is_internal)
        return sum(map(self._topic_rates, topics), NO_RATES)

    def _topic_rates(self, topic: str) -> Rates:
        found = self._rates.of((TOPIC, topic))
        return NO_RATES if found is None else Rates(*found)

    # -- topics

    async def topics(self) -> list[LedTopic]:
        """The topics of which this broker leads partitions."""
        sums: dict[str, tuple[int, int, int]] = {}
        async for partition in sliced(tuple(self._partitions.all())):
            if partition.is_leader:
                log = partition.log
                count, size_bytes, messages = sums.get(partition.topic, (0, 0, 0))
                messages += max(0, log.high_watermark - log.start_offset)
                sums[partition.topic] = count + 1, size_bytes + log.size_bytes, messages
        # Followers send messages to consumers, too.
        served = () if self._partitions.traffic is None else self._partitions.traffic.topics
        for topic in served:
            if topic not in sums and self._rates.of((TOPIC, topic)) is not None:
                sums[topic] = 0, 0, 0
        return [LedTopic(topic, *figures, self._topic_rates(topic)) async for topic, figures in sliced(sums.items())]

    def topic(self, name: str) -> LedPartitions:
        """The partitions of a topic that this broker leads, and its rates here."""
        led = [each for each in self._partitions.of_topic(TopicName(name)) if each.is_leader]
        return LedPartitions([self._partition(each) for each in led], self._topic_rates(name))

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
            rates=Rates(*(self._rates.of((PARTITION, partition.topic, partition.index)) or ())),
            follower_lag=_follower_lag(partition),
        )

    # -- queues

    async def queues(self) -> list[QueueStat]:
        """The queues that this broker leads."""
        hosted = self._queues.hosted()
        oldest = await self._ages([each for queue in hosted if (each := _oldest(queue)) is not None])
        return [self._queue(queue, oldest) async for queue in sliced(hosted)]

    async def _ages(self, wanted: list[Place]) -> dict[tuple[str, int], float | None]:
        """The ages in seconds of the next records of partitions."""
        now_ms = self._clock.wall_ms()
        found = await self._times.positions([(partition, [offset]) for partition, offset in wanted])
        return {
            (each.topic, each.partition): None if time_ms is None or time_ms < 0 else max(0, now_ms - time_ms) / 1000
            for each in found
            for time_ms in each.times
        }

    def _queue(self, queue: LocalQueue, oldest: dict[tuple[str, int], float | None]) -> QueueStat:
        host = queue.host
        settings, partition = host.settings, host.partition
        counts = host.engine.counts() if host.has_engine else None
        sent, received, deleted = self._rates.of((QUEUE, partition.topic)) or (0.0, 0.0, 0.0)
        wall_ms = self._clock.wall_ms()
        return QueueStat(
            partition.topic,
            settings.is_fifo,
            self._metadata.broker_id,
            dead_letter_queue=settings.dead_letter or None,
            visible=None if counts is None else counts.available,
            in_flight=None if counts is None else counts.in_flight,
            delayed=None if counts is None else counts.delayed,
            oldest_age_s=oldest.get((partition.topic, partition.index)),
            sent_per_s=sent,
            received_per_s=received,
            deleted_per_s=deleted,
            trend=trend(self._history.last(QUEUE, partition.topic, "oldest_age_s", TREND_POINTS, wall_ms)),
            size_bytes=partition.log.size_bytes,
            last_received_ms=host.messages.last_received_ms,
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
