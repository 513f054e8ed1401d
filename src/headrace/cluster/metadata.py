"""The cluster's metadata: one immutable image for all readers, and the only way to change it.

A change is one compare-and-set transaction of the store. It comes back through the store's watch, makes a new image and
is delivered to the listeners, in order and one at a time; only then does the call that requested it return. So a new
topic can be used at once on this broker; every other broker runs the same code.

Two brokers may change the same key concurrently. Then one of the transactions fails, and its change is decided again
from the image that includes the other's.

Deletion survives a crash: the transaction that removes a topic leaves a record in `image.deleted`. Each broker that has
folders of the topic removes them (while running, or at the next start) and then calls `forget_deleted`.

Limits: one transaction changes at most `PARTITIONS_PER_COMMIT` partitions, for etcd allows 128 comparisons.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import TypeVar
from uuid import UUID, uuid4

from headrace.cluster import layout, topics
from headrace.cluster.data_keys import AT_REST, DataKeyMaker, KeyChange
from headrace.cluster.layout_keys import data_keys_key
from headrace.cluster.layout_links import mirror_key
from headrace.cluster.queue_placement import place_with_state
from headrace.cluster.setting_changes import UnusedSettings, to_store
from headrace.cluster.store import Compare, DeleteKey, MetadataStore, Put, StoreUnavailable, Write
from headrace.cluster.store_watch import Listener, StoreWatcher, check_topics, effective_settings, uuid_text
from headrace.config.broker import BROKER_SETTINGS, BrokerSettings, broker_settings
from headrace.config.group import GROUP_SETTINGS, GroupSettings, check_group_settings, group_settings
from headrace.config.topic import TOPIC_SETTINGS, TopicSettings, topic_settings
from headrace.model.errors import (
    HeadraceError,
    InvalidPartitions,
    InvalidReplicaAssignment,
    InvalidSettings,
    StoreConflict,
    TopicExists,
    UnknownTopic,
)
from headrace.model.ids import BrokerId, TopicId, TopicName
from headrace.model.image import BrokerInfo, ClusterImage, DeletedTopic, Endpoint, PartitionState, TopicImage

PARTITIONS_PER_COMMIT = 50
_MIN_INSYNC = "min.insync.replicas"
_ATTEMPTS = 20

_T = TypeVar("_T")

TopicExtras = Callable[[TopicImage], tuple[Sequence[str], Sequence[Put]]]
"""Maps a topic that is about to be created to keys that must be as in the image, and what is written with it."""
SettingsEdit = Callable[[Mapping[str, str]], Mapping[str, str]]
"""Maps the current overrides to the new ones. Must be pure: it runs again after a conflict."""


class Metadata:
    """One broker's view of the cluster metadata, and the operations that change it.

    `new_uuid` generates topic and cluster ids; tests may pass their own.
    """

    def __init__(
        self,
        store: MetadataStore,
        settings: BrokerSettings,
        endpoint: Endpoint,
        *,
        is_single_node: bool = True,
        new_uuid: Callable[[], UUID] = uuid4,
        data_keys: DataKeyMaker | None = None,
    ) -> None:
        """`is_single_node`: this broker is the only one, with a store of its own. `data_keys` makes the keys of
        encrypted topics; without it none can be made here."""
        broker = BrokerInfo(BrokerId(settings.broker_id), endpoint, settings.broker_rack or None)
        self._watcher = StoreWatcher(store, settings, broker, is_single_node=is_single_node)
        self._new_uuid = new_uuid
        self._data_keys = data_keys or DataKeyMaker(None, lambda: 0)
        self._changing = asyncio.Lock()
        self._usual: tuple[TopicSettings, TopicSettings] | None = None
        """Cache: the defaults, and the same with the `min.insync.replicas` of a replicated topic."""
        self._unused = UnusedSettings()
        self.before_queue: Callable[[], Awaitable[None]] | None = None
        """Creates what must exist before a queue is placed: the topic of the state of queues."""

    @property
    def image(self) -> ClusterImage:
        """The current image. It is immutable: keep a reference to see one consistent state."""
        return self._watcher.image

    @property
    def broker_id(self) -> BrokerId:
        """The id of this broker."""
        return self._watcher.broker.broker_id

    @property
    def settings(self) -> BrokerSettings:
        """The settings of this broker in force now."""
        return self._watcher.settings

    @property
    def boot_settings(self) -> BrokerSettings:
        """The settings this broker was started with."""
        return self._watcher.boot_settings

    @property
    def is_single_node(self) -> bool:
        """True if this broker is the only one, with a store of its own."""
        return self._watcher.is_single_node

    @property
    def is_watching(self) -> bool:
        """True while the store's changes arrive, as far as is known. If not, the image is stale, never wrong."""
        return self._watcher.is_watching

    def topic_settings(self, topic: TopicImage) -> TopicSettings:
        """The settings in force now for a topic.

        In a cluster, `min.insync.replicas` defaults to 2 for a topic with three or more replicas of each partition: an
        acknowledged record survives the loss of any one broker.
        """
        defaults = self.settings.topic_defaults
        settings = topic_settings(topic.settings, defaults) if topic.settings else defaults
        if self.is_single_node or _MIN_INSYNC in topic.settings or _MIN_INSYNC in self.settings.given:
            return settings
        # Partitions may be reassigned to more replicas one by one: none must wait for replicas that it does not have.
        fewest = min(len(each.replicas) - len(each.removing) for each in topic.partitions)
        wanted = max(1, min(2, fewest - 1))
        if settings.min_insync_replicas == wanted:
            return settings
        if settings is not defaults:
            return replace(settings, min_insync_replicas=wanted)
        if self._usual is None or self._usual[0] is not defaults or self._usual[1].min_insync_replicas != wanted:
            self._usual = (defaults, replace(defaults, min_insync_replicas=wanted))
        return self._usual[1]

    def group_settings(self, group_id: str) -> GroupSettings:
        """The settings in force now for a group."""
        return group_settings(self.image.settings_by_group.get(group_id, {}), self.settings)

    def subscribe(self, listener: Listener) -> None:
        """Deliver every later change to `listener`, in order. If it raises, the call that made the change does, too."""
        self._watcher.subscribe(listener)

    async def open(self, new_cluster_id: str | None = None) -> None:
        """Load the image; an empty store is bootstrapped as a new cluster, with this id if given.

        `StartupError` if the store's records or settings do not match this broker.
        """
        await self._watcher.open(new_cluster_id or uuid_text(self._random_id()))
        given = {
            name: BROKER_SETTINGS[name].render(self.boot_settings.value(name)) for name in self.boot_settings.given
        }
        self._unused.note(BROKER_SETTINGS, given, "this broker")

    async def close(self) -> None:
        """Stop the watch. The store itself is closed by its owner."""
        await self._watcher.close()

    def announce(self, endpoint: Endpoint, listeners: Mapping[str, Endpoint] | None = None) -> None:
        """Set this broker's endpoint and the addresses of its listeners in the image, once the ports are bound."""
        self._watcher.announce(endpoint, listeners or {})

    def unchanged(self, key: str) -> Compare:
        """A comparison that holds while this key of the store is as in the current image."""
        return self._watcher.unchanged(key)

    async def wait_for_image_after(self, known: ClusterImage) -> None:
        """Wait for a newer image than `known`, for a bounded time: after a conflict one arrives soon."""
        await self._watcher.wait_for_image_after(known)

    async def commit(self, compares: Sequence[Compare], writes: Sequence[Write]) -> None:
        """Commit one transaction; returns when every listener has seen it.

        `StoreConflict` if a comparison does not hold. After `StoreUnavailable` the outcome is unknown until a later
        image shows it.
        """
        await self._watcher.commit(compares, writes)

    async def change_partitions(
        self,
        changes: Mapping[tuple[TopicId, int], PartitionState],
        fence: Compare | None = None,
        others: Sequence[Compare] = (),
    ) -> None:
        """Replace partition states; each new state has the next partition epoch.

        `StoreConflict` if a topic or partition has changed since the new state was decided, or if `fence` or one of
        `others` does not hold. More than `PARTITIONS_PER_COMMIT` changes are several transactions, each of which
        succeeds or fails on its own.
        """
        fences = [*([fence] if fence is not None else []), *others]
        batches = _batches(list(changes.items()), PARTITIONS_PER_COMMIT)
        transactions = [self._partition_change(batch, fences) for batch in batches]
        outcomes = await asyncio.gather(*(self.commit(*each) for each in transactions), return_exceptions=True)
        for outcome in outcomes:
            if isinstance(outcome, BaseException):
                raise outcome

    def _partition_change(
        self, batch: Sequence[tuple[tuple[TopicId, int], PartitionState]], fences: Sequence[Compare]
    ) -> tuple[list[Compare], list[Write]]:
        compares = dict.fromkeys(fences)
        writes: list[Write] = []
        for (topic_id, index), state in batch:
            topic = self.image.topic_by_id(topic_id)
            if topic is None or index >= len(topic.partitions):
                raise StoreConflict("the topic was deleted in the meantime")
            if state.partition_epoch != topic.partitions[index].partition_epoch + 1:
                raise StoreConflict(f"the state of {topic.name}-{index} has changed in the meantime")
            key, topic_key = layout.partition_key(topic_id, index), layout.topic_key(topic.name)
            compares.update(dict.fromkeys((self.unchanged(topic_key), self.unchanged(key))))
            writes.append(Put(key, layout.encode_partition(state)))
        return list(compares), writes

    async def create_topic(
        self,
        name: str,
        *,
        partitions: int | None = None,
        replication_factor: int | None = None,
        assignment: Mapping[int, Sequence[int]] | None = None,
        settings: Mapping[str, str] | None = None,
        validate_only: bool = False,
        more: TopicExtras | None = None,
        has_queue: bool = False,
    ) -> TopicImage:
        """Create a topic and return it when every listener has seen it. None means this broker's default.

        `more` is written in the same transaction. A topic that is a queue, or will be one (`has_queue`), is placed with
        its state.
        """
        topic_name = topics.check_name(name)
        has_queue = not self.is_single_node and (has_queue or topics.is_queue(settings or {}))
        if has_queue and not validate_only and self.before_queue is not None:
            with suppress(HeadraceError):  # Without it the queue is placed as any other topic.
                await self.before_queue()

        async def attempt() -> TopicImage:
            image = self.image
            if topic_name in image.topics:
                raise TopicExists(f"the topic {name} exists already")
            topics.check_collision(topic_name, image.topics)
            placed = self._place_topic(topic_name, partitions, replication_factor, assignment)
            overrides = self._topic_settings_to_store(settings or {})
            topics.check_queue(overrides, len(placed))
            topics.check_bound(name, overrides)
            topic_id = TopicId(self._random_id())
            if has_queue and len(placed) == 1:
                topic_id, replicas = place_with_state(
                    image, placed[0], lambda: TopicId(self._random_id()), is_fixed=assignment is not None
                )
                placed = [replicas]
            topic = TopicImage(topic_name, topic_id, topics.new_partitions(image, placed), overrides)
            keys = self._key_change(topic, is_requested=True)
            extras = ((), ()) if more is None else more(topic)
            if not validate_only:
                await self._put_topic(topic, keys, *extras)
                self._unused.note(TOPIC_SETTINGS, overrides, f"the topic {name}")
            return topic

        return await self.decide(attempt)

    async def delete_topic(self, name: str) -> None:
        """Remove a topic. Its record stays in `image.deleted` until `forget_deleted`."""

        async def attempt() -> None:
            topic = self._topic(name)
            holders = {broker for state in topic.partitions for broker in state.replicas}
            left = () if self._watcher.is_single_node else tuple(sorted(holders))
            record = DeletedTopic(topic.name, topic.topic_id, len(topic.partitions), left)
            tombstone = Put(layout.deleted_key(topic.topic_id), layout.encode_deleted(record))
            key = layout.topic_key(topic.name)
            parts = [DeleteKey(data_keys_key(topic.topic_id)), DeleteKey(mirror_key(topic.topic_id))]
            await self.commit([self.unchanged(key)], [DeleteKey(key), *parts, tombstone])

        await self.decide(attempt)

    async def forget_deleted(self, topic_id: UUID) -> None:
        """Record that this broker has removed its folders of a deleted topic; the last broker removes the record.

        Idempotent.
        """

        async def attempt() -> None:
            gone = self.image.deleted.get(topic_id)
            if gone is None:
                return
            key = layout.deleted_key(topic_id)
            left = tuple(broker for broker in gone.brokers if broker != self.broker_id)
            if left:
                last: Write = Put(key, layout.encode_deleted(replace(gone, brokers=left)))
            else:
                await self._delete_partitions(gone)
                last = DeleteKey(key)
            await self.commit([self.unchanged(key)], [last])

        await self.decide(attempt)

    async def _delete_partitions(self, gone: DeletedTopic) -> None:
        """Remove the partition states of a deleted topic, before the /deleted record that makes them garbage."""
        every = (layout.partition_key(gone.topic_id, index) for index in range(gone.partition_count))
        for batch in _batches(self._watcher.stored_keys(every), PARTITIONS_PER_COMMIT):
            await self.commit([self.unchanged(layout.deleted_key(gone.topic_id))], [DeleteKey(key) for key in batch])

    async def add_partitions(
        self, name: str, total: int, assignment: Sequence[Sequence[int]] | None = None, *, validate_only: bool = False
    ) -> TopicImage:
        """Raise the number of partitions to `total`; `assignment` lists the replicas of the new ones."""

        async def attempt() -> TopicImage:
            image, topic = self.image, self._topic(name)
            have = len(topic.partitions)
            if total <= have:
                more = "already" if total == have else "and cannot lose any"
                raise InvalidPartitions(f"the topic {name} has {have} partitions {more}: {total} is not an increase")
            topics.check_count(total, self.settings)
            topics.check_queue(topic.settings, total)
            replication_factor = len(topic.partitions[0].replicas)
            if assignment is None:
                placed = topics.place(image, topic.name, total - have, replication_factor)
            else:
                placed = assignment
                if len(placed) != total - have:
                    raise InvalidReplicaAssignment(
                        f"{total - have} partitions are to be added, the assignment has {len(placed)}"
                    )
                topics.check_assignment(image, placed, replication_factor=replication_factor)
            topics.check_load(image, placed, self.settings)
            mirror = image.mirrors.get(topic.topic_id)
            # Those of a promoted topic begin in an epoch of local writes: in a lower one they would be read-only.
            epoch = 0 if mirror is None else max(0, mirror.promoted_epoch)
            grown = replace(topic, partitions=topic.partitions + topics.new_partitions(image, placed, epoch))
            if not validate_only:
                # A promotion at the same time would not raise their epochs.
                await self._put_topic(grown, unchanged=() if mirror is None else (mirror_key(topic.topic_id),))
            return grown

        return await self.decide(attempt)

    async def alter_topic_settings(self, name: str, edit: SettingsEdit, *, validate_only: bool = False) -> None:
        """Change a topic's settings. `InvalidSettings` names the invalid one and the reason."""

        async def attempt() -> None:
            topic = self._topic(name)
            overrides = self._topic_settings_to_store(edit(topic.settings))
            topics.check_queue(overrides, len(topic.partitions))
            topics.check_bound(name, overrides)
            changed = replace(topic, settings=overrides)
            is_requested = overrides.get(AT_REST) != topic.settings.get(AT_REST)
            keys = self._key_change(changed, is_requested=is_requested)
            if overrides != topic.settings and not validate_only:
                await self._put_topic(changed, keys)
                self._unused.note(TOPIC_SETTINGS, overrides, f"the topic {name}")

        await self.decide(attempt)

    async def alter_broker_settings(
        self, broker_id: int | None, edit: SettingsEdit, *, validate_only: bool = False
    ) -> None:
        """Change the dynamic settings of a broker, or with None of all brokers."""

        async def attempt() -> None:
            image = self.image
            before = (
                image.broker_settings if broker_id is None else image.settings_by_broker.get(BrokerId(broker_id), {})
            )
            overrides = to_store(
                BROKER_SETTINGS,
                edit(before),
                image.feature_level,
                lambda row: self.boot_settings.value(row.name),
                lambda wanted: self._check_broker_settings(broker_id, wanted),
            )
            if overrides == before or validate_only:
                return
            await self._put_settings(layout.broker_settings_key(broker_id), overrides)
            self._unused.note(BROKER_SETTINGS, overrides, "brokers" if broker_id is None else f"broker {broker_id}")

        await self.decide(attempt)

    async def alter_group_settings(self, group_id: str, edit: SettingsEdit, *, validate_only: bool = False) -> None:
        """Change a group's settings; the group need not exist yet."""

        async def attempt() -> None:
            before = self.image.settings_by_group.get(group_id, {})
            overrides = to_store(
                GROUP_SETTINGS,
                edit(before),
                self.image.feature_level,
                lambda row: row.default,
                lambda wanted: check_group_settings(wanted, self.settings),
            )
            if overrides != before and not validate_only:
                await self._put_settings(layout.group_settings_key(group_id), overrides)
                self._unused.note(GROUP_SETTINGS, overrides, f"the group {group_id}")

        await self.decide(attempt)

    async def decide(self, attempt: Callable[[], Awaitable[_T]]) -> _T:
        """Run `attempt` under the change lock; after a conflict, run it again on the next image."""
        async with self._changing:
            if not self.is_watching:
                # Fail fast: otherwise each caller would wait for a timeout, one after the other.
                raise StoreUnavailable("the metadata store does not answer: try again later")
            for _ in range(_ATTEMPTS - 1):
                image = self.image
                try:
                    return await attempt()
                except StoreConflict:
                    await self._watcher.wait_for_image_after(image)
            return await attempt()

    async def _put_settings(self, key: str, overrides: Mapping[str, str]) -> None:
        write: Write = Put(key, layout.encode(overrides)) if overrides else DeleteKey(key)
        await self.commit([self.unchanged(key)], [write])

    def _topic_settings_to_store(self, wanted: Mapping[str, str]) -> dict[str, str]:
        defaults = self.settings.topic_defaults
        return to_store(
            TOPIC_SETTINGS,
            wanted,
            self.image.feature_level,
            defaults.value,
            lambda texts: topic_settings(texts, defaults),
        )

    def _check_broker_settings(self, broker_id: int | None, overrides: Mapping[str, str]) -> None:
        image = self.image
        for name in overrides:
            row = BROKER_SETTINGS.get(name)
            if row is not None and not row.dynamic:
                advice = "set it in the config and restart" if row.has_effect else row.doc
                raise InvalidSettings(f"{name} cannot be changed on a running broker: {advice}")
        if broker_id is None:
            changed = replace(image, broker_settings=overrides)
        else:
            changed = replace(image, settings_by_broker={**image.settings_by_broker, BrokerId(broker_id): overrides})
        broker_settings(overrides)
        defaults = effective_settings(changed, self.boot_settings, self.broker_id).topic_defaults
        check_topics(image, defaults)

    def _place_topic(
        self,
        name: TopicName,
        partitions: int | None,
        replication_factor: int | None,
        assignment: Mapping[int, Sequence[int]] | None,
    ) -> topics.Assignment:
        image, settings = self.image, self.settings
        if assignment is not None:
            topics.check_count(len(assignment), settings)
            placed = topics.manual_assignment(assignment)
            topics.check_assignment(image, placed)
        else:
            count = settings.num_partitions if partitions is None else partitions
            topics.check_count(count, settings)
            default = topics.default_replication_factor(image, settings)
            placed = topics.place(image, name, count, default if replication_factor is None else replication_factor)
        topics.check_load(image, placed, settings)
        return placed

    def _topic(self, name: str) -> TopicImage:
        topic = self.image.topics.get(TopicName(name))
        if topic is None:
            raise UnknownTopic(f"the topic {name} does not exist")
        return topic

    def _random_id(self) -> UUID:
        """A random id whose text does not start with '-', which command lines would parse as an option."""
        while uuid_text(candidate := self._new_uuid()).startswith("-"):
            pass
        return candidate

    def _key_change(self, topic: TopicImage, *, is_requested: bool) -> KeyChange | None:
        value = self.topic_settings(topic).encryption_at_rest
        return self._data_keys.for_setting(self.image, topic, value, is_requested=is_requested)

    async def _put_topic(
        self,
        topic: TopicImage,
        keys: KeyChange | None = None,
        unchanged: Sequence[str] = (),
        more: Sequence[Put] = (),
    ) -> None:
        """Store a topic, in one transaction with its data keys. A topic that is not in the image must not exist."""
        key = layout.topic_key(topic.name)
        compares, writes = [self.unchanged(each) for each in (key, *unchanged)], [Put(key, layout.encode_topic(topic))]
        writes += more
        if keys is not None:
            compares.append(self.unchanged(keys.key))
            writes.append(keys.write)
        await self.commit(compares, writes)


def _batches(items: Sequence[_T], size: int) -> Iterator[Sequence[_T]]:
    for first in range(0, len(items), size):
        yield items[first : first + size]
