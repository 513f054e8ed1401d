"""The services that handlers use, wired together once in `app`."""

from collections.abc import Callable, Mapping
from concurrent.futures import Executor
from dataclasses import dataclass, field
from typing import Protocol

from headrace.cluster.access import AccessControl
from headrace.cluster.metadata import Metadata
from headrace.cluster.producer_ids import ProducerIds
from headrace.config.broker import BrokerSettings
from headrace.groups.service import GroupService
from headrace.kafka.audit_topic import AuditTopic
from headrace.kafka.backlog_waits import BacklogWaits
from headrace.kafka.cold_reads import ColdReads
from headrace.kafka.departures import Departures
from headrace.kafka.fetch_sessions import FetchSessions
from headrace.kafka.ordered_reads import OrderedReads
from headrace.kafka.recompression import Recompressor
from headrace.kafka.request_meter import KafkaRequestMeter
from headrace.kafka.schema_checks import SchemaChecks
from headrace.kafka.share_sessions import ShareSessions
from headrace.mirror.links import Links
from headrace.model.ids import BrokerId
from headrace.monitor.canary import Canary
from headrace.monitor.clients.instances import ClientInstances
from headrace.monitor.monitor import Monitor
from headrace.monitor.pipelines.service import PipelineReports
from headrace.queues.service import QueueService
from headrace.queues.share.service import ShareService
from headrace.quotas.broker_quotas import BrokerQuotas
from headrace.replication.partitions import PartitionTable
from headrace.replication.peers import Peers
from headrace.replication.throttle import UNLIMITED_BYTES_PER_S, Throttle
from headrace.runtime.clock import Clock
from headrace.runtime.expiries import Expiries
from headrace.runtime.turns import Turns
from headrace.schemas.service import RegistryService
from headrace.security.security import Security
from headrace.storage.between_syncs import BetweenSyncs
from headrace.transactions.service import TransactionService


class Locator(Protocol):
    """Locates the coordinators of one key type, for FindCoordinator."""

    async def ensure_topic(self) -> None:
        """Create the internal topic if it does not exist."""
        ...

    def leader_for(self, key: str) -> BrokerId:
        """Return the broker that coordinates a key."""
        ...


@dataclass(slots=True)
class Services:
    clock: Clock
    metadata: Metadata
    """The current cluster image (`metadata.image`) and every change to topics."""
    partitions: PartitionTable
    """The partitions this broker hosts, by topic id and by name."""
    producer_ids: ProducerIds
    fetch_sessions: FetchSessions
    expiries: Expiries
    """Timeouts of answers that wait for a commit."""
    workers: Executor
    """Threads for blocking work: cold reads, searches in the log, durable checkpoints."""
    recompressor: Recompressor
    schema_checks: SchemaChecks
    backlog_waits: BacklogWaits
    """Produce requests that wait for room in a backlog."""
    groups: GroupService
    transactions: TransactionService
    queues: QueueService
    share_sessions: ShareSessions
    departures: Departures
    """Brokers that Metadata still lists though they are no longer alive."""
    access: AccessControl
    """Changes to users, access keys and ACLs."""
    audit_topic: AuditTopic
    pipelines: PipelineReports
    registry: RegistryService
    links: Links
    """Links to other clusters and their mirror topics."""
    canary: Canary
    monitor: Monitor
    """What this broker and the cluster are doing."""
    clients: ClientInstances
    """Clients that push metrics of theirs."""
    peers: Peers | None = None
    """The links to other brokers; None on a single node."""
    coordinators: Mapping[int, Locator] = field(default_factory=dict)
    """By FindCoordinator's key type: 0 groups, 1 transactions, 2 share groups."""

    security: Security = field(default_factory=Security)
    """Who may do what."""
    quotas: BrokerQuotas = field(default_factory=BrokerQuotas)
    """Who may use how much."""
    broker_listener: str = ""
    """The name of the listener that brokers use among themselves."""
    meter: KafkaRequestMeter | None = None
    """Counts and times requests; None if they are not (`metrics.enable`)."""
    http_listeners: str = ""
    """The listeners for queues over HTTP, as DescribeConfigs shows them; empty if there are none."""
    leader_throttle: Throttle = field(default_factory=lambda: Throttle(lambda: UNLIMITED_BYTES_PER_S, 0.0))
    """Limits the bytes sent to replicas that a reassignment adds."""
    turns: Turns = field(default_factory=Turns)
    """Shares the event loop between answers that take long to decrypt."""
    between_syncs: BetweenSyncs | None = None
    """Whether logs are being synced; None if that is not known."""
    cold_reads: ColdReads = field(init=False)
    """Reads of fetches that may wait for the disk."""
    ordered_reads: OrderedReads = field(init=False)
    """Reads ahead for consumers that read old data in order."""
    is_certain: Callable[[], bool] = lambda: True
    """True while this broker's lease is provably live; otherwise acks=1 waits like acks=all."""

    def __post_init__(self) -> None:
        self.cold_reads = ColdReads(self.workers, self.settings.background_threads, self.between_syncs)
        self.ordered_reads = OrderedReads(self.cold_reads)

    @property
    def shares(self) -> ShareService:
        """The partitions that this broker leads, as share groups see them."""
        return self.queues.shares

    @property
    def settings(self) -> BrokerSettings:
        """The broker's effective settings."""
        return self.metadata.settings
