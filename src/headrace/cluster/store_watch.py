"""The watch on the metadata store: its changes become images, in order, and are delivered to listeners one at a time.

`commit` returns when the change is in the image and every listener has seen it, wherever the change was made.

In a cluster the store may be unavailable for a while. The image then stays as it is, which is safe: every decision from
it is a compare-and-set, and none can be committed. The store is polled until it answers, and the watch resumes after
the last revision delivered; if the store has compacted that revision, a new snapshot is read.
"""

import asyncio
import logging
from base64 import urlsafe_b64encode
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import aclosing, suppress
from dataclasses import replace
from uuid import UUID

from headrace.cluster import layout
from headrace.cluster.image_changes import apply_changes, image_from
from headrace.cluster.store import (
    ABSENT,
    Change,
    Compare,
    MetadataStore,
    Put,
    Revision,
    Snapshot,
    StoreUnavailable,
    WatchLost,
    Write,
)
from headrace.config.broker import BrokerSettings, broker_settings
from headrace.config.topic import TopicSettings, topic_settings
from headrace.model.backoff import ExponentialDelay, RetryDelays
from headrace.model.errors import SettingsError, StartupError, StoreConflict
from headrace.model.features import LATEST_LEVEL
from headrace.model.ids import BrokerId
from headrace.model.image import BrokerInfo, ClusterImage, Endpoint

_RETRY_DELAY_S = ExponentialDelay(0.05, 1.0)
CONFLICT_WAIT_S = 5.0

log = logging.getLogger(__name__)

Listener = Callable[[ClusterImage, ClusterImage], Awaitable[None] | None]
"""Called with the image before and after a change; its awaitable, if any, is awaited before the next change. It must
not wait for a change of its own: that would be delivered after the current one."""


class StoreWatcher:
    """Maintains the image from the store's watch and commits transactions to the store."""

    def __init__(
        self, store: MetadataStore, boot_settings: BrokerSettings, broker: BrokerInfo, *, is_single_node: bool = True
    ) -> None:
        """`is_single_node`: this is the only broker, and it holds no lease."""
        self.broker = broker
        self.is_single_node = is_single_node
        self.boot_settings = boot_settings
        self.settings = boot_settings
        self._store = store
        self._image: ClusterImage | None = None
        self._key_revisions: dict[str, Revision] = {}
        self._shown = ABSENT
        self._listeners: list[Listener] = []
        self._waiters: list[tuple[Revision, asyncio.Future[None]]] = []
        self._commits_in_flight = 0
        self._failures: dict[Revision, Exception] = {}
        """Listeners' failures on changes that were delivered before the store answered their commit."""
        self._task: asyncio.Task[None] | None = None
        self._is_store_down = False
        self._changed = asyncio.Event()
        """Set when the image changes, and then replaced by another."""

    @property
    def is_watching(self) -> bool:
        """True while the watch is running and the store is not known to be unavailable."""
        return self._task is not None and not self._task.done() and not self._is_store_down

    @property
    def image(self) -> ClusterImage:
        if self._image is None:
            raise RuntimeError("the metadata is not open")
        return self._image

    def subscribe(self, listener: Listener) -> None:
        self._listeners.append(listener)

    def announce(self, endpoint: Endpoint, listeners: Mapping[str, Endpoint]) -> None:
        self.broker = replace(self.broker, endpoint=endpoint, listeners=listeners)
        if self.is_single_node:
            self._image = replace(self.image, brokers={**self.image.brokers, self.broker.broker_id: self.broker})

    async def open(self, new_cluster_id: str) -> None:
        """Load the image; an empty store is bootstrapped as a cluster with the given id."""
        await self._bootstrap(new_cluster_id)
        snapshot = await self._store.snapshot()
        self._image = self._image_from(snapshot)
        try:
            self.settings = effective_settings(self._image, self.boot_settings, self.broker.broker_id)
            check_topics(self._image, self.settings.topic_defaults)
        except SettingsError as error:
            raise StartupError(f"the stored settings conflict with those of this broker: {error}") from None
        self._shown = snapshot.revision
        self._task = asyncio.create_task(self._watch(snapshot.revision), name="metadata")

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task

    def unchanged(self, key: str) -> Compare:
        """A comparison that holds while the key is as in the current image."""
        return Compare(key, self._key_revisions.get(key, ABSENT))

    async def commit(self, compares: Sequence[Compare], writes: Sequence[Write]) -> None:
        """Commit one transaction; `StoreConflict` if a comparison does not hold. Re-raises a listener's exception."""
        if self._task is None or self._task.done():
            raise StoreUnavailable("the watch on the metadata store has ended: restart the broker")
        self._commits_in_flight += 1
        try:
            revision = await self._store.commit(compares, writes)
            if revision is None:
                raise StoreConflict("another broker changed the same metadata at the same time: try again")
            if (failure := self._failures.get(revision)) is not None:
                raise failure
        finally:
            self._commits_in_flight -= 1
            if not self._commits_in_flight:
                self._failures.clear()
        if self._shown < revision:
            if self._task.done():
                raise StoreUnavailable("the change was committed, but the watch on the metadata store has ended")
            shown: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiters.append((revision, shown))
            await shown

    def stored_keys(self, keys: Iterable[str]) -> list[str]:
        """The subset of `keys` that exists in the store, as of the current image."""
        return [key for key in keys if key in self._key_revisions]

    async def wait_for_image_after(self, known: ClusterImage) -> None:
        """Wait for a newer image than `known`, at most `CONFLICT_WAIT_S`: after a conflict one arrives soon."""
        if self.image is known:
            with suppress(TimeoutError):
                async with asyncio.timeout(CONFLICT_WAIT_S):
                    await self._changed.wait()

    async def _bootstrap(self, new_cluster_id: str) -> None:
        snapshot = await self._store.snapshot()
        if layout.CLUSTER not in snapshot.items:
            cluster = layout.ClusterIdentity(new_cluster_id, LATEST_LEVEL)
            put = Put(layout.CLUSTER, layout.encode_cluster(cluster))
            await self._store.commit([Compare(layout.CLUSTER, ABSENT)], [put])
        if not self.is_single_node:
            return
        own_id = self.broker.broker_id
        if others := layout.broker_ids(snapshot.items) - {own_id}:
            raise StartupError(
                f"this data belongs to broker {min(others)}, not to broker {own_id}: "
                f"start with broker.id={min(others)}, or with another data.dir"
            )
        key = layout.broker_key(own_id)
        record = layout.encode(layout.BrokerRecord(self.broker.rack))
        have = snapshot.items.get(key)
        if have is None or have.value != record:
            await self._store.commit([Compare(key, ABSENT if have is None else have.mod_revision)], [Put(key, record)])

    def _image_from(self, snapshot: Snapshot) -> ClusterImage:
        self._key_revisions = {key: item.mod_revision for key, item in snapshot.items.items()}
        cluster_id = layout.decode_cluster(snapshot.items[layout.CLUSTER].value).cluster_id
        return image_from(snapshot, cluster_id, self.broker if self.is_single_node else None)

    async def _watch(self, after: Revision) -> None:
        try:
            while True:
                try:
                    async with aclosing(self._store.watch("", after)) as changes_by_transaction:
                        async for changes in changes_by_transaction:
                            if changes[-1].revision < after:
                                raise WatchLost(f"revision {changes[-1].revision} came after {after}")
                            after = changes[-1].revision
                            await self._show(self._apply(changes), after)
                    break
                except WatchLost:
                    after = await self._reload(after)
                except StoreUnavailable as error:
                    if self.is_single_node:
                        raise
                    await self._wait_for_store(error)
            raise StoreUnavailable("the metadata store was closed")
        except Exception as error:
            # A broker with a stale image must not decide anything: `commit` refuses every later change.
            log.critical("the watch on the metadata store has ended: restart the broker", exc_info=error)
            self._release_all(error)

    async def _reload(self, after: Revision) -> Revision:
        """Deliver a new snapshot and return its revision: the changes after the last revision were compacted."""
        while True:
            try:
                snapshot = await self._store.snapshot()
            except StoreUnavailable as error:
                if self.is_single_node:
                    raise
                await self._wait_for_store(error)
                continue
            if snapshot.revision >= after:
                await self._show(self._image_from(snapshot), snapshot.revision)
                return snapshot.revision
            # A stale read: the image never goes back to an older revision.
            await asyncio.sleep(_RETRY_DELAY_S.first)

    async def _wait_for_store(self, error: StoreUnavailable) -> None:
        """Poll until the store answers. A connection that is restored at once is not logged."""
        delays = RetryDelays(_RETRY_DELAY_S)
        while True:
            try:
                revision = (await self._store.snapshot(layout.CLUSTER)).revision
                if revision < self._shown:
                    raise StoreUnavailable(
                        f"it went back from revision {self._shown} to {revision}: if it was restored from a "
                        "backup, restart every broker"
                    )
            except StoreUnavailable as again:
                error = again
            else:
                if self._is_store_down:
                    log.warning("the metadata store answers again")
                self._is_store_down = False
                return
            if not self._is_store_down:
                self._is_store_down = True
                log.warning(
                    "the metadata store does not answer: topics and brokers cannot be changed for now; "
                    "produce and fetch continue: %s",
                    error,
                )
            self._release_all(StoreUnavailable("the change was committed, then the metadata store became unavailable"))
            await asyncio.sleep(delays.next())

    def _apply(self, changes: Sequence[Change]) -> ClusterImage:
        for change in changes:
            if change.value is None:
                self._key_revisions.pop(change.key, None)
            else:
                self._key_revisions[change.key] = change.revision
        return apply_changes(self.image, changes)

    async def _show(self, new: ClusterImage, revision: Revision) -> None:
        old, self._image = self.image, new
        self._changed.set()
        self._changed = asyncio.Event()
        failure: Exception | None = None
        try:
            self.settings = effective_settings(new, self.boot_settings, self.broker.broker_id)
        except SettingsError as error:
            failure = error
        for listener in self._listeners:
            try:
                waiting = listener(old, new)
                if waiting is not None:
                    await waiting
            except Exception as error:
                log.error("a listener failed on metadata revision %d", revision, exc_info=error)
                failure = error
        self._shown = revision
        self._release(revision, failure)

    def _release(self, revision: Revision, failure: Exception | None) -> None:
        """Wake the commits waiting for changes up to `revision`; the one at `revision` gets `failure`."""
        due = [waiter for waiter in self._waiters if waiter[0] <= revision]
        self._waiters = [waiter for waiter in self._waiters if waiter[0] > revision]
        if failure is not None and self._commits_in_flight:
            self._failures[revision] = failure
        for wanted, shown in due:
            if shown.done():
                continue
            if failure is not None and wanted == revision:
                shown.set_exception(failure)
            else:
                shown.set_result(None)

    def _release_all(self, failure: Exception) -> None:
        for _, shown in self._waiters:
            if not shown.done():
                shown.set_exception(failure)
        self._waiters.clear()


def effective_settings(image: ClusterImage, boot_settings: BrokerSettings, broker_id: BrokerId) -> BrokerSettings:
    """The settings in force on a broker: `boot_settings` with the image's dynamic settings on top."""
    changed = {**image.broker_settings, **image.settings_by_broker.get(broker_id, {})}
    return broker_settings(changed, boot_settings) if changed else boot_settings


def check_topics(image: ClusterImage, defaults: TopicSettings) -> None:
    """Raise `SettingsError` if a topic's own settings conflict with these defaults."""
    for topic in image.topics.values():
        if topic.settings:
            try:
                topic_settings(topic.settings, defaults)
            except SettingsError as error:
                raise SettingsError(f"topic {topic.name}: {error}") from None


def uuid_text(value: UUID) -> str:
    """A UUID as Kafka writes it: 22 characters of URL-safe base64."""
    return urlsafe_b64encode(value.bytes).decode().rstrip("=")
