"""A broker's shards of one internal topic: routing of keys, loading and unloading.

This broker has the shards of the partitions it leads. A shard starts with a leader epoch: it replays the log, once that
is committed, and then serves. It ends with the epoch: waiting callers get `NotCoordinator`, and nothing more is
written.
"""

import asyncio
import logging
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Executor
from contextlib import suppress
from typing import Any, Generic, TypeVar

from headrace.cluster.metadata import Metadata
from headrace.cluster.topics import initial_replication_factor
from headrace.coordinator.log_replay import load
from headrace.coordinator.machine import Machine
from headrace.coordinator.record_rewrite import Rewriter
from headrace.coordinator.shard import Shard, ShardState
from headrace.coordinator.timers import TimerLoop
from headrace.model.errors import CoordinatorNotAvailable, CorruptBatch, NotCoordinator, NotLeader, TopicExists
from headrace.model.ids import BrokerId, TopicName
from headrace.model.image import ClusterImage
from headrace.model.state_partition import partition_for
from headrace.protocol.fields import check_name
from headrace.replication.partition import Partition
from headrace.replication.partitions import PartitionTable
from headrace.runtime.clock import Clock

M = TypeVar("M", bound=Machine[Any])

log = logging.getLogger(__name__)


class Coordinator(Generic[M]):
    """Manages the shards of one internal topic on this broker."""

    def __init__(
        self,
        topic: TopicName,
        *,
        partition_count: int,
        topic_settings: Mapping[str, str],
        make_machine: Callable[[Partition], M],
        metadata: Metadata,
        partitions: PartitionTable,
        clock: Clock,
        workers: Executor,
        on_loaded: Callable[[Shard[M]], None] = lambda _: None,
        on_lost: Callable[[Shard[M]], None] = lambda _: None,
    ) -> None:
        """`on_loaded` is called with each shard that becomes active, to set timers for its state; `on_lost` when a
        shard is closed or reloaded, while it still has its old machine."""
        self.topic = topic
        self.timers = TimerLoop(clock)
        self._partition_count = partition_count
        self._topic_settings = topic_settings
        self._make_machine = make_machine
        self._metadata = metadata
        self._partitions = partitions
        self._clock = clock
        self._workers = workers
        self._on_loaded = on_loaded
        self._on_lost = on_lost
        self._rewriter = Rewriter(self.timers, clock, lambda: metadata.image.feature_level)
        self._creating = asyncio.Lock()
        self._shards: dict[int, Shard[M]] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    # -- lifecycle

    def start(self) -> None:
        """Load the shards of partitions already led, and follow leadership changes."""
        for partition in self._partitions.of_topic(self.topic):
            if partition.is_leader:
                self._on_leading(partition)
        self._partitions.on_leading.append(self._on_leading)
        self._partitions.on_not_leading.append(self._on_not_leading)
        self._metadata.subscribe(self._image_changed)

    async def stop(self) -> None:
        for shard in self._shards.values():
            self._close(shard)
        self.timers.clear()
        for task in tuple(self._tasks):
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task

    # -- routing

    async def ensure_topic(self) -> None:
        """Create the internal topic on first use.

        Concurrent callers wait, too: the topic is in the image before its partitions, and our shards, exist.
        """
        async with self._creating:
            if self.topic not in self._metadata.image.topics:
                with suppress(TopicExists):
                    await self._metadata.create_topic(
                        self.topic,
                        partitions=self._partition_count,
                        replication_factor=self._initial_replication_factor(),
                        settings=self._topic_settings,
                    )

    def _initial_replication_factor(self) -> int:
        image = self._metadata.image
        if not any(broker.can_lead for broker in image.brokers.values()):
            raise CoordinatorNotAvailable(f"the topic {self.topic} cannot be created before a broker has started")
        return initial_replication_factor(image, self._metadata.settings, self.topic)

    def index_for(self, key: str) -> int:
        """The partition of the internal topic for a key."""
        topic = self._metadata.image.topics.get(self.topic)
        if topic is None:
            raise CoordinatorNotAvailable(f"the topic {self.topic} does not exist yet")
        return partition_for(key, len(topic.partitions))

    def leader_for(self, key: str) -> BrokerId:
        """The broker that coordinates a key: the leader of the key's partition."""
        index = self.index_for(key)
        image = self._metadata.image
        leader = image.topics[self.topic].partitions[index].leader
        if not image.is_alive(leader):
            raise CoordinatorNotAvailable(f"{key} has no coordinator: {self.topic}-{index} has no leader")
        return leader

    def is_here(self, key: str) -> bool:
        """True if this broker coordinates a key, or is loading its shard."""
        topic = self._metadata.image.topics.get(self.topic)
        return topic is not None and partition_for(key, len(topic.partitions)) in self._shards

    def shard(self, key: str) -> Shard[M]:
        """The shard for a key; `NotCoordinator` if another broker has it. Refuses keys that records cannot hold."""
        check_name(key)
        shard = self._shards.get(self.index_for(key))
        if shard is None:
            raise NotCoordinator(f"this broker does not coordinate {key}")
        return shard

    def shards(self) -> Iterator[Shard[M]]:
        return iter(tuple(self._shards.values()))

    def transaction_ended(self, partition: Partition, producer_id: int, *, committed: bool) -> None:
        """Notify the partition's shard, if it is one of ours, that a transaction marker was committed."""
        shard = self._shards.get(partition.index) if partition.topic == self.topic else None
        if shard is not None:
            shard.end_transaction(producer_id, committed=committed)

    # -- loading

    @property
    def loading(self) -> tuple["asyncio.Task[None]", ...]:
        """The loads in progress."""
        return tuple(self._tasks)

    def _on_leading(self, partition: Partition) -> None:
        if partition.topic == self.topic:
            self._on_not_leading(partition)
            shard = Shard(partition, self._make_machine(partition), self._clock, reload=self._reload)
            self._shards[partition.index] = shard
            self._load(shard)

    def _on_not_leading(self, partition: Partition) -> None:
        if partition.topic == self.topic:
            shard = self._shards.pop(partition.index, None)
            if shard is not None:
                self._close(shard)

    def _close(self, shard: Shard[M]) -> None:
        shard.close()
        self._on_lost(shard)

    def _reload(self, shard: Shard[M]) -> None:
        self._on_lost(shard)
        self._load(shard)

    def _load(self, shard: Shard[M]) -> None:
        if shard.partition.log.end_offset == shard.partition.log.start_offset:
            shard.machine = self._make_machine(shard.partition)
            self._activate(shard)
            return
        task = asyncio.get_running_loop().create_task(self._load_now(shard))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _load_now(self, shard: Shard[M]) -> None:
        shard.machine = machine = self._make_machine(shard.partition)
        try:
            count = await load(shard.partition, machine, self._workers)
        except CorruptBatch as error:
            if self._is_current(shard, machine):
                log.error("the coordinator on %s stays unavailable and writes nothing: %s", shard.partition, error)
            return
        except Exception as error:
            if self._is_current(shard, machine) and not isinstance(error, NotLeader):
                log.exception("the coordinator on %s cannot be loaded; it stays unavailable", shard.partition)
            return
        if not self._is_current(shard, machine):
            return
        self._activate(shard)
        log.info("loaded %d records of %s", count, shard.partition)

    def _is_current(self, shard: Shard[M], machine: M) -> bool:
        """True if this load is still needed: the shard was neither closed nor reloaded since."""
        return shard.state is ShardState.LOADING and shard.machine is machine

    def _activate(self, shard: Shard[M]) -> None:
        shard.machine.loaded(self._clock.monotonic_ms())
        shard.state = ShardState.ACTIVE
        self._on_loaded(shard)
        self._rewriter.start(shard)

    async def _image_changed(self, old: ClusterImage, new: ClusterImage) -> None:
        if old.feature_level != new.feature_level:
            for shard in self.shards():
                self._rewriter.start(shard)
