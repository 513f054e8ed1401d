"""The internal topic `__audit`: created with the first event, written by brokers only.

It has as many partitions as the cluster has brokers when it is created. A broker writes to a partition that it leads;
one that leads none (it joined later, or is being drained) sends its events to one that does, by a call between brokers.
An event may be written twice if a broker fails at the wrong moment; its id is the same then.
"""

import asyncio
from collections.abc import Sequence
from contextlib import suppress

import msgspec

from headrace.cluster.metadata import Metadata
from headrace.cluster.topics import initial_replication_factor
from headrace.model.errors import NotEnoughReplicas, NotLeader, TopicExists
from headrace.model.features import SECURITY_LEVEL
from headrace.model.image import AUDIT_TOPIC
from headrace.records.batch import read_header
from headrace.records.builder import build_batch
from headrace.records.reader import Record
from headrace.replication.calls import Call, answer_to, ask, unknown_call
from headrace.replication.partition import Partition
from headrace.replication.partitions import PartitionTable
from headrace.replication.peers import Peers

_DAY_MS = 24 * 60 * 60 * 1000
_TOPIC_SETTINGS = {
    "cleanup.policy": "delete",
    "retention.ms": str(30 * _DAY_MS),
    "retention.bytes": "-1",
    # Retention deletes whole segments: a day of events each.
    "segment.ms": str(_DAY_MS),
    "compression.type": "producer",
}
_LANE = "audit"
_TIMEOUT_S = 30.0

TimedEvent = tuple[int, bytes]
"""An encoded event and its time in ms."""


class AuditCall(Call, frozen=True):
    """Events of a broker that leads no partition of the topic."""

    events: list[TimedEvent]

    level = SECURITY_LEVEL


_decode_call = msgspec.msgpack.Decoder(AuditCall).decode


class AuditTopic:
    def __init__(self, metadata: Metadata, partitions: PartitionTable, peers: Peers | None) -> None:
        """`peers` is None on a single node."""
        self._metadata = metadata
        self._partitions = partitions
        self._peers = peers
        self._turn = 0

    async def append(self, events: Sequence[TimedEvent]) -> None:
        """Write events in one batch; they are committed on return. A `HeadraceError` if they may not be."""
        await self._ensure()
        led = [each for each in self._partitions.of_topic(AUDIT_TOPIC) if each.is_leader]
        if led:
            await self._append(led, events)
            return
        topic = self._metadata.image.topics[AUDIT_TOPIC]
        leaders = sorted({each.leader for each in topic.partitions if self._metadata.image.is_alive(each.leader)})
        if self._peers is None or not leaders:
            raise NotLeader(f"{AUDIT_TOPIC} has no leader now")
        self._turn += 1
        leader = leaders[self._turn % len(leaders)]
        await ask(self._peers, leader, AuditCall(list(events)), type(None), lane=_LANE, timeout_s=_TIMEOUT_S)

    async def serve(self, call: bytes) -> bytes:
        """Write the events of another broker; the encoded answer."""
        try:
            asked = _decode_call(call)
        except msgspec.MsgspecError as error:
            return unknown_call(error)
        return await answer_to(lambda: self._serve(asked.events))

    async def _serve(self, events: Sequence[TimedEvent]) -> None:
        led = [each for each in self._partitions.of_topic(AUDIT_TOPIC) if each.is_leader]
        if not led:
            raise NotLeader(f"this broker leads no partition of {AUDIT_TOPIC}")
        await self._append(led, events)

    async def _ensure(self) -> None:
        """Create the topic if it does not exist."""
        image = self._metadata.image
        if AUDIT_TOPIC in image.topics:
            return
        alive = sum(broker.can_lead for broker in image.brokers.values())
        if not alive:
            raise NotLeader(f"the topic {AUDIT_TOPIC} cannot be created before a broker has started")
        factor = initial_replication_factor(image, self._metadata.settings, AUDIT_TOPIC)
        with suppress(TopicExists):
            await self._metadata.create_topic(
                AUDIT_TOPIC, partitions=alive, replication_factor=factor, settings=_TOPIC_SETTINGS
            )

    async def _append(self, led: Sequence[Partition], events: Sequence[TimedEvent]) -> None:
        self._turn += 1
        partition = led[self._turn % len(led)]
        if partition.in_sync_count < partition.settings.min_insync_replicas:
            raise NotEnoughReplicas(f"{partition} has too few replicas in sync: {partition.in_sync_count}")
        batch = build_batch([Record(0, time_ms, None, value, ()) for time_ms, value in events])
        appended = partition.append(batch, read_header(batch))
        async with asyncio.timeout(_TIMEOUT_S):
            await partition.until_committed(appended.last_offset + 1)
