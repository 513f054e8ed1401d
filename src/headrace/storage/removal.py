"""Removes records from the front of a log: raises the start offset and removes segments below it."""

from pathlib import Path

from headrace.model.errors import HeadraceError, OffsetOutOfRange
from headrace.model.invariants import invariant
from headrace.storage.files import storage_error
from headrace.storage.state import LogState

_NEVER = 2**63 - 1


class FrontRemoval:
    """Removes from the front of one log, and tracks the removed files that are still to be deleted."""

    __slots__ = ("_log", "_to_delete")

    def __init__(self, log: LogState) -> None:
        self._log = log
        self._to_delete: list[tuple[int, Path]] = []
        """Files of removed segments, with the time after which they may be deleted."""

    def advance_start(self, offset: int) -> None:
        """Raise the start offset, durably, and remove the segments that lie wholly below it. `OffsetOutOfRange`."""
        before = self.raise_start(offset)
        try:
            self.persist_start()
        except HeadraceError:
            self.lower_start(before)
            raise

    def raise_start(self, offset: int) -> int:
        """Raise the start offset and remove the segments that lie wholly below it; returns the former start offset.

        The rest is durable when `persist_start` has returned. Whole segments are removed first, which needs no disk
        space, so that this works on a full disk.
        """
        log = self._log
        log.check_writable()
        if offset > log.end_offset:
            raise OffsetOutOfRange(f"offset {offset} lies past the end of {log.directory.name}, {log.end_offset}")
        removed = self.remove_segments_below(offset)
        before = log.start_offset
        log.start_offset = max(before, offset)
        if removed:
            log.epochs.truncate_before(log.start_offset)
        return before

    def persist_start(self) -> None:
        """Persist the start offset. Blocking; safe in any thread."""
        try:
            self._log.persist()
        except OSError as error:
            raise storage_error(error, f"writing the start offset of {self._log.directory.name}") from error

    def lower_start(self, before: int) -> None:
        """Undo `raise_start` as far as the segments still exist."""
        self._log.start_offset = max(before, self._log.segments.first.base_offset)

    def remove_segments_below(self, offset: int) -> int:
        """Remove the closed segments that lie wholly below `offset`, oldest first; returns how many.

        Their files are renamed, and deleted after `file.delete.delay.ms`.
        """
        log = self._log
        log.check_writable()
        invariant(offset <= log.high_watermark, 30, "only committed records are removed")
        segments = log.segments.all
        removed = 0
        due_ms = log.clock.wall_ms() + log.limits.settings.file_delete_delay_ms
        try:
            for segment in segments[:-1]:
                if segment.next_offset > offset:
                    break
                self._to_delete.append((due_ms, segment.mark_deleted()))
                removed += 1
        except OSError as error:
            raise storage_error(error, f"removing a segment of {log.directory.name}") from error
        finally:
            if removed:
                log.segments.forget_unsynced(segments[:removed])
                log.set_segments(segments[removed:])
                first = log.segments.first.base_offset
                log.start_offset = max(log.start_offset, first)
                log.epochs.truncate_before(log.start_offset)
                log.aborted.keep(first, _NEVER)
                log.snapshots.forget_below(first)
        return removed

    @property
    def has_due_files(self) -> bool:
        """Whether files of removed segments are due for deletion."""
        return bool(self._to_delete) and self._to_delete[0][0] <= self._log.clock.wall_ms()

    def delete_due_files(self) -> None:
        """Delete the files of removed segments that are due. Blocking: freeing a large file takes a while."""
        while self.has_due_files:
            self._log.disk.unlink(self._to_delete[0][1])
            del self._to_delete[0]
