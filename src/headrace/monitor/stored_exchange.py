"""Quotas of bytes stored by topics with a prefix: what this broker stores of them, and what the others do.

Appends are counted as they are made, and all logs again every second, which sees what retention deleted. In the same
second the other brokers are asked. One that does not answer counts with what it last said, until the cluster knows it
to be dead: then other brokers lead its partitions, and count them.
"""

import asyncio
from collections.abc import Iterator

from headrace.cluster.metadata import Metadata
from headrace.model.errors import HeadraceError
from headrace.model.ids import BrokerId
from headrace.model.image import INTERNAL_TOPICS, ClusterImage
from headrace.monitor.calls import AskStoredBytes
from headrace.quotas.stored_bytes import StoredBytes, StoredRoom
from headrace.replication.calls import ask
from headrace.replication.partition import Partition
from headrace.replication.partitions import PartitionTable
from headrace.replication.peers import Peers

_EVERY_S = 1.0
_LANE = "stored"
_TIMEOUT_S = 0.5


class StoredExchange:
    def __init__(
        self, stored: StoredBytes, metadata: Metadata, partitions: PartitionTable, peers: Peers | None
    ) -> None:
        self._stored = stored
        self._metadata = metadata
        self._partitions = partitions
        self._peers = peers
        self._others: tuple[BrokerId, ...] = ()

    def start(self) -> None:
        """Apply the quotas and the brokers of the image, now and when they change. After `stored` was updated."""
        self._partitions.on_leading.append(self._leads)
        self._partitions.on_not_leading.append(self._leads_no_more)
        self._apply(None, self._metadata.image)
        self._metadata.subscribe(self._apply)

    def _apply(self, old: ClusterImage | None, image: ClusterImage) -> None:
        if old is None or old.brokers is not image.brokers:
            own_id = self._metadata.broker_id
            self._others = tuple(each for each in image.brokers if each != own_id and image.is_alive(each))
            self._stored.keep_only(self._others)
        if old is None or old.quotas is not image.quotas:
            for partition in self._partitions.all():
                partition.stored = self._room(partition) if partition.is_leader else None
            self._count()

    def _room(self, partition: Partition) -> StoredRoom | None:
        return None if partition.topic in INTERNAL_TOPICS else self._stored.room(partition.topic)

    def _leads(self, partition: Partition) -> None:
        partition.stored = room = self._room(partition)
        if room is not None:
            room.add(partition.log.size_bytes)

    def _leads_no_more(self, partition: Partition) -> None:
        room, partition.stored = partition.stored, None
        if room is not None:
            room.add(-partition.log.size_bytes)

    async def run(self) -> None:
        """Count, and ask the other brokers, every second while there are such quotas."""
        while True:
            await asyncio.sleep(_EVERY_S)
            if self._stored.is_active:
                self._count()
                await asyncio.gather(*(self._ask(each) for each in self._others))

    def _count(self) -> None:
        # In one turn of the event loop, so that no append is missed.
        self._stored.count(self._sizes())

    def _sizes(self) -> Iterator[tuple[StoredRoom, int]]:
        for partition in self._partitions.all():
            if partition.stored is not None:
                yield partition.stored, partition.log.size_bytes

    async def _ask(self, broker_id: BrokerId) -> None:
        if self._peers is None:
            return
        try:
            report = await ask(
                self._peers, broker_id, AskStoredBytes(), dict[str, int], lane=_LANE, timeout_s=_TIMEOUT_S
            )
        except HeadraceError:
            return
        if broker_id in self._others:
            self._stored.heard(broker_id, report)
