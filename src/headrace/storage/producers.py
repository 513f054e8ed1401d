"""The state of a partition's idempotent and transactional producers, without I/O and without a clock.

Follows Kafka 4.x:
- a batch whose epoch and sequence range equal one of the producer's last five is a duplicate, and is answered with the
  offsets of the original;
- otherwise it must continue the sequence (which wraps from 2^31-1 to 0), else `OutOfOrderSequence`; an old duplicate
  that is no longer among the five is out of order too;
- a new epoch starts at sequence 0, an older epoch is `FencedProducer`;
- an unknown producer may start at any sequence: retention or expiry may have removed its state, and refusing would
  stop it for no gain.

One difference: Kafka expires a producer by the timestamps in its records, Headrace by this broker's clock at the append
or replay. So a producer that writes old timestamps stays idempotent.

Transactions: the first batch flagged transactional opens one, a marker ends it. The marker's epoch becomes the
producer's, so that an instance with an older epoch is fenced. A marker with an older coordinator epoch than the last
one is refused. A producer with an open transaction does not expire. A transaction is unstable until its marker is
committed, because an uncommitted marker may be lost.

A reset marker clears everything, in live operation as in a replay: where a mirror was promoted, the producers before it
are another cluster's, and those after it may have the same ids.
"""

from collections.abc import Iterator
from struct import Struct
from struct import error as StructError
from typing import NamedTuple
from zlib import crc32

from headrace.model.errors import FencedCoordinator, FencedProducer, OutOfOrderSequence
from headrace.records.batch import CONTROL, TRANSACTIONAL, BatchHeader
from headrace.records.markers import Marker, ResetMarker

REMEMBERED_BATCHES = 5
_SEQUENCE_MASK = 0x7FFF_FFFF

_SNAPSHOT_HEAD = Struct(">4sHIQI")
"""Magic, version, CRC-32 of the rest, the offset up to which batches are covered, the number of producers."""
_SNAPSHOT_PRODUCER = Struct(">qhqqiqB")
_SNAPSHOT_BATCH = Struct(">iiqi")
_SNAPSHOT_MAGIC = b"HRPS"
_SNAPSHOT_VERSION = 2
_CRC_COVERS_FROM = 10


class SnapshotDamaged(Exception):
    """A snapshot that cannot be trusted: use an older one, or the log."""


class WrittenBatch(NamedTuple):
    base_sequence: int
    last_sequence: int
    base_offset: int
    last_offset: int


class EndedTransaction(NamedTuple):
    """A transaction that a marker has ended on this partition."""

    producer_id: int
    first_offset: int
    last_offset: int
    """The marker's offset."""
    committed: bool


class ProducerEntry:
    """One producer of this partition."""

    __slots__ = ("batches", "coordinator_epoch", "epoch", "first_offset", "seen_ms", "timestamp")

    def __init__(self, epoch: int, seen_ms: int) -> None:
        self.epoch = epoch
        self.seen_ms = seen_ms
        self.timestamp = -1
        """Of the last batch."""
        self.batches: list[WrittenBatch] = []
        """The last five batches of this epoch, oldest first."""
        self.first_offset = -1
        """The first offset of its open transaction; -1 without one."""
        self.coordinator_epoch = -1
        """Of the last marker."""


class Producers:
    """The producers of one partition, by producer id."""

    __slots__ = ("_ended", "_entries", "_open")

    def __init__(self) -> None:
        self._entries: dict[int, ProducerEntry] = {}
        self._open: dict[int, int] = {}
        """First offsets of open transactions by producer id, in the order of offsets."""
        self._ended: list[tuple[int, int]] = []
        """(marker's offset, first offset) of transactions whose markers may not be committed yet."""

    def __len__(self) -> int:
        return len(self._entries)

    def items(self) -> Iterator[tuple[int, ProducerEntry]]:
        return iter(self._entries.items())

    def get(self, producer_id: int) -> ProducerEntry | None:
        return self._entries.get(producer_id)

    # Transactions

    @property
    def first_open_offset(self) -> int | None:
        """The first offset of the oldest open transaction."""
        return next(iter(self._open.values()), None)

    def first_unstable_offset(self, high_watermark: int) -> int | None:
        """The first offset of the oldest transaction without a committed marker."""
        if self._ended:
            self._ended = [ended for ended in self._ended if ended[0] >= high_watermark]
            if self._ended:
                first = min(first for _, first in self._ended)
                return min(first, next(iter(self._open.values()), first))
        return next(iter(self._open.values()), None)

    def open_transactions(self) -> list[tuple[int, ProducerEntry]]:
        """The producers with an open transaction, in the order of first offsets."""
        return [(producer_id, self._entries[producer_id]) for producer_id in self._open]

    def is_open(self, producer_id: int, epoch: int) -> bool:
        """Whether this producer, at this epoch, has an open transaction in the partition."""
        return producer_id in self._open and self._entries[producer_id].epoch == epoch

    def check_epoch(self, producer_id: int, epoch: int) -> None:
        """Raise `FencedProducer` if the epoch of a producer, or of a marker for it, is older than the last one seen."""
        entry = self._entries.get(producer_id)
        if entry is not None and epoch < entry.epoch:
            raise FencedProducer(f"producer {producer_id} has epoch {epoch}, a newer instance has {entry.epoch}")

    def check_marker(self, producer_id: int, epoch: int, marker: Marker) -> None:
        self.check_epoch(producer_id, epoch)
        entry = self._entries.get(producer_id)
        if entry is not None and marker.coordinator_epoch < entry.coordinator_epoch:
            raise FencedCoordinator(
                f"a marker of coordinator epoch {marker.coordinator_epoch} comes after one of {entry.coordinator_epoch}"
            )

    def end(self, producer_id: int, epoch: int, marker: Marker, offset: int, now_ms: int) -> EndedTransaction | None:
        """Apply a marker at `offset`; returns the transaction that it ended, None if that has no records here."""
        entry = self._seen(producer_id, epoch, now_ms)
        entry.coordinator_epoch = marker.coordinator_epoch
        first_offset, entry.first_offset = entry.first_offset, -1
        if self._open.pop(producer_id, None) is None:
            return None
        self._ended.append((offset, first_offset))
        return EndedTransaction(producer_id, first_offset, offset, marker.committed)

    # Sequences

    def check(self, producer_id: int, epoch: int, base_sequence: int, last_offset_delta: int) -> WrittenBatch | None:
        """Return the original of a duplicate, or None if the batch may be appended. Changes nothing."""
        entry = self._entries.get(producer_id)
        if entry is None:
            return None
        if epoch != entry.epoch:
            if epoch < entry.epoch:
                raise FencedProducer(f"producer {producer_id} has epoch {epoch}, a newer instance has {entry.epoch}")
            if base_sequence != 0:
                raise OutOfOrderSequence(
                    f"producer {producer_id} starts epoch {epoch} with sequence {base_sequence} instead of 0"
                )
            return None
        batches = entry.batches
        expected = (batches[-1].last_sequence + 1) & _SEQUENCE_MASK if batches else 0
        if base_sequence == expected:
            return None
        last_sequence = (base_sequence + last_offset_delta) & _SEQUENCE_MASK
        for batch in batches:
            if batch.base_sequence == base_sequence and batch.last_sequence == last_sequence:
                return batch
        raise OutOfOrderSequence(
            f"producer {producer_id} sent sequence {base_sequence} where {expected} was expected (epoch {epoch})"
        )

    def continues(self, header: BatchHeader, before: BatchHeader | None) -> bool:
        """Whether a batch is the next one of its producer; `before` is the last one of any producer that will be
        recorded first. False if only `check` can tell, as for a duplicate or a new epoch.
        """
        if before is not None:
            return (header.producer_id, header.producer_epoch, header.base_sequence) == (
                before.producer_id,
                before.producer_epoch,
                (before.last_sequence + 1) & _SEQUENCE_MASK,
            )
        entry = self._entries.get(header.producer_id)
        if entry is None or entry.epoch != header.producer_epoch or not entry.batches:
            return False
        return header.base_sequence == (entry.batches[-1].last_sequence + 1) & _SEQUENCE_MASK

    def record(
        self,
        producer_id: int,
        epoch: int,
        base_sequence: int,
        last_offset_delta: int,
        base_offset: int,
        attributes: int,
        timestamp: int,
        now_ms: int,
    ) -> None:
        """Record a batch that was appended (and had passed `check`, here or at the leader)."""
        entry = self._seen(producer_id, epoch, now_ms)
        entry.timestamp = timestamp
        if attributes & TRANSACTIONAL and entry.first_offset < 0:
            entry.first_offset = self._open[producer_id] = base_offset
        if base_sequence < 0:
            return
        batches = entry.batches
        if len(batches) == REMEMBERED_BATCHES:
            del batches[0]
        batches.append(
            WrittenBatch(
                base_sequence,
                (base_sequence + last_offset_delta) & _SEQUENCE_MASK,
                base_offset,
                base_offset + last_offset_delta,
            )
        )

    def _seen(self, producer_id: int, epoch: int, now_ms: int) -> ProducerEntry:
        entry = self._entries.get(producer_id)
        if entry is None:
            entry = self._entries[producer_id] = ProducerEntry(epoch, now_ms)
        elif entry.epoch != epoch:
            entry.epoch = epoch
            entry.batches = []
        entry.seen_ms = now_ms
        return entry

    def replay(self, header: BatchHeader, marker: Marker | ResetMarker | None, now_ms: int) -> EndedTransaction | None:
        """Apply a batch read from the log or sent by the leader. `marker` is the content of a control batch."""
        if isinstance(marker, ResetMarker):
            self.reset()
        if header.producer_id < 0:
            return None
        if header.attributes & CONTROL:
            if not isinstance(marker, Marker):
                return None
            return self.end(header.producer_id, header.producer_epoch, marker, header.base_offset, now_ms)
        if header.base_sequence >= 0 or header.attributes & TRANSACTIONAL:
            self.record(
                header.producer_id,
                header.producer_epoch,
                header.base_sequence,
                header.last_offset_delta,
                header.base_offset,
                header.attributes,
                header.max_timestamp,
                now_ms,
            )
        return None

    def expire(self, before_ms: int) -> int:
        """Remove producers not seen since `before_ms` that have no open transaction; returns how many."""
        expired = [pid for pid, entry in self._entries.items() if entry.seen_ms < before_ms and entry.first_offset < 0]
        for producer_id in expired:
            del self._entries[producer_id]
        return len(expired)

    def reset(self) -> None:
        """Apply a reset marker. Transactions whose markers may not be committed yet stay unstable."""
        self._entries.clear()
        self._open.clear()

    def clear(self) -> None:
        self._entries.clear()
        self._open.clear()
        self._ended.clear()

    # Snapshots

    def to_snapshot(self, offset: int) -> bytes:
        """Encode the state as of `offset`, with a checksum."""
        parts = []
        for producer_id, entry in self._entries.items():
            parts.append(
                _SNAPSHOT_PRODUCER.pack(
                    producer_id,
                    entry.epoch,
                    entry.seen_ms,
                    entry.timestamp,
                    entry.coordinator_epoch,
                    entry.first_offset,
                    len(entry.batches),
                )
            )
            parts.extend(
                _SNAPSHOT_BATCH.pack(b.base_sequence, b.last_sequence, b.base_offset, b.last_offset - b.base_offset)
                for b in entry.batches
            )
        body = b"".join(parts)
        head = _SNAPSHOT_HEAD.pack(_SNAPSHOT_MAGIC, _SNAPSHOT_VERSION, 0, offset, len(self._entries))
        crc = crc32(body, crc32(head[_CRC_COVERS_FROM:]))
        return _SNAPSHOT_HEAD.pack(_SNAPSHOT_MAGIC, _SNAPSHOT_VERSION, crc, offset, len(self._entries)) + body

    @classmethod
    def from_snapshot(cls, data: bytes, offset: int) -> "Producers":
        """Decode the state that `to_snapshot(offset)` encoded; raises `SnapshotDamaged`."""
        try:
            magic, version, crc, found_offset, count = _SNAPSHOT_HEAD.unpack_from(data)
            if magic != _SNAPSHOT_MAGIC or version != _SNAPSHOT_VERSION or found_offset != offset:
                raise SnapshotDamaged("not a snapshot of this offset")
            if crc32(data[_CRC_COVERS_FROM:]) != crc:
                raise SnapshotDamaged("wrong checksum")
            state = cls()
            position = _SNAPSHOT_HEAD.size
            for _ in range(count):
                fields = _SNAPSHOT_PRODUCER.unpack_from(data, position)
                producer_id, epoch, seen_ms, timestamp, coordinator_epoch, first_offset, batches = fields
                position += _SNAPSHOT_PRODUCER.size
                entry = state._entries[producer_id] = ProducerEntry(epoch, seen_ms)
                entry.timestamp, entry.coordinator_epoch, entry.first_offset = (
                    timestamp,
                    coordinator_epoch,
                    first_offset,
                )
                for _ in range(batches):
                    first, last, base_offset, delta = _SNAPSHOT_BATCH.unpack_from(data, position)
                    position += _SNAPSHOT_BATCH.size
                    entry.batches.append(WrittenBatch(first, last, base_offset, base_offset + delta))
            opened = ((entry.first_offset, pid) for pid, entry in state._entries.items() if entry.first_offset >= 0)
            state._open = {pid: first_offset for first_offset, pid in sorted(opened)}
            return state
        except StructError as error:
            raise SnapshotDamaged("cut off") from error
