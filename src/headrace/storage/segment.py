"""One segment of a log: a file of record batches, with an offset index and a time index beside it.

`Appender.append` appends to it, inlined for speed, and updates the fields here; this module does the lookups: the batch
that contains an offset, the headers from a position on, the newest timestamp.

Only the last segment of a log, the active one, has a file open for writing. Closed ones are read through the shared
`FilePool`, and use no file handle until they are read.
"""

import logging
from collections.abc import Iterator
from pathlib import Path

from headrace.model.errors import CorruptBatch, DiskFull
from headrace.records.batch import HEADER_SIZE, LOG_OVERHEAD, MAGIC, NO_TIMESTAMP, BatchHeader, read_header
from headrace.runtime.disk import DiskFile
from headrace.storage.files import (
    CLEANED,
    DELETED,
    LOG,
    OFFSET_INDEX,
    SNAPSHOT,
    TIME_INDEX,
    TXN_INDEX,
    FilePool,
    offset_name,
)
from headrace.storage.index import OFFSET_ENTRY, TIME_ENTRY, SparseIndex
from headrace.storage.summary import LogSummary, SegmentSizes

_log = logging.getLogger(__name__)

_FIRST_READ = 4096
_NEXT_READ = 65536


def walk_headers(file: DiskFile, position: int, end: int) -> Iterator[tuple[int, BatchHeader]]:
    """Yield positions and headers of the batches from `position`, where one starts, to `end`, without their records.

    Raises `CorruptBatch` at bytes that cannot be a batch; checksums are not verified.
    """
    chunk_bytes = _FIRST_READ
    while end - position >= HEADER_SIZE:
        data = file.read(position, min(chunk_bytes, end - position))
        available = len(data)
        if available < HEADER_SIZE:
            return
        at = 0
        while available - at >= HEADER_SIZE:
            header = read_header(data, at)
            size = header.length + LOG_OVERHEAD
            if header.magic != MAGIC or size < HEADER_SIZE:
                raise CorruptBatch(f"{file.path} has no record batch at position {position + at}")
            yield position + at, header
            at += size
        position += at
        # One read covers many small batches; large ones are skipped.
        chunk_bytes = _NEXT_READ if at <= 2 * available else _FIRST_READ


class Segment:
    __slots__ = (
        "_files",
        "_max_timestamp",
        "base_offset",
        "created_ms",
        "first_timestamp",
        "max_timestamp_offset",
        "next_offset",
        "offsets",
        "path",
        "size",
        "times",
        "unindexed_bytes",
        "writer",
    )

    def __init__(
        self,
        directory: Path,
        base_offset: int,
        files: FilePool,
        *,
        size: int = 0,
        next_offset: int | None = None,
        offset_entries: int = 0,
        time_entries: int = 0,
        created_ms: int = 0,
    ) -> None:
        self._files = files
        self.base_offset = base_offset
        self.path = directory / offset_name(base_offset, LOG)
        self.size = size
        """Bytes of whole batches; the file is longer only during an append."""
        self.next_offset = base_offset if next_offset is None else next_offset
        """Every offset of the segment is below it. Stale for the active segment, where the log has it."""
        self.offsets = SparseIndex(
            directory / offset_name(base_offset, OFFSET_INDEX), OFFSET_ENTRY, files, offset_entries
        )
        self.times = SparseIndex(directory / offset_name(base_offset, TIME_INDEX), TIME_ENTRY, files, time_entries)
        self.first_timestamp: int | None = None
        """Max timestamp of the first batch, the start of the segment's age."""
        self.created_ms = created_ms
        self._max_timestamp: int | None = None if size else NO_TIMESTAMP
        self.max_timestamp_offset = -1
        """Last offset of the first batch that has the segment's max timestamp."""
        self.unindexed_bytes = 0
        """Bytes since the last entry of the offset index."""
        self.writer: DiskFile | None = None

    def __repr__(self) -> str:
        return f"<Segment {self.path.name} {self.size} bytes>"

    # Files

    def reader(self) -> DiskFile:
        return self.writer or self._files.get(self.path)

    def open_writer(self, *, create: bool = False) -> DiskFile:
        self.writer = self._files.disk.open(self.path, create=create)
        self.writer.disable_read_ahead()
        return self.writer

    def close_writer(self) -> None:
        """Release the file for writing: it is closed when a sync or read in progress is done with it."""
        self.writer = None

    def store_indexes(self) -> bool:
        """Write the indexes to their files. If there is no room the files are removed: opening the log rebuilds them,
        and until then the indexes are in memory."""
        if self.offsets.store() and self.times.store():
            return True
        for index in (self.offsets, self.times):
            index.withdraw()
        return False

    def store_tail(self) -> bool:
        """Write index entries that are only in memory to their files; False if a write fails. Nothing is synced."""
        return all(len(i) == i.stored_entries or i.store() for i in (self.offsets, self.times))

    def sync_indexes(self) -> None:
        """Sync the indexes. Needed before the recovery point passes the segment, since they are then trusted. Blocking.

        A missing one needs no sync: it is rebuilt when the log is opened.
        """
        for index in (self.offsets, self.times):
            try:
                file = self._files.disk.open(index.path)
            except FileNotFoundError:
                continue
            try:
                file.sync_data()
            finally:
                file.close()

    def siblings(self) -> tuple[Path, ...]:
        """The files that are removed with the segment, besides the log file itself."""
        snapshot = self.path.with_name(offset_name(self.base_offset, SNAPSHOT))
        return (self.offsets.path, self.times.path, self.aborted_path, snapshot)

    @property
    def aborted_path(self) -> Path:
        """The file of the segment's aborted transactions, if it has any."""
        return self.path.with_name(offset_name(self.base_offset, TXN_INDEX))

    def forget_files(self) -> None:
        self.writer = None
        for path in (self.path, self.offsets.path, self.times.path):
            self._files.forget(path)

    def mark_deleted(self) -> Path:
        """Remove the segment from the log, durably, by renaming the file; returns the new name."""
        target = self.path.with_name(self.path.name + DELETED)
        self._files.disk.rename(self.path, target)
        for path in self.siblings():
            self._files.disk.unlink(path)
        self.forget_files()
        return target

    @classmethod
    def over_cleaned_file(cls, cleaned: Path, base_offset: int, files: FilePool, interval_bytes: int) -> "Segment":
        """Open and index a file made by compaction, still under a name that recovery removes. Blocking.

        `Replacement` puts it into the log and renames its files.
        """
        file = files.disk.open_read_only(cleaned)
        segment = cls(cleaned.parent, base_offset, files, size=file.size())
        segment.path = cleaned
        for index, suffix in ((segment.offsets, OFFSET_INDEX), (segment.times, TIME_INDEX)):
            index.path = cleaned.with_name(offset_name(base_offset, suffix) + CLEANED)
            files.disk.unlink(index.path)
            files.forget(index.path)
        if not segment.rebuild_indexes(interval_bytes):
            raise DiskFull(f"the indexes of {cleaned} cannot be stored")
        return segment

    def take_names(self, directory: Path) -> None:
        """Rename the files of a compacted segment to their final names, replacing existing ones. Quick; no sync.

        May stop halfway with an `OSError`; the segment stays usable.
        """
        for owner, suffix in ((self, LOG), (self.offsets, OFFSET_INDEX), (self.times, TIME_INDEX)):
            target = directory / offset_name(self.base_offset, suffix)
            self._files.disk.rename(owner.path, target, sync=False)
            self._files.forget(owner.path)
            self._files.forget(target)
            owner.path = target

    def retire(self) -> None:
        """Make later reads of a replaced segment find no file, because its names will be reused."""
        self.forget_files()
        for owner in (self, self.offsets, self.times):
            owner.path = owner.path.with_name(owner.path.name + DELETED)

    # Lookups

    def locate(self, offset: int, *, mends_index: bool = True) -> tuple[int, BatchHeader] | None:
        """Position and header of the first batch whose last offset is not below `offset`; None if there is none.

        An index that does not match is rebuilt, but not in a thread other than the log's: concurrent readers of the
        segment would find it empty.
        """
        file = self.reader()
        relative = offset - self.base_offset
        entry = None
        try:
            entry = self.offsets.floor(relative) if relative >= 0 else None
            for position, header in walk_headers(file, entry.value if entry else 0, self.size):
                if entry is not None:
                    if header.base_offset + header.last_offset_delta != self.base_offset + entry.key:
                        break
                    entry = None
                if header.base_offset + header.last_offset_delta >= offset:
                    return position, header
            else:
                if entry is None:
                    return None
        except (CorruptBatch, OSError):
            if entry is None:
                raise
        if mends_index:
            _log.warning("index %s does not match its log and is rebuilt", self.offsets.path)
            self.rebuild_indexes()
        return self._locate_by_walking(file, offset)

    def _locate_by_walking(self, file: DiskFile, offset: int) -> tuple[int, BatchHeader] | None:
        for position, header in walk_headers(file, 0, self.size):
            if header.last_offset >= offset:
                return position, header
        return None

    def position_from(self, offset: int) -> int:
        """The position of a batch at or before the one with `offset`."""
        entry = self.offsets.floor(offset - self.base_offset)
        return entry.value if entry else 0

    def end_before(self, position: int) -> int:
        """The next offset after the last batch before a position, at which a batch starts or the segment ends."""
        entry = self.offsets.floor_of_value(position - 1)
        end_offset = self.base_offset
        for _, header in walk_headers(self.reader(), entry.value if entry else 0, position):
            end_offset = header.next_offset
        return end_offset

    def headers(self, position: int = 0) -> Iterator[tuple[int, BatchHeader]]:
        return walk_headers(self.reader(), position, self.size)

    @property
    def max_timestamp(self) -> int:
        """The newest timestamp in the segment, -1 without one. Reads the end of the time index once."""
        if self._max_timestamp is None:
            entry = self.times.last()
            # In this order, so that another thread that finds the timestamp finds its offset.
            self.max_timestamp_offset = self.base_offset + entry.value if entry else -1
            self._max_timestamp = entry.key if entry else NO_TIMESTAMP
        return self._max_timestamp

    def note_timestamp(self, timestamp: int, last_offset: int) -> None:
        self._max_timestamp = timestamp
        self.max_timestamp_offset = last_offset

    # Indexing

    def add_to_indexes(self, last_offset: int, position: int) -> None:
        """Index the batch at `position`. Timestamps up to and including this batch must have been recorded."""
        self.offsets.append(last_offset - self.base_offset, position)
        self.unindexed_bytes = 0
        self.add_newest_time()

    @property
    def next_index_bytes(self) -> int:
        """The size of the larger index with one more entry."""
        return max(self.offsets.size_bytes + OFFSET_ENTRY.size, self.times.size_bytes + TIME_ENTRY.size)

    def add_newest_time(self) -> None:
        """Add the newest timestamp so far to the time index, unless it is there."""
        newest = self.max_timestamp
        entry = self.times.last()
        if newest > (entry.key if entry else NO_TIMESTAMP):
            self.times.append(newest, self.max_timestamp_offset - self.base_offset)

    def note_batch(self, position: int, header: BatchHeader, interval_bytes: int) -> None:
        """Update fields and indexes for a batch in the file, as `Appender.append` does inline."""
        last_offset = header.base_offset + header.last_offset_delta
        if self.first_timestamp is None:
            self.first_timestamp = header.max_timestamp
        if header.max_timestamp > self.max_timestamp:
            self.note_timestamp(header.max_timestamp, last_offset)
        if self.unindexed_bytes > interval_bytes:
            self.add_to_indexes(last_offset, position)
        self.unindexed_bytes += header.length + LOG_OVERHEAD
        self.size = position + header.length + LOG_OVERHEAD
        self.next_offset = last_offset + 1

    def start_indexing(self) -> None:
        """Reset everything that `note_batch` updates, to rebuild it from the first batch on."""
        self.offsets.clear()
        self.times.clear()
        self.size = 0
        self.next_offset = self.base_offset
        self.first_timestamp = None
        self._max_timestamp = NO_TIMESTAMP
        self.max_timestamp_offset = -1
        self.unindexed_bytes = 0

    def rebuild_indexes(self, interval_bytes: int = 4096) -> bool:
        """Rebuild both indexes from the log file and sync them; False if they cannot be stored. Blocking, and slow."""
        end, next_offset = self.size, self.next_offset
        self.start_indexing()
        for position, header in walk_headers(self.reader(), 0, end):
            self.note_batch(position, header, interval_bytes)
        self.size, self.next_offset = end, max(next_offset, self.next_offset)
        self.add_newest_time()
        if not self.store_indexes():
            return False
        self.sync_indexes()
        return True

    def restore_tail(self, summary: LogSummary) -> None:
        """Set the active segment's fields from a summary, without reading anything."""
        self.offsets.keep_first(summary.offset_entries)
        self.times.keep_first(summary.time_entries)
        self.next_offset = summary.end_offset
        self.first_timestamp = summary.first_timestamp
        self.note_timestamp(summary.max_timestamp, summary.max_timestamp_offset)
        self.unindexed_bytes = summary.unindexed_bytes

    @property
    def sizes(self) -> SegmentSizes:
        """The sizes of a closed segment's files once its indexes are stored."""
        return SegmentSizes(self.base_offset, self.size, self.offsets.size_bytes, self.times.size_bytes)

    def load_tail(self, interval_bytes: int) -> None:
        """Load the active segment's fields from its indexes and the batches after their last entry."""
        end = self.size
        file = self.reader() if end else None
        self.first_timestamp = None
        if file is not None:
            first = next(walk_headers(file, 0, end), None)
            if first is None:
                raise CorruptBatch(f"{self.path} is too short for a record batch")
            self.first_timestamp = first[1].max_timestamp
        entry = self.offsets.last()
        time = self.times.last()
        self.unindexed_bytes = 0
        self._max_timestamp = time.key if time else NO_TIMESTAMP
        self.max_timestamp_offset = self.base_offset + time.value if time else -1
        self.size, self.next_offset = (
            (entry.value, self.base_offset + entry.key + 1) if entry else (0, self.base_offset)
        )
        if file is None:
            return
        for position, header in walk_headers(file, self.size, end):
            if entry is not None:
                if header.last_offset != self.base_offset + entry.key or header.max_timestamp > self.max_timestamp:
                    raise CorruptBatch(f"an index does not match its log {self.path}")
                # The indexed batch itself: its time is in the time index already.
                entry = None
                self.unindexed_bytes = header.size
                self.size = position + header.size
                continue
            self.note_batch(position, header, interval_bytes)
        if self.size != end:
            raise CorruptBatch(f"{self.path} ends inside a record batch")
