"""Checks the segments of a log batch by batch after an unclean shutdown, and repairs them.

`recovery.py` describes how bytes that are not valid batches are handled.
"""

import logging
from pathlib import Path

from headrace.runtime.disk import Disk
from headrace.storage.caches import LogCaches
from headrace.storage.damage import DamageMark
from headrace.storage.files import CORRUPT, REPAIRED, REPAIRING
from headrace.storage.leftovers import keep_as_corrupt, put_repaired
from headrace.storage.scan import Damage, ScannedBatch, find_batch, is_unwritten, scan
from headrace.storage.segment import Segment

_log = logging.getLogger(__name__)

_COPY_BYTES = 4 * 1024 * 1024


class SegmentRepair:
    """Checks and repairs the segments of one log, and rebuilds its caches from their batches."""

    def __init__(
        self,
        directory: Path,
        disk: Disk,
        segments: list[Segment],
        caches: LogCaches,
        damage: DamageMark,
        *,
        recovery_point: int,
        interval_bytes: int,
        is_replicated: bool,
        has_lost_unsynced: bool,
    ) -> None:
        """`segments` is the log's own list: segments that must be dropped are removed from it."""
        self._directory = directory
        self._disk = disk
        self._segments = segments
        self._caches = caches
        self._damage = damage
        self._recovery_point = recovery_point
        self._interval_bytes = interval_bytes
        self._is_replicated = is_replicated
        self._has_lost_unsynced = has_lost_unsynced

    def check_from(self, first: int) -> None:
        """Check every segment from the one with this index on."""
        checked = first
        while checked < len(self._segments):
            self._check_segment(checked)
            checked += 1

    def _check_segment(self, i: int) -> None:
        segment, recovery_point = self._segments[i], self._recovery_point
        limit = self._segments[i + 1].base_offset if i + 1 < len(self._segments) else None
        size = segment.size
        segment.start_indexing()
        damages: list[Damage] = []
        good: list[tuple[int, int]] = []
        expected, ends_here = segment.base_offset, False
        for item in scan(segment.reader(), size, segment.base_offset, limit):
            if isinstance(item, Damage):
                damages.append(item)
                ends_here = self._ends_at(segment, size, item)
                if ends_here:
                    break
                continue
            good.append((item.position, item.position + item.header.size))
            segment.note_batch(item.position, item.header, self._interval_bytes)
            self._caches.replay(segment, item)
            expected = item.header.next_offset
        is_end_known = bool(damages) and (ends_here or damages[-1].to_offset is None)
        if limit is not None and limit > max(expected, recovery_point) and not is_end_known:
            damages.append(Damage(size, size, expected, None, f"the file ends, and the next one starts at {limit}"))
            ends_here = self._ends_at(segment, size, damages[-1])
        if not damages:
            close_segment(segment, limit)
            return
        last, is_cut = damages[-1], False
        torn = last.to_offset is None and last.from_offset >= recovery_point
        if torn and not self._has_batches(i + 1):
            damages.pop()
            _log.warning("%s: cutting off %d bytes of an unfinished append at position %d, offset %d: %s", segment.path,
                         last.end - last.position, last.position, last.from_offset, last.reason)  # fmt: skip
            self._cut(i, last.position)
        elif ends_here:
            self._note_end(last)
            self._rename_later_segments(i)
            damages.pop()
            is_cut = last.position < size
        if damages:
            self._note_damages(segment, damages, limit)
        if is_cut or any(damage.position < damage.end for damage in damages):
            self._quarantine(segment, good, limit)
        close_segment(segment, limit if i + 1 < len(self._segments) else None)

    def _ends_at(self, segment: Segment, size: int, damage: Damage) -> bool:
        """True if nothing after the damage belongs to the log."""
        if damage.from_offset < self._recovery_point:
            return False
        return self._is_replicated or (self._has_lost_unsynced and is_unwritten(segment.reader(), size, damage))

    def _has_batches(self, first: int) -> bool:
        return any(
            find_batch(segment.reader(), 0, segment.size, segment.base_offset, segment.base_offset, None) is not None
            for segment in self._segments[first:]
            if segment.size
        )

    def _note_end(self, damage: Damage) -> None:
        """Report that the log ends with a damage, and in a replicated one, that the rest is to be fetched again."""
        if self._is_replicated:
            _log.error("%s ends at offset %d, where bytes are missing (%s): files with later ones are renamed to %s; "
                       "other replicas or the source of the mirror may have it", self._directory, damage.from_offset,
                       damage.reason, CORRUPT)  # fmt: skip
            self._damage.note(damage.from_offset)
        else:
            _log.warning("%s ends at offset %d, where bytes are missing (%s) that were not synced before the system "
                         "was restarted: nothing from there on was acknowledged with acks=all; files with later bytes "
                         "are renamed to %s", self._directory, damage.from_offset, damage.reason, CORRUPT)  # fmt: skip

    def _rename_later_segments(self, i: int) -> None:
        """End the log with segment `i`. The files of later segments are renamed."""
        while len(self._segments) > i + 1:
            # The last one first: after a crash in between the same damage is found again.
            behind = self._segments.pop()
            behind.forget_files()
            if behind.size:
                keep_as_corrupt(self._disk, behind.path)
            else:
                self._disk.unlink(behind.path)
            for path in behind.siblings():
                self._disk.unlink(path)
            self._disk.sync_dir(self._directory)

    def _cut(self, i: int, position: int) -> None:
        """Truncate the log at a position of segment `i`; later segments are empty."""
        while len(self._segments) > i + 1:
            empty = self._segments.pop()
            empty.forget_files()
            for path in (empty.path, *empty.siblings()):
                self._disk.unlink(path)
        self._disk.sync_dir(self._directory)
        writer = self._segments[i].open_writer()
        writer.truncate(position)
        self._segments[i].size = position

    def _note_damages(self, segment: Segment, damages: list[Damage], limit: int | None) -> None:
        for damage in damages:
            upto = damage.to_offset if damage.to_offset is not None else limit
            if damage.position == damage.end:
                _log.error(
                    "%s ends too early: offsets from %d up to %s are lost", segment.path, damage.from_offset, upto
                )
                continue
            _log.error("%s is damaged from position %d to %d (%s): offsets from %d up to %s are lost; the file is "
                       "renamed to %s", segment.path, damage.position, damage.end, damage.reason,
                       damage.from_offset, "the end" if upto is None else upto, CORRUPT)  # fmt: skip
        self._damage.note(damages[0].from_offset)

    def _quarantine(self, segment: Segment, good: list[tuple[int, int]], limit: int | None) -> None:
        """Rename a damaged file, and replace it by one with its valid batches."""
        repairing = segment.path.with_name(segment.path.name + REPAIRING)
        source = segment.reader()
        target = self._disk.open(repairing, create=True)
        target.truncate(0)
        for start, end in good:
            while start < end:
                piece = source.read(start, min(_COPY_BYTES, end - start))
                target.append((piece,))
                start += len(piece)
        target.sync_data()
        size = target.size()
        target.close()
        repaired = segment.path.with_name(segment.path.name + REPAIRED)
        segment.forget_files()
        self._disk.rename(repairing, repaired)
        put_repaired(self._disk, repaired)
        segment.start_indexing()
        for item in scan(segment.reader(), size, segment.base_offset, limit):
            if isinstance(item, ScannedBatch):
                segment.note_batch(item.position, item.header, self._interval_bytes)


def close_segment(segment: Segment, limit: int | None) -> None:
    """Close a segment at an offset; None leaves it open, as the active one."""
    if limit is not None:
        segment.add_newest_time()
        segment.next_offset = limit
