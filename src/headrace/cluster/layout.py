"""What is in the metadata store: the keys, their values as JSON, and how they make up a `ClusterImage`.

    /cluster                     the cluster's id, written once
    /brokers/<id>                a broker that belongs to the cluster
    /topics/<name>               a topic: id, settings that were set on it, state of each partition
    /deleted/<topic id>          a deleted topic whose folders may still be there. Written in the transaction that
                                 deletes /topics/<name>, removed when the folders are gone
    /settings/brokers            broker settings changed on the running cluster, for all brokers
    /settings/brokers/<id>       the same for one broker
    /settings/groups/<name>      settings of one group
    /producer-ids                the first producer id that no block holds yet (see `producer_ids.py`)

Keys that this version does not know are left alone, so that an older broker can read what a newer one wrote.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import TypeVar
from uuid import UUID

import msgspec

from headrace.cluster.store import Change, Snapshot
from headrace.model.errors import StartupError
from headrace.model.ids import BrokerId, LeaderEpoch, TopicId, TopicName
from headrace.model.image import BrokerInfo, ClusterImage, DeletedTopic, PartitionState, TopicImage

_T = TypeVar("_T")

CLUSTER = "/cluster"
BROKERS = "/brokers/"
TOPICS = "/topics/"
DELETED = "/deleted/"
ALL_BROKERS_SETTINGS = "/settings/brokers"
BROKER_SETTINGS = "/settings/brokers/"
GROUP_SETTINGS = "/settings/groups/"
PRODUCER_IDS = "/producer-ids"


class ClusterRecord(msgspec.Struct, frozen=True):
    cluster_id: str


class BrokerRecord(msgspec.Struct, frozen=True):
    rack: str | None = None


class PartitionRecord(msgspec.Struct, frozen=True):
    leader: int
    leader_epoch: int
    isr: tuple[int, ...]
    replicas: tuple[int, ...]
    partition_epoch: int


class TopicRecord(msgspec.Struct, frozen=True):
    topic_id: UUID
    partitions: tuple[PartitionRecord, ...]
    settings: dict[str, str]


class DeletedRecord(msgspec.Struct, frozen=True):
    name: str
    partition_count: int


class ProducerIdsRecord(msgspec.Struct, frozen=True):
    next_id: int


encode = msgspec.json.Encoder(order="deterministic").encode
_cluster = msgspec.json.Decoder(ClusterRecord)
_topic = msgspec.json.Decoder(TopicRecord)
_deleted = msgspec.json.Decoder(DeletedRecord)
_settings = msgspec.json.Decoder(dict[str, str])
_producer_ids = msgspec.json.Decoder(ProducerIdsRecord)


def topic_key(name: str) -> str:
    return TOPICS + name


def deleted_key(topic_id: UUID) -> str:
    return DELETED + str(topic_id)


def broker_key(broker_id: int) -> str:
    return f"{BROKERS}{broker_id}"


def broker_settings_key(broker_id: int | None) -> str:
    return ALL_BROKERS_SETTINGS if broker_id is None else f"{BROKER_SETTINGS}{broker_id}"


def group_settings_key(group_id: str) -> str:
    return GROUP_SETTINGS + group_id


def encode_topic(topic: TopicImage) -> bytes:
    partitions = tuple(
        PartitionRecord(state.leader, state.leader_epoch, state.isr, state.replicas, state.partition_epoch)
        for state in topic.partitions
    )
    return encode(TopicRecord(topic.topic_id, partitions, dict(topic.settings)))


def encode_deleted(topic: TopicImage) -> bytes:
    return encode(DeletedRecord(topic.name, len(topic.partitions)))


def decode_cluster_id(value: bytes) -> str:
    return _read(CLUSTER, _cluster, value).cluster_id


def decode_next_producer_id(value: bytes) -> int:
    return _read(PRODUCER_IDS, _producer_ids, value).next_id


def broker_ids(keys: Iterable[str]) -> set[int]:
    """The ids of the brokers that belong to the cluster."""
    return {int(key[len(BROKERS) :]) for key in keys if key.startswith(BROKERS)}


def image_from(snapshot: Snapshot, cluster_id: str, broker: BrokerInfo) -> ClusterImage:
    """The image of a whole snapshot, as seen by `broker`."""
    empty = ClusterImage(cluster_id, broker.broker_id, {broker.broker_id: broker}, {}, {}, {}, snapshot.revision)
    return apply(empty, snapshot.revision, ((key, item.value) for key, item in snapshot.items.items()))


def apply_changes(image: ClusterImage, changes: Iterable[Change]) -> ClusterImage:
    """The image after one transaction."""
    changes = tuple(changes)
    return apply(image, changes[-1].revision, ((change.key, change.value) for change in changes))


def apply(image: ClusterImage, revision: int, values: Iterable[tuple[str, bytes | None]]) -> ClusterImage:
    """The image with these keys set, or deleted where the value is None. What did not change is shared."""
    topics = dict(image.topics)
    deleted = dict(image.deleted)
    for_all: Mapping[str, str] = image.broker_settings
    by_broker = dict(image.settings_by_broker)
    by_group = dict(image.settings_by_group)
    for key, value in values:
        if key.startswith(TOPICS):
            name = TopicName(key[len(TOPICS) :])
            if value is None:
                topics.pop(name, None)
            else:
                topics[name] = _decode_topic(name, value)
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
        elif key.startswith(GROUP_SETTINGS):
            group_id = key[len(GROUP_SETTINGS) :]
            if value is None:
                by_group.pop(group_id, None)
            else:
                by_group[group_id] = _decode_settings(key, value)
    return replace(
        image,
        topics=topics,
        topic_names={topic.topic_id: name for name, topic in topics.items()},
        deleted=deleted,
        broker_settings=for_all,
        settings_by_broker=by_broker,
        settings_by_group=by_group,
        revision=revision,
    )


def _decode_topic(name: TopicName, value: bytes) -> TopicImage:
    record = _read(topic_key(name), _topic, value)
    partitions = tuple(
        PartitionState(
            BrokerId(state.leader),
            LeaderEpoch(state.leader_epoch),
            tuple(map(BrokerId, state.isr)),
            tuple(map(BrokerId, state.replicas)),
            state.partition_epoch,
        )
        for state in record.partitions
    )
    return TopicImage(name, TopicId(record.topic_id), partitions, record.settings)


def _decode_deleted(key: str, topic_id: TopicId, value: bytes) -> DeletedTopic:
    record = _read(key, _deleted, value)
    return DeletedTopic(TopicName(record.name), topic_id, record.partition_count)


def _decode_settings(key: str, value: bytes) -> dict[str, str]:
    return _read(key, _settings, value)


def _read(key: str, decoder: msgspec.json.Decoder[_T], value: bytes) -> _T:
    try:
        return decoder.decode(value)
    except msgspec.DecodeError as error:
        raise StartupError(f"the metadata under {key} cannot be read, was it changed by hand? {error}") from None
