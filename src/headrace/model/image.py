"""The cluster's metadata at one revision, immutable. A change makes a new image that shares the unchanged parts.

`cluster/` builds it from the metadata store; every handler reads it, without locks and without waiting.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from uuid import UUID

from headrace.model.acls import Acl
from headrace.model.data_keys import TopicDataKeys
from headrace.model.features import LATEST_LEVEL
from headrace.model.ids import BrokerId, LeaderEpoch, TopicId, TopicName
from headrace.model.links import Copied, Link, Mirror
from headrace.model.quotas import ClusterQuotas
from headrace.model.users import AccessKey, User


@dataclass(frozen=True, slots=True)
class Endpoint:
    """The host and port of a listener."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class BrokerState(Enum):
    """A broker's lifecycle state. Liveness is separate: see `BrokerInfo.is_alive`."""

    STARTING = "starting"
    """Registered; neither leads nor follows until the controller has updated its partitions and admitted it."""
    ACTIVE = "active"
    STOPPING = "stopping"
    """Gives up leadership as soon as another replica can take over."""


@dataclass(frozen=True, slots=True)
class BrokerInfo:
    """A broker of the cluster. On a single node only the first three fields are meaningful."""

    broker_id: BrokerId
    endpoint: Endpoint
    """Where the other brokers reach it: the address of its inter-broker listener."""
    rack: str | None = None
    is_alive: bool = True
    """True while its lease is live."""
    epoch: int = 0
    """The broker epoch: the store revision of its registration, new at each one."""
    state: BrokerState = BrokerState.ACTIVE
    is_draining: bool = False
    """All of its replicas are being moved away, and it gets no new ones."""
    data_dir: str = ""
    """The id of its data directory."""
    former_data_dir: str = ""
    """The id of its previous data directory, until it is admitted with the current one."""
    max_level: int = LATEST_LEVEL
    """The highest feature level it supports; meaningful only while the broker is alive."""
    listeners: Mapping[str, Endpoint] = field(default_factory=dict, hash=False)
    """The advertised address of each of its listeners, by name; empty for a broker that has only `endpoint`."""

    @property
    def has_lost_data(self) -> bool:
        """True if it returned with another data directory, without the data of its replicas."""
        return bool(self.former_data_dir)

    @property
    def can_lead(self) -> bool:
        return self.is_alive and self.state is BrokerState.ACTIVE

    @property
    def is_fenced(self) -> bool:
        """True if it must not be contacted: it is dead, or not admitted yet."""
        return not self.is_alive or self.state is BrokerState.STARTING


@dataclass(frozen=True, slots=True)
class PartitionState:
    """The leader, ISR and replicas of one partition. Every change raises `partition_epoch`."""

    leader: BrokerId
    leader_epoch: LeaderEpoch
    isr: tuple[BrokerId, ...]
    replicas: tuple[BrokerId, ...]
    """Preferred leader first. During a reassignment: the target replicas, then those being removed."""
    partition_epoch: int = 0
    adding: tuple[BrokerId, ...] = ()
    """The replicas that a reassignment adds."""
    removing: tuple[BrokerId, ...] = ()
    """The replicas that a reassignment removes once all others are in sync."""

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
    """Only the overrides of this topic; defaults come from `config`."""

    @property
    def is_internal(self) -> bool:
        return self.name in INTERNAL_TOPICS


AUDIT_TOPIC = TopicName("__audit")
CANARY_TOPIC = TopicName("__canary")
OFFSETS_TOPIC = TopicName("__consumer_offsets")
PIPELINES_TOPIC = TopicName("__pipelines")
QUEUE_STATE_TOPIC = TopicName("__queue_state")
"""The state of queues and of share groups."""
SCHEMAS_TOPIC = TopicName("_schemas")
"""Named as in Confluent's registry, whose format it has."""
SHARE_STATE_TOPIC = TopicName("__share_group_state")
"""A name that Kafka reserves; no broker creates it here."""
TRANSACTIONS_TOPIC = TopicName("__transaction_state")
INTERNAL_REPLICAS: Mapping[TopicName, int | str] = {
    AUDIT_TOPIC: "audit.topic.replication.factor",
    CANARY_TOPIC: 3,
    OFFSETS_TOPIC: "offsets.topic.replication.factor",
    PIPELINES_TOPIC: 3,
    QUEUE_STATE_TOPIC: 3,
    SCHEMAS_TOPIC: 3,
    SHARE_STATE_TOPIC: 3,
    TRANSACTIONS_TOPIC: "transaction.state.log.replication.factor",
}
"""Of each internal topic the replication factor, or the broker setting that gives it. See `cluster/topics.py`."""
INTERNAL_TOPICS: frozenset[str] = frozenset(INTERNAL_REPLICAS)


@dataclass(frozen=True, slots=True)
class DeletedTopic:
    """A topic that was deleted while its folders may still exist. An unknown folder is never deleted."""

    name: TopicName
    topic_id: TopicId
    partition_count: int
    brokers: tuple[BrokerId, ...] = ()
    """The brokers that may still have folders of it; empty on a single node."""


@dataclass(frozen=True, slots=True)
class SecurityImage:
    """The users of the cluster and their permissions."""

    users: Mapping[str, User] = field(default_factory=dict)
    """By name."""
    access_keys: Mapping[str, AccessKey] = field(default_factory=dict)
    """By key id."""
    acls: frozenset[Acl] = frozenset()
    scram_secret: bytes = field(default=b"", repr=False)
    """Makes up the salts of users that do not exist; empty until a broker with SASL has started."""


@dataclass(frozen=True, slots=True)
class ClusterImage:
    """The metadata of the whole cluster."""

    cluster_id: str
    controller_id: BrokerId
    """`NO_LEADER` while there is no controller."""
    brokers: Mapping[BrokerId, BrokerInfo]
    """Every broker of the cluster, alive or not."""
    topics: Mapping[TopicName, TopicImage]
    topic_names: Mapping[UUID, TopicName]
    """Topic id to name, for APIs that use ids."""
    broker_settings: Mapping[str, str]
    """Dynamic settings of all brokers."""
    revision: int
    settings_by_broker: Mapping[BrokerId, Mapping[str, str]] = field(default_factory=dict)
    """Dynamic settings of single brokers; they take precedence over those of all brokers."""
    settings_by_group: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """Settings of single groups; a group need not exist to have settings."""
    client_metrics: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """Settings of subscriptions to metrics of clients, by name. Another object when one of them changes."""
    deleted: Mapping[UUID, DeletedTopic] = field(default_factory=dict)
    """Deleted topics whose folders have not all been removed yet."""
    data_keys: Mapping[UUID, TopicDataKeys] = field(default_factory=dict)
    """The wrapped data keys of topics that are or were encrypted, by topic id."""
    feature_level: int = LATEST_LEVEL
    """The level that every broker supports (`model/features.py`)."""
    chosen_features: Mapping[str, int] = field(default_factory=dict)
    """Kafka features whose version was set by UpdateFeatures."""
    features_revision: int = 0
    """The revision of the last change of the level or of a feature."""
    security: SecurityImage = field(default_factory=SecurityImage)
    """Replaced by another object when a user, an access key or an ACL changes, and only then."""
    quotas: ClusterQuotas = field(default_factory=dict)
    """Client quotas. Another object when one of them changes."""
    links: Mapping[str, Link] = field(default_factory=dict)
    """Links to other clusters, by name. Another object when one of them changes."""
    mirrors: Mapping[UUID, Mirror] = field(default_factory=dict)
    """The records of mirror topics, by the id of the local topic. Another object when one of them changes."""

    copied: Mapping[str, Copied] = field(default_factory=dict)
    """What links have brought besides topics, by the key of it in the store. Another object when one changes."""

    def read_only_mirror(self, topic: str) -> Mirror | None:
        """The record of a mirror topic that was not promoted; None for any other topic."""
        found = self.topics.get(TopicName(topic)) if self.mirrors else None
        mirror = None if found is None else self.mirrors.get(found.topic_id)
        return mirror if mirror is not None and mirror.is_read_only else None

    def is_alive(self, broker_id: BrokerId) -> bool:
        broker = self.brokers.get(broker_id)
        return broker is not None and broker.is_alive

    def can_lead(self, broker_id: BrokerId) -> bool:
        broker = self.brokers.get(broker_id)
        return broker is not None and broker.can_lead

    def alive_brokers(self) -> tuple[BrokerInfo, ...]:
        """The live brokers, in the order of their ids."""
        return tuple(broker for _, broker in sorted(self.brokers.items()) if broker.is_alive)

    def has_partition(self, topic: str, index: int) -> bool:
        found = self.topics.get(TopicName(topic))
        return found is not None and 0 <= index < len(found.partitions)

    def topic_by_id(self, topic_id: UUID) -> TopicImage | None:
        name = self.topic_names.get(topic_id)
        return None if name is None else self.topics[name]
