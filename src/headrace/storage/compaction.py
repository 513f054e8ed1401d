"""Decides, without file access, which offsets compaction cleans and which records of each batch it retains.

The guarantee of a compacted log: a consumer that reads it from start to end sees, for every key, at least the last
value written, in the order of offsets. So a record may be removed when the log has a later one with its key, and a
tombstone (a null value) once consumers had `delete.retention.ms` to see it.

When a tombstone is removed (KIP-534): the first pass that finds it writes a *delete horizon* into its batch; a pass
after the horizon removes it. The horizon is set when the same pass removes the older values of the key, so no consumer
that starts later can see a value and miss its tombstone.

Transactions (only decided ones are compacted): records of aborted ones are ignored. A marker without remaining records
of its transaction before it gets its own delete horizon, and is removed after it.

A record that cannot be decoded is never dropped: its whole batch stays unchanged.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import NamedTuple

from headrace.model.errors import RecordError
from headrace.records.batch import DELETE_HORIZON, BatchHeader, Buffer
from headrace.records.builder import retain
from headrace.records.reader import decompressed, spans
from headrace.storage.aborted import AbortedTransactions

_DIGEST_BYTES = 20
_ENTRY_BYTES = 240
"""The memory of one key in an `OffsetMap`: a dict slot at the lowest load, the key or its digest, and an integer."""
_RECORDS_PER_PAUSE = 64
_MAX_SEGMENT_OFFSETS = 2**31 - 1
"""The most offsets in a segment: indexes store offsets relative to the base, in four bytes."""


class OffsetMap:
    """The last offset of each key, in bounded memory.

    Keys of up to 19 bytes are stored as they are, longer ones as a 20-byte digest, so a key never equals a digest.
    """

    def __init__(self, max_bytes: int, aborted: AbortedTransactions | None = None) -> None:
        self._max_entries = max(1, max_bytes // _ENTRY_BYTES)
        self._aborted = aborted or AbortedTransactions()
        self._offsets: dict[bytes, int] = {}
        self.end_offset = -1
        """Every record below this offset and at or above the start of the pass is in the map."""

    def __len__(self) -> int:
        return len(self._offsets)

    def add(self, batch: Buffer, header: BatchHeader, pause: Callable[[], None]) -> bool:
        """Add the keys of a batch; False, and nothing added, if they do not fit any more.

        The first batch always fits, so that a pass makes progress whatever the bound.
        """
        offsets = self._offsets
        if offsets and len(offsets) + header.record_count > self._max_entries:
            return False
        if header.record_count > 0 and not header.is_control and not self._aborted.covers(header):
            found: dict[bytes, int] = {}
            try:
                data = decompressed(batch, header)
                for index, span in enumerate(spans(data, header)):
                    if span.key_end >= 0:
                        key = _short(data[span.key_start : span.key_end])
                        found[key] = header.base_offset + span.offset_delta
                    if index % _RECORDS_PER_PAUSE == _RECORDS_PER_PAUSE - 1:
                        pause()
            except RecordError:
                found.clear()
            offsets.update(found)
        self.end_offset = header.next_offset
        return True

    def is_superseded(self, key: bytes, offset: int) -> bool:
        latest = self._offsets.get(_short(key))
        return latest is not None and offset < latest


def _short(key: bytes) -> bytes:
    return key if len(key) < _DIGEST_BYTES else blake2b(key, digest_size=_DIGEST_BYTES).digest()


@dataclass(slots=True)
class Compactor:
    """Compacts each batch in one pass over the log, and counts records."""

    offsets: OffsetMap
    last_batches: Mapping[int, int]
    """Producer id to the last offset of its last batch. That batch stays, if need be empty, as the record of the
    producer's sequence: without it a restart would lose the producer's state and refuse its next batch."""
    now_ms: int
    delete_retention_ms: int
    aborted: AbortedTransactions
    pause: Callable[[], None]
    """Called every few dozen records, so that a busy pass lets other threads run."""
    records_read: int = 0
    records_retained: int = 0
    next_horizon_ms: int | None = None
    """The earliest time at which another pass could remove a tombstone or a marker."""
    dropped_markers: list[int] = field(default_factory=list)
    """Offsets of the markers that were removed."""
    _in_transaction: set[int] = field(default_factory=set)
    """Producers with remaining batches, even empty ones, since their last marker: replaying one opens a transaction."""

    def compact(self, batch: Buffer, header: BatchHeader) -> Buffer | None:
        """Return the compacted batch: unchanged, with fewer records, or None if nothing of it remains."""
        self.records_read += header.record_count
        if header.base_offset >= self.offsets.end_offset or (header.is_control and not header.is_transactional):
            return self._keep(batch, header)
        if header.is_control:
            return self._compact_marker(batch, header)
        left = self._compact_data(batch, header)
        if left is not None and header.is_transactional:
            self._in_transaction.add(header.producer_id)
        return left

    def _compact_data(self, batch: Buffer, header: BatchHeader) -> Buffer | None:
        if header.record_count == 0:
            return batch if self._is_last_of_producer(header) else None
        if self.aborted.covers(header):
            return retain(header, b"", ()) if self._is_last_of_producer(header) else None
        try:
            return self._compact(batch, header)
        except RecordError:
            return self._keep(batch, header)

    def _compact_marker(self, batch: Buffer, header: BatchHeader) -> Buffer | None:
        if header.producer_id in self._in_transaction:
            self._in_transaction.discard(header.producer_id)
            return self._keep(batch, header)
        if not header.attributes & DELETE_HORIZON:
            horizon_ms = self.now_ms + self.delete_retention_ms
            self._expect(horizon_ms)
            data = decompressed(batch, header)
            self.records_retained += header.record_count
            return retain(header, data, tuple(spans(data, header)), delete_horizon_ms=horizon_ms)
        if self.now_ms < header.base_timestamp:
            self._expect(header.base_timestamp)
            return self._keep(batch, header)
        self.dropped_markers.append(header.base_offset)
        return None

    def _compact(self, batch: Buffer, header: BatchHeader) -> Buffer | None:
        data = decompressed(batch, header)
        has_horizon = bool(header.attributes & DELETE_HORIZON)
        horizon_ms = header.base_timestamp if has_horizon else self.now_ms + self.delete_retention_ms
        tombstones_stay = not has_horizon or self.now_ms < horizon_ms
        is_superseded, base_offset = self.offsets.is_superseded, header.base_offset
        retained = []
        has_tombstone = False
        for index, span in enumerate(spans(data, header)):
            if index % _RECORDS_PER_PAUSE == _RECORDS_PER_PAUSE - 1:
                self.pause()
            if span.key_end < 0 or is_superseded(data[span.key_start : span.key_end], base_offset + span.offset_delta):
                continue
            if span.value_end < 0:
                if not tombstones_stay:
                    continue
                has_tombstone = True
            retained.append(span)
        if not retained and not self._is_last_of_producer(header):
            return None
        self.records_retained += len(retained)
        if has_tombstone:
            self._expect(horizon_ms)
            if not has_horizon:
                return retain(header, data, retained, delete_horizon_ms=horizon_ms)
        return batch if len(retained) == header.record_count else retain(header, data, retained)

    def _keep(self, batch: Buffer, header: BatchHeader) -> Buffer:
        self.records_retained += header.record_count
        return batch

    def _is_last_of_producer(self, header: BatchHeader) -> bool:
        return header.producer_id >= 0 and self.last_batches.get(header.producer_id) == header.last_offset

    def _expect(self, horizon_ms: int) -> None:
        if self.next_horizon_ms is None or horizon_ms < self.next_horizon_ms:
            self.next_horizon_ms = horizon_ms


class SegmentView(NamedTuple):
    """The facts about a closed segment that compaction decides by."""

    base_offset: int
    end_offset: int
    """The base offset of the segment that follows."""
    size_bytes: int
    first_timestamp: int
    max_timestamp: int


class CleanRange(NamedTuple):
    """The range of one pass: dirty offsets are mapped, and everything below their end is rewritten."""

    first_dirty: int
    end: int
    clean_bytes: int
    dirty_bytes: int
    is_overdue: bool
    """Whether a dirty record has waited for `max.compaction.lag.ms`."""

    @property
    def dirty_ratio(self) -> float:
        total = self.clean_bytes + self.dirty_bytes
        return self.dirty_bytes / total if total else 0.0


def clean_range(
    closed: Sequence[SegmentView],
    *,
    first_dirty: int,
    limit: int,
    now_ms: int,
    min_lag_ms: int,
    max_lag_ms: int,
) -> CleanRange:
    """The range of the closed segments that can be cleaned, given the first dirty offset.

    `limit` is the first offset that must not be cleaned: records from there on may still be truncated or aborted. A
    segment with a record younger than `min_lag_ms` ends the range.
    """
    clean_bytes = dirty_bytes = 0
    end = first_dirty
    is_overdue = False
    for segment in closed:
        if segment.end_offset <= first_dirty:
            clean_bytes += segment.size_bytes
            continue
        if segment.end_offset > limit or (min_lag_ms > 0 and segment.max_timestamp > now_ms - min_lag_ms):
            break
        dirty_bytes += segment.size_bytes
        end = segment.end_offset
        is_overdue = is_overdue or 0 <= segment.first_timestamp < now_ms - max_lag_ms
    return CleanRange(first_dirty, end, clean_bytes, dirty_bytes, is_overdue)


def fits_behind(base_offset: int, written_bytes: int, following: SegmentView, *, max_bytes: int) -> bool:
    """Whether one more compacted segment certainly fits after the bytes written for the segments before it.

    They then become one segment, so that compaction does not leave many tiny files.
    """
    return (
        written_bytes + following.size_bytes <= max_bytes and following.end_offset - base_offset <= _MAX_SEGMENT_OFFSETS
    )
