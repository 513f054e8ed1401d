"""The cluster's metadata at one revision, immutable. A change makes a new image that shares what did not change.

Who builds it: `cluster/` from the metadata store. Who reads it: every handler, without locks and without waiting.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from uuid import UUID

from headrace.model.ids import BrokerId, LeaderEpoch, TopicId, TopicName


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where clients reach a broker: the advertised host and port of one listener."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


@dataclass(frozen=True, slots=True)
class BrokerInfo:
    broker_id: BrokerId
    endpoint: Endpoint
    rack: str | None = None


@dataclass(frozen=True, slots=True)
class PartitionState:
    """What the cluster agrees on for one partition. Every change raises `partition_epoch`."""

    leader: BrokerId
    leader_epoch: LeaderEpoch
    isr: tuple[BrokerId, ...]
    replicas: tuple[BrokerId, ...]
    partition_epoch: int = 0


@dataclass(frozen=True, slots=True)
class TopicImage:
    """One incarnation of a topic: the id is new each time the name is created again."""

    name: TopicName
    topic_id: TopicId
    partitions: tuple[PartitionState, ...]
    """By partition index, without gaps."""
    settings: Mapping[str, str] = field(default_factory=dict)
    """Only what was set on this topic; defaults come from `config`."""

    @property
    def is_internal(self) -> bool:
        return self.name in INTERNAL_TOPICS


INTERNAL_TOPICS = frozenset({"__consumer_offsets", "__transaction_state", "__queue_state", "__share_group_state"})


@dataclass(frozen=True, slots=True)
class DeletedTopic:
    """A topic that is gone for clients while its folders may still be there. An unknown folder is never deleted."""

    name: TopicName
    topic_id: TopicId
    partition_count: int


@dataclass(frozen=True, slots=True)
class ClusterImage:
    cluster_id: str
    controller_id: BrokerId
    brokers: Mapping[BrokerId, BrokerInfo]
    topics: Mapping[TopicName, TopicImage]
    topic_names: Mapping[UUID, TopicName]
    """Topic id to name, for the APIs that speak of ids."""
    broker_settings: Mapping[str, str]
    """Broker settings changed on the running cluster, for all brokers."""
    revision: int
    settings_by_broker: Mapping[BrokerId, Mapping[str, str]] = field(default_factory=dict)
    """Broker settings changed on one running broker; they win over those for all."""
    settings_by_group: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """Settings of single groups; a group need not exist to have some."""
    deleted: Mapping[UUID, DeletedTopic] = field(default_factory=dict)
    """Deleted topics whose folders have not all been removed yet."""

    def has_partition(self, topic: str, index: int) -> bool:
        found = self.topics.get(TopicName(topic))
        return found is not None and 0 <= index < len(found.partitions)

    def topic_by_id(self, topic_id: UUID) -> TopicImage | None:
        name = self.topic_names.get(topic_id)
        return None if name is None else self.topics[name]
