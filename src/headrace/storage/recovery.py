"""Opening a partition's folder: what is in it, what must be finished, what must be checked, what is lost.

A log that has not changed since its summary was written (`summary.py`) is opened without reading it. After a clean
stop every other one is taken at its word, too, and almost nothing is read. After any other stop its segments from the
recovery point on are read and checked batch by batch; those below were synced, with their indexes, before the recovery
point passed them.

What is done about bytes that are no valid batches:
- behind the last valid batch of the log, at or past the recovery point: a torn tail, what an append leaves when the
  machine stops in it. Nothing of it was acknowledged as durable. It is cut off.
- anywhere else it is damage to data that may have been acknowledged. The segment's file is kept as `.corrupt`, and a
  repaired one takes its place with every valid batch from before and behind the damage. The lost offsets stay a gap,
  as compaction leaves them too: consumers step over it, and no offset is given out twice. If the damage reaches the
  end, the log goes on in a new segment at the recovery point. An error in the broker's log names file, bytes, offsets.
- a replica of several ends where the damage begins if that is at or past the recovery point, and all files from there
  on are kept as `.corrupt`: the batches behind are not its leader's history without those that are missing, which other
  replicas may have.

Bytes can be missing without a trace where a segment ends: a power failure may keep the name of the next one and not the
end of this one. Past the recovery point segments follow each other without a gap (no roll leaves one, and compaction
puts the recovery point on disk first), so a segment that ends too early is damaged there.

Changes that were interrupted are finished or undone first: see `leftovers.py`.
"""

import logging
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from headrace.config.topic import TopicSettings
from headrace.model.errors import CorruptBatch
from headrace.runtime.clock import Clock
from headrace.runtime.disk import Disk
from headrace.storage.aborted import AbortedDamaged, AbortedTransactions, read_aborted, replace_aborted
from headrace.storage.damage import read_damaged_from, write_damaged_from
from headrace.storage.epochs import Epochs, EpochsDamaged
from headrace.storage.files import (
    CORRUPT,
    DAMAGED,
    EPOCHS,
    LOG,
    OFFSET_INDEX,
    REPAIRED,
    REPAIRING,
    SNAPSHOT,
    TIME_INDEX,
    TXN_INDEX,
    FilePool,
    offset_name,
    parse_offset,
)
from headrace.storage.index import OFFSET_ENTRY, TIME_ENTRY
from headrace.storage.leftovers import finish_interrupted_changes, keep_as_corrupt, put_repaired
from headrace.storage.producers import Producers, SnapshotDamaged
from headrace.storage.replay import marker_at, note_aborted, restore_producers
from headrace.storage.scan import Damage, ScannedBatch, find_batch, scan
from headrace.storage.segment import Segment
from headrace.storage.summary import LogSummary, SegmentSizes, crc_of_sizes

_log = logging.getLogger(__name__)

_COPY_BYTES = 4 * 1024 * 1024


class Loaded(NamedTuple):
    segments: list[Segment]
    """In order, at least one; the last is the active one."""
    start_offset: int
    end_offset: int
    producers: Producers
    epochs: Epochs
    aborted: AbortedTransactions
    snapshots: list[int]
    """Offsets of the producer snapshots there are, in order."""
    damaged_from: int | None = None
    """The first offset that is lost, if any is: found damaged now or before."""
    summary: LogSummary | None = None
    """What the log was opened by, if not by reading it."""


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
    ) -> None:
        """`is_replicated`: there are other replicas, and what is here must be a part of their history."""
        self._directory = directory
        self._is_replicated = is_replicated
        self._interval_bytes = settings.index_interval_bytes
        self._disk = disk
        self._files = files
        self._clock = clock
        self._segments: list[Segment] = []
        self._without_index: set[int] = set()
        self._producers = Producers()
        self._epochs = Epochs()
        self._aborted = AbortedTransactions()
        self._snapshots: list[int] = []
        self._damaged_from: int | None = None
        self._stored_epochs: list[tuple[int, int]] | None = None

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
        self._damaged_from = read_damaged_from(self._disk, self._directory) if DAMAGED in names else None
        self._find_segments(names, start_offset or 0)
        if summary is not None and not self._adopt(summary, names, recovery_point):
            summary = None
        if summary is None:
            clean = clean and self._trust_all()
            if clean:
                self._load_caches(names, self._segments[-1].next_offset if self._segments else 0, len(self._segments))
            else:
                self._recover(names, recovery_point)
        end_offset = self._segments[-1].next_offset if self._segments else 0
        goes_on_at = max(end_offset, recovery_point, start_offset or 0)
        if not self._segments or goes_on_at > end_offset:
            self._go_on_at(goes_on_at, recovery_point)
            summary = None
        first = self._segments[0].base_offset
        self._producers.expire(self._clock.wall_ms() - producer_expiry_ms)
        self._segments[-1].created_ms = self._clock.wall_ms()
        return Loaded(
            self._segments,
            max(first, start_offset or 0),
            goes_on_at,
            self._producers,
            self._epochs,
            self._aborted,
            self._snapshots,
            self._damaged_from,
            summary,
        )

    def _go_on_at(self, offset: int, recovery_point: int) -> None:
        """Start a segment where the log must go on because what was there is gone."""
        if self._segments:
            end = self._segments[-1].next_offset
            if offset == recovery_point:
                _log.error("%s ends at offset %d, yet offsets up to %d were on disk: they are lost and will not be "
                           "given out again", self._directory, end, recovery_point)  # fmt: skip
                self._note_damage(end)
            if self._segments[-1].size:
                self._finish_segment(self._segments[-1], offset)
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
            # Removed before, in a way that did not last: the start offset did.
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
            # What stands in the indexes of an empty file is left from before it was emptied.
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
        """Take the log for what a summary says, whose active segment is known to be unchanged; False if it is not."""
        if not self._segments or summary.end_offset != recovery_point or self._damaged_from is not None:
            return False
        closed, active = self._segments[:-1], self._segments[-1]
        if (active.base_offset, active.size) != (summary.base_offset, summary.size):
            return False
        if len(active.offsets) < summary.offset_entries or len(active.times) < summary.time_entries:
            return False
        snapshots = sorted(offset for name in names if (offset := parse_offset(name, SNAPSHOT)) is not None)
        try:
            producers = Producers.from_snapshot(summary.producers, summary.end_offset)
        except SnapshotDamaged:
            return False
        if snapshots and snapshots[-1] > summary.end_offset:
            return False
        if crc_of_sizes(self._sizes(segment, names) for segment in closed) != summary.closed_crc:
            self._trust(closed)
        active.restore_tail(summary)
        self._producers, self._snapshots = producers, snapshots
        self._epochs = Epochs.from_entries(summary.epochs)
        self._epochs.changed = not summary.are_epochs_stored
        self._aborted = self._load_aborted(names, closed)
        for entry in summary.aborted:
            self._aborted.add(entry)
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
        """Take over every segment as it is; False if the last one turns out not to be whole after all."""
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
                _log.warning("%s is not as a clean stop leaves it: %s", active.path, error)
                active.size = size
        return False

    def _trust(self, segments: list[Segment]) -> None:
        for segment in segments:
            if segment.size and not self._index_is_plausible(segment):
                _log.warning("the indexes of %s are missing or damaged and are made anew", segment.path)
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

    def _load_caches(self, names: dict[str, int], limit: int, segments: int) -> None:
        """Producers and epochs as of offset `limit`, the end of the first `segments` segments."""
        offsets = sorted(offset for name in names if (offset := parse_offset(name, SNAPSHOT)) is not None)
        covered = self._segments[:segments]
        self._aborted = self._load_aborted(names, covered)
        self._producers, self._snapshots = restore_producers(
            self._disk, self._directory, offsets, limit, covered, self._clock.wall_ms()
        )
        if not self._load_epochs(limit):
            for segment in covered:
                for _, header in segment.headers():
                    self._epochs.assign(header.leader_epoch, header.base_offset)

    def _load_aborted(self, names: dict[str, int], segments: list[Segment]) -> AbortedTransactions:
        aborted = AbortedTransactions()
        for segment in segments:
            if segment.aborted_path.name in names and segment.size:
                try:
                    entries = read_aborted(self._disk, segment.aborted_path, segment.base_offset, segment.next_offset)
                except AbortedDamaged as error:
                    _log.warning("%s is damaged (%s) and is made anew", segment.aborted_path, error)
                    return self._find_aborted(segments)
                for entry in entries:
                    aborted.add(entry)
        return aborted

    def _find_aborted(self, segments: list[Segment]) -> AbortedTransactions:
        """What the files should say, from the log."""
        aborted, producers = AbortedTransactions(), Producers()
        for segment in segments:
            for position, header in segment.headers():
                note_aborted(aborted, producers.replay(header, marker_at(segment, position, header), 0), producers)
            replace_aborted(
                self._disk, segment.aborted_path, aborted.ending_within(segment.base_offset, segment.next_offset)
            )
        return aborted

    def _load_epochs(self, limit: int) -> bool:
        """Read the checkpoint as far as it tells about offsets below `limit`; False if the log must be asked."""
        try:
            self._epochs = Epochs.from_text(self._disk.read_bytes(self._directory / EPOCHS).decode("ascii", "replace"))
        except FileNotFoundError:
            return False
        except EpochsDamaged as error:
            _log.warning("%s is damaged (%s) and is made anew", self._directory / EPOCHS, error)
            self._epochs = Epochs()
            self._epochs.changed = True
            return False
        self._stored_epochs = self._epochs.entries()
        self._epochs.truncate_from(limit)
        return True

    # With checking

    def _recover(self, names: dict[str, int], recovery_point: int) -> None:
        # A recovery point at a segment's very start may be older than the roll, and than the indexes before it.
        first = max((i for i, s in enumerate(self._segments) if s.base_offset < recovery_point), default=0)
        self._trust(self._segments[:first])
        if self._segments:
            self._load_caches(names, self._segments[first].base_offset, first)
        checked = first
        while checked < len(self._segments):
            self._check_segment(checked, recovery_point)
            checked += 1
        for segment in self._segments[first:]:
            segment.reader().sync_data()
            aborted = self._aborted.ending_within(segment.base_offset, segment.next_offset)
            if aborted or segment.aborted_path.name in names:
                replace_aborted(self._disk, segment.aborted_path, aborted)
            # Those of the active segment are synced when it is closed, or the log: the recovery point stays inside it.
            if segment is not self._segments[-1] and segment.store_indexes():
                segment.sync_indexes()
        self._disk.sync_dir(self._directory)
        if self._epochs.entries() == self._stored_epochs:
            self._epochs.changed = False

    def _check_segment(self, i: int, recovery_point: int) -> None:
        segment = self._segments[i]
        limit = self._segments[i + 1].base_offset if i + 1 < len(self._segments) else None
        size = segment.size
        segment.start_indexing()
        damages: list[Damage] = []
        good: list[tuple[int, int]] = []
        expected, ends_here = segment.base_offset, False
        for item in scan(segment.reader(), size, segment.base_offset, limit):
            if isinstance(item, Damage):
                damages.append(item)
                ends_here = self._is_replicated and item.from_offset >= recovery_point
                if ends_here:
                    break
                continue
            good.append((item.position, item.position + item.header.size))
            self._take_over(segment, item)
            expected = item.header.next_offset
        is_end_known = bool(damages) and (ends_here or damages[-1].to_offset is None)
        if limit is not None and limit > max(expected, recovery_point) and not is_end_known:
            damages.append(Damage(size, size, expected, None, f"the file ends, and the next one starts at {limit}"))
            ends_here = self._is_replicated and expected >= recovery_point
        if not damages:
            self._finish_segment(segment, limit)
            return
        last = damages[-1]
        torn = last.to_offset is None and last.from_offset >= recovery_point
        if torn and not self._has_batches(i + 1):
            damages.pop()
            _log.warning("%s: cutting off %d bytes of an unfinished append at position %d, offset %d: %s", segment.path,
                         last.end - last.position, last.position, last.from_offset, last.reason)  # fmt: skip
            self._cut(i, last.position)
        elif ends_here:
            self._set_aside_behind(i, last)
            damages.pop()
            if last.position < size:
                damages.append(last._replace(end=size, to_offset=None))
        if damages:
            self._quarantine(segment, damages, good, limit)
        self._finish_segment(segment, limit if i + 1 < len(self._segments) else None)

    def _take_over(self, segment: Segment, found: ScannedBatch, position: int | None = None) -> None:
        segment.note_batch(found.position if position is None else position, found.header, self._interval_bytes)
        marker = marker_at(segment, found.position, found.header)
        note_aborted(
            self._aborted, self._producers.replay(found.header, marker, self._clock.wall_ms()), self._producers
        )
        self._epochs.assign(found.header.leader_epoch, found.header.base_offset)

    @staticmethod
    def _finish_segment(segment: Segment, limit: int | None) -> None:
        if limit is not None:
            segment.add_newest_time()
            segment.next_offset = limit

    def _has_batches(self, first: int) -> bool:
        return any(
            find_batch(segment.reader(), 0, segment.size, segment.base_offset, segment.base_offset, None) is not None
            for segment in self._segments[first:]
            if segment.size
        )

    def _set_aside_behind(self, i: int, damage: Damage) -> None:
        """Let segment `i`, which is damaged, be the last one. The files of those behind it stay under other names."""
        _log.error("%s ends at offset %d, where bytes are missing (%s): what lies behind is kept with the ending %s; "
                   "other replicas may have it", self._directory, damage.from_offset, damage.reason,
                   CORRUPT)  # fmt: skip
        self._note_damage(damage.from_offset)
        while len(self._segments) > i + 1:
            # From the last on: a stop in between leaves the same damage to be found.
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
        """End the log at a position of segment `i`; later segments have nothing in them."""
        while len(self._segments) > i + 1:
            empty = self._segments.pop()
            empty.forget_files()
            for path in (empty.path, *empty.siblings()):
                self._disk.unlink(path)
        self._disk.sync_dir(self._directory)
        writer = self._segments[i].open_writer()
        writer.truncate(position)
        self._segments[i].size = position

    def _note_damage(self, offset: int) -> None:
        """Durably, before anything looks as if it were whole."""
        if self._damaged_from is None or offset < self._damaged_from:
            self._damaged_from = offset
            write_damaged_from(self._disk, self._directory, offset)

    def _quarantine(
        self, segment: Segment, damages: list[Damage], good: list[tuple[int, int]], limit: int | None
    ) -> None:
        for damage in damages:
            upto = damage.to_offset if damage.to_offset is not None else limit
            if damage.position == damage.end:
                _log.error(
                    "%s ends too early: offsets from %d up to %s are lost", segment.path, damage.from_offset, upto
                )
                continue
            _log.error("%s is damaged from position %d to %d (%s): offsets from %d up to %s are lost; the file is kept "
                       "with the ending %s", segment.path, damage.position, damage.end, damage.reason,
                       damage.from_offset, "the end" if upto is None else upto, CORRUPT)  # fmt: skip
        self._note_damage(damages[0].from_offset)
        if all(damage.position == damage.end for damage in damages):
            return  # Nothing in the file is to be replaced: bytes are missing behind it.
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
