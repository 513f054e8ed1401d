"""What the checks of health look at, as numbers. Pure.

A broker sees the image of the whole cluster, and itself: its disk, the groups it coordinates, the queues it leads.
Problems of other brokers come from those.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple


class HealthLimits(NamedTuple):
    """The thresholds that are settings."""

    stuck_s: float = 300.0
    transaction_open_s: float = 900.0
    disk_free_fraction: float = 0.15


class PartitionCounts(NamedTuple):
    """How many partitions of a topic are concerned, with one of them."""

    topic: str
    partitions: int
    example: int


@dataclass(frozen=True, slots=True)
class ClusterFacts:
    """What the image says."""

    broker_count: int = 1
    down: Sequence[int] = ()
    """Brokers whose lease has ended."""
    has_controller: bool = True
    lacking: Mapping[int, int] = field(default_factory=dict)
    """By broker: how many partitions have a replica on it that is not in sync."""
    under_min_isr: Sequence[PartitionCounts] = ()
    offline: Sequence[PartitionCounts] = ()
    feature_level: int = 0
    possible_level: int = 0
    """What every broker that is alive supports."""


class StoreFacts(NamedTuple):
    kind: str = "sqlite"
    is_reachable: bool = True
    latency_ms: float | None = None
    """The mean of the last minute; None if it was not asked."""


class DiskFacts(NamedTuple):
    path: str
    total_bytes: int
    free_bytes: int
    full_in_s: float | None = None
    """When it is full at the rate of the last minutes; None if it does not fill up."""
    effect: str = ""
    """What that little room means for producers, as the end of a sentence; empty if nothing."""


class CertificateFact(NamedTuple):
    name: str
    """The file, or the purpose."""
    left_s: float
    """Until it expires; negative if it has."""


class GroupFact(NamedTuple):
    group: str
    members: int
    lag_messages: int
    lag_growth: int
    """How much the lag has grown while nothing was committed."""
    idle_s: float
    """For how long nothing was committed."""
    lag_seconds: float | None = None


class QueueFact(NamedTuple):
    queue: str
    available: int
    oldest_age_s: float
    idle_s: float
    """For how long no message was received while some were available."""
    dead_lettered: int = 0
    """How many were moved here as dead letters within `DEAD_LETTER_WINDOW_S`."""


class TransactionFact(NamedTuple):
    transactional_id: str
    open_s: float
    partitions: int = 0


class PipelineFact(NamedTuple):
    pipeline: str
    state: str
    """`running`, `failed`, `stopped`: as it reports."""
    is_wanted: bool = True
    """Whether it should run."""
    silent_s: float = 0.0
    """Since its last report."""
    restarts: int = 0
    """Within `PIPELINE_RESTART_WINDOW_S`."""
    last_error: str = ""


@dataclass(frozen=True, slots=True)
class HealthFacts:
    """Everything that one broker knows at one time."""

    broker_id: int
    cluster: ClusterFacts = field(default_factory=ClusterFacts)
    limits: HealthLimits = field(default_factory=HealthLimits)
    store: StoreFacts = field(default_factory=StoreFacts)
    disk: DiskFacts | None = None
    failure: str = ""
    """Why the data directory takes no more writes."""
    loop_lag_s: float = 0.0
    """The longest time that the event loop was held up within the last minute."""
    budget_wait_s: float = 0.0
    """For how long clients have been waiting for memory."""
    login_failures: int = 0
    """Within the last minute."""
    certificates: Sequence[CertificateFact] = ()
    locked_topics: Sequence[str] = ()
    """Encrypted topics whose data keys this broker cannot unwrap."""
    clock_skews: Mapping[int, float] = field(default_factory=dict)
    """By broker: how many seconds its clock is ahead of this one's."""
    silent: Sequence[int] = ()
    """Brokers with a lease that do not answer this one."""
    open_listeners: Sequence[str] = ()
    """Listeners without authentication that other machines can reach."""
    groups: Sequence[GroupFact] = ()
    queues: Sequence[QueueFact] = ()
    transactions: Sequence[TransactionFact] = ()
    pipelines: Sequence[PipelineFact] = ()
