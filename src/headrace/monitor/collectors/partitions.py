"""Partitions: offsets, sizes, replicas and their lag.

Names that begin with `kafka_topic_` are those of kafka_exporter, `kafka_server_` those of Kafka's JMX exporter. Each
partition is exported by its leader, and one without a leader by the controller, so that a sum over all brokers has each
partition once; sizes are exported by every replica.
"""

from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from headrace.cluster.metadata import Metadata
from headrace.model.ids import NO_LEADER, BrokerId
from headrace.model.image import ClusterImage, PartitionState, TopicImage
from headrace.monitor.collectors.limits import OmittedSeries
from headrace.monitor.image_changes import ImageChanges
from headrace.monitor.loop_slices import sliced
from headrace.monitor.scrape import Collector
from headrace.observe.families import Metric, MetricFamily, Sample, counter, gauge, label_text
from headrace.replication.partition import Partition
from headrace.replication.partitions import PartitionTable

_BOTH = ("topic", "partition")

TOPIC_PARTITIONS = gauge("kafka_topic_partitions", "Partitions of a topic.", "topic")
CURRENT = gauge("kafka_topic_partition_current_offset", "The high watermark: what consumers read up to.", *_BOTH)
OLDEST = gauge("kafka_topic_partition_oldest_offset", "The first offset of the log.", *_BOTH)
IN_SYNC = gauge("kafka_topic_partition_in_sync_replica", "Replicas in sync.", *_BOTH)
LEADER = gauge("kafka_topic_partition_leader", "The id of the leader; -1 if there is none.", *_BOTH)
PREFERRED = gauge("kafka_topic_partition_leader_is_preferred", "Whether the leader is the first replica.", *_BOTH)
REPLICAS = gauge("kafka_topic_partition_replicas", "Replicas.", *_BOTH)
UNDER_REPLICATED = gauge(
    "kafka_topic_partition_under_replicated_partition", "Whether fewer replicas are in sync than there are.", *_BOTH
)
SIZE = gauge("headrace_partition_size_bytes", "Size of the log of the replica on this broker.", *_BOTH)

LED_COUNT = gauge("headrace_leaders", "Partitions that this broker leads.")
HOSTED_COUNT = gauge("headrace_partitions", "Partitions that this broker has a replica of.")
LOG_BYTES = gauge("headrace_log_size_bytes", "Size of all logs on this broker.")
UNDER_COUNT = gauge(
    "headrace_under_replicated_partitions", "Led partitions with fewer replicas in sync than there are."
)
UNDER_MIN_COUNT = gauge(
    "headrace_under_min_isr_partitions", "Led partitions with fewer in sync than min.insync.replicas."
)
AT_MIN_COUNT = gauge(
    "headrace_at_min_isr_partitions", "Led partitions with exactly min.insync.replicas in sync, of more."
)
REASSIGNING_COUNT = gauge("headrace_reassigning_partitions", "Led partitions that are being reassigned.")
OFFLINE_COUNT = gauge("headrace_offline_partitions", "Partitions without a leader, counted by the controller.")
FOLLOWER_LAG = gauge(
    "headrace_follower_lag_messages",
    "Offsets that a follower has yet to fetch from this broker, in all partitions.",
    "follower",
)
FOLLOWER_LAG_MAX = gauge(
    "headrace_follower_lag_max_messages", "The same in the partition where it lags most.", "follower"
)
ISR_SHRINKS = counter("headrace_isr_shrinks_total", "Replicas left the ISR of a partition that this broker leads.")
ISR_EXPANDS = counter("headrace_isr_expands_total", "Replicas joined the ISR of a partition that this broker leads.")
ELECTIONS = counter("headrace_leader_elections_total", "Partitions that this broker was elected leader of.")

JMX_UNDER = gauge("kafka_server_replicamanager_underreplicatedpartitions", "headrace_under_replicated_partitions.")
JMX_UNDER_MIN = gauge("kafka_server_replicamanager_underminisrpartitioncount", "headrace_under_min_isr_partitions.")
JMX_AT_MIN = gauge("kafka_server_replicamanager_atminisrpartitioncount", "headrace_at_min_isr_partitions.")
JMX_PARTITIONS = gauge("kafka_server_replicamanager_partitioncount", "headrace_partitions.")
JMX_LEADERS = gauge("kafka_server_replicamanager_leadercount", "headrace_leaders.")
JMX_OFFLINE = gauge("kafka_controller_kafkacontroller_offlinepartitionscount", "headrace_offline_partitions.")
JMX_SHRINKS = counter("kafka_server_replicamanager_isrshrinks_total", "headrace_isr_shrinks_total.")
JMX_EXPANDS = counter("kafka_server_replicamanager_isrexpands_total", "headrace_isr_expands_total.")

METRICS = (
    LED_COUNT, HOSTED_COUNT, LOG_BYTES, UNDER_COUNT, UNDER_MIN_COUNT, AT_MIN_COUNT, REASSIGNING_COUNT, OFFLINE_COUNT,
    FOLLOWER_LAG, FOLLOWER_LAG_MAX, ISR_SHRINKS, ISR_EXPANDS, ELECTIONS, SIZE,
)  # fmt: skip
KAFKA_EXPORTER_METRICS = (
    TOPIC_PARTITIONS, CURRENT, OLDEST, IN_SYNC, LEADER, PREFERRED, REPLICAS, UNDER_REPLICATED,
)  # fmt: skip
JMX_METRICS = (
    JMX_UNDER, JMX_UNDER_MIN, JMX_AT_MIN, JMX_PARTITIONS, JMX_LEADERS, JMX_OFFLINE, JMX_SHRINKS, JMX_EXPANDS,
)  # fmt: skip


@dataclass(slots=True)
class PartitionSums:
    """Sums over the partitions of this broker."""

    led: int = 0
    hosted: int = 0
    log_bytes: int = 0
    under_replicated: int = 0
    under_min_isr: int = 0
    at_min_isr: int = 0
    reassigning: int = 0
    follower_lag: dict[BrokerId, int] = field(default_factory=dict)
    follower_lag_max: dict[BrokerId, int] = field(default_factory=dict)

    def add(self, partition: Partition) -> None:
        self.hosted += 1
        self.log_bytes += partition.log.size_bytes
        if not partition.is_leader:
            return
        self.led += 1
        state, in_sync, least = partition.state, partition.in_sync_count, partition.settings.min_insync_replicas
        self.under_min_isr += in_sync < least
        if state is not None:
            self.under_replicated += len(state.isr) < len(state.replicas)
            self.at_min_isr += in_sync == least < len(state.replicas)
            self.reassigning += state.is_reassigning
            self._add_followers(partition, state)

    def _add_followers(self, partition: Partition, state: PartitionState) -> None:
        leading, end_offset = partition.leading, partition.log.end_offset
        if leading is None:
            return
        for broker_id in state.replicas:
            progress = leading.progress(broker_id)
            if progress is not None:
                lag = max(0, end_offset - max(0, progress.offset))
                self.follower_lag[broker_id] = self.follower_lag.get(broker_id, 0) + lag
                self.follower_lag_max[broker_id] = max(lag, self.follower_lag_max.get(broker_id, 0))


def partition_collector(
    metadata: Metadata,
    partitions: PartitionTable,
    changes: ImageChanges,
    most: Callable[[], int],
    omitted: OmittedSeries,
) -> Collector:
    own_id = metadata.broker_id

    async def collect() -> Iterable[MetricFamily]:
        image = metadata.image
        found = tuple(partitions.all())
        sums = PartitionSums()
        async for partition in sliced(found):
            sums.add(partition)
        hosted = omitted.bounded("partitions", found, len(found), most())
        shown = [(label_text(_BOTH, (each.topic, each.index)), each) async for each in sliced(hosted)]
        led = [(labels, each) for labels, each in shown if each.is_leader]
        topics = [
            (TOPIC_PARTITIONS.label_text(topic.name), len(topic.partitions)) async for topic in _own(image, own_id)
        ]
        offline = [each async for each in _offline(image)] if _is_controller(metadata) else []
        return (
            *_sum_families(sums, len(offline), changes),
            TOPIC_PARTITIONS.family(topics),
            *_offset_families(led),
            *_state_families([(labels, each.state) for labels, each in led], offline[: max(0, most())], own_id),
            SIZE.family((labels, each.log.size_bytes) for labels, each in shown),
        )

    return collect


def _is_controller(metadata: Metadata) -> bool:
    return metadata.is_single_node or metadata.image.controller_id == metadata.broker_id


async def _own(image: ClusterImage, own_id: BrokerId) -> AsyncIterator[TopicImage]:
    """The topics that this broker exports: it leads the first of their partitions that has a leader."""
    async for topic in sliced(tuple(image.topics.values())):
        leader = next((each.leader for each in topic.partitions if each.leader != NO_LEADER), image.controller_id)
        if leader == own_id:
            yield topic


async def _offline(image: ClusterImage) -> AsyncIterator[tuple[str, PartitionState]]:
    """The partitions without a leader."""
    async for topic in sliced(tuple(image.topics.values())):
        for index, state in enumerate(topic.partitions):
            if not image.is_alive(state.leader):
                yield label_text(_BOTH, (topic.name, index)), state


def _sum_families(sums: PartitionSums, offline: int, changes: ImageChanges) -> Iterator[MetricFamily]:
    values = {
        LED_COUNT: sums.led,
        HOSTED_COUNT: sums.hosted,
        LOG_BYTES: sums.log_bytes,
        UNDER_COUNT: sums.under_replicated,
        UNDER_MIN_COUNT: sums.under_min_isr,
        AT_MIN_COUNT: sums.at_min_isr,
        REASSIGNING_COUNT: sums.reassigning,
        OFFLINE_COUNT: offline,
        ISR_SHRINKS: changes.isr_shrinks,
        ISR_EXPANDS: changes.isr_expands,
        ELECTIONS: changes.leader_elections,
        JMX_UNDER: sums.under_replicated,
        JMX_UNDER_MIN: sums.under_min_isr,
        JMX_AT_MIN: sums.at_min_isr,
        JMX_PARTITIONS: sums.hosted,
        JMX_LEADERS: sums.led,
        JMX_OFFLINE: offline,
        JMX_SHRINKS: changes.isr_shrinks,
        JMX_EXPANDS: changes.isr_expands,
    }
    yield from (metric.single(value) for metric, value in values.items())
    for metric, lags in ((FOLLOWER_LAG, sums.follower_lag), (FOLLOWER_LAG_MAX, sums.follower_lag_max)):
        yield metric.family([(metric.label_text(broker_id), lag) for broker_id, lag in lags.items()])


def _offset_families(led: Sequence[tuple[str, Partition]]) -> Iterator[MetricFamily]:
    yield CURRENT.family((labels, each.log.high_watermark) for labels, each in led)
    yield OLDEST.family((labels, each.log.start_offset) for labels, each in led)


def _state_families(
    led: Sequence[tuple[str, PartitionState | None]], offline: Sequence[tuple[str, PartitionState]], own_id: BrokerId
) -> Iterator[MetricFamily]:
    """The replicas of led partitions, and of those that have no leader to export them."""

    def family(metric: Metric, value: Callable[[PartitionState], int], alone: int, without: int | None) -> MetricFamily:
        """`alone` is the value on a single node, and `without` that of a partition without a leader if it is fixed."""

        def samples() -> Iterator[Sample]:
            for labels, state in led:
                yield labels, alone if state is None else value(state)
            for labels, state in offline:
                yield labels, value(state) if without is None else without

        return metric.family(samples())

    yield family(IN_SYNC, lambda state: len(state.isr), 1, None)
    yield family(LEADER, lambda state: own_id, own_id, NO_LEADER)
    yield family(PREFERRED, lambda state: int(state.replicas[0] == own_id), 1, 0)
    yield family(REPLICAS, lambda state: len(state.replicas), 1, None)
    yield family(UNDER_REPLICATED, lambda state: int(len(state.isr) < len(state.replicas)), 0, 1)
