"""One partition's log: batches in segments, from the start offset to the end offset.

Belongs to the event loop's thread; `slice`, `append` and the rest are called there. What may block for long is split:
`begin_flush` and `complete_flush` run in the loop, `FlushTicket.sync` in a worker; `open` and `close` block and run in
a worker while nobody else has the log.

What it promises: offsets are given out once; a batch below `flushed_offset` is there after a power failure; a failed
append leaves no trace; after a failed sync nothing is appended any more, and reads go on.
"""

from collections.abc import Callable, Sequence
from itertools import islice
from pathlib import Path
from struct import Struct
from typing import NamedTuple, NoReturn

from headrace.config.topic import TopicSettings
from headrace.model.errors import OffsetOutOfRange, RecordTooLarge, StorageFailed
from headrace.records.batch import (
    CONTROL,
    LOG_APPEND_TIME,
    LOG_OVERHEAD,
    STAMP_SIZE,
    TRANSACTIONAL,
    BatchHeader,
    Buffer,
    check_batch,
    read_header,
)
from headrace.records.markers import Marker, build_marker, read_marker
from headrace.runtime.clock import Clock
from headrace.runtime.disk import Disk, DiskFile
from headrace.storage.aborted import aborted_to_bytes
from headrace.storage.files import EPOCHS, SNAPSHOT, FilePool, offset_name, storage_error
from headrace.storage.recovery import Loader
from headrace.storage.replay import note_aborted
from headrace.storage.segment import Segment
from headrace.storage.structure import MAX_OFFSET_DELTA, LogStructure
from headrace.storage.summary import LogSummary
from headrace.storage.ticket import FlushTicket
from headrace.storage.times import Dated, first_from, newest

_STAMP = Struct(">qii")
_REMEMBERED_STARTS = 8192
_DATA_OF_TRANSACTION = CONTROL | TRANSACTIONAL
_TRIES = 5


class AppendResult(NamedTuple):
    base_offset: int
    last_offset: int
    append_time_ms: int
    """-1 unless the topic stamps the time of arrival."""
    duplicate: bool
    """An idempotent producer's retry: the offsets are the original's, nothing was written."""
    log_start_offset: int


class Slice(NamedTuple):
    """Bytes on disk that start with a whole batch; the last batch may be cut off."""

    file: DiskFile
    position: int
    length: int
    first_batch_offset: int
    is_closed: bool
    """Whether nothing is added any more to what these are bytes of."""


class Log(LogStructure):
    """See the module."""

    on_flushed: Callable[["Log"], None] | None = None
    """Called in the event loop each time that `flushed_offset` may have moved; set by whoever leads or follows here."""

    @classmethod
    def open(
        cls,
        directory: Path,
        settings: TopicSettings,
        *,
        disk: Disk,
        clock: Clock,
        clean: bool,
        recovery_point: int,
        producer_expiry_ms: int,
        log_start_offset: int | None = None,
        files: FilePool | None = None,
        persist: Callable[[LogStructure], None] | None = None,
        is_replicated: bool = False,
        summary: LogSummary | None = None,
    ) -> "Log":
        """The log in a directory that exists. Blocking; checks what a stop that was not clean may have damaged.

        `persist` is called when `start_offset` or `flushed_offset` must be on disk before the log may go on. Whoever
        opens the log gives back what was persisted last as `log_start_offset` and `recovery_point`. `is_replicated`:
        there are other replicas, and the log ends where bytes that were not synced are missing. With the `summary` of a
        log whose active segment has not changed since, nothing is read.
        """
        files = files or FilePool(disk)
        loader = Loader(directory, settings, disk, files, clock, is_replicated=is_replicated)
        loaded = loader.load(
            clean=clean,
            recovery_point=recovery_point,
            start_offset=log_start_offset,
            producer_expiry_ms=producer_expiry_ms,
            summary=summary,
        )
        return cls(directory, settings, loaded, disk=disk, clock=clock, files=files, persist=persist)

    # Appending

    def append(self, batch: Buffer, header: BatchHeader, leader_epoch: int) -> AppendResult:
        """Append one batch of a producer; its checksum, counts and the topic's rules were checked by the caller.

        Raises `OutOfOrderSequence`, `FencedProducer`, `RecordTooLarge` (than a segment), `DiskFull`, `StorageFailed`
        or `LogClosed`; the log is then as before.
        """
        if self._closed or self._failure is not None:
            self._refuse()
        _, length, _, _, _, attributes, last_delta, _, timestamp, producer_id, producer_epoch, sequence, _ = header
        is_idempotent = producer_id >= 0 and sequence >= 0
        if is_idempotent:
            original = self.producers.check(producer_id, producer_epoch, sequence, last_delta)
            if original is not None:
                return AppendResult(original.base_offset, original.last_offset, -1, True, self.start_offset)
        elif attributes & TRANSACTIONAL:
            self.producers.check_epoch(producer_id, producer_epoch)
        base_offset = self.end_offset
        last_offset = base_offset + last_delta
        size = length + LOG_OVERHEAD
        segment = self._active
        if (
            segment.size + size > self._segment_bytes
            or not 0 <= timestamp <= self._roll_after_ms
            or last_offset > self._roll_after_offset
        ):
            segment = self._make_room(size, timestamp, last_offset)
        if leader_epoch != self.epochs.latest:
            self.epochs.assign(leader_epoch, base_offset)
        position = segment.size
        try:
            writer = segment.writer or segment.open_writer()
            writer.append((_STAMP.pack(base_offset, length, leader_epoch), memoryview(batch)[STAMP_SIZE:size]))
        except OSError as error:
            self._undo_append(segment, error)
        segment.size = position + size
        self.end_offset = last_offset + 1
        if segment.first_timestamp is None:
            segment.first_timestamp = timestamp
            self._update_limits()
        if timestamp > segment.max_timestamp:
            segment.note_timestamp(timestamp, last_offset)
        if segment.unindexed_bytes > self._interval_bytes:
            segment.add_to_indexes(last_offset, position)
            if segment.next_index_bytes > self._settings.segment_index_bytes:
                self._update_limits()
        segment.unindexed_bytes += size
        if is_idempotent or attributes & _DATA_OF_TRANSACTION == TRANSACTIONAL:
            self.producers.record(
                producer_id,
                producer_epoch,
                sequence,
                last_delta,
                base_offset,
                attributes,
                timestamp,
                self._clock.wall_ms(),
            )
        starts = self._starts
        starts[base_offset] = position
        if len(starts) > _REMEMBERED_STARTS:
            self._starts = dict(islice(starts.items(), _REMEMBERED_STARTS // 2, None))
        append_time_ms = timestamp if attributes & LOG_APPEND_TIME else -1
        return AppendResult(base_offset, last_offset, append_time_ms, False, self.start_offset)

    def append_marker(self, producer_id: int, producer_epoch: int, marker: Marker, leader_epoch: int) -> AppendResult:
        """End what a producer has open here. Raises `FencedProducer` or `FencedCoordinator`, and what `append` does."""
        self._check_writable()
        self.producers.check_marker(producer_id, producer_epoch, marker)
        now_ms = self._clock.wall_ms()
        batch = build_marker(producer_id, producer_epoch, marker, now_ms)
        result = self.append(batch, read_header(batch), leader_epoch)
        ended = self.producers.end(producer_id, producer_epoch, marker, result.base_offset, now_ms)
        note_aborted(self.aborted, ended, self.producers)
        return result

    def append_replicated(self, batches: Buffer) -> int:
        """Append whole batches as a leader has them, offsets and epochs included; returns the new end offset.

        Offsets may leave gaps but never go back: `OffsetOutOfRange`. A damaged batch is `CorruptBatch`. Batches before
        the one that is refused have been appended.
        """
        self._check_writable()
        view = memoryview(batches)
        position, end = 0, len(view)
        now_ms = self._clock.wall_ms()
        while position < end:
            header = check_batch(view, position)
            if header.base_offset < self.end_offset:
                raise OffsetOutOfRange(
                    f"{self.directory.name} ends at {self.end_offset}; a batch at {header.base_offset} lies before that"
                )
            segment = self._active
            full = segment.size + header.size > self._segment_bytes
            if segment.size and (full or self._is_due(segment, header.max_timestamp, header.last_offset)):
                # Without a gap, if the offsets allow that: recovery takes one between segments for lost bytes.
                is_far = header.last_offset - self.end_offset > MAX_OFFSET_DELTA
                self.roll(header.base_offset if is_far else None)
            elif not segment.size and header.last_offset - segment.base_offset > MAX_OFFSET_DELTA:
                self.truncate_fully_and_start_at(header.base_offset)
            segment = self._active
            if header.leader_epoch != self.epochs.latest:
                self.epochs.assign(header.leader_epoch, header.base_offset)
            start = segment.size
            try:
                writer = segment.writer or segment.open_writer()
                writer.append((view[position : position + header.size],))
            except OSError as error:
                self._undo_append(segment, error)
            segment.note_batch(start, header, self._interval_bytes)
            self._update_limits()
            self.end_offset = header.next_offset
            marker = read_marker(view[position : position + header.size], header) if header.is_control else None
            note_aborted(self.aborted, self.producers.replay(header, marker, now_ms), self.producers)
            self._starts[header.base_offset] = start
            position += header.size
        if len(self._starts) > _REMEMBERED_STARTS:
            self._starts = dict(islice(self._starts.items(), len(self._starts) - _REMEMBERED_STARTS // 2, None))
        return self.end_offset

    def _make_room(self, size: int, timestamp: int, last_offset: int) -> Segment:
        """The segment for a batch that may not fit the active one, rolled if it does not."""
        if size > self._segment_bytes:
            raise RecordTooLarge(f"a batch of {size} bytes is larger than segment.bytes={self._segment_bytes}")
        segment = self._active
        full = segment.size + size > self._segment_bytes
        if segment.size and (full or self._is_due(segment, timestamp, last_offset)):
            self.roll()
        return self._active

    def _undo_append(self, segment: Segment, error: OSError) -> NoReturn:
        """Cut off what a failed write left in the file, and say what happened. Where that fails too, the log fails."""
        self.epochs.truncate_from(self.end_offset)
        try:
            if segment.writer is not None:
                segment.writer.truncate(segment.size)
        except OSError as second:
            self.fail(second)
        problem = storage_error(error, f"writing to {segment.path}")
        if isinstance(problem, StorageFailed):
            self.fail(error)
        raise problem from error

    # Reading

    def slice(self, offset: int, max_bytes: int, below: int, *, at_least_one: bool) -> Slice | None:
        """Where the bytes from the batch with `offset` on are: at most `max_bytes`, all of one segment.

        No batch that starts at or after `below` is part of it. The first batch is whole, even past `max_bytes`, with
        `at_least_one`; without it, None if it does not fit. None if there is nothing to read. Raises
        `OffsetOutOfRange`, `LogClosed`, `StorageFailed`.
        """
        if self._closed:
            self._refuse()
        if offset < self.start_offset or offset > self.end_offset:
            raise OffsetOutOfRange(
                f"offset {offset} of {self.directory.name} is not within {self.start_offset} and {self.end_offset}"
            )
        if below > self.end_offset:
            below = self.end_offset
        if offset >= below:
            return None
        try:
            position = self._starts.get(offset)
            if position is not None:
                segment, first = self._active, offset
                size = 0
            else:
                found = self._locate(offset)
                if found is None:
                    return None
                segment, position, header = found
                first, size = header.base_offset, header.size
                if first >= below:
                    return None
            end = self._end_of(segment, below)
            length = end - position
            if length > max_bytes:
                if not size:
                    size = next(segment.headers(position))[1].size
                length = max(size, max_bytes)
                if size > max_bytes and not at_least_one:
                    return None
            return Slice(segment.reader(), position, length, first, segment is not self._active)
        except OSError as error:
            raise storage_error(error, f"reading {self.directory.name}") from error

    def _end_of(self, segment: Segment, below: int) -> int:
        """The position in a segment where batches that start at or after `below` start."""
        if below >= (self.end_offset if segment is self._active else segment.next_offset):
            return segment.size
        if segment is self._active:
            position = self._starts.get(below)
            if position is not None:
                return position
        found = segment.locate(below)
        if found is None:
            return segment.size
        position, header = found
        return position if header.base_offset >= below else position + header.size

    def offset_for_time(self, timestamp_ms: int, below: int | None = None) -> Dated | None:
        """The first record (below an offset) not older than `timestamp_ms`. Blocking; safe in any thread."""
        limit = self.end_offset if below is None else below
        return self._undisturbed(lambda segments: first_from(segments, self.start_offset, limit, timestamp_ms))

    def max_timestamp(self, below: int | None = None) -> Dated | None:
        """The first of the records (below an offset) with the newest timestamp. Blocking; safe in any thread."""
        limit = self.end_offset if below is None else below
        return self._undisturbed(lambda segments: newest(segments, self.start_offset, limit))

    def _undisturbed(self, find: Callable[[Sequence[Segment]], Dated | None]) -> Dated | None:
        """What `find` finds, asked again if retention or compaction took a segment's file away while it looked."""
        tries = 0
        while True:
            if self._closed:
                self._refuse()
            try:
                return find(self.segments)
            except OSError as error:
                tries += 1
                if not self._closed and (not isinstance(error, FileNotFoundError) or tries > _TRIES):
                    raise storage_error(error, f"searching {self.directory.name}") from error

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int]:
        """The largest epoch up to `epoch` and where it ends (KIP-320); (-1, -1) if it is not known."""
        return self.epochs.end_offset_for(epoch, self.end_offset)

    # Flushing

    @property
    def has_unsynced_segments(self) -> bool:
        return bool(self._unsynced)

    def begin_flush(self) -> FlushTicket | None:
        """What must be synced so that everything appended so far is on disk; None if it is."""
        self._check_writable()
        if self.flushed_offset == self.end_offset and not self._unsynced:
            return None
        return self._ticket()

    def _ticket(self, *, closing: bool = False) -> FlushTicket:
        ticket = FlushTicket(
            self._disk, self.directory, self.end_offset, self._generation, is_closed=lambda: self._closed
        )
        for segment in self._unsynced:
            ticket.closed.append(segment)
            if segment.writer is not None:
                ticket.files.append(segment.writer)
        if self._active.writer is not None:
            ticket.files.append(self._active.writer)
        ticket.new_names = bool(self._unsynced)
        for segment in [*self._unsynced, self._active] if closing else self._unsynced:
            limit = self.end_offset if segment is self._active else segment.next_offset
            aborted = self.aborted.ending_within(segment.base_offset, limit)
            if aborted:
                ticket.aborted.append((segment.aborted_path, aborted_to_bytes(aborted)))
        if self.epochs.changed:
            ticket.epochs = (self.directory / EPOCHS, self.epochs.to_text().encode())
        ticket.snapshots = [
            (self.directory / offset_name(offset, SNAPSHOT), data) for offset, data in self._new_snapshots
        ]
        return ticket

    def complete_flush(self, ticket: FlushTicket) -> None:
        """Take note that a ticket's `sync` returned; `flushed_offset` moves, unless the log was truncated meanwhile."""
        if ticket.generation != self._generation or self._failure is not None:
            return
        closed = set(ticket.closed)
        for segment in closed:
            segment.close_writer()
        self._unsynced = [segment for segment in self._unsynced if segment not in closed]
        if ticket.epochs is not None and self.epochs.to_text().encode() == ticket.epochs[1]:
            self.epochs.changed = False
        if ticket.snapshots:
            self._snapshots.extend(offset for offset, _ in self._new_snapshots[: len(ticket.snapshots)])
            del self._new_snapshots[: len(ticket.snapshots)]
        self.flushed_offset = max(self.flushed_offset, ticket.end_offset)
        if self.on_flushed is not None:
            self.on_flushed(self)

    # Closing

    def close(self) -> None:
        """Flush everything, caches included, so that the log opens again without being checked. Blocking.

        Raises what a flush raises. A log that failed is closed without a word: `failure` tells that it is not clean.
        """
        if self._closed:
            return
        # Whoever wants to hear of flushes belongs to the event loop, and this is another thread.
        self.on_flushed = None
        try:
            if self._failure is None:
                self._flush_all()
                self.summarize()
        finally:
            self.abandon()

    def _flush_all(self) -> None:
        end, newest = self.end_offset, self._snapshots[-1] if self._snapshots else -1
        nothing_to_tell = not self.size_bytes and not self._snapshots
        if (
            (newest != end and not nothing_to_tell)
            or self.flushed_offset != end
            or self._unsynced
            or self.epochs.changed
        ):
            self._new_snapshots.append((end, self.producers.to_snapshot(end)))
            if self._active.size:
                self._active.store_indexes()
                self._active.sync_indexes()
            ticket = self._ticket(closing=True)
            ticket.sync()
            self.complete_flush(ticket)
        bases = set(self._bases)
        for at in [at for at in self._snapshots if at != end and at not in bases]:
            self._disk.unlink(self.directory / offset_name(at, SNAPSHOT))
            self._snapshots.remove(at)

    def abandon(self) -> None:
        """Let go of everything without flushing: the log is to be deleted, or has failed."""
        self._closed = True
        for segment in self.segments:
            segment.forget_files()

    def delete(self) -> None:
        """Close the log and remove its directory with everything in it. Blocking."""
        self.abandon()
        self._disk.remove_tree(self.directory)
