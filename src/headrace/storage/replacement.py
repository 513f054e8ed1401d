"""Replaces adjacent closed segments by the compacted segment made from them.

Five steps, two of them in the event loop, where nothing may wait for the disk:

    commit   worker   `<base>.log.cleaned` becomes `<base>-<next>.swap`, durably: recovery finishes the rest
    adopt    loop     the log reads the new segment, under that name
    clear    worker   the old files are removed, durably, except the one whose name the new segment will take
    settle   loop     the new segment is renamed over that file
    finish   worker   the directory is synced, and the last old file is closed

A reader never finds unexpected bytes under a name: old segments are retired before their files are removed, and reads
in progress hold their files open. An error in a later step leaves a working log with temporary file names until it is
opened again.
"""

from collections.abc import Sequence
from pathlib import Path

from headrace.runtime.disk import DiskFile
from headrace.storage.aborted import replace_aborted
from headrace.storage.files import SWAP
from headrace.storage.log import Log
from headrace.storage.segment import Segment


class Replacement:
    def __init__(self, log: Log, old: Sequence[Segment], new: Segment, dropped_markers: Sequence[int] = ()) -> None:
        """`new` is a `Segment.over_cleaned_file`; `old` are adjacent closed segments."""
        self._dropped_markers = tuple(dropped_markers)
        self._log = log
        self._disk = log.files.disk
        self._old = old
        self._new = new
        self._name = old[0].path
        self._doomed: list[Path] = [old[0].offsets.path, old[0].times.path]
        for segment in old[1:]:
            self._doomed += (segment.offsets.path, segment.times.path, segment.aborted_path, segment.path)
        self._held: DiskFile | None = None

    @property
    def size_bytes(self) -> int:
        return self._new.size

    def commit(self) -> None:
        # A file of gigabytes is freed when its last handle is closed: this one makes that happen in `finish`.
        self._held = self._disk.open_read_only(self._name)
        end_offset = self._old[-1].next_offset
        # Compaction may have removed the last offsets of a segment; above the recovery point that counts as damage.
        self._log.persist_flushed()
        self._merge_aborted(end_offset)
        swap = self._name.with_name(f"{self._new.base_offset:020d}-{end_offset:020d}{SWAP}")
        self._disk.rename(self._new.path, swap)
        self._log.files.forget(self._new.path)
        self._new.path = swap

    def _merge_aborted(self, end_offset: int) -> None:
        """Write the aborted transactions of all the old segments to the file of the first, whose name stays.

        Before the swap, and without those whose markers are dropped: a consumer that gets a transaction without its
        marker would drop the producer's later records. The records of those transactions were removed long before.
        """
        dropped = set(self._dropped_markers)
        aborted = self._log.aborted.ending_within(self._new.base_offset, end_offset)
        left = [entry for entry in aborted if entry.last_offset not in dropped]
        if aborted:
            replace_aborted(self._disk, self._old[0].aborted_path, left)

    def adopt(self) -> bool:
        """Make the log read the new segment; False if an old one is gone, and `withdraw` must follow."""
        if not self._log.adopt(self._old, self._new):
            return False
        self._log.aborted.forget(self._dropped_markers)
        return True

    def withdraw(self) -> None:
        """Undo `commit`, in a worker."""
        for path in (self._new.path, self._new.offsets.path, self._new.times.path):
            self._disk.unlink(path)
        self._disk.sync_dir(self._log.directory)

    def clear(self) -> None:
        for path in self._doomed:
            self._disk.unlink(path)
        self._disk.sync_dir(self._log.directory)

    def settle(self) -> None:
        if self._new in self._log.segments:
            self._new.take_names(self._log.directory)

    def finish(self) -> None:
        if self._new not in self._log.segments:
            # Removed or truncated meanwhile, as were the segments it replaced.
            self._disk.unlink(self._name)
        self._disk.sync_dir(self._log.directory)
        self._held = None
