"""The partitions hosted on this broker, reconciled with the cluster image: logs are opened, created, reconfigured and
removed, and partitions become leader or follower.

Creation: the topic is in the store before its folders exist; missing folders after a crash are created at the next
start, and creation is retried while the disk is full. Deletion: the topic's record is replaced by a /deleted record;
folders are removed first, then that record. A replica removed by a reassignment is deleted when the image no longer
lists it. A folder without a topic and without a /deleted record is never touched.

Roles: until the controller has admitted this broker (its state is no longer *starting*, under the epoch of its current
lease) it neither leads nor follows. Images follow one order of revisions, so a broker that sees itself admitted has
seen every change that the controller made before.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterable, Mapping
from concurrent.futures import Executor
from dataclasses import replace
from typing import Any, NamedTuple, Protocol, TypeVar
from uuid import UUID

from headrace.app.topic_ciphers import TopicCiphers
from headrace.cluster.metadata import Metadata
from headrace.config.topic import TopicSettings
from headrace.model.errors import HeadraceError, NotLeader, StartupError, StoreConflict, UnknownTopic
from headrace.model.ids import NO_LEADER, BrokerId, LeaderEpoch, PartitionIndex, TopicPartition
from headrace.model.image import BrokerState, ClusterImage, DeletedTopic, PartitionState, TopicImage
from headrace.replication.partition import Partition
from headrace.replication.partitions import PartitionTable
from headrace.replication.readable import Role
from headrace.runtime.clock import Clock
from headrace.storage.files import storage_error
from headrace.storage.flusher import Flusher
from headrace.storage.log import Log
from headrace.storage.manager import LogManager, WantedPartition

T = TypeVar("T")

_log = logging.getLogger(__name__)

_HOSTING_RETRY_S = 1.0
_CONFLICT_RETRY_S = 0.1


class LeaderFollowing(Protocol):
    """The part of `Fetchers` used here."""

    def follow(self, partition: Partition, leader_id: BrokerId, *, is_throttled: bool = False) -> None: ...

    def forget(self, partition: Partition) -> None: ...


class ClusterRuntime(NamedTuple):
    """The parts that a broker has only in a cluster."""

    epoch: Callable[[], int]
    """The broker epoch of the current lease."""
    fetchers: LeaderFollowing
    on_joinable: Callable[[Partition], None]
    clock: Clock


class HostedPartitions:
    """Hosts this broker's partitions as the image changes."""

    def __init__(
        self,
        metadata: Metadata,
        logs: LogManager,
        partitions: PartitionTable,
        flusher: Flusher,
        workers: Executor,
        *,
        cluster: ClusterRuntime | None = None,
        ciphers: TopicCiphers | None = None,
    ) -> None:
        """`cluster` is None on a single node, which leads everything. Without `ciphers` there is no master key."""
        self._metadata = metadata
        self._logs = logs
        self._partitions = partitions
        self._flusher = flusher
        self._workers = workers
        self._cluster = cluster
        self._ciphers = ciphers or TopicCiphers(None)
        self._own_id = metadata.broker_id
        self._is_serving = False
        self._is_finished = False
        self._tasks: set[asyncio.Task[None]] = set()
        self._changing = asyncio.Lock()
        """Held while partitions are added or removed."""
        self._retry_task: asyncio.Task[None] | None = None

    async def open_all(self) -> None:
        """Open the logs of all partitions of this broker, in parallel, and finish interrupted deletions."""
        image = self._metadata.image
        for gone in tuple(image.deleted.values()):
            if self._has_folders_of(gone) and await self._delete_folders(gone):
                await self._metadata.forget_deleted(gone.topic_id)
        mine = [
            (topic, index)
            for topic in image.topics.values()
            for index, state in enumerate(topic.partitions)
            if self._is_mine(state)
        ]
        settings = {topic.name: self._metadata.topic_settings(topic) for topic in image.topics.values()}
        wanted = {_name(topic, index): self._wanted(topic, index, settings[topic.name]) for topic, index in mine}
        failed = await self._in_worker(self._logs.open_logs, wanted)
        for partition, error in failed.items():
            raise StartupError(f"{partition} cannot be opened: {error}")
        for topic, index in mine:
            log = self._logs.get(_name(topic, index))
            assert log is not None
            self._host(topic, index, log)
        await self._remove_stray_replicas(image)

    async def image_changed(self, old: ClusterImage, new: ClusterImage) -> None:
        """The listener on `Metadata`: the call that made the change returns after this.

        Raises if a partition cannot be hosted; hosting it is retried in the background.
        """
        async with self._changing:
            if self._is_finished:
                return
            changed = [
                topic
                for name, topic in new.topics.items()
                if old.topics.get(name) is not topic
                or old.data_keys.get(topic.topic_id) is not new.data_keys.get(topic.topic_id)
                or old.mirrors.get(topic.topic_id) is not new.mirrors.get(topic.topic_id)
            ]
            # First: a partition that leads now encrypts its first batch already.
            self._set_ciphers(new, changed)
            self._update_roles(new, changed)
            self._set_mirrors(new, changed)
            for name, topic in old.topics.items():
                now = new.topics.get(name)
                if now is None or now.topic_id != topic.topic_id:
                    self._drop(topic)
            for topic_id, gone in new.deleted.items():
                if topic_id not in old.deleted and self._has_folders_of(gone) and await self._delete_folders(gone):
                    # This is a change of its own, which cannot be delivered before the current one.
                    self._in_background(self._forget(topic_id))
            await self._remove_replicas(changed)
            failure = await self._add_partitions_of(changed)
            are_defaults_new = old.broker_settings != new.broker_settings or old.settings_by_broker.get(
                self._own_id
            ) != new.settings_by_broker.get(self._own_id)
            self._reconfigure(new.topics.values() if are_defaults_new else changed)
        if failure is not None:
            if self._retry_task is None or self._retry_task.done():
                self._retry_task = asyncio.get_running_loop().create_task(self._retry_hosting())
            raise failure

    def refresh_roles(self) -> None:
        """Update the role of every partition after a change of this broker's registration."""
        self._in_background(self._refresh_roles())

    async def finish(self) -> None:
        """Wait for the current change and for background work; then ignore changes and stop retries.

        The logs are closed next, and their folders may belong to another process after that.
        """
        if self._retry_task is not None:
            self._retry_task.cancel()
        async with self._changing:
            self._is_finished = True
        await asyncio.gather(*self._tasks, return_exceptions=True)

    # Roles

    def _update_roles(self, image: ClusterImage, changed: Iterable[TopicImage]) -> None:
        cluster = self._cluster
        if cluster is None:
            self._update_epochs(changed)
            return
        me = image.brokers.get(self._own_id)
        serves = me is not None and me.is_alive and me.epoch == cluster.epoch() and me.state is not BrokerState.STARTING
        if serves != self._is_serving:
            self._is_serving = serves
            changed = image.topics.values()
        for topic in changed:
            for partition in self._partitions.of_topic(topic.name):
                if partition.topic_id == topic.topic_id and partition.index < len(topic.partitions):
                    self._update_role(partition, topic.partitions[partition.index])

    def _update_role(self, partition: Partition, state: PartitionState) -> None:
        cluster, partitions = self._cluster, self._partitions
        assert cluster is not None
        if not self._is_serving:
            cluster.fetchers.forget(partition)
            partitions.idle(partition)
        elif state.leader == self._own_id:
            cluster.fetchers.forget(partition)
            self._clear_damage_mark(partition)
            partitions.lead(partition, state, cluster.clock.monotonic_ms())
        elif state.leader == NO_LEADER or not self._is_mine(state):
            cluster.fetchers.forget(partition)
            partitions.idle(partition, state)
        else:
            partitions.follow(partition, state)
            self._drop_damaged(partition)
            is_throttled = self._own_id in state.adding and self._own_id not in state.isr
            cluster.fetchers.follow(partition, state.leader, is_throttled=is_throttled)

    def _update_epochs(self, changed: Iterable[TopicImage]) -> None:
        """Apply new leader epochs on a single node. It leads everything: only links raise them."""
        for topic in changed:
            for partition in self._partitions.of_topic(topic.name):
                if partition.topic_id == topic.topic_id and partition.index < len(topic.partitions):
                    state = topic.partitions[partition.index]
                    if state.leader_epoch > partition.leader_epoch:
                        self._partitions.lead(partition, state, 0)

    def _set_mirrors(self, image: ClusterImage, changed: Iterable[TopicImage]) -> None:
        """Apply mirror records, after the roles: a promoted partition is completed in its new leader epoch."""
        for topic in changed:
            for partition in self._partitions.of_topic(topic.name):
                if partition.topic_id == topic.topic_id:
                    partition.set_mirror(image.mirrors.get(topic.topic_id))

    async def _refresh_roles(self) -> None:
        async with self._changing:
            self._update_roles(self._metadata.image, ())

    # Damage

    async def withdraw(self) -> None:
        """Leave the ISR of every partition whose log is damaged here, if it has another member.

        Before this broker registers: it must neither be elected with a hole in its log, nor count as in sync. As a
        follower it then fetches the lost records again.
        """
        for partition in tuple(self._partitions.all()):
            if partition.log.damaged_from is not None:
                await self._withdraw_from(partition)

    async def _withdraw_from(self, partition: Partition) -> None:
        while True:
            topic = self._metadata.image.topics.get(partition.topic)
            if topic is None or topic.topic_id != partition.topic_id:
                return
            state = topic.partitions[partition.index]
            others = tuple(broker for broker in state.isr if broker != self._own_id)
            if others == state.isr:
                return
            if not others:
                _log.error("%s is damaged from offset %s on, and no other in-sync replica has the data", partition,
                           partition.log.damaged_from)  # fmt: skip
                return
            leads = state.leader == self._own_id
            changed = replace(
                state,
                isr=others,
                leader=NO_LEADER if leads else state.leader,
                leader_epoch=LeaderEpoch(state.leader_epoch + leads),
                partition_epoch=state.partition_epoch + 1,
            )
            try:
                await self._metadata.change_partitions({(partition.topic_id, partition.index): changed})
            except StoreConflict:
                await asyncio.sleep(_CONFLICT_RETRY_S)

    def _drop_damaged(self, partition: Partition) -> None:
        if partition.log.damaged_from is not None:
            try:
                partition.copier.drop_damaged()
            except HeadraceError as error:
                _log.error("%s stays damaged: %s", partition, error)

    def _clear_damage_mark(self, partition: Partition) -> None:
        """Clear the damage mark of a leader whose log ends where the damage begins: no data is damaged."""
        if partition.log.damaged_from is not None:
            try:
                partition.log.clear_damage_if_truncated()
            except HeadraceError as error:
                _log.error("%s stays marked as damaged: %s", partition, error)

    def _on_damage(self, partition: Partition, offset: int) -> None:
        known = partition.log.damaged_from
        if known is None or offset < known:
            _log.error("%s is damaged at offset %d: another replica takes over", partition, offset)
            self._in_background(self._withdraw_damaged(partition, offset))

    async def _withdraw_damaged(self, partition: Partition, offset: int) -> None:
        """Leave the ISR, so that another replica leads, and fetch the damaged records from it."""
        try:
            await self._in_worker(partition.log.note_damage, offset)
            await self._withdraw_from(partition)
            if partition.role is Role.FOLLOWER and partition.state is not None:
                # It was not in the ISR, so no image change will update its role.
                self._update_role(partition, partition.state)
        except HeadraceError as error:
            _log.error("leadership of %s cannot be transferred for now: %s", partition, error)

    # Adding

    async def _retry_hosting(self) -> None:
        """Retry hosting partitions of the image, until all are hosted."""
        while True:
            await asyncio.sleep(_HOSTING_RETRY_S)
            async with self._changing:
                if await self._add_partitions_of(tuple(self._metadata.image.topics.values())) is None:
                    return

    async def _add_partitions_of(self, topics: Iterable[TopicImage]) -> HeadraceError | None:
        """Host the partitions of these topics; returns an error if one of them failed."""
        failure: HeadraceError | None = None
        for topic in topics:
            for name, error in (await self._add_partitions(topic)).items():
                if isinstance(error, HeadraceError):
                    failure = error
                elif isinstance(error, OSError):
                    failure = storage_error(error, f"creating the log of {name}")
        return failure

    async def _add_partitions(self, topic: TopicImage) -> Mapping[TopicPartition, Exception]:
        hosted = {partition.index for partition in self._partitions.of_topic(topic.name)}
        missing = [i for i, state in enumerate(topic.partitions) if i not in hosted and self._is_mine(state)]
        if not missing:
            return {}
        settings = self._metadata.topic_settings(topic)
        wanted = {_name(topic, index): self._wanted(topic, index, settings) for index in missing}
        failed = await self._in_worker(self._logs.create_logs, wanted)
        for index in missing:
            log = self._logs.get(_name(topic, index))
            if log is not None:
                self._host(topic, index, log)
        return failed

    def _host(self, topic: TopicImage, index: int, log: Log) -> None:
        state = topic.partitions[index]
        self._ciphers.apply(self._metadata.image, topic, log.settings, index, log)
        partition = Partition(
            topic.name,
            PartitionIndex(index),
            topic.topic_id,
            log,
            state.leader_epoch,
            appended=self._flusher.appended,
            broker_id=self._own_id,
            high_watermark=None if self._cluster is None else self._logs.high_watermark_of(_name(topic, index)),
        )
        # First: a mirror is never writable for a moment.
        partition.set_mirror(self._metadata.image.mirrors.get(topic.topic_id))
        self._partitions.add(partition)
        if self._cluster is not None:
            partition.on_joinable = self._cluster.on_joinable
            partition.on_damaged = self._on_damage
            self._update_role(partition, state)

    def _reconfigure(self, topics: Iterable[TopicImage]) -> None:
        for topic in topics:
            settings = self._metadata.topic_settings(topic)
            for partition in self._partitions.of_topic(topic.name):
                if partition.settings != settings:
                    partition.reconfigure(settings)
        self._set_ciphers(self._metadata.image, topics)

    def _set_ciphers(self, image: ClusterImage, topics: Iterable[TopicImage]) -> None:
        for topic in topics:
            settings = self._metadata.topic_settings(topic)
            for partition in self._partitions.of_topic(topic.name):
                if partition.topic_id == topic.topic_id:
                    self._ciphers.apply(image, topic, settings, partition.index, partition.log)

    def _wanted(self, topic: TopicImage, index: int, settings: TopicSettings) -> WantedPartition:
        mirror = self._metadata.image.mirrors.get(topic.topic_id)
        is_copy = mirror is not None and mirror.is_copy
        is_replicated = is_copy or (self._cluster is not None and len(topic.partitions[index].replicas) > 1)
        return WantedPartition(topic.topic_id, settings, is_replicated)

    def _is_mine(self, state: PartitionState) -> bool:
        return self._cluster is None or self._own_id in state.replicas

    # Removing

    def _drop(self, topic: TopicImage) -> None:
        for partition in self._partitions.of_topic(topic.name):
            if partition.topic_id == topic.topic_id:
                self._close(partition, UnknownTopic(f"topic {topic.name} was deleted"))
        self._ciphers.forget(topic.topic_id)

    def _close(self, partition: Partition, why: HeadraceError) -> None:
        if self._cluster is not None:
            self._cluster.fetchers.forget(partition)
        self._partitions.remove(partition)
        partition.closed(why)

    def _has_folders_of(self, gone: DeletedTopic) -> bool:
        return self._cluster is None or self._own_id in gone.brokers

    async def _delete_folders(self, gone: DeletedTopic) -> bool:
        """Delete every folder of a topic; False if one failed. A leftover must not become a new topic's log."""
        are_deleted = True
        for index in range(gone.partition_count):
            name = TopicPartition(gone.name, PartitionIndex(index))
            are_deleted = await self._delete_folder(name, gone.topic_id) and are_deleted
        return are_deleted

    async def _delete_folder(self, name: TopicPartition, topic_id: UUID) -> bool:
        try:
            await self._in_worker(self._logs.delete_log, name, topic_id)
        except OSError as error:
            _log.error("the folder of %s could not be deleted; that is retried at the next start: %s", name, error)
            return False
        return True

    async def _forget(self, topic_id: UUID) -> None:
        try:
            await self._metadata.forget_deleted(topic_id)
        except Exception as error:
            _log.warning("the record of a deleted topic could not be removed; retried at the next start: %s", error)

    async def _remove_replicas(self, topics: Iterable[TopicImage]) -> None:
        """Delete the replicas that a reassignment has removed from this broker."""
        for topic in topics:
            for partition in self._partitions.of_topic(topic.name):
                if partition.topic_id == topic.topic_id and not self._is_mine(topic.partitions[partition.index]):
                    _log.info("%s was moved to other brokers", partition)
                    self._close(partition, NotLeader(f"{partition} was moved to other brokers"))
                    await self._delete_folder(_name(topic, partition.index), topic.topic_id)
            if not self._partitions.of_topic(topic.name):
                self._ciphers.forget(topic.topic_id)

    async def _remove_stray_replicas(self, image: ClusterImage) -> None:
        """Like `_remove_replicas`, for reassignments while this broker was down."""
        if self._cluster is None:
            return
        for name, topic_id in await self._in_worker(self._logs.stray_partitions):
            topic = image.topics.get(name.topic)
            if topic is None or topic.topic_id != topic_id or name.partition >= len(topic.partitions):
                continue
            if not self._is_mine(topic.partitions[name.partition]):
                _log.info("%s was moved to other brokers", name)
                await self._delete_folder(name, topic.topic_id)

    def _in_background(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _in_worker(self, work: Callable[..., T], *args: object) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._workers, work, *args)


def _name(topic: TopicImage, index: int) -> TopicPartition:
    return TopicPartition(topic.name, PartitionIndex(index))
