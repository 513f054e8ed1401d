"""The producer snapshots of a log: those on disk, and those that the next flush writes."""

from bisect import insort
from collections.abc import Collection, Sequence
from pathlib import Path

from headrace.runtime.disk import Disk
from headrace.storage.files import SNAPSHOT, offset_name
from headrace.storage.producers import Producers
from headrace.storage.replay import producers_as_of, restore_producers
from headrace.storage.segment import Segment

PendingSnapshot = tuple[int, bytes]
"""An offset, and the state of the producers there."""


class ProducerSnapshots:
    """One file for each offset at which a segment or the log was closed. Caches: they can be rebuilt from the log."""

    __slots__ = ("_directory", "_disk", "_pending", "_stored")

    def __init__(self, disk: Disk, directory: Path, stored: list[int]) -> None:
        """`stored` are the offsets of the files that exist, in order."""
        self._disk = disk
        self._directory = directory
        self._stored = stored
        self._pending: list[PendingSnapshot] = []

    @property
    def newest_offset(self) -> int | None:
        """The offset of the newest snapshot on disk."""
        return self._stored[-1] if self._stored else None

    def add(self, offset: int, data: bytes) -> None:
        """Queue a snapshot for the next flush."""
        self._pending.append((offset, data))

    def pending_files(self) -> list[tuple[Path, bytes]]:
        """The files that the next flush must write."""
        return [(self._path(offset), data) for offset, data in self._pending]

    def note_flushed(self, count: int) -> None:
        """Mark the first `count` pending snapshots as written by a flush."""
        self._stored.extend(offset for offset, _ in self._pending[:count])
        del self._pending[:count]

    def take_pending(self) -> list[PendingSnapshot]:
        """Transfer the pending snapshots to the caller to write; `note_written` or `return_pending` must follow."""
        taken, self._pending = self._pending, []
        return taken

    def note_written(self, snapshots: Sequence[PendingSnapshot]) -> None:
        for offset, _ in snapshots:
            insort(self._stored, offset)

    def return_pending(self, snapshots: Sequence[PendingSnapshot]) -> None:
        """Return snapshots that could not be written: the next flush writes them."""
        self._pending[:0] = snapshots

    def remove_past(self, offset: int) -> None:
        """Remove every snapshot of a later offset, durably."""
        self._pending = [(at, data) for at, data in self._pending if at <= offset]
        self._remove([at for at in self._stored if at > offset])
        self._disk.sync_dir(self._directory)

    def remove_others(self, offsets: Collection[int]) -> None:
        """Remove the files of all offsets but these."""
        self._remove([at for at in self._stored if at not in offsets])

    def _remove(self, offsets: Sequence[int]) -> None:
        for offset in offsets:
            self._disk.unlink(self._path(offset))
            self._stored.remove(offset)

    def forget_below(self, offset: int) -> None:
        """Drop the offsets of files that were removed with their segments."""
        self._stored = [at for at in self._stored if at >= offset]

    def restore(self, limit: int, segments: list[Segment], now_ms: int) -> Producers:
        """Restore the producers as of offset `limit` from the newest valid snapshot and the batches after it."""
        producers, self._stored = restore_producers(self._disk, self._directory, self._stored, limit, segments, now_ms)
        return producers

    def as_of(self, limit: int, segments: Sequence[Segment], now_ms: int) -> Producers:
        """The producers as they were at offset `limit`. Blocking."""
        return producers_as_of(self._disk, self._directory, tuple(self._stored), limit, segments, now_ms)

    def _path(self, offset: int) -> Path:
        return self._directory / offset_name(offset, SNAPSHOT)
