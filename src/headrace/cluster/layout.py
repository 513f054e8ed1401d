"""The metadata store's schema: its keys, and their values as JSON. `image_changes.py` makes a `ClusterImage` of them.

    /cluster                     the cluster's id, and its feature level from 2 on
    /moving                      a single-node broker is migrating its metadata to this store; there is no /cluster yet
    /brokers/<id>                a member of the cluster: endpoint, rack, state, data directory
    /alive/<id>                  under the broker's lease; the key's mod revision is the broker's epoch
    /controller                  the controller, under its lease; the key's mod revision fences its changes
    /topics/<name>               a topic: id, overridden settings, initial state of each partition
    /partitions/<topic id>/<index>   the state of a partition since its first change. The one with the larger partition
                                 epoch wins, so that creating a topic is one transaction, however many partitions it has
    /deleted/<topic id>          a deleted topic whose folders may still exist. Written in the transaction that deletes
                                 /topics/<name>, removed when the folders are gone
    /settings/brokers            dynamic settings of all brokers
    /settings/brokers/<id>       dynamic settings of one broker
    /settings/groups/<name>      settings of one group
    /settings/client-metrics/<name>  a subscription to metrics of clients
    /users, /access-keys, /acls  users and their permissions: `layout_security.py`
    /quotas/<digest>             the quotas of an entity: `layout_quotas.py`
    /links/<name>, /mirrors/<topic id>, /copied/…   links to other clusters, their mirror topics, and what else they
                                 have brought: `layout_links.py`
    /data-keys/<topic id>        the wrapped data keys of a topic that is or was encrypted (see `layout_keys.py`)
    /producer-ids                the first producer id not in any block yet (see `producer_ids.py`)

Versions. A broker ignores unknown keys, and unknown fields of known records. So keys and fields can be added without
affecting older brokers; any other change requires a higher feature level, which is stored in /cluster. From level 2 on
/cluster has fields that 0.1 cannot decode, so 0.1 refuses to join; later versions refuse an unknown level with an
error message.
"""

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import NamedTuple, TypeVar
from uuid import UUID

import msgspec

from headrace.model.errors import StartupError
from headrace.model.features import FIRST_LEVEL, check_readable
from headrace.model.ids import BrokerId, LeaderEpoch, TopicId, TopicName
from headrace.model.image import BrokerInfo, BrokerState, DeletedTopic, PartitionState, TopicImage

_T = TypeVar("_T")

CLUSTER = "/cluster"
MIGRATION = "/moving"
BROKERS = "/brokers/"
ALIVE = "/alive/"
CONTROLLER = "/controller"
TOPICS = "/topics/"
PARTITIONS = "/partitions/"
DELETED = "/deleted/"
ALL_BROKERS_SETTINGS = "/settings/brokers"
BROKER_SETTINGS = "/settings/brokers/"
GROUP_SETTINGS = "/settings/groups/"
CLIENT_METRICS = "/settings/client-metrics/"
PRODUCER_IDS = "/producer-ids"


class ClusterRecord(msgspec.Struct, frozen=True):
    """/cluster at feature level 1, in the format of 0.1."""

    cluster_id: str


class LevelledClusterRecord(msgspec.Struct, frozen=True, omit_defaults=True):
    """/cluster from feature level 2 on. 0.1 refuses it, because `cluster_id` is missing."""

    id: str
    level: int
    features: dict[str, int] = {}
    """Kafka features set by UpdateFeatures (`model.features.CHOOSABLE`)."""


class ClusterIdentity(NamedTuple):
    cluster_id: str
    level: int
    features: Mapping[str, int] = MappingProxyType({})


class MigrationRecord(msgspec.Struct, frozen=True):
    cluster_id: str
    broker_id: int


class BrokerRecord(msgspec.Struct, frozen=True, omit_defaults=True):
    rack: str | None = None
    host: str = ""
    """Empty on a single node, which knows its own address."""
    port: int = 0
    state: str = BrokerState.ACTIVE.value
    data_dir: str = ""
    """The id of its data directory, as of its last registration."""
    former_data_dir: str = ""
    """The id of its previous data directory, until it is admitted with the current one."""


DRAINING_SETTING = "broker.draining"


class AliveRecord(msgspec.Struct, frozen=True):
    incarnation: str
    """New at each registration."""
    data_dir: str
    """The id of its data directory: the process that holds the lock on it may revoke the lease at once."""
    lease: int
    max_level: int = FIRST_LEVEL
    """The highest feature level this broker supports. Not under /brokers, because a controller of 0.1 rewrites that
    record without fields it does not know."""
    listeners: dict[str, tuple[str, int]] = {}
    """The advertised host and port of each listener, by name."""


class ControllerRecord(msgspec.Struct, frozen=True):
    broker_id: int


class PartitionRecord(msgspec.Struct, frozen=True, omit_defaults=True):
    leader: int
    leader_epoch: int
    isr: tuple[int, ...]
    replicas: tuple[int, ...]
    partition_epoch: int
    adding: tuple[int, ...] = ()
    removing: tuple[int, ...] = ()


class TopicRecord(msgspec.Struct, frozen=True):
    topic_id: UUID
    partitions: tuple[PartitionRecord, ...]
    settings: dict[str, str]


class DeletedRecord(msgspec.Struct, frozen=True, omit_defaults=True):
    name: str
    partition_count: int
    brokers: tuple[int, ...] = ()


class ProducerIdsRecord(msgspec.Struct, frozen=True):
    next_id: int


encode = msgspec.json.Encoder(order="deterministic").encode
_cluster = msgspec.json.Decoder(ClusterRecord)
_levelled_cluster = msgspec.json.Decoder(LevelledClusterRecord)
_fields = msgspec.json.Decoder(dict[str, msgspec.Raw])
_migration = msgspec.json.Decoder(MigrationRecord)
_broker = msgspec.json.Decoder(BrokerRecord)
_alive = msgspec.json.Decoder(AliveRecord)
_controller = msgspec.json.Decoder(ControllerRecord)
_topic = msgspec.json.Decoder(TopicRecord)
_partition = msgspec.json.Decoder(PartitionRecord)
_deleted = msgspec.json.Decoder(DeletedRecord)
_settings = msgspec.json.Decoder(dict[str, str])
_producer_ids = msgspec.json.Decoder(ProducerIdsRecord)


def topic_key(name: str) -> str:
    return TOPICS + name


def deleted_key(topic_id: UUID) -> str:
    return DELETED + str(topic_id)


def broker_key(broker_id: int) -> str:
    return f"{BROKERS}{broker_id}"


def alive_key(broker_id: int) -> str:
    return f"{ALIVE}{broker_id}"


def partition_key(topic_id: UUID, index: int) -> str:
    return f"{PARTITIONS}{topic_id}/{index}"


def broker_settings_key(broker_id: int | None) -> str:
    return ALL_BROKERS_SETTINGS if broker_id is None else f"{BROKER_SETTINGS}{broker_id}"


def group_settings_key(group_id: str) -> str:
    return GROUP_SETTINGS + group_id


def encode_topic(topic: TopicImage) -> bytes:
    return encode(TopicRecord(topic.topic_id, tuple(map(_partition_record, topic.partitions)), dict(topic.settings)))


def encode_partition(state: PartitionState) -> bytes:
    return encode(_partition_record(state))


def encode_broker(broker: BrokerInfo) -> bytes:
    """The /brokers record, without liveness and draining, which other keys store."""
    host, port = broker.endpoint.host, broker.endpoint.port
    record = BrokerRecord(broker.rack, host, port, broker.state.value, broker.data_dir, broker.former_data_dir)
    return encode(record)


def encode_deleted(topic: DeletedTopic) -> bytes:
    return encode(DeletedRecord(topic.name, topic.partition_count, topic.brokers))


def encode_cluster(cluster: ClusterIdentity) -> bytes:
    if cluster.level == FIRST_LEVEL:
        return encode(ClusterRecord(cluster.cluster_id))
    return encode(LevelledClusterRecord(cluster.cluster_id, cluster.level, dict(cluster.features)))


def decode_cluster(value: bytes) -> ClusterIdentity:
    """Decode /cluster; `StartupError` if this version does not support the cluster's feature level."""
    if "level" not in _read(CLUSTER, _fields, value):
        return ClusterIdentity(_read(CLUSTER, _cluster, value).cluster_id, FIRST_LEVEL)
    record = _read(CLUSTER, _levelled_cluster, value)
    check_readable(record.level, "the metadata store")
    return ClusterIdentity(record.id, record.level, record.features)


def decode_migration(value: bytes) -> MigrationRecord:
    return _read(MIGRATION, _migration, value)


def deleted_on_broker(key: str, value: bytes, broker_id: int) -> bytes:
    """The record of a deleted topic, naming only this broker as having folders."""
    record = _read(key, _deleted, value)
    return encode(DeletedRecord(record.name, record.partition_count, (broker_id,)))


def decode_broker(key: str, value: bytes) -> BrokerRecord:
    return _read(key, _broker, value)


def decode_controller(value: bytes) -> BrokerId:
    return BrokerId(_read(CONTROLLER, _controller, value).broker_id)


def decode_alive(broker_id: int, value: bytes) -> AliveRecord:
    return _read(alive_key(broker_id), _alive, value)


def decode_next_producer_id(value: bytes) -> int:
    return _read(PRODUCER_IDS, _producer_ids, value).next_id


def broker_ids(keys: Iterable[str]) -> set[int]:
    """The ids of the cluster's brokers."""
    return {int(key[len(BROKERS) :]) for key in keys if key.startswith(BROKERS)}


def decode_partition(key: str, value: bytes) -> PartitionState:
    return _state(_read(key, _partition, value))


def _partition_record(state: PartitionState) -> PartitionRecord:
    return PartitionRecord(
        state.leader,
        state.leader_epoch,
        state.isr,
        state.replicas,
        state.partition_epoch,
        state.adding,
        state.removing,
    )


def _state(record: PartitionRecord) -> PartitionState:
    return PartitionState(
        BrokerId(record.leader),
        LeaderEpoch(record.leader_epoch),
        tuple(map(BrokerId, record.isr)),
        tuple(map(BrokerId, record.replicas)),
        record.partition_epoch,
        tuple(map(BrokerId, record.adding)),
        tuple(map(BrokerId, record.removing)),
    )


def decode_topic(name: TopicName, value: bytes) -> TopicImage:
    record = _read(topic_key(name), _topic, value)
    return TopicImage(name, TopicId(record.topic_id), tuple(map(_state, record.partitions)), record.settings)


def decode_deleted(key: str, topic_id: TopicId, value: bytes) -> DeletedTopic:
    record = _read(key, _deleted, value)
    return DeletedTopic(TopicName(record.name), topic_id, record.partition_count, tuple(map(BrokerId, record.brokers)))


def decode_settings(key: str, value: bytes) -> dict[str, str]:
    return _read(key, _settings, value)


def _read(key: str, decoder: msgspec.json.Decoder[_T], value: bytes) -> _T:
    try:
        return decoder.decode(value)
    except msgspec.DecodeError as error:
        raise StartupError(f"the metadata under {key} cannot be decoded; was it edited by hand? {error}") from None
