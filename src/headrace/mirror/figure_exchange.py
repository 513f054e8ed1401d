"""Keeps the last known figures of mirror partitions on every broker that has replicas of them (`last_known.py`)."""

import asyncio
import logging
from concurrent.futures import Executor
from contextlib import suppress
from pathlib import Path
from uuid import UUID

from headrace.cluster.metadata import Metadata
from headrace.mirror.figures import Figures
from headrace.mirror.last_known import LastKnown
from headrace.model.ids import BrokerId
from headrace.replication.partitions import PartitionTable
from headrace.runtime.clock import Clock
from headrace.runtime.disk import Disk

log = logging.getLogger(__name__)

FILE_NAME = "link-figures"
_STORE_EVERY = 6
"""They are stored in each sixth round: which is every half minute."""


class FigureExchange:
    def __init__(
        self,
        metadata: Metadata,
        partitions: PartitionTable,
        figures: Figures,
        known: LastKnown,
        *,
        clock: Clock,
        disk: Disk,
        folder: Path,
        workers: Executor,
    ) -> None:
        self._metadata = metadata
        self._partitions = partitions
        self._figures = figures
        self._known = known
        self._clock = clock
        self._disk = disk
        self._path = folder / FILE_NAME
        self._workers = workers
        self._rounds = 0

    async def run(self) -> None:
        """Ask and store at each interval, until cancelled."""
        while True:
            await asyncio.sleep(self._metadata.settings.link_refresh_interval_ms / 1000)
            try:
                await self.step()
            except OSError as error:
                log.warning("the figures of mirror partitions are not stored: %s", error)

    async def step(self) -> None:
        """One round: note the figures of own partitions, and of those that other brokers lead."""
        image = self._metadata.image
        mirrors = {topic_id for topic_id, mirror in image.mirrors.items() if mirror.is_read_only}
        self._known.keep(mirrors)
        if not mirrors:
            return
        asked_ms = self._clock.wall_ms()
        self._known.note(self._figures.own(mirrors), asked_ms)
        wanted = self._leaders_of(mirrors)
        for rows in await asyncio.gather(*(self._figures.ask(leader, list(ids)) for leader, ids in wanted.items())):
            self._known.note(rows, asked_ms)
        self._rounds += 1
        if self._rounds % _STORE_EVERY == 1:
            content = self._known.encoded()
            loop = asyncio.get_running_loop()
            await loop.run_in_executor(self._workers, self._disk.write_cache, self._path, content)

    def _leaders_of(self, topic_ids: set[UUID]) -> dict[BrokerId, dict[UUID, None]]:
        """By other brokers: the topics of which they lead partitions that this broker follows."""
        image = self._metadata.image
        wanted: dict[BrokerId, dict[UUID, None]] = {}
        for partition in self._partitions.all():
            if partition.is_leader or partition.topic_id not in topic_ids:
                continue
            topic = image.topic_by_id(partition.topic_id)
            if topic is not None and partition.index < len(topic.partitions):
                leader = topic.partitions[partition.index].leader
                if image.is_alive(leader) and leader != self._metadata.broker_id:
                    wanted.setdefault(leader, {})[partition.topic_id] = None
        return wanted


def load_figures(known: LastKnown, disk: Disk, folder: Path) -> None:
    """Begin with the figures that were stored before a restart."""
    with suppress(FileNotFoundError):
        known.load(disk.read_bytes(folder / FILE_NAME))
