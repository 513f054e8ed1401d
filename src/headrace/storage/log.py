"""The log of one partition: batches in segments, from the start offset to the end offset.

Belongs to the event loop's thread; `slice`, `append` and the rest are called there. Work that may block for long is
split: `begin_flush` and `complete_flush` run in the loop, `FlushTicket.sync` in a worker; `open` and `close` block and
run in a worker while nothing else uses the log.

Guarantees: an offset is assigned once; a batch below `flushed_offset` survives a power failure; a failed append leaves
no trace; after a failed sync nothing is appended any more, and reads go on.

`Log` is the interface. Its state is in `state.py`, and each kind of change in its own module: `appender.py`,
`flush.py`, `truncation.py` (from the end) and `removal.py` (from the front).
"""

from collections.abc import Callable, Iterable, Sequence
from itertools import islice
from pathlib import Path

from headrace.config.topic import TopicSettings
from headrace.model.errors import OffsetOutOfRange
from headrace.records.batch import BatchHeader, Buffer
from headrace.records.markers import Marker
from headrace.runtime.clock import Clock
from headrace.runtime.disk import Disk
from headrace.storage import flush
from headrace.storage.aborted import AbortedTransactions
from headrace.storage.appender import Appender, AppendResult, ProducedBatch
from headrace.storage.encryption import LogCipher
from headrace.storage.epochs import Epochs
from headrace.storage.files import FilePool, storage_error
from headrace.storage.producers import Producers
from headrace.storage.recovery import Loader
from headrace.storage.removal import FrontRemoval
from headrace.storage.segment import Segment
from headrace.storage.slice import Slice
from headrace.storage.slice_end import end_of_whole_batches
from headrace.storage.snapshots import PendingSnapshot
from headrace.storage.state import LogState
from headrace.storage.summary import LogSummary
from headrace.storage.ticket import FlushTicket
from headrace.storage.times import Dated, NextRecord, first_from, newest, next_record, search
from headrace.storage.truncation import truncate_fully, truncate_to


class Log:
    """See the module."""

    append: Callable[[Buffer, BatchHeader, int], AppendResult]
    """Append one batch of a producer under a leader epoch; the caller has checked the batch. Raises
    `OutOfOrderSequence`, `FencedProducer`, `RecordTooLarge` (than a segment), `DiskFull`, `StorageFailed` or
    `LogClosed`; the log is then as before."""

    append_run: Callable[[Iterable[ProducedBatch], int], list[ProducedBatch]]
    """Append the first of several batches of producers with one write; returns those. It stops before a batch that
    needs more than to be written after the one before it: that is left to `append`. Raises `DiskFull` or
    `StorageFailed`; the log is then as before, without any of them."""

    advance_high_watermark: Callable[[int], None]
    """Raise the high watermark to this offset, which must be within the log (invariant 1)."""

    on_flushed: Callable[["Log"], None] | None = None
    """Called in the event loop when `flushed_offset` may have moved; set by the partition."""

    def __init__(self, state: LogState) -> None:
        """Use `open`."""
        self.directory = state.directory
        self._state = state
        self._appender = Appender(state)
        # Bound here for speed: every produce makes these two calls.
        self.append = self._appender.append
        self.append_run = self._appender.append_run
        self.advance_high_watermark = state.advance_high_watermark
        self._removal = FrontRemoval(state)

    def __repr__(self) -> str:
        return f"<Log {self.directory.name} [{self.start_offset}, {self.end_offset})>"

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
        persist: Callable[["Log"], None] | None = None,
        is_replicated: bool = False,
        has_lost_unsynced: bool = False,
        summary: LogSummary | None = None,
    ) -> "Log":
        """Open the log in an existing directory. Blocking; checks what an unclean shutdown may have damaged.

        `persist` is called when `start_offset` or `flushed_offset` must be on disk before the log may go on. The caller
        passes the values persisted last as `log_start_offset` and `recovery_point`. For `is_replicated` and
        `has_lost_unsynced` see `recovery.py`. With a `summary`, if the active segment has not changed since, nothing is
        read.
        """
        files = files or FilePool(disk)
        loader = Loader(
            directory,
            settings,
            disk,
            files,
            clock,
            is_replicated=is_replicated,
            has_lost_unsynced=has_lost_unsynced,
        )
        loaded = loader.load(
            clean=clean,
            recovery_point=recovery_point,
            start_offset=log_start_offset,
            producer_expiry_ms=producer_expiry_ms,
            summary=summary,
        )
        log = cls(LogState(directory, settings, loaded, disk=disk, clock=clock, files=files))
        if persist is not None:
            log._state.persist = lambda: persist(log)
        return log

    # State

    @property
    def settings(self) -> TopicSettings:
        return self._state.limits.settings

    @settings.setter
    def settings(self, settings: TopicSettings) -> None:
        """Set the topic settings; they take effect with the next operation."""
        self._state.limits.configure(settings, self._state.segments.active)

    @property
    def cipher(self) -> LogCipher | None:
        """Encrypts and decrypts batches; None unless the topic is or was encrypted."""
        return self._state.cipher

    @cipher.setter
    def cipher(self, cipher: LogCipher | None) -> None:
        self._state.cipher = cipher

    @property
    def start_offset(self) -> int:
        return self._state.start_offset

    @property
    def end_offset(self) -> int:
        return self._state.end_offset

    @property
    def flushed_offset(self) -> int:
        """Every record below it survives a power failure."""
        return self._state.flushed_offset

    @property
    def high_watermark(self) -> int:
        """Every record below it is committed, as far as this replica knows. A truncation lowers it to what is left."""
        return self._state.high_watermark

    def restore_high_watermark(self, offset: int) -> None:
        """Set the high watermark when the log is opened, at most to the end of the log."""
        self._state.restore_high_watermark(offset)

    @property
    def stable_offset(self) -> int:
        """Every record below it is flushed, committed and in no open transaction."""
        return self._state.stable_offset

    @property
    def producers(self) -> Producers:
        return self._state.producers

    @property
    def epochs(self) -> Epochs:
        return self._state.epochs

    @property
    def aborted(self) -> AbortedTransactions:
        return self._state.aborted

    @property
    def segments(self) -> list[Segment]:
        """The segments in order, the last is active. Replaced, never changed in place: iterate in any thread."""
        return self._state.segments.all

    @property
    def active(self) -> Segment:
        return self._state.segments.active

    @property
    def size_bytes(self) -> int:
        return self._state.segments.size_bytes

    @property
    def files(self) -> FilePool:
        """The pool through which closed segments are read."""
        return self._state.files

    @property
    def damaged_from(self) -> int | None:
        """The first offset that is lost; None while no damage is known."""
        return self._state.damage.offset

    @property
    def summary(self) -> LogSummary | None:
        """The summary as of the last `summarize`, if everything was flushed and committed then."""
        return self._state.summary

    @property
    def is_closed(self) -> bool:
        return self._state.is_closed

    @property
    def failure(self) -> BaseException | None:
        return self._state.failure

    def fail(self, error: BaseException) -> None:
        """Refuse every later append and flush, because a sync or a write failed for good. Reads go on."""
        self._state.fail(error)

    # Appending

    def append_marker(self, producer_id: int, producer_epoch: int, marker: Marker, leader_epoch: int) -> AppendResult:
        """End a producer's open transaction. Raises as `append` does, and `FencedCoordinator`."""
        return self._appender.append_marker(producer_id, producer_epoch, marker, leader_epoch)

    def append_reset(self, leader_epoch: int) -> AppendResult:
        """Append a reset marker, and forget all producers. Raises as `append` does."""
        return self._appender.append_reset(leader_epoch)

    def append_mirrored(self, batches: Buffer) -> int:
        """Like `append_replicated`, for batches of another cluster's log: they are encrypted here if the topic is."""
        return self._appender.append_mirrored(batches)

    def append_replicated(self, batches: Buffer) -> int:
        """Append whole batches of the leader unchanged, with their offsets and epochs; returns the new end offset.

        Offsets may have gaps but never go back: `OffsetOutOfRange`. A damaged batch raises `CorruptBatch`. Batches
        before the refused one have been appended.
        """
        return self._appender.append_replicated(batches)

    def roll(self) -> None:
        """Close the active segment and start the next one, unless it is empty. Raises `DiskFull`, `StorageFailed`."""
        self._state.roll()

    # Reading

    def slice(self, offset: int, max_bytes: int, below: int, *, at_least_one: bool) -> Slice | None:
        """Locate the whole batches from the one with `offset` on: at most `max_bytes`, all in one segment.

        Batches that start at or after `below` are left out. With `at_least_one` the first batch is there even if it is
        larger than `max_bytes`; without it, None if that does not fit. None if there is nothing to read. Raises
        `OffsetOutOfRange`, `LogClosed`, `StorageFailed`.
        """
        state = self._state
        if state.is_closed:
            state.refuse()
        end_offset = state.end_offset
        if offset < state.start_offset or offset > end_offset:
            raise OffsetOutOfRange(
                f"offset {offset} of {self.directory.name} is not within {state.start_offset} and {end_offset}"
            )
        if below > end_offset:
            below = end_offset
        if offset >= below:
            return None
        segments = state.segments
        try:
            position = segments.positions.get(offset)
            if position is not None:
                segment, first = segments.active, offset
                size = 0
            elif (known := segments.slice_ends.get(offset)) is not None:
                segment, position = known
                first, size = offset, 0
            else:
                found = segments.locate(offset)
                if found is None:
                    return None
                segment, position, header = found
                first, size = header.base_offset, header.size
                if first >= below:
                    return None
            is_active = segment is segments.active
            end = below if is_active else min(below, segment.next_offset)
            length = takes_bytes = segments.end_position(segment, below, end_offset) - position
            if length > max_bytes:
                takes_bytes = max_bytes
                stop, end = end_of_whole_batches(segment, position, position + max_bytes, size)
                length = stop - position
                if not length:
                    if not at_least_one:
                        return None
                    _, header = next(segment.headers(position))
                    length, end = header.size, min(header.next_offset, below)
                elif end >= 0:
                    segments.note_slice_end(end, segment, stop)
                takes_bytes = max(takes_bytes, length)
            return Slice(segment.reader(), position, length, first, not is_active, state.cipher, end, takes_bytes)
        except OSError as error:
            raise storage_error(error, f"reading {self.directory.name}") from error

    def bytes_before(self, offset: int) -> int:
        """The bytes in the log before the batch that contains this offset. Raises `StorageFailed`."""
        try:
            return self._state.segments.bytes_before(offset)
        except OSError as error:
            raise storage_error(error, f"reading {self.directory.name}") from error

    def batches_from(self, offset: int, most: int) -> list[BatchHeader]:
        """The headers of up to so many batches, from the one that contains this offset on, in one segment. Raises
        `StorageFailed`."""
        try:
            found = self._state.segments.locate(offset)
            if found is None:
                return []
            segment, position, _ = found
            return [header for _, header in islice(segment.headers(position), most)]
        except OSError as error:
            raise storage_error(error, f"reading {self.directory.name}") from error

    def segment_start(self, offset: int) -> int:
        """The base offset of the segment that contains this offset."""
        return max(self._state.start_offset, self._state.segments.start_of(offset))

    def offset_for_time(self, timestamp_ms: int, below: int | None = None) -> Dated | None:
        """The first record (below an offset) not older than `timestamp_ms`. Blocking; safe in any thread."""
        limit = self.end_offset if below is None else below
        return search(
            self._state, lambda segments: first_from(segments, self.start_offset, limit, timestamp_ms, self.cipher)
        )

    def max_timestamp(self, below: int | None = None) -> Dated | None:
        """The first of the records (below an offset) with the newest timestamp. Blocking; safe in any thread."""
        limit = self.end_offset if below is None else below
        return search(self._state, lambda segments: newest(segments, self.start_offset, limit, self.cipher))

    def next_record(self, offset: int, below: int, *, decodes: bool = True) -> NextRecord:
        """The first record from an offset up to another that consumers are to read. Blocking; safe in any thread.

        Without `decodes` no batch is read, only headers; then the timestamp may be that of the batch.
        """

        def is_aborted(header: BatchHeader) -> bool:
            try:
                return self._state.aborted.covers(header)
            except IndexError:
                # The event loop's thread changed it meanwhile.
                return False

        return search(
            self._state,
            lambda segments: next_record(segments, offset, below, self.cipher, is_aborted, decodes=decodes),
        )

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int]:
        """The largest epoch up to `epoch` and where it ends (KIP-320); (-1, -1) if it is not known."""
        return self._state.epochs.end_offset_for(epoch, self._state.end_offset)

    def producers_as_of(self, offset: int) -> Producers:
        """The producers as they were at an offset. Blocking; safe in any thread while nothing is appended."""
        state = self._state
        return state.snapshots.as_of(offset, tuple(state.segments.all), state.clock.wall_ms())

    # Truncating and removing: see `truncation.py` and `removal.py`

    @property
    def generation(self) -> int:
        """A number that every truncation raises: data read or mapped before may not exist any more."""
        return self._state.generation

    def truncate_to(self, offset: int) -> None:
        """Truncate to `offset`, durably. A batch that contains `offset` is dropped whole. Blocking."""
        truncate_to(self._state, offset)

    def truncate_fully_and_start_at(self, offset: int) -> None:
        """Drop everything, durably, and continue at any `offset`. Blocking."""
        truncate_fully(self._state, offset)

    def note_damage(self, offset: int) -> None:
        """Record that the batch at this offset is damaged. Durable on return. Blocking."""
        self._state.damage.note(offset)

    def clear_damage_if_truncated(self) -> None:
        """Forget the damage if the log ends at or before it. Blocking."""
        self._state.damage.clear_if_truncated(self._state.end_offset)

    def advance_start(self, offset: int) -> None:
        """Raise the start offset, durably, and remove the segments that lie wholly below it. `OffsetOutOfRange`."""
        self._removal.advance_start(offset)

    def raise_start(self, offset: int) -> int:
        """Like `advance_start`, durable when `persist_start` has returned; returns the former start offset."""
        return self._removal.raise_start(offset)

    def persist_start(self) -> None:
        """Persist the start offset. Blocking; safe in any thread."""
        self._removal.persist_start()

    def persist_flushed(self) -> None:
        """Persist the flushed offset. Blocking; safe in any thread."""
        self._state.persist()

    def lower_start(self, before: int) -> None:
        """Undo `raise_start` as far as the segments still exist."""
        self._removal.lower_start(before)

    def remove_segments_below(self, offset: int) -> int:
        """Remove the closed segments that lie wholly below `offset`, oldest first; returns how many."""
        return self._removal.remove_segments_below(offset)

    @property
    def has_deleted_files(self) -> bool:
        """Whether `purge_deleted` has something to do."""
        return self._removal.has_due_files

    def purge_deleted(self) -> None:
        """Delete the files of removed segments that are due. Blocking: freeing a large file takes a while."""
        self._removal.delete_due_files()

    def roll_to_remove(self) -> list[PendingSnapshot]:
        """Roll, so that everything so far can be removed; returns the snapshots that must be on disk before that, since
        they become the only record of its producers. No flush writes them: `snapshots_written` must follow."""
        self._state.roll()
        return self._state.snapshots.take_pending()

    def snapshots_written(self, snapshots: Sequence[PendingSnapshot], *, well: bool) -> None:
        if well:
            self._state.snapshots.note_written(snapshots)
        else:
            self._state.snapshots.return_pending(snapshots)

    def expire_producers(self, expiry_ms: int) -> int:
        """Remove producers that were idle for `expiry_ms`; returns how many."""
        return self._state.producers.expire(self._state.clock.wall_ms() - expiry_ms)

    def adopt(self, old: Sequence[Segment], new: Segment) -> bool:
        """Replace adjacent closed segments by a compacted one, in memory (`Replacement` replaces the files); False if
        any of them is gone."""
        return self._state.adopt(old, new)

    # Flushing and closing

    @property
    def has_unsynced_segments(self) -> bool:
        return bool(self._state.segments.unsynced)

    def begin_flush(self) -> FlushTicket | None:
        """Return a ticket to sync everything appended so far; None if it is on disk already."""
        return flush.begin_flush(self._state)

    def complete_flush(self, ticket: FlushTicket) -> None:
        """Raise `flushed_offset` after a ticket's `sync` returned, unless the log was truncated meanwhile."""
        if flush.complete_flush(self._state, ticket) and self.on_flushed is not None:
            self.on_flushed(self)

    def summarize(self) -> bool:
        """Update `summary`; None unless all of the log is flushed, committed and whole. True if it looked at files."""
        return self._state.summarize()

    def close(self) -> None:
        """Flush everything, caches included, so that the log opens again without being checked. Blocking.

        Raises what a flush raises. A log that failed is closed silently: `failure` says that it is not clean.
        """
        if self.is_closed:
            return
        # The callback belongs to the event loop, and this is another thread.
        self.on_flushed = None
        try:
            if self.failure is None:
                flush.flush_to_close(self._state)
                self.summarize()
        finally:
            self.abandon()

    def abandon(self) -> None:
        """Close all files without flushing: the log is to be deleted, or has failed."""
        self._state.is_closed = True
        self._state.forget_owner()
        for segment in self.segments:
            segment.forget_files()

    def delete(self) -> None:
        """Close the log and remove its directory with everything in it. Blocking."""
        self.abandon()
        self._state.disk.remove_tree(self.directory)
