"""Following the store: its changes become images, in order, and are shown to the listeners one at a time.

`commit` returns when the change is in the image and every listener has seen it, wherever the change was made.

In a cluster the store may be away for a while. Then the image stays as it is, which is safe: whatever somebody decides
from it is a comparison in a transaction, and none can be made. The store is asked again until it answers, and the watch
goes on from the revision that was shown last; if the store has forgotten what came next, everything is read anew.
"""

import asyncio
import logging
from base64 import urlsafe_b64encode
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import aclosing, suppress
from dataclasses import replace
from uuid import UUID

from headrace.cluster import layout
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
from headrace.model.errors import SettingsError, StartupError, StoreConflict
from headrace.model.features import LATEST_LEVEL
from headrace.model.ids import BrokerId
from headrace.model.image import BrokerInfo, ClusterImage, Endpoint

RETRY_FIRST_S = 0.05
RETRY_MAX_S = 1.0
CONFLICT_WAIT_S = 5.0

log = logging.getLogger(__name__)

Listener = Callable[[ClusterImage, ClusterImage], Awaitable[None] | None]
"""Called with the image before and after a change; what it returns is awaited before the next change. It must not wait
for a change of its own: that would come after the one it is being shown."""


class StoreWatcher:
    def __init__(
        self, store: MetadataStore, boot_settings: BrokerSettings, broker: BrokerInfo, *, is_alone: bool = True
    ) -> None:
        """`is_alone`: there is no other broker, and no lease says whether this one is alive."""
        self.broker = broker
        self.is_alone = is_alone
        self.boot_settings = boot_settings
        self.settings = boot_settings
        self._store = store
        self._image: ClusterImage | None = None
        self._key_revisions: dict[str, Revision] = {}
        self._shown = ABSENT
        self._listeners: list[Listener] = []
        self._waiters: list[tuple[Revision, asyncio.Future[None]]] = []
        self._commits_under_way = 0
        self._failures: dict[Revision, Exception] = {}
        """Of changes that were shown before the store answered the commit that made them."""
        self._task: asyncio.Task[None] | None = None
        self._is_away = False
        self._changed = asyncio.Event()
        """Set when the image changes, and then replaced by another."""

    @property
    def is_following(self) -> bool:
        """Whether changes of the store come in, as far as is known."""
        return self._task is not None and not self._task.done() and not self._is_away

    @property
    def image(self) -> ClusterImage:
        if self._image is None:
            raise RuntimeError("the metadata is not open")
        return self._image

    def subscribe(self, listener: Listener) -> None:
        self._listeners.append(listener)

    def announce(self, endpoint: Endpoint) -> None:
        self.broker = replace(self.broker, endpoint=endpoint)
        if self.is_alone:
            self._image = replace(self.image, brokers={**self.image.brokers, self.broker.broker_id: self.broker})

    async def open(self, new_cluster_id: str) -> None:
        """Load the image; an empty store becomes a cluster with the given id."""
        await self._join(new_cluster_id)
        snapshot = await self._store.snapshot()
        self._image = self._image_from(snapshot)
        try:
            self.settings = settings_in(self._image, self.boot_settings, self.broker.broker_id)
            check_topics(self._image, self.settings.topic_defaults)
        except SettingsError as error:
            raise StartupError(f"the stored settings do not fit those of this broker: {error}") from None
        self._shown = snapshot.revision
        self._task = asyncio.create_task(self._follow(snapshot.revision), name="metadata")

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task

    def unchanged(self, key: str) -> Compare:
        """Holds while the key is as it is in the current image."""
        return Compare(key, self._key_revisions.get(key, ABSENT))

    async def commit(self, compares: Sequence[Compare], writes: Sequence[Write]) -> None:
        """One transaction; `StoreConflict` if a comparison does not hold. What a listener raises is raised here."""
        if self._task is None or self._task.done():
            raise StoreUnavailable("the metadata store is not followed any more: restart the broker")
        self._commits_under_way += 1
        try:
            revision = await self._store.commit(compares, writes)
            if revision is None:
                raise StoreConflict("another broker changed the same metadata at the same time: try again")
            if (failure := self._failures.get(revision)) is not None:
                raise failure
        finally:
            self._commits_under_way -= 1
            if not self._commits_under_way:
                self._failures.clear()
        if self._shown < revision:
            if self._task.done():
                raise StoreUnavailable("the change was made, but the metadata store is not followed any more")
            shown: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiters.append((revision, shown))
            await shown

    def stored_keys(self, keys: Iterable[str]) -> list[str]:
        """Those of `keys` that the store has, as of the current image."""
        return [key for key in keys if key in self._key_revisions]

    async def wait_for_image_after(self, known: ClusterImage) -> None:
        """Until there is a newer image than this one, or for a while: after a conflict there soon is."""
        if self.image is known:
            with suppress(TimeoutError):
                async with asyncio.timeout(CONFLICT_WAIT_S):
                    await self._changed.wait()

    async def _join(self, new_cluster_id: str) -> None:
        snapshot = await self._store.snapshot()
        if layout.CLUSTER not in snapshot.items:
            cluster = layout.ClusterIdentity(new_cluster_id, LATEST_LEVEL)
            founded = Put(layout.CLUSTER, layout.encode_cluster(cluster))
            await self._store.commit([Compare(layout.CLUSTER, ABSENT)], [founded])
        if not self.is_alone:
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
        return layout.image_from(snapshot, cluster_id, self.broker if self.is_alone else None)

    async def _follow(self, after: Revision) -> None:
        try:
            while True:
                try:
                    async with aclosing(self._store.watch("", after)) as changes_by_transaction:
                        async for changes in changes_by_transaction:
                            if changes[-1].revision < after:
                                raise WatchLost(f"revision {changes[-1].revision} came after {after}")
                            after = changes[-1].revision
                            await self._show(self._applied(changes), after)
                    break
                except WatchLost:
                    after = await self._read_again(after)
                except StoreUnavailable as error:
                    if self.is_alone:
                        raise
                    await self._wait_for_store(error)
            raise StoreUnavailable("the metadata store was closed")
        except Exception as error:
            # Without its metadata a broker must not go on deciding: every later change is refused in `commit`.
            log.critical("the metadata store is not followed any more: restart the broker", exc_info=error)
            self._release_all(error)

    async def _read_again(self, after: Revision) -> Revision:
        """Show what the store has now, and return its revision: history after the last one shown is gone."""
        while True:
            try:
                snapshot = await self._store.snapshot()
            except StoreUnavailable as error:
                if self.is_alone:
                    raise
                await self._wait_for_store(error)
                continue
            if snapshot.revision >= after:
                await self._show(self._image_from(snapshot), snapshot.revision)
                return snapshot.revision
            # A stale read. The image never goes back.
            await asyncio.sleep(RETRY_FIRST_S)

    async def _wait_for_store(self, error: StoreUnavailable) -> None:
        """Until the store answers. A connection that breaks and is there again at once is not worth a line."""
        pause_s = RETRY_FIRST_S
        while True:
            try:
                revision = (await self._store.snapshot(layout.CLUSTER)).revision
                if revision < self._shown:
                    raise StoreUnavailable(
                        f"it is at revision {revision} and was at {self._shown} before: if it was restored from a "
                        "backup, restart every broker"
                    )
            except StoreUnavailable as again:
                error = again
            else:
                if self._is_away:
                    log.warning("the metadata store answers again")
                self._is_away = False
                return
            if not self._is_away:
                self._is_away = True
                log.warning(
                    "the metadata store does not answer, so nothing about topics and brokers can change for now; "
                    "messages are served on: %s",
                    error,
                )
            self._release_all(StoreUnavailable("the change was made, but the metadata store went away after it"))
            await asyncio.sleep(pause_s)
            pause_s = min(pause_s * 2, RETRY_MAX_S)

    def _applied(self, changes: Sequence[Change]) -> ClusterImage:
        for change in changes:
            if change.value is None:
                self._key_revisions.pop(change.key, None)
            else:
                self._key_revisions[change.key] = change.revision
        return layout.apply_changes(self.image, changes)

    async def _show(self, new: ClusterImage, revision: Revision) -> None:
        old, self._image = self.image, new
        self._changed.set()
        self._changed = asyncio.Event()
        failure: Exception | None = None
        try:
            self.settings = settings_in(new, self.boot_settings, self.broker.broker_id)
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
        """Wake those who wait for changes up to `revision`; whoever made this very change gets its failure."""
        due = [waiter for waiter in self._waiters if waiter[0] <= revision]
        self._waiters = [waiter for waiter in self._waiters if waiter[0] > revision]
        if failure is not None and self._commits_under_way:
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


def settings_in(image: ClusterImage, boot_settings: BrokerSettings, broker_id: BrokerId) -> BrokerSettings:
    """The settings of a broker started with `boot_settings` after what was changed on the running cluster."""
    changed = {**image.broker_settings, **image.settings_by_broker.get(broker_id, {})}
    return broker_settings(changed, boot_settings) if changed else boot_settings


def check_topics(image: ClusterImage, defaults: TopicSettings) -> None:
    """`SettingsError` unless every topic with settings of its own makes sense with these defaults."""
    for topic in image.topics.values():
        if topic.settings:
            try:
                topic_settings(topic.settings, defaults)
            except SettingsError as error:
                raise SettingsError(f"topic {topic.name}: {error}") from None


def uuid_text(value: UUID) -> str:
    """A UUID as Kafka writes it: 22 characters of URL-safe base64."""
    return urlsafe_b64encode(value.bytes).decode().rstrip("=")
