"""What a partition knows of its idempotent producers: pure state, no I/O and no clock.

Follows Kafka 4.x:
- a batch whose epoch and sequence range equal one of the producer's last five is a duplicate, and is answered with the
  offsets of the original;
- otherwise it must continue the sequence (which wraps from 2^31-1 to 0), else `OutOfOrderSequence`; an old duplicate
  that is no longer among the five is out of order too;
- a new epoch starts at sequence 0, an older epoch is `FencedProducer`;
- a producer that is not known may start at any sequence: retention or expiry may have removed what was known of it,
  and refusing would stop it for no gain.

One difference: Kafka lets a producer expire by the timestamps in its records, here the time is that of this broker's
clock at the append or replay. A producer of old timestamps keeps its protection.

Batches flagged transactional are remembered as such in their entries. Control batches have no sequence: skipped.
"""

from collections.abc import Iterator
from struct import Struct
from struct import error as StructError
from typing import NamedTuple
from zlib import crc32

from headrace.model.errors import FencedProducer, OutOfOrderSequence
from headrace.records.batch import CONTROL, TRANSACTIONAL, BatchHeader

REMEMBERED_BATCHES = 5
_SEQUENCE_MASK = 0x7FFF_FFFF

_SNAPSHOT_HEAD = Struct(">4sHIQI")
"""Magic, version, CRC-32 of what follows it, the offset up to which the state reaches, the number of producers."""
_SNAPSHOT_PRODUCER = Struct(">qhqBB")
_SNAPSHOT_BATCH = Struct(">iiqi")
_SNAPSHOT_MAGIC = b"HRPS"
_SNAPSHOT_VERSION = 1
_CRC_COVERS_FROM = 10


class SnapshotDamaged(Exception):
    """A snapshot that cannot be trusted: use an older one, or the log."""


class WrittenBatch(NamedTuple):
    base_sequence: int
    last_sequence: int
    base_offset: int
    last_offset: int


class ProducerEntry:
    """One producer of this partition."""

    __slots__ = ("batches", "epoch", "is_transactional", "seen_ms")

    def __init__(self, epoch: int, seen_ms: int, is_transactional: bool = False) -> None:
        self.epoch = epoch
        self.seen_ms = seen_ms
        self.is_transactional = is_transactional
        self.batches: list[WrittenBatch] = []
        """The last five batches of this epoch, oldest first."""


class Producers:
    """The idempotent producers of one partition, by producer id."""

    __slots__ = ("_entries",)

    def __init__(self) -> None:
        self._entries: dict[int, ProducerEntry] = {}

    def __len__(self) -> int:
        return len(self._entries)

    def items(self) -> Iterator[tuple[int, ProducerEntry]]:
        return iter(self._entries.items())

    def check(self, producer_id: int, epoch: int, base_sequence: int, last_offset_delta: int) -> WrittenBatch | None:
        """The original of a duplicate, or None if the batch may be appended. Changes nothing."""
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

    def record(
        self,
        producer_id: int,
        epoch: int,
        base_sequence: int,
        last_offset_delta: int,
        base_offset: int,
        attributes: int,
        now_ms: int,
    ) -> None:
        """Remember a batch that was appended (and had passed `check`, here or at the leader)."""
        entry = self._entries.get(producer_id)
        if entry is None or entry.epoch != epoch:
            entry = self._entries[producer_id] = ProducerEntry(epoch, now_ms)
        entry.seen_ms = now_ms
        entry.is_transactional = bool(attributes & TRANSACTIONAL)
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

    def replay(self, header: BatchHeader, now_ms: int) -> None:
        """Take note of a batch found in the log or sent by the leader; batches without a sequence are passed over."""
        if header.producer_id < 0 or header.base_sequence < 0 or header.attributes & CONTROL:
            return
        self.record(
            header.producer_id,
            header.producer_epoch,
            header.base_sequence,
            header.last_offset_delta,
            header.base_offset,
            header.attributes,
            now_ms,
        )

    def expire(self, before_ms: int) -> int:
        """Forget producers not seen since `before_ms`; returns how many."""
        expired = [pid for pid, entry in self._entries.items() if entry.seen_ms < before_ms]
        for producer_id in expired:
            del self._entries[producer_id]
        return len(expired)

    def clear(self) -> None:
        self._entries.clear()

    def to_snapshot(self, offset: int) -> bytes:
        """Everything known of batches below `offset`, as bytes that say when they are damaged."""
        parts = []
        for producer_id, entry in self._entries.items():
            flags = int(entry.is_transactional)
            parts.append(_SNAPSHOT_PRODUCER.pack(producer_id, entry.epoch, entry.seen_ms, flags, len(entry.batches)))
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
        """The state that `to_snapshot(offset)` wrote; raises `SnapshotDamaged`."""
        try:
            magic, version, crc, found_offset, count = _SNAPSHOT_HEAD.unpack_from(data)
            if magic != _SNAPSHOT_MAGIC or version != _SNAPSHOT_VERSION or found_offset != offset:
                raise SnapshotDamaged("not a snapshot of this offset")
            if crc32(data[_CRC_COVERS_FROM:]) != crc:
                raise SnapshotDamaged("wrong checksum")
            state = cls()
            position = _SNAPSHOT_HEAD.size
            for _ in range(count):
                producer_id, epoch, seen_ms, flags, batches = _SNAPSHOT_PRODUCER.unpack_from(data, position)
                position += _SNAPSHOT_PRODUCER.size
                entry = state._entries[producer_id] = ProducerEntry(epoch, seen_ms, bool(flags))
                for _ in range(batches):
                    first, last, base_offset, delta = _SNAPSHOT_BATCH.unpack_from(data, position)
                    position += _SNAPSHOT_BATCH.size
                    entry.batches.append(WrittenBatch(first, last, base_offset, base_offset + delta))
            return state
        except StructError as error:
            raise SnapshotDamaged("cut off") from error
