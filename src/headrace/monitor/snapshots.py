"""The figures that `Monitor` answers with: topics, groups, queues, share groups, transactions and brokers.

They are of the whole cluster unless a name says otherwise. Names end in their unit; `*_ms` without another word is a
time since the epoch. None means unknown: the broker that would know has not answered, or nothing was measured yet.

Some of them also travel between brokers (`monitor/calls.py`), as msgpack arrays: a field is added only at the end and
with a default, and none is removed or changes its meaning.
"""

import msgspec

UNKNOWN_OFFSET = -1


class Rates(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """Messages and bytes per second, over the last sample of a few seconds."""

    messages_in_per_s: float = 0.0
    bytes_in_per_s: float = 0.0
    messages_out_per_s: float = 0.0
    bytes_out_per_s: float = 0.0

    def __add__(self, other: "Rates") -> "Rates":
        return Rates(
            self.messages_in_per_s + other.messages_in_per_s,
            self.bytes_in_per_s + other.bytes_in_per_s,
            self.messages_out_per_s + other.messages_out_per_s,
            self.bytes_out_per_s + other.bytes_out_per_s,
        )


NO_RATES = Rates()


# Topics


class PartitionStat(msgspec.Struct, array_like=True, frozen=True):
    """A partition, as its leader sees it. The offsets are -1 if no leader answered."""

    topic: str
    partition: int
    leader: int
    """-1 if it has none: it is offline."""
    leader_epoch: int = -1
    replicas: tuple[int, ...] = ()
    isr: tuple[int, ...] = ()
    start_offset: int = UNKNOWN_OFFSET
    end_offset: int = UNKNOWN_OFFSET
    """The high watermark: what consumers can read up to."""
    last_stable_offset: int = UNKNOWN_OFFSET
    log_end_offset: int = UNKNOWN_OFFSET
    size_bytes: int = 0
    """Of the leader's replica."""
    rates: Rates = NO_RATES
    follower_lag: tuple[tuple[int, int], ...] = ()
    """Broker id and the number of offsets that it has not fetched yet, for each follower."""

    @property
    def is_under_replicated(self) -> bool:
        return len(self.isr) < len(self.replicas)


class TopicStat(msgspec.Struct, array_like=True, frozen=True):
    """A topic: sums over its partitions."""

    name: str
    is_internal: bool
    is_queue: bool
    partitions: int
    replicas: int
    """The replication factor: that of the partition with the most replicas."""
    size_bytes: int = 0
    """Of the leaders' replicas."""
    messages: int = 0
    """Offsets between the start and the end of each log. Fewer are readable in a compacted topic, and markers count."""
    rates: Rates = NO_RATES
    under_replicated: int = 0
    offline: int = 0
    """Partitions without a leader."""
    unknown: int = 0
    """Partitions whose leader has not answered: they are missing in the sums."""
    groups: int = 0
    """Groups that have committed offsets in it."""
    lag_messages_max: int | None = None
    """The largest lag of a group in this topic; None without groups."""
    lag_seconds_max: float | None = None


class LedTopic(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """The partitions of a topic that one broker leads, in sum."""

    topic: str
    partitions: int
    size_bytes: int
    messages: int
    rates: Rates = NO_RATES


class TopicGroup(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """A group, as a reader of one topic."""

    group: str
    kind: str
    state: str
    lag_messages: int | None = None
    lag_seconds: float | None = None


class TopicDetail(msgspec.Struct, array_like=True, frozen=True):
    stat: TopicStat
    partitions: list[PartitionStat]
    """In order, every one of the topic."""
    groups: list[TopicGroup]


# Groups


class GroupTopicLag(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """A group's lag in one topic. None if no partition's leader has answered."""

    topic: str
    partitions: int
    """Partitions with a committed offset."""
    lag_messages: int | None = None
    lag_seconds: float | None = None


class GroupStat(msgspec.Struct, array_like=True, frozen=True):
    group: str
    kind: str
    """classic, consumer, share or streams."""
    state: str
    """As Kafka's tools show it: Stable, Empty, …"""
    protocol_type: str
    members: int
    coordinator: int
    topics: list[GroupTopicLag] = []
    lag_messages: int | None = None
    """The sum over partitions; None without committed offsets, or if it is unknown for all of them."""
    lag_seconds: float | None = None
    """The largest of its partitions: how long ago the next record to read was written; 0 when caught up."""
    trend: str = "steady"
    """rising, falling or steady: the lag over the last minutes."""
    last_commit_ms: int | None = None
    stalled_s: float | None = None
    """How long its position has not moved although there is lag; None if it has none, or that is not known yet."""
    consumed_per_s: float = 0.0
    """By how many offsets per second its position moved, over the last sample."""


class MemberStat(msgspec.Struct, array_like=True, frozen=True):
    member_id: str
    instance_id: str | None
    client_id: str
    host: str
    assignment: dict[str, list[int]]
    """Partitions by topic; for a streams group active tasks by subtopology."""


class GroupPartitionStat(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """A group in one partition: one with a committed offset, or assigned to a member."""

    topic: str
    partition: int
    leader: int
    committed: int = UNKNOWN_OFFSET
    """-1 without a committed offset. For a share group: the offset below which everything is acknowledged."""
    start_offset: int = UNKNOWN_OFFSET
    end_offset: int = UNKNOWN_OFFSET
    """The high watermark; -1 if the leader has not answered."""
    lag_messages: int | None = None
    lag_seconds: float | None = None
    member_id: str = ""
    """The member that it is assigned to, if any."""
    commit_ms: int | None = None


class GroupDetail(msgspec.Struct, array_like=True, frozen=True):
    stat: GroupStat
    members: list[MemberStat]
    partitions: list[GroupPartitionStat]
    """By topic and partition."""


class ShareGroupStat(msgspec.Struct, array_like=True, frozen=True):
    """A share group's deliveries in the partitions where it is active."""

    group: str
    state: str
    members: int
    coordinator: int
    partitions: list["SharePartitionStat"] = []


class SharePartitionStat(msgspec.Struct, array_like=True, frozen=True, gc=False):
    group: str
    topic: str
    partition: int
    start_offset: int
    lag_messages: int
    """Records that are not acknowledged."""
    in_flight: int
    leader: int
    lag_seconds: float | None = None


# Queues


class QueueStat(msgspec.Struct, array_like=True, frozen=True):
    queue: str
    fifo: bool
    leader: int
    dead_letter_queue: str | None = None
    visible: int | None = None
    """None, as the other counts, if the queue's broker has not answered or is loading it."""
    in_flight: int | None = None
    delayed: int | None = None
    oldest_age_s: float | None = None
    """The age of the oldest message that is not deleted; None if there is none."""
    dead_letters: int | None = None
    """Messages in its dead-letter queue; None without one."""
    sent_per_s: float = 0.0
    received_per_s: float = 0.0
    deleted_per_s: float = 0.0
    trend: str = "steady"
    """rising, falling or steady: the age of the oldest message over the last minutes."""
    dead_letters_of: list[str] = []
    """The queues whose dead-letter queue it is."""
    size_bytes: int = 0
    last_received_ms: int | None = None
    """When messages were last received; None if none were since the broker leads the queue."""


# Transactions

MAX_SHOWN_PARTITIONS = 100


class TransactionStat(msgspec.Struct, array_like=True, frozen=True):
    transactional_id: str
    producer_id: int
    producer_epoch: int
    state: str
    coordinator: int
    timeout_ms: int
    updated_ms: int
    started_ms: int | None = None
    """When the open transaction began; None if none is open."""
    partition_count: int = 0
    partitions: list[tuple[str, int]] = []
    """The first `MAX_SHOWN_PARTITIONS` of them."""


# Brokers


class DiskStat(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """The volume of a data directory."""

    broker_id: int
    path: str
    free_bytes: int
    total_bytes: int
    full_in_s: float | None = None
    """When it is full at the rate of the last minutes; None if it does not fill up."""


class ProcessStat(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """The broker's process."""

    started_ms: int
    cpu_percent: float | None = None
    """Of one core, over the last sample."""
    memory_bytes: int | None = None
    open_files: int | None = None
    threads: int | None = None


class LatencyStat(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """The time of requests in a broker over the last sample; None if there was none.

    Of a fetch without its wait for new records.
    """

    produce_p50_ms: float | None = None
    produce_p99_ms: float | None = None
    fetch_p50_ms: float | None = None
    fetch_p99_ms: float | None = None


NO_LATENCY = LatencyStat()


class BrokerTotals(msgspec.Struct, array_like=True, frozen=True):
    """What one broker has and does."""

    version: str
    wall_ms: int
    """The broker's clock when it answered."""
    process: ProcessStat
    disks: list[DiskStat]
    rates: Rates = NO_RATES
    requests_per_s: float = 0.0
    latency: LatencyStat = NO_LATENCY
    connections: int = 0
    leaders: int = 0
    partitions: int = 0
    """Replicas on this broker."""
    size_bytes: int = 0
    """Of all replicas on this broker."""
    groups: int = 0
    """Groups that it coordinates."""
    queues: int = 0
    """Queues that it leads."""
    open_transactions: int = 0
    under_min_isr: int = 0
    """Partitions that it leads with fewer replicas in sync than min.insync.replicas."""
    loop_lag_ms: float | None = None
    """The longest that the event loop was late within the last minute."""


class BrokerStat(msgspec.Struct, array_like=True, frozen=True):
    broker_id: int
    endpoint: str
    rack: str | None
    state: str
    """starting, active, stopping or dead."""
    is_controller: bool
    is_draining: bool
    totals: BrokerTotals | None = None
    """None if the broker has not answered: it is down, unreachable, or of an older version."""
    problem: str = ""
    """Why there are no totals."""
    clock_skew_ms: int | None = None
    """How far its clock is ahead of the answering broker's, up to the time that the answer took."""


class Overview(msgspec.Struct, array_like=True, frozen=True):
    at_ms: int
    cluster_id: str
    feature_level: int
    controller: int
    """-1 if there is none."""
    brokers: list[BrokerStat]
    rates: Rates
    requests_per_s: float
    latency: LatencyStat
    """The worst of all brokers."""
    connections: int
    topics: int
    """Without internal ones."""
    partitions: int
    groups: int
    queues: int
    under_replicated: int
    offline: int
    disks: list[DiskStat]
    worst_groups: list[GroupStat]
    """The five with the largest lag in seconds, then in messages; those that are caught up are left out."""
    oldest_queues: list[QueueStat]
    """The five with the oldest message; empty ones are left out."""
    open_transactions: int = 0
    without_data: list[int] = []
    """Brokers that have not answered."""


# History

STEP_S = 10
"""The distance of points in a history."""


class HistoryData(msgspec.Struct, array_like=True, frozen=True):
    """Series of one object over the last hour, oldest first; None where nothing is known."""

    end_ms: int
    """The time of the last point: a multiple of the step."""
    series: dict[str, list[float | None]]
    step_s: int = STEP_S
