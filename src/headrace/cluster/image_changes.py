"""How the keys of the metadata store make up a `ClusterImage`: from a snapshot, and from one image to the next.

`layout.py` says what the keys are. Keys that this version does not know are left out. A change that depends on others
(a partition on its topic, liveness on the broker) is applied after them, whatever the order in the transaction.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import TypeVar
from uuid import UUID

from headrace.cluster import layout, layout_security
from headrace.cluster.layout import ClusterIdentity
from headrace.cluster.layout_keys import DATA_KEYS, decode_data_keys, topic_id_of
from headrace.cluster.layout_links import COPIED, LINKS, MIRRORS, apply_copied, apply_links, apply_mirrors
from headrace.cluster.layout_quotas import QUOTAS, apply_quotas
from headrace.cluster.store import Change, Snapshot
from headrace.model.features import FIRST_LEVEL
from headrace.model.ids import NO_LEADER, BrokerId, TopicId, TopicName
from headrace.model.image import BrokerInfo, BrokerState, ClusterImage, Endpoint, TopicImage

_K = TypeVar("_K")
_V = TypeVar("_V")


def image_from(snapshot: Snapshot, cluster_id: str, only: BrokerInfo | None) -> ClusterImage:
    """The image of a whole snapshot. `only` is the broker of a single node, whose endpoint is not in the store."""
    if only is None:
        empty = ClusterImage(cluster_id, NO_LEADER, {}, {}, {}, {}, snapshot.revision)
    else:
        brokers = {only.broker_id: only}
        empty = ClusterImage(cluster_id, only.broker_id, brokers, {}, {}, {}, snapshot.revision)
    return _applied(empty, snapshot.revision, _all_of(snapshot))


def apply_changes(image: ClusterImage, changes: Iterable[Change]) -> ClusterImage:
    """The image after one transaction's changes: keys that are set, or deleted where the value is None."""
    changes = tuple(changes)
    return _applied(image, changes[-1].revision, changes)


def _all_of(snapshot: Snapshot) -> Iterator[Change]:
    for key, item in snapshot.items.items():
        yield Change(key, item.value, item.mod_revision)


def _applied(image: ClusterImage, revision: int, changes: Iterable[Change]) -> ClusterImage:
    draft = ImageDraft(image)
    for change in changes:
        draft.add(change)
    return draft.finished(revision)


class ImageDraft:
    """An image on the way to the next one. Parts that do not change are shared with the image before."""

    def __init__(self, image: ClusterImage) -> None:
        self._before = image
        self._controller_id = image.controller_id
        self._cluster = ClusterIdentity(image.cluster_id, image.feature_level, image.chosen_features)
        self._features_revision = image.features_revision
        self._brokers = dict(image.brokers)
        self._topics, self._topic_names = dict(image.topics), dict(image.topic_names)
        self._deleted = dict(image.deleted)
        self._for_all_brokers: Mapping[str, str] = image.broker_settings
        self._by_broker = dict(image.settings_by_broker)
        self._by_group = dict(image.settings_by_group)
        self._client_metrics = dict(image.client_metrics)
        self._data_keys = dict(image.data_keys)
        self._later: dict[str | tuple[str, ...], list[Change]] = {keys: [] for keys in _LATER}

    def add(self, change: Change) -> None:
        """Apply a change, or note it until all have been added."""
        key, value = change.key, change.value
        for keys, apply in _APPLIED:
            if key.startswith(keys):
                apply(self, key, value)
                return
        for prefixes, noted in self._later.items():
            if key.startswith(prefixes):
                noted.append(change)
                return
        if key == layout.CLUSTER and value is not None:
            self._cluster, self._features_revision = layout.decode_cluster(value), change.revision
        elif key == layout.CONTROLLER:
            self._controller_id = NO_LEADER if value is None else layout.decode_controller(value)
        elif key == layout.ALL_BROKERS_SETTINGS:
            self._for_all_brokers = {} if value is None else layout.decode_settings(key, value)

    def finished(self, revision: int) -> ClusterImage:
        """The image with all changes."""
        before, later = self._before, self._later
        for change in later[layout.ALIVE]:
            self._put_alive(change)
        for change in later[layout.PARTITIONS]:
            self._put_partition(change)
        return replace(
            before,
            controller_id=self._controller_id,
            brokers=self._brokers,
            topics=self._topics,
            topic_names=self._topic_names,
            deleted=self._deleted,
            broker_settings=self._for_all_brokers,
            settings_by_broker=self._by_broker,
            settings_by_group=self._by_group,
            client_metrics=self._client_metrics,
            data_keys=self._data_keys,
            revision=revision,
            feature_level=self._cluster.level,
            chosen_features=self._cluster.features,
            features_revision=self._features_revision,
            security=layout_security.apply_security(before.security, later[layout_security.PREFIXES]),
            quotas=apply_quotas(before.quotas, later[QUOTAS]),
            links=apply_links(before.links, later[LINKS]),
            mirrors=apply_mirrors(before.mirrors, later[MIRRORS]),
            copied=apply_copied(before.copied, later[COPIED]),
        )

    def put_topic(self, key: str, value: bytes | None) -> None:
        name = TopicName(key[len(layout.TOPICS) :])
        before = self._topics.get(name)
        if before is not None:
            self._topic_names.pop(before.topic_id, None)
        if value is None:
            self._topics.pop(name, None)
            return
        self._topics[name] = topic = _newest_states(layout.decode_topic(name, value), before)
        self._topic_names[topic.topic_id] = name

    def put_deleted(self, key: str, value: bytes | None) -> None:
        topic_id = TopicId(UUID(key[len(layout.DELETED) :]))
        _put(self._deleted, topic_id, None if value is None else layout.decode_deleted(key, topic_id, value))

    def put_broker(self, key: str, value: bytes | None) -> None:
        broker_id = BrokerId(int(key[len(layout.BROKERS) :]))
        if value is None:
            self._brokers.pop(broker_id, None)
            return
        record = layout.decode_broker(key, value)
        if not record.host:
            return  # a single node, which adds itself to the image
        before = self._brokers.get(broker_id)
        self._brokers[broker_id] = BrokerInfo(
            broker_id,
            Endpoint(record.host, record.port),
            record.rack,
            is_alive=before is not None and before.is_alive,
            epoch=0 if before is None else before.epoch,
            state=BrokerState(record.state),
            is_draining=self._is_draining(broker_id),
            data_dir=record.data_dir,
            former_data_dir=record.former_data_dir,
            max_level=FIRST_LEVEL if before is None else before.max_level,
            listeners={} if before is None else before.listeners,
        )

    def put_broker_settings(self, key: str, value: bytes | None) -> None:
        broker_id = BrokerId(int(key[len(layout.BROKER_SETTINGS) :]))
        _put(self._by_broker, broker_id, _settings(key, value))
        if (broker := self._brokers.get(broker_id)) is not None:
            self._brokers[broker_id] = replace(broker, is_draining=self._is_draining(broker_id))

    def put_group_settings(self, key: str, value: bytes | None) -> None:
        _put(self._by_group, key[len(layout.GROUP_SETTINGS) :], _settings(key, value))

    def put_client_metrics(self, key: str, value: bytes | None) -> None:
        _put(self._client_metrics, key[len(layout.CLIENT_METRICS) :], _settings(key, value))

    def put_data_keys(self, key: str, value: bytes | None) -> None:
        _put(self._data_keys, topic_id_of(key), None if value is None else decode_data_keys(key, value))

    def _put_alive(self, change: Change) -> None:
        broker_id = BrokerId(int(change.key[len(layout.ALIVE) :]))
        broker = self._brokers.get(broker_id)
        if broker is None:
            return
        if change.value is None:
            self._brokers[broker_id] = replace(broker, is_alive=False)
            return
        record = layout.decode_alive(broker_id, change.value)
        listeners = {name: Endpoint(host, port) for name, (host, port) in record.listeners.items()}
        self._brokers[broker_id] = replace(
            broker, is_alive=True, epoch=change.revision, max_level=record.max_level, listeners=listeners
        )

    def _put_partition(self, change: Change) -> None:
        """Apply a /partitions record, unless its topic is gone or the known state has a higher partition epoch."""
        topic_id, _, index_text = change.key[len(layout.PARTITIONS) :].partition("/")
        name = self._topic_names.get(UUID(topic_id))
        if name is None or change.value is None:
            return
        topic, index = self._topics[name], int(index_text)
        state = layout.decode_partition(change.key, change.value)
        if index < len(topic.partitions) and state.partition_epoch > topic.partitions[index].partition_epoch:
            partitions = (*topic.partitions[:index], state, *topic.partitions[index + 1 :])
            self._topics[name] = replace(topic, partitions=partitions)

    def _is_draining(self, broker_id: BrokerId) -> bool:
        return self._by_broker.get(broker_id, {}).get(layout.DRAINING_SETTING, "").strip().lower() == "true"


def _put(known: dict[_K, _V], key: _K, value: _V | None) -> None:
    if value is None:
        known.pop(key, None)
    else:
        known[key] = value


def _settings(key: str, value: bytes | None) -> Mapping[str, str] | None:
    return None if value is None else layout.decode_settings(key, value)


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


_APPLIED: tuple[tuple[str, Callable[[ImageDraft, str, bytes | None], None]], ...] = (
    (layout.TOPICS, ImageDraft.put_topic),
    (layout.DELETED, ImageDraft.put_deleted),
    (layout.BROKERS, ImageDraft.put_broker),
    (layout.BROKER_SETTINGS, ImageDraft.put_broker_settings),
    (layout.GROUP_SETTINGS, ImageDraft.put_group_settings),
    (layout.CLIENT_METRICS, ImageDraft.put_client_metrics),
    (DATA_KEYS, ImageDraft.put_data_keys),
)
"""What is applied at once, by the beginning of the key."""

_LATER = (layout.PARTITIONS, layout.ALIVE, layout_security.PREFIXES, QUOTAS, LINKS, MIRRORS, COPIED)
"""What is applied when all changes are known: liveness after brokers, partitions after topics, the rest together."""
