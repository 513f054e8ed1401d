"""The bounds on the backlogs of topics, on the partitions that this broker leads.

Every second the coordinators of the cluster are asked where the groups of these topics are. Only when all of them have
answered is it known which groups there are. Until then groups count where they were last, and a new leader decides
nothing: without its groups, all that is stored would count as the backlog, and would be dropped.
"""

import asyncio
from collections.abc import Iterator, Mapping
from concurrent.futures import Executor

from headrace.cluster.metadata import Metadata
from headrace.config.topic import TopicSettings
from headrace.groups.service import GroupService
from headrace.model.errors import HeadraceError
from headrace.model.ids import BrokerId
from headrace.model.image import ClusterImage
from headrace.monitor.calls import COMMITTED_MAX, AskCommitted, CommittedOffsets
from headrace.replication.calls import ask
from headrace.replication.partition import Partition
from headrace.replication.partitions import PartitionTable
from headrace.replication.peers import Peers
from headrace.replication.topic_backlog import TopicBacklog
from headrace.runtime.clock import Clock

_LANE = "backlogs"
_TIMEOUT_S = 2.0
_EVERY_S = 1.0
_NO_ANSWER = CommittedOffsets([], [])


def committed_in(groups: GroupService, topics: Mapping[str, object]) -> CommittedOffsets:
    """What the groups that this broker coordinates have committed in these topics; at most `COMMITTED_MAX`."""
    active = [shard for shard in groups.coordinator.shards() if shard.is_active]
    found = CommittedOffsets([int(shard.partition.index) for shard in active], [])
    for shard in active:
        offsets = shard.machine.offsets
        for key in offsets.keys_in_topics(topics):
            value = offsets.get(key.group, key.topic, key.partition)
            if value is not None:
                found.rows.append((key.group, key.topic, key.partition, value.offset))
                if len(found.rows) == COMMITTED_MAX:
                    return found
    return found


class TopicBacklogs:
    def __init__(
        self,
        *,
        metadata: Metadata,
        partitions: PartitionTable,
        groups: GroupService,
        clock: Clock,
        workers: Executor,
        peers: Peers | None,
    ) -> None:
        self._metadata = metadata
        self._groups = groups
        self._clock = clock
        self._workers = workers
        self._peers = peers
        self._partitions = partitions
        self._backlogs: dict[Partition, TopicBacklog] = {}
        self._known: dict[tuple[str, int], dict[str, int]] = {}
        """By topic and partition: the offset of each group."""
        self._has_new = asyncio.Event()

    def start(self) -> None:
        for partition in tuple(self._partitions.all()):
            if partition.is_leader:
                self._leads(partition)
        self._partitions.on_leading.append(self._leads)
        self._partitions.on_not_leading.append(self._leads_no_more)
        self._metadata.subscribe(self._image_changed)

    def _leads(self, partition: Partition) -> None:
        settings = partition.settings
        if settings.backlog_bound is None or settings.queue.is_queue:
            return
        self._backlogs[partition] = TopicBacklog(partition, self._clock.wall_ms, self._workers)
        self._configure(partition, settings)
        self._has_new.set()

    def _configure(self, partition: Partition, settings: TopicSettings) -> None:
        self._backlogs[partition].configure(settings.backlog_bound, settings.max_backlog_groups)

    def _leads_no_more(self, partition: Partition) -> None:
        found = self._backlogs.pop(partition, None)
        if found is not None:
            found.close()
            self._known.pop((partition.topic, partition.index), None)

    def _image_changed(self, old: ClusterImage, new: ClusterImage) -> None:
        for name, topic in new.topics.items():
            before = old.topics.get(name)
            if before is None or before.settings is topic.settings:
                continue
            for partition in self._partitions.of_topic(name):
                if not partition.is_leader:
                    continue
                if partition in self._backlogs:
                    self._configure(partition, partition.settings)
                    if partition.settings.backlog_bound is None:
                        del self._backlogs[partition]
                else:
                    self._leads(partition)
                self._has_new.set()

    # -- positions

    async def run(self) -> None:
        """Ask the coordinators every second, and at once when there is another bound."""
        while True:
            try:
                async with asyncio.timeout(_EVERY_S):
                    await self._has_new.wait()
            except TimeoutError:
                pass
            self._has_new.clear()
            if self._backlogs:
                await self.refresh()

    async def refresh(self) -> None:
        """Ask the coordinators once, and apply what all of them have answered."""
        # A partition that is led from now on has its groups asked for in the next round.
        asked = tuple(self._backlogs.items())
        topics = sorted({str(partition.topic) for partition, _ in asked})
        answers = [
            *await asyncio.gather(*(self._asked(broker_id, topics) for broker_id in self._others())),
            committed_in(self._groups, dict.fromkeys(topics)),
        ]
        is_whole = self._shards() <= {shard for answer in answers for shard in answer.shards}
        if is_whole:
            self._known.clear()
        for answer in answers:
            for group, topic, index, offset in answer.rows:
                self._known.setdefault((topic, index), {})[group] = offset
        for partition, backlog in asked:
            if self._backlogs.get(partition) is not backlog or not (is_whole or backlog.is_known):
                continue
            known = self._known.get((str(partition.topic), int(partition.index)), {})
            try:
                await backlog.groups_read(dict(known))
            except HeadraceError:
                # It is led elsewhere by now, or cannot be read for the moment.
                continue

    def _shards(self) -> set[int]:
        """The partitions of __consumer_offsets: each has groups of its own."""
        topic = self._metadata.image.topics.get(self._groups.coordinator.topic)
        return set() if topic is None else set(range(len(topic.partitions)))

    def _others(self) -> Iterator[BrokerId]:
        image, own_id = self._metadata.image, self._metadata.broker_id
        return (each for each in image.brokers if each != own_id and image.is_alive(each))

    async def _asked(self, broker_id: BrokerId, topics: list[str]) -> CommittedOffsets:
        if self._peers is None:
            return _NO_ANSWER
        try:
            return await ask(
                self._peers, broker_id, AskCommitted(topics), CommittedOffsets, lane=_LANE, timeout_s=_TIMEOUT_S
            )
        except HeadraceError:
            return _NO_ANSWER
