"""What handlers may use, wired together once in `app`."""

from concurrent.futures import Executor
from dataclasses import dataclass

from headrace.cluster.metadata import Metadata
from headrace.cluster.producer_ids import ProducerIds
from headrace.config.broker import BrokerSettings
from headrace.kafka.fetch_sessions import FetchSessions
from headrace.replication.partitions import PartitionTable
from headrace.runtime.clock import Clock
from headrace.runtime.expiries import Expiries


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
    """Threads for what may block: cold reads, searches in the log, durable checkpoints."""

    @property
    def settings(self) -> BrokerSettings:
        """The broker's settings in force now."""
        return self.metadata.settings
