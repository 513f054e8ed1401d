"""Opens a partition's folder: finishes interrupted changes, then loads and, if needed, checks and repairs the log.

A log that has not changed since its summary was written (`summary.py`) is opened without reading it. After a clean
shutdown every other log is trusted too, and almost nothing is read. After an unclean shutdown its segments from the
recovery point on are read and checked batch by batch; those below were synced, with their indexes, before the recovery
point passed them.

Bytes that are not valid batches are handled by where they are:
- After the last valid batch of the log, at or past the recovery point: a torn tail, left by an append during a crash.
  None of it was acknowledged as durable. It is truncated.
- Anywhere else: damage to data that may have been acknowledged. The segment's file is renamed to `.corrupt`, and a
  repaired one replaces it with every valid batch from before and after the damage. The lost offsets become a gap, as
  after compaction: consumers skip it, and no offset is assigned twice. If the damage reaches the end, the log continues
  in a new segment at the recovery point. An error in the broker's log names the file, the bytes and the offsets.
- In a replicated partition, damage at or past the recovery point ends the log, and all files from there on are renamed
  to `.corrupt`: without the missing batches, which other replicas may have, later ones are not the leader's history.
  The same in a mirror partition, whose source is one more replica (invariant 49).
- The same where the operating system was restarted, nothing unsynced was acknowledged (`flush.policy=ack`), and the
  bytes look as if they were never written: they are missing, or a sector of zeros. What comes after them was not
  acknowledged either, and a producer that sends the lost batch again must not find that the log has its later ones
  (invariant 9).

Bytes can be missing without a trace at the end of a segment: a power failure may preserve the name of the next one but
not the end of this one. Past the recovery point segments follow each other without a gap (no roll leaves one, and
compaction persists the recovery point first), so a segment that ends too early is damaged there.

Interrupted changes are finished or undone first: see `leftovers.py`. The checks are in `repair.py`; producers, epochs
and transactions are read by `caches.py`.
"""

import logging
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from headrace.config.topic import TopicSettings
from headrace.model.errors import CorruptBatch
from headrace.runtime.clock import Clock
from headrace.runtime.disk import Disk
from headrace.storage.aborted import AbortedTransactions
from headrace.storage.caches import LogCaches
from headrace.storage.damage import DamageMark, read_damaged_from
from headrace.storage.epochs import Epochs
from headrace.storage.files import (
    DAMAGED,
    LOG,
    OFFSET_INDEX,
    SNAPSHOT,
    TIME_INDEX,
    TXN_INDEX,
    FilePool,
    offset_name,
    parse_offset,
)
from headrace.storage.index import OFFSET_ENTRY, TIME_ENTRY
from headrace.storage.leftovers import finish_interrupted_changes
from headrace.storage.producers import Producers
from headrace.storage.repair import SegmentRepair, close_segment
from headrace.storage.segment import Segment
from headrace.storage.summary import LogSummary, SegmentSizes, crc_of_sizes

_log = logging.getLogger(__name__)


class Loaded(NamedTuple):
    segments: list[Segment]
    """In order, at least one; the last is active."""
    start_offset: int
    end_offset: int
    producers: Producers
    epochs: Epochs
    aborted: AbortedTransactions
    snapshots: list[int]
    """Offsets of the producer snapshots that exist, in order."""
    damaged_from: int | None = None
    """The first lost offset, if any, found now or before."""
    summary: LogSummary | None = None
    """The summary by which the log was opened; None if it was read."""


class Loader:
    """Opens one partition's folder; used once, in a worker thread."""

    def __init__(
        self,
        directory: Path,
        settings: TopicSettings,
        disk: Disk,
        files: FilePool,
        clock: Clock,
        *,
        is_replicated: bool = False,
        has_lost_unsynced: bool = False,
    ) -> None:
        """`is_replicated`: there are other replicas, or the source of a mirror, and this log must be a part of their
        history. `has_lost_unsynced`: unsynced bytes may be missing, and none of them were acknowledged."""
        self._directory = directory
        self._has_lost_unsynced = has_lost_unsynced
        self._is_replicated = is_replicated
        self._interval_bytes = settings.index_interval_bytes
        self._disk = disk
        self._files = files
        self._clock = clock
        self._segments: list[Segment] = []
        self._without_index: set[int] = set()
        self._caches = LogCaches(disk, directory, clock)
        self._damage = DamageMark(disk, directory)

    def load(
        self,
        *,
        clean: bool,
        recovery_point: int,
        start_offset: int | None,
        producer_expiry_ms: int,
        summary: LogSummary | None = None,
    ) -> Loaded:
        names = finish_interrupted_changes(self._disk, self._directory)
        if DAMAGED in names:
            self._damage.offset = read_damaged_from(self._disk, self._directory)
        self._find_segments(names, start_offset or 0)
        if summary is not None and not self._adopt(summary, names, recovery_point):
            summary = None
        if summary is None:
            clean = clean and self._trust_all()
            if clean:
                self._caches.load(names, self._segments[-1].next_offset if self._segments else 0, self._segments)
            else:
                self._recover(names, recovery_point)
        end_offset = self._segments[-1].next_offset if self._segments else 0
        goes_on_at = max(end_offset, recovery_point, start_offset or 0)
        if not self._segments or goes_on_at > end_offset:
            self._go_on_at(goes_on_at, recovery_point)
            summary = None
        first = self._segments[0].base_offset
        caches = self._caches
        caches.producers.expire(self._clock.wall_ms() - producer_expiry_ms)
        self._segments[-1].created_ms = self._clock.wall_ms()
        return Loaded(
            self._segments,
            max(first, start_offset or 0),
            goes_on_at,
            caches.producers,
            caches.epochs,
            caches.aborted,
            caches.snapshots,
            self._damage.offset,
            summary,
        )

    def _go_on_at(self, offset: int, recovery_point: int) -> None:
        """Start a segment at the offset where the log must continue because earlier data is lost."""
        if self._segments:
            end = self._segments[-1].next_offset
            if offset == recovery_point:
                _log.error("%s ends at offset %d, yet offsets up to %d were on disk: they are lost and will not be "
                           "assigned again", self._directory, end, recovery_point)  # fmt: skip
                self._damage.note(end)
            if self._segments[-1].size:
                close_segment(self._segments[-1], offset)
                self._segments[-1].store_indexes()
            else:
                empty = self._segments.pop()
                empty.forget_files()
                self._disk.unlink(empty.path)
        segment = Segment(self._directory, offset, self._files)
        segment.open_writer(create=True)
        self._disk.sync_dir(self._directory)
        self._segments.append(segment)

    # Files

    def _find_segments(self, names: dict[str, int], start_offset: int) -> None:
        bases = sorted(base for name in names if (base := parse_offset(name, LOG)) is not None)
        count = len(bases)
        while len(bases) > 1 and bases[1] <= start_offset:
            # Their removal was not durable, but the start offset is.
            for suffix in (LOG, OFFSET_INDEX, TIME_INDEX, TXN_INDEX, SNAPSHOT):
                self._disk.unlink(self._directory / offset_name(bases[0], suffix))
            del bases[0]
        if len(bases) < count:
            # The next checkpoint leaves out a start offset that is a segment's own.
            self._disk.sync_dir(self._directory)
        known = set(bases)
        for name in names:
            for suffix in (OFFSET_INDEX, TIME_INDEX, TXN_INDEX):
                base = parse_offset(name, suffix)
                if base is not None and base not in known:
                    self._disk.unlink(self._directory / name)
        for i, base in enumerate(bases):
            size = names[offset_name(base, LOG)]
            # Index entries of an empty segment date from before it was emptied.
            index_bytes = names.get(offset_name(base, OFFSET_INDEX), -1) if size else 0
            time_bytes = names.get(offset_name(base, TIME_INDEX), -1) if size else 0
            segment = Segment(
                self._directory,
                base,
                self._files,
                size=size,
                next_offset=bases[i + 1] if i + 1 < len(bases) else None,
                offset_entries=max(0, index_bytes) // OFFSET_ENTRY.size,
                time_entries=max(0, time_bytes) // TIME_ENTRY.size,
            )
            sound = index_bytes >= 0 and not index_bytes % OFFSET_ENTRY.size
            if segment.size and not (sound and time_bytes >= 0 and not time_bytes % TIME_ENTRY.size):
                segment.offsets.clear()
                segment.times.clear()
                self._without_index.add(base)
            self._segments.append(segment)

    # Without reading

    def _adopt(self, summary: LogSummary, names: dict[str, int], recovery_point: int) -> bool:
        """Load the log from a summary whose active segment is unchanged; False if the rest does not match."""
        if not self._segments or summary.end_offset != recovery_point or self._damage.offset is not None:
            return False
        closed, active = self._segments[:-1], self._segments[-1]
        if (active.base_offset, active.size) != (summary.base_offset, summary.size):
            return False
        if len(active.offsets) < summary.offset_entries or len(active.times) < summary.time_entries:
            return False
        producers = self._caches.producers_of(summary, names)
        if producers is None:
            return False
        if crc_of_sizes(self._sizes(segment, names) for segment in closed) != summary.closed_crc:
            self._trust(closed)
        active.restore_tail(summary)
        self._caches.adopt(summary, producers, names, closed)
        return True

    @staticmethod
    def _sizes(segment: Segment, names: dict[str, int]) -> SegmentSizes:
        return SegmentSizes(
            segment.base_offset,
            segment.size,
            names.get(segment.offsets.path.name, -1),
            names.get(segment.times.path.name, -1),
        )

    # Without checking batches

    def _trust_all(self) -> bool:
        """Load every segment without checks; False if the last one turns out not to be whole."""
        self._trust(self._segments[:-1])
        if not self._segments:
            return True
        active = self._segments[-1]
        size = active.size
        for indexes_are_new in (False, True):
            try:
                if indexes_are_new or (size and active.base_offset in self._without_index):
                    active.rebuild_indexes(self._interval_bytes)
                active.load_tail(self._interval_bytes)
                return True
            except CorruptBatch as error:
                _log.warning("%s is not as a clean shutdown leaves it: %s", active.path, error)
                active.size = size
        return False

    def _trust(self, segments: list[Segment]) -> None:
        for segment in segments:
            if segment.size and not self._index_is_plausible(segment):
                _log.warning("the indexes of %s are missing or damaged and are rebuilt", segment.path)
                try:
                    segment.rebuild_indexes(self._interval_bytes)
                except CorruptBatch as error:
                    _log.error("%s, in a part of the log that was not checked: %s", segment.path, error)

    def _index_is_plausible(self, segment: Segment) -> bool:
        if segment.base_offset in self._without_index:
            return False
        entry = segment.offsets.last()
        if segment.times.last() is None and any(h.max_timestamp >= 0 for _, h in islice(segment.headers(), 1)):
            return False
        if entry is not None:
            return 0 <= entry.value < segment.size and 0 <= entry.key < segment.next_offset - segment.base_offset
        # Only a batch that starts past the first interval gets an entry.
        return all(position <= self._interval_bytes for position, _ in islice(segment.headers(), self._interval_bytes))

    # With checking

    def _recover(self, names: dict[str, int], recovery_point: int) -> None:
        # A recovery point at a segment's base offset may be older than the roll, and than the indexes before it.
        first = max((i for i, s in enumerate(self._segments) if s.base_offset < recovery_point), default=0)
        self._trust(self._segments[:first])
        if self._segments:
            self._caches.load(names, self._segments[first].base_offset, self._segments[:first])
        repair = SegmentRepair(
            self._directory,
            self._disk,
            self._segments,
            self._caches,
            self._damage,
            recovery_point=recovery_point,
            interval_bytes=self._interval_bytes,
            is_replicated=self._is_replicated,
            has_lost_unsynced=self._has_lost_unsynced,
        )
        repair.check_from(first)
        for segment in self._segments[first:]:
            segment.reader().sync_data()
            self._caches.store_aborted(segment, names)
            # The active segment's indexes are synced when it or the log is closed: the recovery point stays inside it.
            if segment is not self._segments[-1] and segment.store_indexes():
                segment.sync_indexes()
        self._disk.sync_dir(self._directory)
        self._caches.compare_epochs()
