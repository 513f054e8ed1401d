"""Produce requests that wait because the backlog of a partition is at a bound whose policy is `block`.

The connection reads nothing meanwhile, so that its requests stay in order and TCP holds its client back. A request
waits five seconds at most; then the partition is answered with an error that clients retry. All requests that wait hold
32 MiB at most: beyond that they are answered at once.
"""

from headrace.cluster.metadata import Metadata
from headrace.config.backlog import backlog_rows
from headrace.config.queue import PREFIX
from headrace.model.errors import HeadraceError
from headrace.model.image import ClusterImage
from headrace.protocol.fast import TopicKey
from headrace.protocol.produce_request import ProduceRequest
from headrace.records.batch import HEADER_SIZE, BatchHeader, read_header
from headrace.replication.backlog import WAIT_S, BacklogGuard
from headrace.replication.partition import Partition
from headrace.replication.partitions import PartitionTable
from headrace.runtime.clock import Clock

HELD_MAX_BYTES = 32 * 1024 * 1024
_BOUNDS = frozenset(row.name for prefix in ("", PREFIX) for row in backlog_rows(prefix, "", ""))

Batch = tuple[BacklogGuard, int, int]
"""A bound, and the messages and bytes that are to be appended."""


class BacklogWaits:
    """The waiting requests of a broker."""

    def __init__(self, metadata: Metadata, partitions: PartitionTable, clock: Clock) -> None:
        self._metadata = metadata
        self._partitions = partitions
        self._clock = clock
        self._held_bytes = 0
        self._image: ClusterImage | None = None
        self._is_needed = False

    @property
    def is_needed(self) -> bool:
        """Whether the backlog of any topic or queue has a bound. Computed once per image."""
        image = self._metadata.image
        if image is not self._image:
            self._image = image
            self._is_needed = any(not _BOUNDS.isdisjoint(topic.settings) for topic in image.topics.values())
        return self._is_needed

    def concerned(self, request: ProduceRequest) -> list[Batch]:
        """The batches of a request for which there is no room now, and may be later, or for which others wait."""
        found = []
        for topic, partitions in request.topics:
            for index, records in partitions:
                if records is None or len(records) < HEADER_SIZE:
                    continue
                guard = self._guard(topic, index)
                if guard is None or not guard.bound.blocks:
                    continue
                count = read_header(records).record_count
                if guard.has_waiting or guard.refusal(count, len(records)) is not None:
                    found.append((guard, count, len(records)))
        return found

    async def until_room(self, batches: list[Batch]) -> None:
        """Wait for room for all of them, or for a while."""
        size_bytes = sum(each[2] for each in batches)
        if self._held_bytes + size_bytes > HELD_MAX_BYTES:
            return
        self._held_bytes += size_bytes
        try:
            until_ms = self._clock.monotonic_ms() + WAIT_S * 1000
            for guard, count, batch_bytes in batches:
                await guard.until_room(count, batch_bytes, (until_ms - self._clock.monotonic_ms()) / 1000)
        finally:
            self._held_bytes -= size_bytes

    def _guard(self, topic: TopicKey, index: int) -> BacklogGuard | None:
        table = self._partitions
        try:
            partition = table.get(topic, index) if isinstance(topic, str) else table.by_id(topic, index)
        except HeadraceError:
            return None
        return partition.backlog if partition.is_leader else None


def check_backlog(partition: Partition, guard: BacklogGuard, header: BatchHeader, size_bytes: int) -> None:
    """Refuse a batch for which there is no room, unless it is stored already."""
    refusal = guard.refusal(header.record_count, size_bytes)
    if refusal is not None:
        refuse_if_new(partition, header, refusal)


def refuse_if_new(partition: Partition, header: BatchHeader, refusal: HeadraceError) -> None:
    """Raise the refusal of a batch, unless it is stored already: then it is answered as a duplicate."""
    is_idempotent = header.producer_id >= 0 and header.base_sequence >= 0
    if not is_idempotent or not partition.log.producers.check(
        header.producer_id, header.producer_epoch, header.base_sequence, header.last_offset_delta
    ):
        raise refusal
