"""The segments of a log, and every change to them but an append: rolling, truncating, removing, replacing.

`Log` builds on this. Each change is made so that a stop at any point in it is either undone or finished by `recovery`:
what must not come back goes durably first, what refers to something goes before the thing itself.
"""

import logging
from bisect import bisect_right, insort
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NoReturn
from zlib import crc32

from headrace.config.topic import TopicSettings
from headrace.model.errors import HeadraceError, LogClosed, OffsetOutOfRange, StorageFailed
from headrace.records.batch import BatchHeader
from headrace.runtime.clock import Clock
from headrace.runtime.disk import Disk
from headrace.storage.aborted import AbortedTransactions, replace_aborted
from headrace.storage.epochs import Epochs
from headrace.storage.files import DAMAGED, SNAPSHOT, FilePool, offset_name, storage_error
from headrace.storage.producers import Producers
from headrace.storage.recovery import Loaded, write_damaged_from
from headrace.storage.replay import restore_producers
from headrace.storage.segment import Segment
from headrace.storage.summary import LogSummary, crc_of_sizes

_log = logging.getLogger(__name__)

MAX_OFFSET_DELTA = 2**31 - 1
_NEVER = 2**63 - 1


class LogStructure:
    """See the module. The attributes are read by others, and written only by the log itself."""

    def __init__(
        self,
        directory: Path,
        settings: TopicSettings,
        loaded: Loaded,
        *,
        disk: Disk,
        clock: Clock,
        files: FilePool,
        persist: Callable[["LogStructure"], None] | None = None,
    ) -> None:
        self.directory = directory
        self.producers: Producers = loaded.producers
        self.epochs: Epochs = loaded.epochs
        self.aborted: AbortedTransactions = loaded.aborted
        self.segments: list[Segment] = loaded.segments
        """In order; the last is the active one. Replaced, never changed in place: iterate over it in any thread."""
        self.start_offset = loaded.start_offset
        self.end_offset = loaded.end_offset
        self.flushed_offset = loaded.end_offset
        self.high_watermark = _NEVER
        """What is committed as far as this replica knows: told by whoever leads or follows here."""
        self.damaged_from = loaded.damaged_from
        """From here on the log is not whole; None if it is, as far as anybody knows."""
        self.summary: LogSummary | None = loaded.summary
        """What the log was like when `summarize` was last called, if nothing was to be flushed then."""
        self._summarized = self.segments
        self._disk = disk
        self._clock = clock
        self._files = files
        self._persist = persist
        self._snapshots = loaded.snapshots
        self._active = self.segments[-1]
        self._active.next_offset = self.end_offset
        self._closed_bytes = sum(segment.size for segment in self.segments[:-1])
        self._bases = [segment.base_offset for segment in self.segments]
        self._starts: dict[int, int] = {}
        """Positions of recent batches in the active segment by base offset: where readers at the tail start and end."""
        self._failure: BaseException | None = None
        self._closed = False
        self._unsynced: list[Segment] = []
        """Closed segments that no flush has covered yet. While there are any, the directory is to be synced too."""
        self._new_snapshots: list[tuple[int, bytes]] = []
        self._generation = 0
        """Raised by a truncation: a flush that was begun before says nothing about the log after it."""
        self._doomed: list[tuple[int, Path]] = []
        """Removed segments' files, with the time when they may go."""
        self.settings = settings

    def __repr__(self) -> str:
        return f"<Log {self.directory.name} [{self.start_offset}, {self.end_offset})>"

    @property
    def settings(self) -> TopicSettings:
        return self._settings

    @settings.setter
    def settings(self, settings: TopicSettings) -> None:
        """New settings take effect with the next operation."""
        self._settings = settings
        self._segment_bytes = settings.segment_bytes
        self._interval_bytes = settings.index_interval_bytes
        self._update_limits()

    def _update_limits(self) -> None:
        """Put into plain numbers when the active segment must be rolled, for `append` to compare with."""
        settings, segment = self._settings, self._active
        # The same share of the jitter each time for a segment, different between partitions.
        jitter_ms = min(settings.segment_jitter_ms, settings.segment_ms)
        self._roll_age_ms = settings.segment_ms - int(jitter_ms * crc32(str(segment.path).encode()) / 2**32)
        first = segment.first_timestamp
        self._roll_after_ms = _NEVER if first is None else first + self._roll_age_ms if first >= 0 else -1
        is_full = segment.next_index_bytes > settings.segment_index_bytes
        self._roll_after_offset = -1 if is_full else segment.base_offset + MAX_OFFSET_DELTA

    def _is_due(self, segment: Segment, timestamp: int, last_offset: int) -> bool:
        """Whether a batch belongs into a new segment for another reason than size, as Kafka decides it."""
        first = segment.first_timestamp
        if timestamp >= 0 and first is not None and first >= 0:
            age_ms = timestamp - first
        else:
            age_ms = self._clock.wall_ms() - segment.created_ms
        return age_ms > self._roll_age_ms or last_offset > self._roll_after_offset

    @property
    def size_bytes(self) -> int:
        return self._closed_bytes + self._active.size

    @property
    def active(self) -> Segment:
        return self._active

    @property
    def files(self) -> FilePool:
        """What this log reads its closed segments through."""
        return self._files

    @property
    def stable_offset(self) -> int:
        """Everything below is on disk, is committed and belongs to no open transaction."""
        settled = min(self.flushed_offset, self.high_watermark)
        unstable = self.producers.first_unstable_offset(settled)
        return settled if unstable is None else min(settled, unstable)

    @property
    def is_closed(self) -> bool:
        return self._closed

    @property
    def failure(self) -> BaseException | None:
        return self._failure

    def fail(self, error: BaseException) -> None:
        """A sync or write failed for good: refuse every later append and flush. Reads go on."""
        if self._failure is None:
            self._failure = error
            _log.error("%s takes no more writes: %s", self.directory, error)

    def _check_writable(self) -> None:
        if self._closed or self._failure is not None:
            self._refuse()

    def _refuse(self) -> NoReturn:
        if self._closed:
            raise LogClosed(f"{self.directory.name} is closed")
        raise StorageFailed(f"{self.directory} takes no more writes since it failed: {self._failure}")

    def _locate(self, offset: int) -> tuple[Segment, int, BatchHeader] | None:
        """The first batch that ends at or after `offset`, in whichever segment it is."""
        for segment in self.segments[max(0, bisect_right(self._bases, offset) - 1) :]:
            if segment.size:
                found = segment.locate(offset)
                if found is not None:
                    return segment, *found
        return None

    def segment_start(self, offset: int) -> int:
        """The first offset of the segment that has this one."""
        return max(self.start_offset, self._bases[max(0, bisect_right(self._bases, offset) - 1)])

    def _set_segments(self, segments: Sequence[Segment]) -> None:
        self.segments = list(segments)
        self._bases = [segment.base_offset for segment in segments]
        self._closed_bytes = sum(segment.size for segment in segments[:-1])
        if self.segments[-1] is not self._active:
            self._active = self.segments[-1]
            self._starts = {}
            self._update_limits()

    # Rolling

    def roll(self, base_offset: int | None = None) -> None:
        """Close the active segment and start one at the end offset (or at a later one); an empty one is kept.

        Raises `DiskFull` or `StorageFailed`, and the log goes on in the old segment.
        """
        self._check_writable()
        old = self._active
        if not old.size:
            return
        base = self.end_offset if base_offset is None else base_offset
        new = self._create_segment(base)
        try:
            old.add_newest_time()
            old.store_indexes()
        except OSError as error:
            raise storage_error(error, f"closing {old.path}") from error
        old.next_offset = base
        self._unsynced.append(old)
        self._new_snapshots.append((base, self.producers.to_snapshot(base)))
        self._set_segments([*self.segments, new])
        self.end_offset = base

    def _create_segment(self, base_offset: int) -> Segment:
        segment = Segment(self.directory, base_offset, self._files, created_ms=self._clock.wall_ms())
        try:
            segment.open_writer(create=True)
        except OSError as error:
            raise storage_error(error, f"creating {segment.path}") from error
        return segment

    def roll_to_remove(self) -> list[tuple[int, bytes]]:
        """Roll, so that everything so far can be removed; returns the snapshots that are to be on disk before it is.

        They are the only memory of producers whose records go. No flush writes them any more: `snapshots_written` is to
        follow.
        """
        self.roll()
        snapshots, self._new_snapshots = self._new_snapshots, []
        return snapshots

    def snapshots_written(self, snapshots: Sequence[tuple[int, bytes]], *, well: bool) -> None:
        if well:
            for at, _ in snapshots:
                insort(self._snapshots, at)
        else:
            self._new_snapshots[:0] = snapshots

    def summarize(self) -> None:
        """Bring `summary` up to date; None unless all of the log is on disk, committed and whole.

        Committed, because the producers in it know nothing of markers that might still be lost. Writes the last page of
        the indexes to their files, and costs nothing if the log has not changed.
        """
        active, end, known = self._active, self.end_offset, self.summary
        if (
            known is not None
            and (known.end_offset, known.size) == (end, active.size)
            and self.segments is self._summarized
        ):
            return
        self.summary = None
        is_settled = self.flushed_offset == end <= self.high_watermark and not self._unsynced
        if self._closed or self._failure is not None or self.damaged_from is not None or not is_settled:
            return
        try:
            stamp = self._disk.stamp(active.path)
        except OSError:
            return
        if stamp.size != active.size or not active.store_tail():
            return
        self._summarized = self.segments
        self.summary = LogSummary(
            end_offset=end,
            base_offset=active.base_offset,
            size=stamp.size,
            modified_ns=stamp.modified_ns,
            inode=stamp.inode,
            offset_entries=len(active.offsets),
            time_entries=len(active.times),
            first_timestamp=active.first_timestamp,
            max_timestamp=active.max_timestamp,
            max_timestamp_offset=active.max_timestamp_offset,
            unindexed_bytes=active.unindexed_bytes,
            closed_crc=crc_of_sizes(segment.sizes for segment in self.segments[:-1]),
            epochs=self.epochs.entries(),
            are_epochs_stored=not self.epochs.changed,
            aborted=self.aborted.ending_within(active.base_offset, end),
            producers=self.producers.to_snapshot(end),
        )

    # Truncating: blocking, and rare

    def truncate_to(self, offset: int) -> None:
        """Drop everything from `offset` on, durably. Where it lies inside a batch, the whole batch goes.

        `end_offset` is then where the last batch that is left ends: `offset`, or less.
        """
        self._check_writable()
        if offset >= self.end_offset:
            self.look_whether_whole()
            return
        if offset < self.segments[0].base_offset:
            self.truncate_fully_and_start_at(offset)
            return
        found = self._locate(offset)
        kept = [segment for segment in self.segments if segment.base_offset <= offset]
        cut_at = found[1] if found is not None and found[0] is kept[-1] else kept[-1].size
        new_end = kept[-1].end_before(cut_at)
        try:
            self._lower_end(new_end)
            self._remove_last(self.segments[len(kept) :])
            last = kept[-1]
            self._set_segments(kept)
            if cut_at < last.size:
                writer = last.writer or last.open_writer()
                writer.truncate(cut_at)
                writer.sync_data()
                last.size = cut_at
                last.offsets.keep_below(key=new_end - last.base_offset)
                last.times.keep_below(value=new_end - last.base_offset)
            last.load_tail(self._interval_bytes)
        except OSError as error:
            self.fail(error)
            raise StorageFailed(f"truncating {self.directory} failed: {error}") from error
        self._starts = {}
        self._update_limits()
        self.epochs.truncate_from(new_end)
        self._keep_aborted(kept[-1], new_end)
        self.producers, self._snapshots = restore_producers(
            self._disk, self.directory, self._snapshots, new_end, self.segments, self._clock.wall_ms()
        )
        self.look_whether_whole()

    def truncate_fully_and_start_at(self, offset: int) -> None:
        """Drop everything, durably, and go on at `offset`, which may be anything."""
        self._check_writable()
        try:
            self._lower_end(min(offset, self.start_offset))
            self._remove_snapshots_past(-1)
            self.end_offset = self.flushed_offset = self.start_offset = offset
            old = self.segments
            if old[0].base_offset == offset:
                # The new segment would have the same name: this one is emptied instead.
                self._remove_last(old[1:])
                first = old[0]
                first.offsets.clear()
                first.times.clear()
                (first.writer or first.open_writer()).truncate(0)
                first.size = 0
                first.load_tail(self._interval_bytes)
                self._set_segments([first])
            else:
                self._remove_last(old)
                self._set_segments([self._create_segment(offset)])
            self._disk.sync_dir(self.directory)
            if self._persist is not None:
                self._persist(self)
        except OSError as error:
            self.fail(error)
            raise StorageFailed(f"truncating {self.directory} failed: {error}") from error
        self._starts = {}
        self._update_limits()
        self.epochs.clear()
        self.producers.clear()
        self._keep_aborted(self._active, 0)
        self.damaged_from = None if self.damaged_from is None else offset
        self.look_whether_whole()

    def note_damage(self, offset: int) -> None:
        """A batch at this offset was found to be damaged. Durable on return. Blocking."""
        if self.damaged_from is None or offset < self.damaged_from:
            try:
                write_damaged_from(self._disk, self.directory, offset)
            except OSError as error:
                raise storage_error(error, f"marking {self.directory.name} as damaged") from error
            self.damaged_from = offset

    def look_whether_whole(self) -> None:
        """Forget the damage if nothing is left from there on. Blocking."""
        if self.damaged_from is not None and self.end_offset <= self.damaged_from:
            try:
                self._disk.unlink(self.directory / DAMAGED)
                self._disk.sync_dir(self.directory)
            except OSError as error:
                raise storage_error(error, f"marking {self.directory.name} as whole") from error
            self.damaged_from = None

    def _keep_aborted(self, last: Segment, below: int) -> None:
        """Forget aborted transactions whose markers are gone, also in the file of the segment that is now the last."""
        if any(self.aborted.ending_within(below, _NEVER)):
            self.aborted.keep(0, below)
            try:
                replace_aborted(self._disk, last.aborted_path, self.aborted.ending_within(last.base_offset, _NEVER))
            except OSError as error:
                self.fail(error)
                raise StorageFailed(f"truncating {self.directory} failed: {error}") from error

    def _lower_end(self, new_end: int) -> None:
        """Before bytes go: no checkpoint and no snapshot may claim any more that they are there."""
        self._generation += 1
        self.summary = None
        self.end_offset = new_end
        if self.flushed_offset > new_end or self.start_offset > new_end:
            self.flushed_offset = min(self.flushed_offset, new_end)
            self.start_offset = min(self.start_offset, new_end)
            if self._persist is not None:
                self._persist(self)
        self._remove_snapshots_past(new_end)

    def _remove_snapshots_past(self, offset: int) -> None:
        self._new_snapshots = [(at, data) for at, data in self._new_snapshots if at <= offset]
        for at in [at for at in self._snapshots if at > offset]:
            self._disk.unlink(self.directory / offset_name(at, SNAPSHOT))
            self._snapshots.remove(at)
        self._disk.sync_dir(self.directory)

    def _remove_last(self, segments: Sequence[Segment]) -> None:
        """Remove segments from the last on, so that a stop in between leaves no hole."""
        for segment in reversed(segments):
            segment.forget_files()
            for path in (segment.path, *segment.siblings()):
                self._disk.unlink(path)
            self._disk.sync_dir(self.directory)
        gone = set(segments)
        self._unsynced = [segment for segment in self._unsynced if segment not in gone]

    # Removing from the front

    def advance_start(self, offset: int) -> None:
        """Raise the start offset, durably, and remove the segments that lie wholly below it. `OffsetOutOfRange`."""
        before = self.raise_start(offset)
        try:
            self.persist_start()
        except HeadraceError:
            self.lower_start(before)
            raise

    def raise_start(self, offset: int) -> int:
        """Raise the start offset, and remove the segments that lie wholly below it; returns what it is surely.

        The rest is durable when `persist_start` has returned. Whole segments go first and need no room on the disk, so
        that a full one can be emptied in this way.
        """
        self._check_writable()
        if offset > self.end_offset:
            raise OffsetOutOfRange(f"offset {offset} lies past the end of {self.directory.name}, {self.end_offset}")
        removed = self.remove_segments_below(offset)
        before = self.start_offset
        self.start_offset = max(before, offset)
        if removed:
            self.epochs.truncate_before(self.start_offset)
        return before

    def persist_start(self) -> None:
        """Put the start offset on disk. Blocking; safe in any thread."""
        try:
            if self._persist is not None:
                self._persist(self)
        except OSError as error:
            raise storage_error(error, f"writing the start offset of {self.directory.name}") from error

    def persist_flushed(self) -> None:
        """Put on disk how far the log is. Blocking; safe in any thread."""
        if self._persist is not None:
            self._persist(self)

    def lower_start(self, before: int) -> None:
        """Undo `raise_start` as far as that goes."""
        self.start_offset = max(before, self.segments[0].base_offset)

    def remove_segments_below(self, offset: int) -> int:
        """Remove the closed segments that lie wholly below `offset`, oldest first; returns how many.

        Their files stay for `file.delete.delay.ms` under another name.
        """
        self._check_writable()
        removed = 0
        due_ms = self._clock.wall_ms() + self._settings.file_delete_delay_ms
        try:
            for segment in self.segments[:-1]:
                if segment.next_offset > offset:
                    break
                self._doomed.append((due_ms, segment.mark_deleted()))
                if segment in self._unsynced:
                    self._unsynced.remove(segment)
                removed += 1
        except OSError as error:
            raise storage_error(error, f"removing a segment of {self.directory.name}") from error
        finally:
            if removed:
                self._set_segments(self.segments[removed:])
                self.start_offset = max(self.start_offset, self.segments[0].base_offset)
                self.epochs.truncate_before(self.start_offset)
                self.aborted.keep(self.segments[0].base_offset, _NEVER)
                self._snapshots = [at for at in self._snapshots if at >= self.segments[0].base_offset]
        return removed

    def purge_deleted(self) -> None:
        """Remove the files of removed segments whose time has come. Blocking: large files take a while to free."""
        now_ms = self._clock.wall_ms()
        while self._doomed and self._doomed[0][0] <= now_ms:
            self._disk.unlink(self._doomed[0][1])
            del self._doomed[0]

    def expire_producers(self, expiry_ms: int) -> int:
        """Forget producers not heard of for that long; returns how many."""
        return self.producers.expire(self._clock.wall_ms() - expiry_ms)

    # Replacing

    def adopt(self, old: Sequence[Segment], new: Segment) -> bool:
        """Take a compacted segment for closed neighbours; False if they are not all there any more.

        Only in memory, and at once. `Replacement` sees to the files, before and after.
        """
        if self._closed or self._failure is not None or old[0] not in self.segments:
            return False
        first = self.segments.index(old[0])
        after = first + len(old)
        if self.segments[first:after] != list(old) or old[-1] is self._active:
            return False
        new.next_offset = old[-1].next_offset
        self._set_segments([*self.segments[:first], new, *self.segments[after:]])
        for segment in old:
            segment.retire()
        return True
