"""The state of one log: its offsets and segments, and its producers, epochs and transactions.

`Log` has a `LogState` and shares it with the modules that change it: `appender`, `truncation`, `removal` and `flush`.
Nothing else changes it. Belongs to the event loop's thread.
"""

import logging
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NoReturn

from headrace.config.topic import TopicSettings
from headrace.model.errors import LogClosed, StorageFailed
from headrace.model.invariants import invariant
from headrace.runtime.clock import Clock
from headrace.runtime.disk import Disk
from headrace.storage.damage import DamageMark
from headrace.storage.encryption import LogCipher
from headrace.storage.files import FilePool, storage_error
from headrace.storage.recovery import Loaded
from headrace.storage.roll import RollLimits
from headrace.storage.segment import Segment
from headrace.storage.segments import SegmentList
from headrace.storage.snapshots import ProducerSnapshots
from headrace.storage.summary import LogSummary, crc_of_sizes

_log = logging.getLogger(__name__)

ALL_COMMITTED = 2**63 - 1
"""The high watermark of a log that belongs to no partition: none of it waits for other replicas."""


def _nothing() -> None:
    """Persists nothing: for a log that is opened without checkpoints."""


class LogState:
    """See the module."""

    __slots__ = (
        "_last_end",
        "_summarized",
        "aborted",
        "cipher",
        "clock",
        "damage",
        "directory",
        "disk",
        "end_offset",
        "epochs",
        "failure",
        "files",
        "flushed_offset",
        "generation",
        "high_watermark",
        "is_closed",
        "limits",
        "persist",
        "producers",
        "segments",
        "snapshots",
        "start_offset",
        "summary",
    )

    def __init__(
        self,
        directory: Path,
        settings: TopicSettings,
        loaded: Loaded,
        *,
        disk: Disk,
        clock: Clock,
        files: FilePool,
    ) -> None:
        self.directory = directory
        self.disk = disk
        self.clock = clock
        self.files = files
        self.persist: Callable[[], None] = _nothing
        """Persists `start_offset` and `flushed_offset`. Blocking; safe in any thread. See `forget_owner`."""
        self.cipher: LogCipher | None = None
        """Encrypts and decrypts batches; None unless the topic is or was encrypted."""
        self.producers = loaded.producers
        self.epochs = loaded.epochs
        self.aborted = loaded.aborted
        self.segments = SegmentList(loaded.segments)
        self.snapshots = ProducerSnapshots(disk, directory, loaded.snapshots)
        self.damage = DamageMark(disk, directory, loaded.damaged_from)
        self.start_offset = loaded.start_offset
        self.end_offset = loaded.end_offset
        self.flushed_offset = loaded.end_offset
        """Every record below it survives a power failure."""
        self.high_watermark = ALL_COMMITTED
        """Every record below it is committed, as far as this replica knows. Stored here and nowhere else."""
        self.generation = 0
        """Raised by a truncation: the result of a flush that began before does not apply to the log after it."""
        self.failure: BaseException | None = None
        self.is_closed = False
        self.summary: LogSummary | None = loaded.summary
        """The summary as of the last `summarize`, if everything was flushed and committed then."""
        self._last_end = -1
        """The end of the log when `summarize` was called last."""
        self._summarized = self.segments.all
        self.segments.active.next_offset = self.end_offset
        self.limits = RollLimits(settings, clock, self.segments.active)

    def forget_owner(self) -> None:
        """Drop the callback, which refers to the log: it is closed."""
        self.persist = _nothing

    @property
    def stable_offset(self) -> int:
        """Every record below it is flushed, committed and in no open transaction."""
        settled = min(self.flushed_offset, self.high_watermark)
        unstable = self.producers.first_unstable_offset(settled)
        return settled if unstable is None else min(settled, unstable)

    # The high watermark

    def restore_high_watermark(self, offset: int) -> None:
        """Set the high watermark when the log is opened, at most to the end of the log."""
        self.high_watermark = min(max(offset, self.start_offset), self.end_offset)

    def advance_high_watermark(self, offset: int) -> None:
        """Raise the high watermark to `offset`, which must be within the log."""
        if not self.high_watermark <= offset <= self.end_offset:
            invariant(False, 1, "the high watermark rises within the log")
        self.high_watermark = offset

    def fit_high_watermark(self) -> None:
        """Lower the high watermark to the end of the log after a truncation."""
        if self.high_watermark != ALL_COMMITTED:
            self.restore_high_watermark(self.high_watermark)

    # Failing

    def fail(self, error: BaseException) -> None:
        """Refuse every later append and flush, because a sync or a write failed for good. Reads go on."""
        if self.failure is None:
            self.failure = error
            _log.error("%s takes no more writes: %s", self.directory, error)

    def check_writable(self) -> None:
        """Raise `LogClosed` or `StorageFailed` if the log takes no writes."""
        if self.is_closed or self.failure is not None:
            self.refuse()

    def refuse(self) -> NoReturn:
        """Raise the error that says why the log cannot be used."""
        if self.is_closed:
            raise LogClosed(f"{self.directory.name} is closed")
        raise StorageFailed(f"{self.directory} takes no more writes since it failed: {self.failure}")

    # Segments

    def set_segments(self, segments: Sequence[Segment]) -> None:
        if self.segments.replace(segments):
            self.limits.update(self.segments.active)

    def create_segment(self, base_offset: int) -> Segment:
        """Create the file of a new segment. Raises `DiskFull` or `StorageFailed`."""
        segment = Segment(self.directory, base_offset, self.files, created_ms=self.clock.wall_ms())
        try:
            segment.open_writer(create=True)
        except OSError as error:
            raise storage_error(error, f"creating {segment.path}") from error
        return segment

    def roll(self, base_offset: int | None = None) -> None:
        """Close the active segment and start one at the end offset (or at a later one), unless it is empty.

        Raises `DiskFull` or `StorageFailed`, and the log goes on in the old segment.
        """
        self.check_writable()
        old = self.segments.active
        if not old.size:
            return
        base = self.end_offset if base_offset is None else base_offset
        invariant(base >= self.end_offset, 4, "a segment begins at or past the end of the log")
        new = self.create_segment(base)
        try:
            old.add_newest_time()
            old.store_indexes()
        except OSError as error:
            raise storage_error(error, f"closing {old.path}") from error
        old.next_offset = base
        self.segments.unsynced.append(old)
        self.snapshots.add(base, self.producers.to_snapshot(base))
        self.set_segments([*self.segments.all, new])
        self.end_offset = base

    def adopt(self, old: Sequence[Segment], new: Segment) -> bool:
        """Replace adjacent closed segments by a compacted one, in memory; False if any of them is gone."""
        segments = self.segments.all
        if self.is_closed or self.failure is not None or old[0] not in segments:
            return False
        first = segments.index(old[0])
        after = first + len(old)
        if segments[first:after] != list(old) or old[-1] is self.segments.active:
            return False
        new.next_offset = old[-1].next_offset
        invariant(new.next_offset <= self.high_watermark, 30, "only committed records are compacted")
        self.set_segments([*segments[:first], new, *segments[after:]])
        for segment in old:
            segment.retire()
        return True

    # Summary

    def summarize(self) -> bool:
        """Update `summary`; None unless all of the log is flushed, committed and whole. True if files were looked at.

        Committed, because its producer snapshot does not record which markers might still be lost. Writes the last page
        of the indexes to their files, and costs nothing if the log has not changed since: then it is idle, and the
        positions of its batches are dropped.
        """
        segments, end, known = self.segments, self.end_offset, self.summary
        active = segments.active
        if end == self._last_end:
            # Up to a MB for each of thousands of idle logs: readers find the few that they ask for by the index.
            segments.forget_positions()
        self._last_end = end
        if (
            known is not None
            and (known.end_offset, known.size) == (end, active.size)
            and segments.all is self._summarized
        ):
            return False
        self.summary = None
        is_settled = self.flushed_offset == end <= self.high_watermark and not segments.unsynced
        if self.is_closed or self.failure is not None or self.damage.offset is not None or not is_settled:
            return False
        try:
            stamp = self.disk.stamp(active.path)
        except OSError:
            return True
        if stamp.size != active.size or not active.store_tail():
            return True
        self._summarized = segments.all
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
            closed_crc=crc_of_sizes(segment.sizes for segment in segments.all[:-1]),
            epochs=self.epochs.entries(),
            are_epochs_stored=not self.epochs.changed,
            aborted=self.aborted.ending_within(active.base_offset, end),
            producers=self.producers.to_snapshot(end),
        )
        return True
