"""The metadata store's schema: its keys, their values as JSON, and how they make up a `ClusterImage`.

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

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import NamedTuple, TypeVar
from uuid import UUID

import msgspec

from headrace.cluster import layout_security
from headrace.cluster.layout_keys import DATA_KEYS, decode_data_keys, topic_id_of
from headrace.cluster.layout_links import COPIED, LINKS, MIRRORS, apply_copied, apply_links, apply_mirrors
from headrace.cluster.layout_quotas import QUOTAS, apply_quotas
from headrace.cluster.store import Change, Snapshot
from headrace.model.errors import StartupError
from headrace.model.features import FIRST_LEVEL, check_readable
from headrace.model.ids import NO_LEADER, BrokerId, LeaderEpoch, TopicId, TopicName
from headrace.model.image import (
    BrokerInfo,
    BrokerState,
    ClusterImage,
    DeletedTopic,
    Endpoint,
    PartitionState,
    TopicImage,
)

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


def decode_alive(broker_id: int, value: bytes) -> AliveRecord:
    return _read(alive_key(broker_id), _alive, value)


def decode_next_producer_id(value: bytes) -> int:
    return _read(PRODUCER_IDS, _producer_ids, value).next_id


def broker_ids(keys: Iterable[str]) -> set[int]:
    """The ids of the cluster's brokers."""
    return {int(key[len(BROKERS) :]) for key in keys if key.startswith(BROKERS)}


def image_from(snapshot: Snapshot, cluster_id: str, only: BrokerInfo | None) -> ClusterImage:
    """The image of a whole snapshot. `only` is the broker of a single node, whose endpoint is not in the store."""
    if only is None:
        empty = ClusterImage(cluster_id, NO_LEADER, {}, {}, {}, {}, snapshot.revision)
    else:
        brokers = {only.broker_id: only}
        empty = ClusterImage(cluster_id, only.broker_id, brokers, {}, {}, {}, snapshot.revision)
    return apply(empty, snapshot.revision, _all_of(snapshot))


def _all_of(snapshot: Snapshot) -> Iterator[Change]:
    for key, item in snapshot.items.items():
        yield Change(key, item.value, item.mod_revision)


def apply_changes(image: ClusterImage, changes: Iterable[Change]) -> ClusterImage:
    """The image after one transaction's changes."""
    changes = tuple(changes)
    return apply(image, changes[-1].revision, changes)


def apply(image: ClusterImage, revision: int, changes: Iterable[Change]) -> ClusterImage:
    """The image with these keys set, or deleted where the value is None. Unchanged parts are shared."""
    controller_id = image.controller_id
    cluster = ClusterIdentity(image.cluster_id, image.feature_level, image.chosen_features)
    features_revision = image.features_revision
    brokers = dict(image.brokers)
    alive: list[Change] = []
    topics, topic_names = dict(image.topics), dict(image.topic_names)
    partitions: list[Change] = []
    deleted = dict(image.deleted)
    for_all: Mapping[str, str] = image.broker_settings
    by_broker = dict(image.settings_by_broker)
    by_group = dict(image.settings_by_group)
    client_metrics = image.client_metrics
    security: list[Change] = []
    quotas: list[Change] = []
    links: list[Change] = []
    mirrors: list[Change] = []
    copied: list[Change] = []
    data_keys = dict(image.data_keys)
    for change in changes:
        key, value = change.key, change.value
        if key.startswith(TOPICS):
            name = TopicName(key[len(TOPICS) :])
            before = topics.get(name)
            if before is not None:
                topic_names.pop(before.topic_id, None)
            if value is None:
                topics.pop(name, None)
            else:
                topics[name] = _newest_states(_decode_topic(name, value), before)
                topic_names[topics[name].topic_id] = name
        elif key.startswith(PARTITIONS):
            partitions.append(change)
        elif key.startswith(BROKERS):
            broker_id = BrokerId(int(key[len(BROKERS) :]))
            if value is None:
                brokers.pop(broker_id, None)
            else:
                _put_broker(brokers, broker_id, _read(key, _broker, value), by_broker)
        elif key.startswith(ALIVE):
            alive.append(change)
        elif key == CLUSTER and value is not None:
            cluster, features_revision = decode_cluster(value), change.revision
        elif key == CONTROLLER:
            controller_id = NO_LEADER if value is None else BrokerId(_read(key, _controller, value).broker_id)
        elif key.startswith(DELETED):
            topic_id = TopicId(UUID(key[len(DELETED) :]))
            if value is None:
                deleted.pop(topic_id, None)
            else:
                deleted[topic_id] = _decode_deleted(key, topic_id, value)
        elif key == ALL_BROKERS_SETTINGS:
            for_all = {} if value is None else _decode_settings(key, value)
        elif key.startswith(BROKER_SETTINGS):
            broker_id = BrokerId(int(key[len(BROKER_SETTINGS) :]))
            if value is None:
                by_broker.pop(broker_id, None)
            else:
                by_broker[broker_id] = _decode_settings(key, value)
            if (broker := brokers.get(broker_id)) is not None:
                brokers[broker_id] = replace(broker, is_draining=_is_draining(by_broker, broker_id))
        elif key.startswith(GROUP_SETTINGS):
            group_id = key[len(GROUP_SETTINGS) :]
            if value is None:
                by_group.pop(group_id, None)
            else:
                by_group[group_id] = _decode_settings(key, value)
        elif key.startswith(CLIENT_METRICS):
            subscription = key[len(CLIENT_METRICS) :]
            changed = {} if value is None else {subscription: _decode_settings(key, value)}
            client_metrics = {**without(client_metrics, subscription), **changed}
        elif key.startswith(layout_security.PREFIXES):
            security.append(change)
        elif key.startswith(QUOTAS):
            quotas.append(change)
        elif key.startswith(LINKS):
            links.append(change)
        elif key.startswith(MIRRORS):
            mirrors.append(change)
        elif key.startswith(COPIED):
            copied.append(change)
        elif key.startswith(DATA_KEYS):
            if value is None:
                data_keys.pop(topic_id_of(key), None)
            else:
                data_keys[topic_id_of(key)] = decode_data_keys(key, value)
    for change in alive:
        _put_alive(brokers, change)
    for change in partitions:
        _put_partition(topics, topic_names, change)
    return replace(
        image,
        controller_id=controller_id,
        brokers=brokers,
        topics=topics,
        topic_names=topic_names,
        deleted=deleted,
        broker_settings=for_all,
        settings_by_broker=by_broker,
        settings_by_group=by_group,
        client_metrics=client_metrics,
        data_keys=data_keys,
        revision=revision,
        feature_level=cluster.level,
        chosen_features=cluster.features,
        features_revision=features_revision,
        security=layout_security.apply_security(image.security, security),
        quotas=apply_quotas(image.quotas, quotas),
        links=apply_links(image.links, links),
        mirrors=apply_mirrors(image.mirrors, mirrors),
        copied=apply_copied(image.copied, copied),
    )


def without(settings: Mapping[str, Mapping[str, str]], name: str) -> dict[str, Mapping[str, str]]:
    return {each: texts for each, texts in settings.items() if each != name}


def _put_alive(brokers: dict[BrokerId, BrokerInfo], change: Change) -> None:
    broker_id = BrokerId(int(change.key[len(ALIVE) :]))
    broker = brokers.get(broker_id)
    if broker is None:
        return
    if change.value is None:
        brokers[broker_id] = replace(broker, is_alive=False)
        return
    record = decode_alive(broker_id, change.value)
    listeners = {name: Endpoint(host, port) for name, (host, port) in record.listeners.items()}
    brokers[broker_id] = replace(
        broker, is_alive=True, epoch=change.revision, max_level=record.max_level, listeners=listeners
    )


def _is_draining(settings_by_broker: Mapping[BrokerId, Mapping[str, str]], broker_id: BrokerId) -> bool:
    return settings_by_broker.get(broker_id, {}).get(DRAINING_SETTING, "").strip().lower() == "true"


def _put_broker(
    brokers: dict[BrokerId, BrokerInfo],
    broker_id: BrokerId,
    record: BrokerRecord,
    settings_by_broker: Mapping[BrokerId, Mapping[str, str]],
) -> None:
    if not record.host:
        return  # a single node, which adds itself to the image
    before = brokers.get(broker_id)
    brokers[broker_id] = BrokerInfo(
        broker_id,
        Endpoint(record.host, record.port),
        record.rack,
        is_alive=before is not None and before.is_alive,
        epoch=0 if before is None else before.epoch,
        state=BrokerState(record.state),
        is_draining=_is_draining(settings_by_broker, broker_id),
        data_dir=record.data_dir,
        former_data_dir=record.former_data_dir,
        max_level=FIRST_LEVEL if before is None else before.max_level,
        listeners={} if before is None else before.listeners,
    )


def _newest_states(topic: TopicImage, before: TopicImage | None) -> TopicImage:
    """The topic with each partition's state from `before` where its partition epoch is higher."""
    if before is None or before.topic_id != topic.topic_id:
        return topic
    known = before.partitions[: len(topic.partitions)]
    newest = tuple(
        old if old.partition_epoch > new.partition_epoch else new
        for old, new in zip(known, topic.partitions, strict=False)
    )
    return replace(topic, partitions=newest + topic.partitions[len(known) :])


def _put_partition(topics: dict[TopicName, TopicImage], topic_names: Mapping[UUID, TopicName], change: Change) -> None:
    """Apply a /partitions record, unless its topic is gone or the known state has a higher partition epoch."""
    topic_id, _, index_text = change.key[len(PARTITIONS) :].partition("/")
    name = topic_names.get(UUID(topic_id))
    if name is None or change.value is None:
        return
    topic, index = topics[name], int(index_text)
    state = decode_partition(change.key, change.value)
    if index < len(topic.partitions) and state.partition_epoch > topic.partitions[index].partition_epoch:
        partitions = (*topic.partitions[:index], state, *topic.partitions[index + 1 :])
        topics[name] = replace(topic, partitions=partitions)


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


def _decode_topic(name: TopicName, value: bytes) -> TopicImage:
    record = _read(topic_key(name), _topic, value)
    return TopicImage(name, TopicId(record.topic_id), tuple(map(_state, record.partitions)), record.settings)


def _decode_deleted(key: str, topic_id: TopicId, value: bytes) -> DeletedTopic:
    record = _read(key, _deleted, value)
    return DeletedTopic(TopicName(record.name), topic_id, record.partition_count, tuple(map(BrokerId, record.brokers)))


def _decode_settings(key: str, value: bytes) -> dict[str, str]:
    return _read(key, _settings, value)


def _read(key: str, decoder: msgspec.json.Decoder[_T], value: bytes) -> _T:
    try:
        return decoder.decode(value)
    except msgspec.DecodeError as error:
        raise StartupError(f"the metadata under {key} cannot be decoded; was it edited by hand? {error}") from None
