"""Reads logs without a broker, for `headrace log dump` and `headrace log verify`.

Works on a data directory that a broker is using: files are opened read-only, the last segment may grow meanwhile and
end in a batch that is still being written, and a segment that is deleted or compacted meanwhile is skipped.
"""

from collections.abc import Callable, Iterator
from pathlib import Path
from struct import Struct
from time import sleep
from typing import NamedTuple

from headrace.model.errors import CorruptBatch, RecordError
from headrace.records.batch import BatchHeader, check_batch
from headrace.records.reader import iter_records
from headrace.runtime.disk import Disk
from headrace.storage.batches import StoredBatch, read_batches
from headrace.storage.files import LOG, OFFSET_INDEX, TIME_INDEX, parse_offset
from headrace.storage.index import OFFSET_ENTRY, TIME_ENTRY

_MAX_DEPTH = 2
_LOOKS_AT_THE_END = 5
_LOOK_AGAIN_S = 0.05


class LogFolder(NamedTuple):
    """A partition's folder, or the requested part of it."""

    path: Path
    segments: tuple[Path, ...]
    """In the order of offsets."""
    is_whole: bool = True
    """False if single files were named: the segments before and after are then unknown."""

    @property
    def name(self) -> str:
        return self.path.name

    @property
    def topic_partition(self) -> tuple[str, int | None]:
        """Topic and partition by the folder's name; no partition if the name is not of that form."""
        topic, _, partition = self.path.name.rpartition("-")
        return (topic, int(partition)) if topic and partition.isdecimal() else (self.path.name, None)

    @property
    def size_bytes(self) -> int:
        return sum(path.stat().st_size for path in self.segments if path.exists())


class LogProblem(NamedTuple):
    path: Path
    position: int | None
    what: str

    def __str__(self) -> str:
        where = f"{self.path}" if self.position is None else f"{self.path} at byte {self.position}"
        return f"{where}: {self.what}"


def find_logs(path: Path) -> list[LogFolder]:
    """The logs at `path`, which may be a data directory, a partition's folder or a single `.log` file."""
    if path.is_file():
        return [LogFolder(path.absolute().parent, (path,), is_whole=False)]
    return sorted(_search(path, _MAX_DEPTH), key=_natural)


def _search(path: Path, depth: int) -> Iterator[LogFolder]:
    segments = []
    for entry in path.iterdir():
        if parse_offset(entry.name, LOG) is not None:
            segments.append(entry)
        elif depth and entry.is_dir() and not entry.is_symlink():
            yield from _search(entry, depth - 1)
    if segments:
        yield LogFolder(path.absolute(), tuple(sorted(segments)))


def _natural(log: LogFolder) -> tuple[str, int]:
    topic, partition = log.topic_partition
    return topic, -1 if partition is None else partition


def base_offset(segment: Path) -> int:
    """The base offset in a segment's file name; 0 if the name has another form."""
    return parse_offset(segment.name, LOG) or 0


def segments_from(log: LogFolder, offset: int) -> tuple[Path, ...]:
    """The segments that can contain `offset` or later ones."""
    first = 0
    for index, segment in enumerate(log.segments):
        if base_offset(segment) <= offset:
            first = index
    return log.segments[first:]


def stored_batches(disk: Disk, segment: Path, position: int = 0) -> Iterator[StoredBatch]:
    """Every whole batch of a segment, as `read_batches` yields them."""
    file = disk.open_read_only(segment)
    try:
        yield from read_batches(file, position)
    finally:
        file.close()


def verify_log(
    disk: Disk, log: LogFolder, *, decode: bool = False, progress: Callable[[int], None] = lambda _: None
) -> Iterator[LogProblem]:
    """Verify a log and yield its problems. `progress` is called with the number of bytes read.

    Checked: each batch's length, version and checksum, the order of offsets within and across segments, and that each
    index entry points to the batch it names. With `decode`, also that every record that is not encrypted can be read.
    """
    next_offset = 0
    for index, segment in enumerate(log.segments):
        is_last = log.is_whole and index == len(log.segments) - 1
        base = base_offset(segment)
        try:
            problems, segment_end = _check_segment(disk, segment, is_last=is_last, decode=decode, progress=progress)
        except FileNotFoundError:
            # Removed meanwhile, or merged with the previous one by compaction.
            continue
        if log.is_whole and base < next_offset:
            yield LogProblem(segment, None, f"starts at offset {base}, the segment before goes on to {next_offset - 1}")
        yield from problems
        next_offset = max(next_offset, segment_end)


def _check_segment(
    disk: Disk, segment: Path, *, is_last: bool, decode: bool, progress: Callable[[int], None]
) -> tuple[list[LogProblem], int]:
    """The problems of a segment and its next offset. Starts over if compaction replaced the segment meanwhile."""
    while True:
        before = _identity(segment)
        check = _SegmentCheck(disk, segment, base_offset(segment), is_last=is_last, decode=decode, progress=progress)
        problems = list(check.run())
        if not problems or _identity(segment) == before:
            return problems, check.next_offset


def _identity(segment: Path) -> tuple[int, ...]:
    """A value that changes when a file of a segment is replaced, and not when it grows."""
    paths = (segment, segment.with_suffix(OFFSET_INDEX), segment.with_suffix(TIME_INDEX))
    return tuple(path.stat().st_ino if path.exists() else 0 for path in paths)


class _SegmentCheck:
    def __init__(
        self, disk: Disk, segment: Path, base: int, *, is_last: bool, decode: bool, progress: Callable[[int], None]
    ) -> None:
        self._disk = disk
        self._segment = segment
        self._base = base
        self._is_last = is_last
        self._decode = decode
        self._progress = progress
        self.next_offset = base

    def run(self) -> Iterator[LogProblem]:
        # Indexes are read before the log, so that they have no entries for batches appended meanwhile.
        offsets = self._entries(OFFSET_INDEX, OFFSET_ENTRY)
        times = self._entries(TIME_INDEX, TIME_ENTRY)
        last_offsets: dict[int, int] = {position: -1 for _, position in offsets}
        newest: dict[int, int] = {relative: -1 for _, relative in times}
        newest_timestamp = -1
        end = 0
        looks_left = _LOOKS_AT_THE_END if self._is_last else 1
        try:
            while looks_left:
                for position, header, data in stored_batches(self._disk, self._segment, end):
                    yield from self._check(position, header, data)
                    end = position + header.size
                    self._progress(header.size)
                    newest_timestamp = max(newest_timestamp, header.max_timestamp)
                    if position in last_offsets:
                        last_offsets[position] = header.last_offset
                    if (relative := header.last_offset - self._base) in newest:
                        newest[relative] = newest_timestamp
                if self._segment.stat().st_size == end:
                    break
                # A broker may be writing this batch; that takes less time than this wait.
                looks_left -= 1
                if looks_left:
                    sleep(_LOOK_AGAIN_S)
        except CorruptBatch as error:
            yield LogProblem(self._segment, end, f"{error}; what follows cannot be read")
            return
        if (size := self._segment.stat().st_size) > end and not looks_left:
            yield self._cut_off(size, end)
            return
        yield from self._check_offset_index(offsets, last_offsets)
        yield from self._check_time_index(times, newest)

    def _check(self, position: int, header: BatchHeader, data: memoryview) -> Iterator[LogProblem]:
        offsets = f"offsets {header.base_offset} to {header.last_offset}"
        try:
            check_batch(data)
            if self._decode and not header.is_encrypted:
                for _ in iter_records(data, header):
                    pass
        except RecordError as error:
            yield LogProblem(self._segment, position, f"{error} ({offsets})")
        if header.base_offset < self.next_offset or header.last_offset_delta < 0:
            yield LogProblem(self._segment, position, f"{offsets} are out of order, {self.next_offset} is next")
        if not 0 <= header.record_count <= header.last_offset_delta + 1:
            yield LogProblem(self._segment, position, f"{header.record_count} records claim {offsets}")
        self.next_offset = max(self.next_offset, header.next_offset)

    def _cut_off(self, size: int, end: int) -> LogProblem:
        what = f"the last {size - end} bytes are not a whole batch"
        if self._is_last:
            what += "; a broker that was killed leaves that, and cuts it off when it starts again"
        return LogProblem(self._segment, end, what)

    def _entries(self, suffix: str, entry: Struct) -> list[tuple[int, int]]:
        """The entries of an index, without the zeros at the end of one that Kafka preallocated."""
        try:
            data = self._disk.read_bytes(self._segment.with_suffix(suffix))
        except FileNotFoundError:
            return []
        found: list[tuple[int, int]] = []
        for position in range(0, len(data) - entry.size + 1, entry.size):
            key, value = entry.unpack_from(data, position)
            if found and not key and not value:
                break
            found.append((key, value))
        return found

    def _check_offset_index(self, entries: list[tuple[int, int]], last_offsets: dict[int, int]) -> Iterator[LogProblem]:
        path = self._segment.with_suffix(OFFSET_INDEX)
        previous = -1
        for number, (relative, position) in enumerate(entries):
            if last_offsets[position] != self._base + relative:
                yield LogProblem(path, None, f"entry {number}: no batch that ends with offset {self._base + relative} "
                                          f"is at byte {position} of the log")  # fmt: skip
                return
            if relative <= previous:
                yield LogProblem(path, None, f"entry {number} is out of order")
                return
            previous = relative

    def _check_time_index(self, entries: list[tuple[int, int]], newest: dict[int, int]) -> Iterator[LogProblem]:
        path = self._segment.with_suffix(TIME_INDEX)
        previous = -1
        for number, (timestamp, relative) in enumerate(entries):
            if newest[relative] != timestamp:
                yield LogProblem(path, None, f"entry {number}: {timestamp} is not the newest timestamp up to "
                                          f"offset {self._base + relative}")  # fmt: skip
                return
            if timestamp <= previous:
                yield LogProblem(path, None, f"entry {number} is out of order")
                return
            previous = timestamp
