"""Dead letters of share groups (KIP-1191): records that a member rejected, or that have reached the delivery limit, are
written to the topic that the group's settings name. The format is Kafka's:

    key, value                     those of the record, if errors.deadletterqueue.copy.record.enable; else null
    __dlq.errors.topic             where the record is: its topic,
    __dlq.errors.partition         partition
    __dlq.errors.offset            and offset
    __dlq.errors.group             the share group
    __dlq.errors.delivery.count    how often it was delivered
    __dlq.errors.message           why it is here

All values are text. Records of partition n go to partition n modulo the number of partitions of the dead-letter topic.
A letter may be written twice: it is written before its record is acked.
"""

import asyncio
from collections.abc import Mapping, Sequence
from concurrent.futures import Executor
from typing import ClassVar, NamedTuple, Protocol
from uuid import UUID

from headrace.cluster.metadata import Metadata
from headrace.config.group import dead_letter_topic_problem
from headrace.config.topic import TopicSettings
from headrace.model.errors import HeadraceError, NotEnoughReplicas, OffsetOutOfRange, QueueUnavailable, TopicExists
from headrace.model.ids import NO_LEADER, TopicName
from headrace.model.image import TopicImage
from headrace.records.batch import iter_headers, read_header
from headrace.records.builder import build_batch
from headrace.records.reader import Record, iter_records
from headrace.replication.calls import Call, ask
from headrace.replication.partition import Partition
from headrace.replication.partitions import PartitionTable
from headrace.replication.peers import Peers
from headrace.runtime.clock import Clock
from headrace.storage.slice import Slice

REJECTED = "Offset rejected by client."
DELIVERED_TOO_OFTEN = "Offset delivery count exceeded the threshold."
ENABLE = "errors.deadletterqueue.group.enable"

_LANE = "share-dead-letters"
_TIMEOUT_S = 30.0
_READ_BYTES = 1024 * 1024
_RECORD_OVERHEAD_BYTES = 200
_BATCH_OVERHEAD_BYTES = 100

Body = tuple[bytes | None, bytes | None]
"""Key and value."""


class DeadLetter(NamedTuple):
    offset: int
    deliveries: int
    is_rejected: bool


class DeadLettersRefused(HeadraceError):
    """The topic that a group names does not accept dead letters: an operator has to change the settings."""


class WriteDeadLetters(Call, frozen=True):
    """Append a batch to a partition of a dead-letter topic, on the broker that leads it."""

    level: ClassVar[int] = 2

    topic_id: UUID
    partition: int
    batch: bytes


class LetterWriter(Protocol):
    async def write(self, source: Partition, group_id: str, letters: Sequence[DeadLetter]) -> int:
        """Write the first of these letters, which are by offset, as many as fit into one batch; how many. Returns when
        they are committed. `DeadLettersRefused` if the topic does not accept letters."""
        ...


class DeadLetterTopics:
    """Writes the dead letters of this broker's share groups."""

    def __init__(
        self,
        *,
        metadata: Metadata,
        partitions: PartitionTable,
        clock: Clock,
        workers: Executor,
        peers: Peers | None = None,
    ) -> None:
        self._metadata = metadata
        self._partitions = partitions
        self._clock = clock
        self._workers = workers
        self._peers = peers

    async def write(self, source: Partition, group_id: str, letters: Sequence[DeadLetter]) -> int:
        group = self._metadata.group_settings(group_id)
        topic = await self._destination(group.errors_deadletterqueue_topic_name)
        settings = self._metadata.topic_settings(topic)
        bodies = await self._bodies(source, letters) if group.errors_deadletterqueue_copy_record_enable else {}
        now_ms = int(self._clock.wall_ms())
        records = _fitting(
            [_record(source, group_id, letter, bodies.get(letter.offset), now_ms) for letter in letters],
            settings.max_message_bytes,
        )
        if settings.compacts and any(record.key is None for record in records):
            raise DeadLettersRefused(f"the topic {topic.name} is compacted, and records without a key cannot be in it")
        is_stamped = settings.message_timestamp_type == "LogAppendTime"
        batch = build_batch(records, log_append_time_ms=now_ms if is_stamped else None)
        await self._append(topic, source.index % len(topic.partitions), batch)
        return len(records)

    async def _destination(self, name: str) -> TopicImage:
        """The topic, created if the settings allow it."""
        metadata = self._metadata
        problem = dead_letter_topic_problem(name, metadata.settings) if name else "no topic is named"
        if problem is not None:
            raise DeadLettersRefused(problem)
        topic = metadata.image.topics.get(TopicName(name))
        if topic is None:
            if not metadata.settings.errors_deadletterqueue_auto_create_topics_enable:
                raise DeadLettersRefused(
                    f"the topic {name} does not exist: create it with {ENABLE}=true, or set "
                    "errors.deadletterqueue.auto.create.topics.enable=true"
                )
            try:
                wanted = {ENABLE: "true", "message.timestamp.type": "CreateTime"}
                topic = await metadata.create_topic(name, settings=wanted)
            except TopicExists:
                raise QueueUnavailable(f"the topic {name} is being created") from None
        _check_taking(topic, metadata.topic_settings(topic))
        return topic

    # -- reading the records

    async def _bodies(self, source: Partition, letters: Sequence[DeadLetter]) -> dict[int, Body]:
        """Key and value of the records that the log still has."""
        loop = asyncio.get_running_loop()
        wanted = sorted(letter.offset for letter in letters)
        found: dict[int, Body] = {}
        while wanted:
            try:
                cut = source.slice(wanted[0], _READ_BYTES, committed=False, at_least_one=True)
            except OffsetOutOfRange:
                wanted = wanted[1:]
                continue
            if cut is None:
                break
            bodies, end = await loop.run_in_executor(self._workers, _read_bodies, cut, frozenset(wanted))
            found |= bodies
            wanted = [offset for offset in wanted if offset >= max(end, wanted[0] + 1)]
        return found

    # -- appending

    async def _append(self, topic: TopicImage, index: int, batch: bytes) -> None:
        call = WriteDeadLetters(topic.topic_id, index, batch)
        leader = topic.partitions[index].leader
        if leader == NO_LEADER:
            raise QueueUnavailable(f"{topic.name}-{index} has no leader now")
        if leader == self._metadata.broker_id or self._peers is None:
            await self.serve(call)
        else:
            await ask(self._peers, leader, call, type(None), lane=_LANE, timeout_s=_TIMEOUT_S)

    async def serve(self, call: WriteDeadLetters) -> None:
        """Append it here. `NotLeader` if another broker leads the partition."""
        partition = self._partitions.by_id(call.topic_id, call.partition)
        partition.check_leading()
        if partition.in_sync_count < partition.settings.min_insync_replicas:
            raise NotEnoughReplicas(f"{partition} has too few replicas in sync: {partition.in_sync_count}")
        appended = partition.append(call.batch, read_header(call.batch))
        try:
            async with asyncio.timeout(_TIMEOUT_S):
                await partition.until_committed(appended.last_offset + 1)
        except TimeoutError:
            raise QueueUnavailable(f"dead letters could not be replicated in time in {partition}") from None


def _check_taking(topic: TopicImage, settings: TopicSettings) -> None:
    if not settings.errors_deadletterqueue_group_enable:
        raise DeadLettersRefused(f"the topic {topic.name} does not accept dead letters: set {ENABLE}=true for it")
    if settings.queue.is_queue:
        raise DeadLettersRefused(f"{topic.name} is a queue, and its messages are not plain records: name a topic")


def _record(source: Partition, group_id: str, letter: DeadLetter, body: Body | None, now_ms: int) -> Record:
    key, value = body or (None, None)
    context = {
        "topic": source.topic,
        "partition": str(source.index),
        "offset": str(letter.offset),
        "group": group_id,
        "delivery.count": str(letter.deliveries),
        "message": REJECTED if letter.is_rejected else DELIVERED_TOO_OFTEN,
    }
    headers = tuple((f"__dlq.errors.{name}", text.encode()) for name, text in context.items())
    return Record(letter.offset, now_ms, key, value, headers)


def _fitting(records: Sequence[Record], max_bytes: int) -> list[Record]:
    """As many of them as fit into one batch, at least one. One that is too large alone is sent without key and
    value."""
    fitting: list[Record] = []
    room = max_bytes - _BATCH_OVERHEAD_BYTES
    for record in records:
        if _size_bytes(record) > max_bytes - _BATCH_OVERHEAD_BYTES:
            record = record._replace(key=None, value=None)
        room -= _size_bytes(record)
        if fitting and room < 0:
            break
        fitting.append(record)
    return fitting


def _size_bytes(record: Record) -> int:
    headers = sum(len(name) + len(text or b"") for name, text in record.headers)
    return _RECORD_OVERHEAD_BYTES + len(record.key or b"") + len(record.value or b"") + headers


def _read_bodies(cut: Slice, wanted: frozenset[int]) -> tuple[Mapping[int, Body], int]:
    """The wanted records that are in a slice of the log, and where it ends. Runs in a worker."""
    data = memoryview(cut.read())
    found: dict[int, Body] = {}
    end = 0
    for position, header in iter_headers(data):
        end = header.last_offset + 1
        if not header.is_control and any(header.base_offset <= offset < end for offset in wanted):
            for record in iter_records(data[position : position + header.size], header):
                if record.offset in wanted:
                    found[record.offset] = record.key, record.value
    return found, end
