"""The I/O of compaction, for a worker thread: reads segments and writes the records that remain.

Reads only closed segments, whose files never change, and writes only files with the suffix `.cleaned`, which recovery
removes: a failure here leaves the log unchanged.
"""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from headrace.model.errors import DataKeyMissing
from headrace.records.batch import BatchHeader, Buffer, check_batch, read_header
from headrace.runtime.disk import Disk, DiskFile
from headrace.storage.batches import StoredBatch, read_batches
from headrace.storage.compaction import Compactor, OffsetMap, SegmentView, fits_behind
from headrace.storage.encryption import LogCipher
from headrace.storage.files import CLEANED, LOG, offset_name
from headrace.storage.segment import Segment

_WRITE_BYTES = 1 << 20

Pace = Callable[[int], None]
"""Called with the bytes read or written since the last call. May wait, and may raise to end the work."""


def map_keys(
    segments: Sequence[Segment], first_dirty: int, offsets: OffsetMap, pace: Pace, cipher: LogCipher | None = None
) -> None:
    """Add the keys of all records from `first_dirty` on to the map, as far as they fit."""
    for segment in segments:
        for batch in _checked_batches(segment, pace):
            if batch.header.last_offset < first_dirty:
                continue
            data, header = _decrypted(batch, cipher)
            if not offsets.add(data, header, lambda: pace(0)):
                return
        offsets.end_offset = segment.next_offset


class Rewritten(NamedTuple):
    segments: Sequence[Segment]
    """The adjacent segments that were compacted: the first one, and those whose remaining records fit after its own."""
    path: Path | None
    """The file with the remaining records, synced; None if nothing was removed."""


def rewrite(
    segments: Sequence[Segment],
    disk: Disk,
    compactor: Compactor,
    pace: Pace,
    *,
    max_bytes: int,
    cipher: LogCipher | None = None,
) -> Rewritten:
    """Compact adjacent segments into one file, from the first on and up to `max_bytes`.

    A batch that was encrypted stays encrypted: unchanged, or with fewer records under the current data key.
    """
    directory, base_offset = segments[0].path.parent, segments[0].base_offset
    target = directory / (offset_name(base_offset, LOG) + CLEANED)
    disk.unlink(target)
    output = _Output(disk.open(target, create=True), pace)
    taken: list[Segment] = []
    changed = False
    try:
        for segment in segments:
            if taken and not fits_behind(base_offset, output.size_bytes, view(segment), max_bytes=max_bytes):
                break
            changed = changed or bool(taken)
            taken.append(segment)
            for batch in _checked_batches(segment, pace):
                left = _compacted(batch, compactor, cipher)
                changed = changed or left is not batch.data
                if left is not None:
                    output.add(left)
        if changed:
            output.finish()
    except BaseException:
        disk.unlink(target)
        raise
    finally:
        output.close()
    if changed:
        return Rewritten(taken, target)
    disk.unlink(target)
    return Rewritten(taken, None)


def _compacted(batch: StoredBatch, compactor: Compactor, cipher: LogCipher | None) -> Buffer | None:
    """Return the compacted batch as it goes to disk; `batch.data` itself if nothing of it changes."""
    data, header = _decrypted(batch, cipher)
    left = compactor.compact(data, header)
    if left is data or left is None:
        return None if left is None else batch.data
    if cipher is None or not batch.header.is_encrypted:
        return left
    return cipher.encrypt(left, read_header(left), header.base_offset)


def _decrypted(batch: StoredBatch, cipher: LogCipher | None) -> tuple[Buffer, BatchHeader]:
    """The plain batch. Raises `DataKeyMissing`, which ends the compaction without effect."""
    if not batch.header.is_encrypted:
        return batch.data, batch.header
    if cipher is None:
        raise DataKeyMissing(f"the batch at offset {batch.header.base_offset} is encrypted")
    return cipher.decrypt(batch.data, batch.header)


class _Output:
    def __init__(self, file: DiskFile, pace: Pace) -> None:
        self._file = file
        self._pace = pace
        self._waiting: list[Buffer] = []
        self._waiting_bytes = 0
        self.size_bytes = 0

    def add(self, batch: Buffer) -> None:
        self._waiting.append(batch)
        self._waiting_bytes += len(batch)
        self.size_bytes += len(batch)
        if self._waiting_bytes >= _WRITE_BYTES:
            self._write()

    def finish(self) -> None:
        if self._waiting:
            self._write()
        self._file.sync_data()

    def close(self) -> None:
        self._file.close()

    def _write(self) -> None:
        self._file.append((b"".join(self._waiting),))
        self._pace(self._waiting_bytes)
        self._waiting, self._waiting_bytes = [], 0


def view(segment: Segment, *, first_timestamp: bool = False) -> SegmentView:
    """The `SegmentView` of a closed segment; its first timestamp may have to be read from disk."""
    first = segment.first_timestamp
    if first is None and first_timestamp and segment.size:
        first = next((header.max_timestamp for _, header in segment.headers()), None)
    return SegmentView(
        segment.base_offset, segment.next_offset, segment.size, -1 if first is None else first, segment.max_timestamp
    )


def _checked_batches(segment: Segment, pace: Pace) -> Iterator[StoredBatch]:
    """The batches of a closed segment with verified checksums: raises `CorruptBatch` rather than hide damage."""
    for batch in read_batches(segment.reader(), 0, segment.size):
        check_batch(batch.data)
        pace(len(batch.data))
        yield batch
