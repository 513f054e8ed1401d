"""The topic `<topic>.divergent`: gets the records of a reversed topic that its new source never had.

An ordinary topic with as many partitions and replicas, encrypted if the other one is. It has no retention, since its
records keep their timestamps, and might be deleted at once: delete the topic when it is not needed any more.
"""

import asyncio
from uuid import UUID

from headrace.cluster.metadata import Metadata
from headrace.mirror.figures import LANE
from headrace.mirror.reports import WriteDivergent
from headrace.model.errors import MirrorNotReady, NotEnoughReplicas, TopicExists
from headrace.model.ids import NO_LEADER, TopicName
from headrace.model.image import TopicImage
from headrace.model.links import DIVERGENT_SUFFIX
from headrace.records.batch import check_batch
from headrace.replication.calls import ask
from headrace.replication.partitions import PartitionTable
from headrace.replication.peers import Peers

_TIMEOUT_S = 30.0
_COPIED_SETTINGS = ("encryption.at.rest", "min.insync.replicas", "max.message.bytes", "flush.policy")
_SETTINGS = {
    "cleanup.policy": "delete",
    "retention.ms": "-1",
    "retention.bytes": "-1",
    "message.timestamp.type": "CreateTime",
}


def divergent_name(topic: str) -> TopicName:
    return TopicName(topic + DIVERGENT_SUFFIX)


class DivergentTopics:
    """Creates these topics, and appends to their partitions wherever they are led."""

    def __init__(self, metadata: Metadata, partitions: PartitionTable, peers: Peers | None) -> None:
        self._metadata = metadata
        self._partitions = partitions
        self._peers = peers

    async def ensure(self, topic: TopicImage, *, validate_only: bool = False) -> TopicImage:
        """The topic for the records of `topic`, created if it does not exist; with `validate_only`, only if it could
        be."""
        name = divergent_name(topic.name)
        image = self._metadata.image
        found = image.topics.get(name)
        if found is None:
            settings = {each: topic.settings[each] for each in _COPIED_SETTINGS if each in topic.settings}
            try:
                return await self._metadata.create_topic(
                    name,
                    partitions=len(topic.partitions),
                    replication_factor=len(topic.partitions[0].replicas),
                    settings={**settings, **_SETTINGS},
                    validate_only=validate_only,
                )
            except TopicExists:
                found = self._metadata.image.topics[name]
        mirror = image.mirrors.get(found.topic_id)
        if mirror is not None and mirror.is_read_only:
            raise MirrorNotReady(f"{name} is a mirror topic and takes no records: make it writable, or delete it")
        return found

    async def append(self, topic: TopicImage, index: int, batch: bytes) -> None:
        """Append a batch; it is committed on return."""
        current = self._metadata.image.topic_by_id(topic.topic_id) or topic
        partition = index % len(current.partitions)
        leader, call = current.partitions[partition].leader, WriteDivergent(topic.topic_id, partition, batch)
        if leader == NO_LEADER:
            raise MirrorNotReady(f"{topic.name}-{partition} has no leader now")
        if leader == self._metadata.broker_id or self._peers is None:
            await self.serve(call)
        else:
            await ask(self._peers, leader, call, type(None), lane=LANE, timeout_s=_TIMEOUT_S)

    async def serve(self, call: WriteDivergent) -> None:
        """Append a batch here. `NotLeader` if another broker leads the partition."""
        self._check_name(call.topic_id)
        partition = self._partitions.by_id(call.topic_id, call.partition)
        partition.check_leading()
        if partition.in_sync_count < partition.settings.min_insync_replicas:
            raise NotEnoughReplicas(f"{partition} has too few replicas in sync: {partition.in_sync_count}")
        appended = partition.append(call.batch, check_batch(call.batch))
        try:
            async with asyncio.timeout(_TIMEOUT_S):
                await partition.until_committed(appended.last_offset + 1)
        except TimeoutError:
            raise MirrorNotReady(f"{partition} could not be replicated in time") from None

    def _check_name(self, topic_id: UUID) -> None:
        name = self._metadata.image.topic_names.get(topic_id, "")
        if not name.endswith(DIVERGENT_SUFFIX):
            raise MirrorNotReady(f"the topic {name or topic_id} takes no records that were set aside")
