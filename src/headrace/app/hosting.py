"""Keeps what this broker hosts in line with the cluster image: logs are opened, added, reconfigured and removed.

Creation: the store has the topic before its folders exist; a crash in between is mended at the next start, when missing
folders are made, and a disk that has no room for them now is asked again until it has. Deletion: the store forgets the
topic and leaves a record of it; folders go first, then the record. A folder that no record speaks of is never touched.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable
from concurrent.futures import Executor
from typing import TypeVar
from uuid import UUID

from headrace.cluster.metadata import Metadata
from headrace.model.errors import HeadraceError, StartupError, UnknownTopic
from headrace.model.ids import PartitionIndex, TopicName, TopicPartition
from headrace.model.image import ClusterImage, TopicImage
from headrace.replication.partition import Partition
from headrace.replication.partitions import PartitionTable
from headrace.storage.files import storage_error
from headrace.storage.flusher import Flusher
from headrace.storage.log import Log
from headrace.storage.manager import LogManager, Wanted

T = TypeVar("T")

_log = logging.getLogger(__name__)

_TRY_AGAIN_S = 1.0


class Hosting:
    def __init__(
        self, metadata: Metadata, logs: LogManager, partitions: PartitionTable, flusher: Flusher, workers: Executor
    ) -> None:
        self._metadata = metadata
        self._logs = logs
        self._partitions = partitions
        self._flusher = flusher
        self._workers = workers
        self._forgetting: set[asyncio.Task[None]] = set()
        self._changing = asyncio.Lock()
        """Held by whoever adds or removes partitions."""
        self._trying_again: asyncio.Task[None] | None = None

    async def open_all(self) -> None:
        """Open the log of every partition in the image, several at a time, and finish interrupted deletions."""
        image = self._metadata.image
        for topic_id, gone in tuple(image.deleted.items()):
            if gone.name in image.topics or await self._delete_folders(gone.name, gone.partition_count):
                await self._metadata.forget_deleted(topic_id)
        wanted = {
            TopicPartition(topic.name, PartitionIndex(index)): Wanted(
                topic.topic_id, self._metadata.topic_settings(topic)
            )
            for topic in image.topics.values()
            for index in range(len(topic.partitions))
        }
        failed = await self._in_worker(self._logs.open_logs, wanted)
        for partition, error in failed.items():
            raise StartupError(f"{partition} cannot be opened: {error}")
        for topic in image.topics.values():
            for index in range(len(topic.partitions)):
                log = self._logs.get(TopicPartition(topic.name, PartitionIndex(index)))
                assert log is not None
                self._host(topic, index, log)

    async def image_changed(self, old: ClusterImage, new: ClusterImage) -> None:
        """A listener of `Metadata`: whoever made the change gets its answer when this is done.

        Raises what keeps a partition from being hosted; that is tried again in the background.
        """
        async with self._changing:
            for name, topic in old.topics.items():
                now = new.topics.get(name)
                if now is None or now.topic_id != topic.topic_id:
                    await self._remove(topic)
            changed = [topic for name, topic in new.topics.items() if old.topics.get(name) is not topic]
            failure = await self._add_partitions_of(changed)
            self._reconfigure(new)
        if failure is not None:
            if self._trying_again is None or self._trying_again.done():
                self._trying_again = asyncio.get_running_loop().create_task(self._try_again())
            raise failure

    async def finish(self) -> None:
        """Wait for what a change left to be done in the background, and try nothing again."""
        if self._trying_again is not None:
            self._trying_again.cancel()
        await asyncio.gather(*self._forgetting, return_exceptions=True)

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
            try:
                await self._add_partitions(topic)
            except HeadraceError as error:
                failure = error
            except OSError as error:
                failure = storage_error(error, f"making the logs of {topic.name}")
        return failure

    async def _add_partitions(self, topic: TopicImage) -> None:
        hosted = {partition.index for partition in self._partitions.of_topic(topic.name)}
        settings = self._metadata.topic_settings(topic)
        for index in range(len(topic.partitions)):
            if index not in hosted:
                name = TopicPartition(topic.name, PartitionIndex(index))
                log = await self._in_worker(self._logs.create_log, name, topic.topic_id, settings)
                self._host(topic, index, log)

    def _reconfigure(self, image: ClusterImage) -> None:
        for topic in image.topics.values():
            settings = self._metadata.topic_settings(topic)
            for partition in self._partitions.of_topic(topic.name):
                if partition.settings != settings:
                    partition.reconfigure(settings)

    def _host(self, topic: TopicImage, index: int, log: Log) -> None:
        epoch = topic.partitions[index].leader_epoch
        partition = Partition(
            topic.name, PartitionIndex(index), topic.topic_id, log, epoch, appended=self._flusher.appended
        )
        self._partitions.add(partition)

    async def _remove(self, topic: TopicImage) -> None:
        for partition in self._partitions.remove_topic(topic.name):
            partition.closed(UnknownTopic(f"topic {topic.name} was deleted"))
        if not await self._delete_folders(topic.name, len(topic.partitions)):
            return
        # Forgetting is a change of its own, which cannot begin before this one has been shown to everyone.
        task = asyncio.get_running_loop().create_task(self._forget(topic.topic_id))
        self._forgetting.add(task)
        task.add_done_callback(self._forgetting.discard)

    async def _delete_folders(self, topic: TopicName, count: int) -> bool:
        """Whether all could be. Each is tried: a log that is not deleted must not be taken for a new topic's."""
        are_gone = True
        for index in range(count):
            try:
                await self._in_worker(self._logs.delete_log, TopicPartition(topic, PartitionIndex(index)))
            except OSError as error:
                _log.error("a folder of the deleted topic %s stays until the next start: %s", topic, error)
                are_gone = False
        return are_gone

    async def _forget(self, topic_id: UUID) -> None:
        try:
            await self._metadata.forget_deleted(topic_id)
        except Exception as error:
            _log.warning("the record of a deleted topic stays until the next start: %s", error)

    async def _in_worker(self, work: Callable[..., T], *args: object) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._workers, work, *args)
