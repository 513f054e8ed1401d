"""The cluster's metadata at one revision, immutable. A change makes a new image that shares what did not change.

Who builds it: `cluster/` from the metadata store. Who reads it: every handler, without locks and without waiting.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from uuid import UUID

from headrace.model.features import LATEST_LEVEL
from headrace.model.ids import BrokerId, LeaderEpoch, TopicId, TopicName


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where clients reach a broker: the advertised host and port of one listener."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class BrokerState(Enum):
    """How far a broker has come. Whether it is alive is another matter: its lease says so."""

    STARTING = "starting"
    """Registered; it may neither lead nor follow before the controller has looked at every partition it has."""
    ACTIVE = "active"
    STOPPING = "stopping"
    """It wants to stop and leads nothing more as soon as somebody else can."""


@dataclass(frozen=True, slots=True)
class BrokerInfo:
    """A broker that belongs to the cluster. On one node only the first three say anything."""

    broker_id: BrokerId
    endpoint: Endpoint
    rack: str | None = None
    is_alive: bool = True
    """Whether its lease holds."""
    epoch: int = 0
    """The revision at which its lease was taken: a new one each time it starts."""
    state: BrokerState = BrokerState.ACTIVE
    is_draining: bool = False
    """It is to lose all of its replicas, and gets no new ones."""
    data_dir: str = ""
    """The id of its data directory."""
    former_data_dir: str = ""
    """If it has come back with another data directory than it had, and was not admitted yet: the one it had."""
    max_level: int = LATEST_LEVEL
    """The highest feature level that it knows. It says something only while the broker is alive."""

    @property
    def has_lost_data(self) -> bool:
        """What it had as a replica is not there: it is in another data directory."""
        return bool(self.former_data_dir)

    @property
    def can_lead(self) -> bool:
        return self.is_alive and self.state is BrokerState.ACTIVE

    @property
    def is_fenced(self) -> bool:
        """Whether nothing may be asked of it: it is dead, or has not been admitted yet."""
        return not self.is_alive or self.state is BrokerState.STARTING


@dataclass(frozen=True, slots=True)
class PartitionState:
    """What the cluster agrees on for one partition. Every change raises `partition_epoch`."""

    leader: BrokerId
    leader_epoch: LeaderEpoch
    isr: tuple[BrokerId, ...]
    replicas: tuple[BrokerId, ...]
    """Preferred leader first. While a reassignment is under way: the new replicas, then those that are to go."""
    partition_epoch: int = 0
    adding: tuple[BrokerId, ...] = ()
    """Those of `replicas` that a reassignment brings in."""
    removing: tuple[BrokerId, ...] = ()
    """Those of `replicas` that go when all of the others are in sync."""

    @property
    def is_reassigning(self) -> bool:
        return bool(self.adding or self.removing)


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
    brokers: tuple[BrokerId, ...] = ()
    """Those that may still have folders of it; empty where there is only one broker."""


@dataclass(frozen=True, slots=True)
class ClusterImage:
    cluster_id: str
    controller_id: BrokerId
    """`NO_LEADER` while nobody is controller."""
    brokers: Mapping[BrokerId, BrokerInfo]
    """Every broker that belongs to the cluster, alive or not."""
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
    feature_level: int = LATEST_LEVEL
    """What every broker knows (`model/features.py`)."""
    chosen_features: Mapping[str, int] = field(default_factory=dict)
    """Kafka's features that were held back, or let go on, by UpdateFeatures."""
    features_revision: int = 0
    """The revision at which the level or a feature was last changed."""

    def is_alive(self, broker_id: BrokerId) -> bool:
        broker = self.brokers.get(broker_id)
        return broker is not None and broker.is_alive

    def can_lead(self, broker_id: BrokerId) -> bool:
        broker = self.brokers.get(broker_id)
        return broker is not None and broker.can_lead

    def alive_brokers(self) -> tuple[BrokerInfo, ...]:
        """In the order of their ids."""
        return tuple(broker for _, broker in sorted(self.brokers.items()) if broker.is_alive)

    def has_partition(self, topic: str, index: int) -> bool:
        found = self.topics.get(TopicName(topic))
        return found is not None and 0 <= index < len(found.partitions)

    def topic_by_id(self, topic_id: UUID) -> TopicImage | None:
        name = self.topic_names.get(topic_id)
        return None if name is None else self.topics[name]
