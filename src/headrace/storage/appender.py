"""Appends to a log: batches of producers, markers, batches from the leader, and those of another cluster.

`Appender.append` runs for every produced batch and is inlined for speed.
"""

from collections.abc import Iterable, Sequence
from itertools import islice
from struct import Struct
from typing import NamedTuple, NoReturn

from headrace.model.errors import CorruptBatch, OffsetOutOfRange, RecordTooLarge, StorageFailed
from headrace.model.links import MAX_SOURCE_OFFSET
from headrace.records.batch import (
    CONTROL,
    ENCRYPTED,
    LOG_APPEND_TIME,
    LOG_OVERHEAD,
    STAMP_SIZE,
    TRANSACTIONAL,
    BatchHeader,
    Buffer,
    check_batch,
    iter_headers,
    read_header,
)
from headrace.records.markers import Marker, build_marker, build_reset_marker, read_control
from headrace.storage.files import storage_error
from headrace.storage.replay import note_aborted
from headrace.storage.roll import MAX_OFFSET_DELTA
from headrace.storage.segment import Segment
from headrace.storage.segments import POSITIONS_MAX
from headrace.storage.state import LogState
from headrace.storage.truncation import truncate_fully

_STAMP = Struct(">qii")
_DATA_OF_TRANSACTION = CONTROL | TRANSACTIONAL
_RUN_MAX_BATCHES = 500
"""A system call takes 1,024 buffers, and a batch has two."""
_MIRRORED_ROLLS_MAX = 8
"""Segments that one answer of another cluster may begin; the rest of it is asked for again. A source decides by offsets
and timestamps when a segment is rolled: with thousands in one answer, the event loop would stand still."""


class AppendResult(NamedTuple):
    base_offset: int
    last_offset: int
    append_time_ms: int
    """-1 unless the topic has `message.timestamp.type=LogAppendTime`."""
    duplicate: bool
    """An idempotent producer's retry: the offsets are the original's, nothing was written."""
    log_start_offset: int


class ProducedBatch(NamedTuple):
    """A batch of a producer that was checked, and its header."""

    records: Buffer
    header: BatchHeader


class Appender:
    """Appends to one log."""

    __slots__ = ("_log",)

    def __init__(self, log: LogState) -> None:
        self._log = log

    def append(self, batch: Buffer, header: BatchHeader, leader_epoch: int) -> AppendResult:
        """See `Log.append`."""
        log = self._log
        if log.is_closed or log.failure is not None:
            log.refuse()
        _, length, _, _, _, attributes, last_delta, _, timestamp, producer_id, producer_epoch, sequence, _ = header
        is_idempotent = producer_id >= 0 and sequence >= 0
        if is_idempotent:
            original = log.producers.check(producer_id, producer_epoch, sequence, last_delta)
            if original is not None:
                return AppendResult(original.base_offset, original.last_offset, -1, True, log.start_offset)
        elif attributes & TRANSACTIONAL:
            log.producers.check_epoch(producer_id, producer_epoch)
        base_offset = log.end_offset
        last_offset = base_offset + last_delta
        cipher, plain = log.cipher, batch
        if cipher is not None and cipher.encrypts and not attributes & CONTROL:
            batch = cipher.encrypt(batch, header, base_offset)
            length = len(batch) - LOG_OVERHEAD
        size = length + LOG_OVERHEAD
        segments, limits = log.segments, log.limits
        segment = segments.active
        if (
            segment.size + size > limits.segment_bytes
            or not 0 <= timestamp <= limits.after_ms
            or last_offset > limits.after_offset
        ):
            segment = self._make_room(size, timestamp, last_offset)
        if leader_epoch != log.epochs.latest:
            log.epochs.assign(leader_epoch, base_offset)
        position = segment.size
        try:
            writer = segment.writer or segment.open_writer()
            writer.append((_STAMP.pack(base_offset, length, leader_epoch), memoryview(batch)[STAMP_SIZE:size]))
        except OSError as error:
            self._undo(segment, error)
        segment.size = position + size
        log.end_offset = last_offset + 1
        if segment.first_timestamp is None:
            segment.first_timestamp = timestamp
            limits.update(segment)
        if timestamp > segment.max_timestamp:
            segment.note_timestamp(timestamp, last_offset)
        if segment.unindexed_bytes > limits.interval_bytes:
            segment.add_to_indexes(last_offset, position)
            if limits.is_index_full(segment):
                limits.update(segment)
        segment.unindexed_bytes += size
        if is_idempotent or attributes & _DATA_OF_TRANSACTION == TRANSACTIONAL:
            log.producers.record(
                producer_id,
                producer_epoch,
                sequence,
                last_delta,
                base_offset,
                attributes,
                timestamp,
                log.clock.wall_ms(),
            )
        positions = segments.positions
        positions[base_offset] = position
        if len(positions) > POSITIONS_MAX:
            segments.forget_old_positions()
        if cipher is not None:
            cipher.remember(plain, base_offset, last_offset + 1, leader_epoch, size)
        append_time_ms = timestamp if attributes & LOG_APPEND_TIME else -1
        return AppendResult(base_offset, last_offset, append_time_ms, False, log.start_offset)

    def append_run(self, batches: Iterable[ProducedBatch], leader_epoch: int) -> list[ProducedBatch]:
        """See `Log.append_run`."""
        log = self._log
        segments, limits = log.segments, log.limits
        segment = segments.active
        writer = segment.writer
        if (
            log.is_closed
            or log.failure is not None
            or log.cipher is not None
            or leader_epoch != log.epochs.latest
            or writer is None
            or segment.first_timestamp is None
        ):
            return []
        position, base_offset = segment.size, log.end_offset
        run: list[ProducedBatch] = []
        buffers: list[Buffer] = []
        before: BatchHeader | None = None
        for each in islice(batches, _RUN_MAX_BATCHES):
            batch, header = each
            length, last_delta, timestamp = header.length, header.last_offset_delta, header.max_timestamp
            end = position + length + LOG_OVERHEAD
            if (
                end > limits.segment_bytes
                or not 0 <= timestamp <= limits.after_ms
                or base_offset + last_delta > limits.after_offset
                or header.attributes & _DATA_OF_TRANSACTION
                or (header.producer_id >= 0 and not log.producers.continues(header, before))
            ):
                break
            buffers.append(_STAMP.pack(base_offset, length, leader_epoch))
            buffers.append(memoryview(batch)[STAMP_SIZE:])
            run.append(each)
            position, base_offset = end, base_offset + last_delta + 1
            if header.producer_id >= 0:
                before = header
        if run:
            try:
                writer.append(buffers)
            except OSError as error:
                self._undo(segment, error)
            self._note_run(run)
        return run

    def _note_run(self, run: Sequence[ProducedBatch]) -> None:
        """Record batches that were written to the active segment."""
        log = self._log
        limits, segments = log.limits, log.segments
        segment, positions, now_ms = segments.active, segments.positions, log.clock.wall_ms()
        base_offset, position = log.end_offset, segment.size
        for _, header in run:
            last_offset, timestamp = base_offset + header.last_offset_delta, header.max_timestamp
            if timestamp > segment.max_timestamp:
                segment.note_timestamp(timestamp, last_offset)
            # Once the index is full, the next batch that is appended begins a segment.
            if segment.unindexed_bytes > limits.interval_bytes and not limits.is_index_full(segment):
                segment.add_to_indexes(last_offset, position)
            size = header.length + LOG_OVERHEAD
            segment.unindexed_bytes += size
            if header.producer_id >= 0:
                log.producers.record(
                    header.producer_id,
                    header.producer_epoch,
                    header.base_sequence,
                    header.last_offset_delta,
                    base_offset,
                    header.attributes,
                    timestamp,
                    now_ms,
                )
            positions[base_offset] = position
            base_offset, position = last_offset + 1, position + size
        segment.size, log.end_offset = position, base_offset
        if limits.is_index_full(segment):
            limits.update(segment)
        if len(positions) > POSITIONS_MAX:
            segments.forget_old_positions()

    def append_marker(self, producer_id: int, producer_epoch: int, marker: Marker, leader_epoch: int) -> AppendResult:
        """See `Log.append_marker`."""
        log = self._log
        log.check_writable()
        log.producers.check_marker(producer_id, producer_epoch, marker)
        now_ms = log.clock.wall_ms()
        batch = build_marker(producer_id, producer_epoch, marker, now_ms)
        result = self.append(batch, read_header(batch), leader_epoch)
        ended = log.producers.end(producer_id, producer_epoch, marker, result.base_offset, now_ms)
        note_aborted(log.aborted, ended, log.producers)
        return result

    def append_reset(self, leader_epoch: int) -> AppendResult:
        """See `Log.append_reset`."""
        log = self._log
        log.check_writable()
        batch = build_reset_marker(log.clock.wall_ms())
        result = self.append(batch, read_header(batch), leader_epoch)
        log.producers.reset()
        return result

    def append_mirrored(self, batches: Buffer) -> int:
        """See `Log.append_mirrored`."""
        view, log = memoryview(batches), self._log
        rolls_left = _MIRRORED_ROLLS_MAX
        for at, header in iter_headers(view):
            batch, segment = view[at : at + header.size], log.segments.active
            self.append_replicated(self._from_elsewhere(batch, header))
            rolls_left -= log.segments.active is not segment
            if not rolls_left:
                break
        return log.end_offset

    def _from_elsewhere(self, batch: memoryview, header: BatchHeader) -> Buffer:
        """A batch of another cluster as it is stored here."""
        _check_foreign(batch, header)
        cipher = self._log.cipher
        if cipher is None or not cipher.encrypts or header.is_control:
            return batch
        check_batch(batch)
        return cipher.encrypt(batch, header, header.base_offset)

    def append_replicated(self, batches: Buffer) -> int:
        """See `Log.append_replicated`."""
        log = self._log
        log.check_writable()
        view = memoryview(batches)
        position, end = 0, len(view)
        now_ms = log.clock.wall_ms()
        while position < end:
            header = check_batch(view, position)
            if header.base_offset < log.end_offset:
                raise OffsetOutOfRange(
                    f"{log.directory.name} ends at {log.end_offset}; a batch at {header.base_offset} lies before that"
                )
            batch = view[position : position + header.size]
            self._append_one(batch, header, now_ms)
            position += header.size
        if len(log.segments.positions) > POSITIONS_MAX:
            log.segments.forget_old_positions()
        return log.end_offset

    def _append_one(self, batch: memoryview, header: BatchHeader, now_ms: int) -> None:
        """Append a batch unchanged, at or past the end of the log."""
        log = self._log
        segment = self._make_room_for_replicated(header)
        if header.leader_epoch != log.epochs.latest:
            log.epochs.assign(header.leader_epoch, header.base_offset)
        start = segment.size
        try:
            writer = segment.writer or segment.open_writer()
            writer.append((batch,))
        except OSError as error:
            self._undo(segment, error)
        segment.note_batch(start, header, log.limits.interval_bytes)
        log.limits.update(segment)
        log.end_offset = header.next_offset
        marker = read_control(batch, header) if header.is_control else None
        note_aborted(log.aborted, log.producers.replay(header, marker, now_ms), log.producers)
        log.segments.positions[header.base_offset] = start

    def _make_room(self, size: int, timestamp: int, last_offset: int) -> Segment:
        """The segment for a batch: the active one, or a new one if it does not fit."""
        log = self._log
        if size > log.limits.segment_bytes:
            raise RecordTooLarge(f"a batch of {size} bytes is larger than segment.bytes={log.limits.segment_bytes}")
        segment = log.segments.active
        is_full = segment.size + size > log.limits.segment_bytes
        if segment.size and (is_full or log.limits.is_due(segment, timestamp, last_offset)):
            log.roll()
        return log.segments.active

    def _make_room_for_replicated(self, header: BatchHeader) -> Segment:
        """Like `_make_room`, for a batch with given offsets and size."""
        log = self._log
        segment = log.segments.active
        is_full = segment.size + header.size > log.limits.segment_bytes
        if segment.size and (is_full or log.limits.is_due(segment, header.max_timestamp, header.last_offset)):
            # Without a gap if the offsets allow it: recovery treats a gap between segments as lost bytes.
            is_far = header.last_offset - log.end_offset > MAX_OFFSET_DELTA
            log.roll(header.base_offset if is_far else None)
        elif not segment.size and header.last_offset - segment.base_offset > MAX_OFFSET_DELTA:
            truncate_fully(log, header.base_offset)
        return log.segments.active

    def _undo(self, segment: Segment, error: OSError) -> NoReturn:
        """Truncate the bytes of a failed write, and raise the reason. If that fails too, the log fails."""
        log = self._log
        log.epochs.truncate_from(log.end_offset)
        try:
            if segment.writer is not None:
                segment.writer.truncate(segment.size)
        except OSError as second:
            log.fail(second)
        problem = storage_error(error, f"writing to {segment.path}")
        if isinstance(problem, StorageFailed):
            log.fail(error)
        raise problem from error


def _check_foreign(batch: memoryview, header: BatchHeader) -> None:
    """Raise `CorruptBatch` or `InvalidRecord` for a batch that no broker would store: its sender is another cluster."""
    is_past_all = header.next_offset > MAX_SOURCE_OFFSET
    is_before_all = header.base_offset < 0 or header.last_offset_delta < 0
    if header.leader_epoch < 0 or is_before_all or is_past_all or header.attributes & ENCRYPTED:
        raise CorruptBatch(f"the batch at offset {header.base_offset} was not read from a log: its header is invalid")
    if header.is_control:
        read_control(batch, header)
