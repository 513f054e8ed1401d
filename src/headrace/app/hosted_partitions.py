"""Keeps what this broker hosts in line with the cluster image: logs are opened, added, reconfigured and removed, and
partitions are told their role.

Creation: the store has the topic before its folders exist; a crash in between is mended at the next start, when missing
folders are made, and a disk that has no room for them now is asked again until it has. Deletion: the store forgets the
topic and leaves a record of it; folders go first, then the record. A replica that a reassignment took away goes when
the store says that it is none any more. A folder that neither a topic nor a record speaks of is never touched.

Roles: until the controller has looked at everything this broker has (its state is not *starting* any more, under the
epoch of its present lease) it neither leads nor follows. The image is one order of revisions, so whoever sees itself
admitted has seen what was put right before.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterable, Mapping
from concurrent.futures import Executor
from dataclasses import replace
from typing import Any, NamedTuple, Protocol, TypeVar
from uuid import UUID

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

_TRY_AGAIN_S = 1.0
_LOOK_AGAIN_S = 0.1


class LeaderFollowing(Protocol):
    """`Fetchers`, as far as it matters here."""

    def follow(self, partition: Partition, leader_id: BrokerId, *, is_throttled: bool = False) -> None: ...

    def forget(self, partition: Partition) -> None: ...


class ClusterRuntime(NamedTuple):
    """What a broker that is not alone has beside."""

    epoch: Callable[[], int]
    """Of this broker's present lease."""
    fetchers: LeaderFollowing
    on_joinable: Callable[[Partition], None]
    clock: Clock


class HostedPartitions:
    def __init__(
        self,
        metadata: Metadata,
        logs: LogManager,
        partitions: PartitionTable,
        flusher: Flusher,
        workers: Executor,
        *,
        cluster: ClusterRuntime | None = None,
    ) -> None:
        """Without a `cluster` this broker is alone, and leads everything there is."""
        self._metadata = metadata
        self._logs = logs
        self._partitions = partitions
        self._flusher = flusher
        self._workers = workers
        self._cluster = cluster
        self._own_id = metadata.broker_id
        self._is_serving = False
        self._is_finished = False
        self._tasks: set[asyncio.Task[None]] = set()
        self._changing = asyncio.Lock()
        """Held by whoever adds or removes partitions."""
        self._trying_again: asyncio.Task[None] | None = None

    async def open_all(self) -> None:
        """Open the log of every partition this broker has, several at a time, and finish interrupted deletions."""
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
        await self._remove_what_was_taken_away(image)

    async def image_changed(self, old: ClusterImage, new: ClusterImage) -> None:
        """A listener of `Metadata`: whoever made the change gets its answer when this is done.

        Raises what keeps a partition from being hosted; that is tried again in the background.
        """
        async with self._changing:
            if self._is_finished:
                return
            changed = [topic for name, topic in new.topics.items() if old.topics.get(name) is not topic]
            self._take_roles(new, changed)
            for name, topic in old.topics.items():
                now = new.topics.get(name)
                if now is None or now.topic_id != topic.topic_id:
                    self._drop(topic)
            for topic_id, gone in new.deleted.items():
                if topic_id not in old.deleted and self._has_folders_of(gone) and await self._delete_folders(gone):
                    # Forgetting is a change of its own, which cannot begin before this one has been shown to everyone.
                    self._in_background(self._forget(topic_id))
            await self._remove_replicas(changed)
            failure = await self._add_partitions_of(changed)
            are_defaults_new = old.broker_settings != new.broker_settings or old.settings_by_broker.get(
                self._own_id
            ) != new.settings_by_broker.get(self._own_id)
            self._reconfigure(new.topics.values() if are_defaults_new else changed)
        if failure is not None:
            if self._trying_again is None or self._trying_again.done():
                self._trying_again = asyncio.get_running_loop().create_task(self._try_again())
            raise failure

    def look_again(self) -> None:
        """This broker's place in the cluster may have changed: see that every partition has the role it should."""
        self._in_background(self._look_again())

    async def finish(self) -> None:
        """Wait for the change under way, and for what changes left to be done in the background. Take no more of them
        and try nothing again: the logs are closed next, and their folders may be another process's then."""
        if self._trying_again is not None:
            self._trying_again.cancel()
        async with self._changing:
            self._is_finished = True
        await asyncio.gather(*self._tasks, return_exceptions=True)

    # Roles

    def _take_roles(self, image: ClusterImage, changed: Iterable[TopicImage]) -> None:
        cluster = self._cluster
        if cluster is None:
            return
        me = image.brokers.get(self._own_id)
        serves = me is not None and me.is_alive and me.epoch == cluster.epoch() and me.state is not BrokerState.STARTING
        if serves != self._is_serving:
            self._is_serving = serves
            changed = image.topics.values()
        for topic in changed:
            for partition in self._partitions.of_topic(topic.name):
                if partition.topic_id == topic.topic_id and partition.index < len(topic.partitions):
                    self._take_role(partition, topic.partitions[partition.index])

    def _take_role(self, partition: Partition, state: PartitionState) -> None:
        cluster, partitions = self._cluster, self._partitions
        assert cluster is not None
        if not self._is_serving:
            cluster.fetchers.forget(partition)
            partitions.idle(partition)
        elif state.leader == self._own_id:
            cluster.fetchers.forget(partition)
            self._end_before_damage(partition)
            partitions.lead(partition, state, cluster.clock.monotonic_ms())
        elif state.leader == NO_LEADER or not self._is_mine(state):
            cluster.fetchers.forget(partition)
            partitions.idle(partition, state)
        else:
            partitions.follow(partition, state)
            self._drop_damaged(partition)
            is_throttled = self._own_id in state.adding and self._own_id not in state.isr
            cluster.fetchers.follow(partition, state.leader, is_throttled=is_throttled)

    async def _look_again(self) -> None:
        async with self._changing:
            self._take_roles(self._metadata.image, ())

    # Damage

    async def withdraw(self) -> None:
        """Leave the in-sync set wherever the log here is not whole and another replica is in it.

        Before this broker takes its place in the cluster: it must neither be elected with a hole in its log, nor count
        as one that has everything. As a follower it then fetches anew what it has lost.
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
                _log.error("%s has lost offsets from %s on, and no other replica in sync has them", partition,
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
                await asyncio.sleep(_LOOK_AGAIN_S)

    def _drop_damaged(self, partition: Partition) -> None:
        if partition.log.damaged_from is not None:
            try:
                partition.drop_damaged()
            except HeadraceError as error:
                _log.error("%s stays damaged: %s", partition, error)

    def _end_before_damage(self, partition: Partition) -> None:
        """A leader whose log ends where the damage begins has nothing that is damaged, and nobody to get it from."""
        if partition.log.damaged_from is not None:
            try:
                partition.log.look_whether_whole()
            except HeadraceError as error:
                _log.error("%s stays marked as damaged: %s", partition, error)

    def _found_damaged(self, partition: Partition, offset: int) -> None:
        known = partition.log.damaged_from
        if known is None or offset < known:
            _log.error("%s is damaged at offset %d: its replicas on other brokers take over", partition, offset)
            self._in_background(self._give_up(partition, offset))

    async def _give_up(self, partition: Partition, offset: int) -> None:
        """Let another replica lead, and get from it what is damaged here."""
        try:
            await self._in_worker(partition.log.note_damage, offset)
            await self._withdraw_from(partition)
            if partition.role is Role.FOLLOWER and partition.state is not None:
                # It was in sync no more, so nothing has changed for it that would have made it look.
                self._take_role(partition, partition.state)
        except HeadraceError as error:
            _log.error("%s cannot be handed over for now: %s", partition, error)

    # Coming

    async def _try_again(self) -> None:
        """Host what is in the image and could not be hosted when it came there."""
        while True:
            await asyncio.sleep(_TRY_AGAIN_S)
            async with self._changing:
                if await self._add_partitions_of(tuple(self._metadata.image.topics.values())) is None:
                    return

    async def _add_partitions_of(self, topics: Iterable[TopicImage]) -> HeadraceError | None:
        """Host every partition of these topics that can be; the reason if one cannot."""
        failure: HeadraceError | None = None
        for topic in topics:
            for name, error in (await self._add_partitions(topic)).items():
                if isinstance(error, HeadraceError):
                    failure = error
                elif isinstance(error, OSError):
                    failure = storage_error(error, f"making the log of {name}")
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
        self._partitions.add(partition)
        if self._cluster is not None:
            partition.on_joinable = self._cluster.on_joinable
            partition.on_damaged = self._found_damaged
            self._take_role(partition, state)

    def _reconfigure(self, topics: Iterable[TopicImage]) -> None:
        for topic in topics:
            settings = self._metadata.topic_settings(topic)
            for partition in self._partitions.of_topic(topic.name):
                if partition.settings != settings:
                    partition.reconfigure(settings)

    def _wanted(self, topic: TopicImage, index: int, settings: TopicSettings) -> WantedPartition:
        is_replicated = self._cluster is not None and len(topic.partitions[index].replicas) > 1
        return WantedPartition(topic.topic_id, settings, is_replicated)

    def _is_mine(self, state: PartitionState) -> bool:
        return self._cluster is None or self._own_id in state.replicas

    # Going

    def _drop(self, topic: TopicImage) -> None:
        for partition in self._partitions.of_topic(topic.name):
            if partition.topic_id == topic.topic_id:
                self._close(partition, UnknownTopic(f"topic {topic.name} was deleted"))

    def _close(self, partition: Partition, why: HeadraceError) -> None:
        if self._cluster is not None:
            self._cluster.fetchers.forget(partition)
        self._partitions.remove(partition)
        partition.closed(why)

    def _has_folders_of(self, gone: DeletedTopic) -> bool:
        return self._cluster is None or self._own_id in gone.brokers

    async def _delete_folders(self, gone: DeletedTopic) -> bool:
        """Whether all could be. Each is tried: a log that is not deleted must not be taken for a new topic's."""
        are_gone = True
        for index in range(gone.partition_count):
            name = TopicPartition(gone.name, PartitionIndex(index))
            are_gone = await self._delete_folder(name, gone.topic_id) and are_gone
        return are_gone

    async def _delete_folder(self, name: TopicPartition, topic_id: UUID) -> bool:
        try:
            await self._in_worker(self._logs.delete_log, name, topic_id)
        except OSError as error:
            _log.error(
                "the folder of %s, which is not to be here any more, stays until the next start: %s", name, error
            )
            return False
        return True

    async def _forget(self, topic_id: UUID) -> None:
        try:
            await self._metadata.forget_deleted(topic_id)
        except Exception as error:
            _log.warning("the record of a deleted topic stays until the next start: %s", error)

    async def _remove_replicas(self, topics: Iterable[TopicImage]) -> None:
        """Those that a reassignment has taken away."""
        for topic in topics:
            for partition in self._partitions.of_topic(topic.name):
                if partition.topic_id == topic.topic_id and not self._is_mine(topic.partitions[partition.index]):
                    _log.info("%s is on other brokers from now on", partition)
                    self._close(partition, NotLeader(f"{partition} was moved to other brokers"))
                    await self._delete_folder(_name(topic, partition.index), topic.topic_id)

    async def _remove_what_was_taken_away(self, image: ClusterImage) -> None:
        """The same, for what happened while this broker was down."""
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
