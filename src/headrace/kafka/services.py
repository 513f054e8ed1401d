"""What handlers may use, wired together once in `app`."""

from dataclasses import dataclass

from headrace.config.broker import BrokerSettings
from headrace.cluster.metadata import Metadata
from headrace.cluster.producer_ids import ProducerIds
from headrace.replication.partitions import PartitionTable
from headrace.runtime.clock import Clock


@dataclass(slots=True)
class Services:
    settings: BrokerSettings
    clock: Clock
    metadata: Metadata
    """The current cluster image (`metadata.image`) and every change to topics."""
    partitions: PartitionTable
    """The partitions this broker hosts, by topic id and by name."""
    producer_ids: ProducerIds
