"""The caches that recovery loads with a log's segments: producers, leader epochs, aborted transactions.

Each has its own files; a missing or damaged one is rebuilt from the log (invariant 8).
"""

import logging
from pathlib import Path

from headrace.runtime.clock import Clock
from headrace.runtime.disk import Disk
from headrace.storage.aborted import AbortedDamaged, AbortedTransactions, read_aborted, replace_aborted
from headrace.storage.epochs import Epochs, EpochsDamaged
from headrace.storage.files import EPOCHS, SNAPSHOT, parse_offset
from headrace.storage.producers import Producers, SnapshotDamaged
from headrace.storage.replay import marker_at, note_aborted, restore_producers
from headrace.storage.scan import ScannedBatch
from headrace.storage.segment import Segment
from headrace.storage.summary import LogSummary

_log = logging.getLogger(__name__)


class LogCaches:
    """The caches of one log while it is opened. `names` are the files in its folder, with their sizes."""

    def __init__(self, disk: Disk, directory: Path, clock: Clock) -> None:
        self._disk = disk
        self._directory = directory
        self._clock = clock
        self.producers = Producers()
        self.epochs = Epochs()
        self.aborted = AbortedTransactions()
        self.snapshots: list[int] = []
        """Offsets of the producer snapshots that exist, in order."""
        self._stored_epochs: list[tuple[int, int]] | None = None

    # From a summary

    @staticmethod
    def producers_of(summary: LogSummary, names: dict[str, int]) -> Producers | None:
        """The producers in a summary; None if it is damaged, or older than a snapshot."""
        snapshots = _snapshots(names)
        if snapshots and snapshots[-1] > summary.end_offset:
            return None
        try:
            return Producers.from_snapshot(summary.producers, summary.end_offset)
        except SnapshotDamaged:
            return None

    def adopt(self, summary: LogSummary, producers: Producers, names: dict[str, int], closed: list[Segment]) -> None:
        """Load everything from a summary, and from the files of closed segments."""
        self.producers, self.snapshots = producers, _snapshots(names)
        self.epochs = Epochs.from_entries(summary.epochs)
        self.epochs.changed = not summary.are_epochs_stored
        self.aborted = self._load_aborted(names, closed)
        for entry in summary.aborted:
            self.aborted.add(entry)

    # From the files

    def load(self, names: dict[str, int], limit: int, segments: list[Segment]) -> None:
        """Load everything as of offset `limit`, at which these segments end."""
        self.aborted = self._load_aborted(names, segments)
        self.producers, self.snapshots = restore_producers(
            self._disk, self._directory, _snapshots(names), limit, segments, self._clock.wall_ms()
        )
        if not self._load_epochs(limit):
            for segment in segments:
                for _, header in segment.headers():
                    self.epochs.assign(header.leader_epoch, header.base_offset)

    def _load_aborted(self, names: dict[str, int], segments: list[Segment]) -> AbortedTransactions:
        aborted = AbortedTransactions()
        for segment in segments:
            if segment.aborted_path.name in names and segment.size:
                try:
                    entries = read_aborted(self._disk, segment.aborted_path, segment.base_offset, segment.next_offset)
                except AbortedDamaged as error:
                    _log.warning("%s is damaged (%s) and is rebuilt", segment.aborted_path, error)
                    return self._find_aborted(segments)
                for entry in entries:
                    aborted.add(entry)
        return aborted

    def _find_aborted(self, segments: list[Segment]) -> AbortedTransactions:
        """Rebuild the files from the log."""
        aborted, producers = AbortedTransactions(), Producers()
        for segment in segments:
            for position, header in segment.headers():
                note_aborted(aborted, producers.replay(header, marker_at(segment, position, header), 0), producers)
            replace_aborted(
                self._disk, segment.aborted_path, aborted.ending_within(segment.base_offset, segment.next_offset)
            )
        return aborted

    def _load_epochs(self, limit: int) -> bool:
        """Read the checkpoint, for offsets below `limit`; False if it must be rebuilt from the log."""
        try:
            self.epochs = Epochs.from_text(self._disk.read_bytes(self._directory / EPOCHS).decode("ascii", "replace"))
        except FileNotFoundError:
            return False
        except EpochsDamaged as error:
            _log.warning("%s is damaged (%s) and is rebuilt", self._directory / EPOCHS, error)
            self.epochs = Epochs()
            self.epochs.changed = True
            return False
        self._stored_epochs = self.epochs.entries()
        self.epochs.truncate_from(limit)
        return True

    # From batches that are checked one by one

    def replay(self, segment: Segment, found: ScannedBatch) -> None:
        """Apply a batch of the log."""
        marker = marker_at(segment, found.position, found.header)
        note_aborted(self.aborted, self.producers.replay(found.header, marker, self._clock.wall_ms()), self.producers)
        self.epochs.assign(found.header.leader_epoch, found.header.base_offset)

    def store_aborted(self, segment: Segment, names: dict[str, int]) -> None:
        """Write a segment's aborted transactions to its file, if it has or needs one."""
        aborted = self.aborted.ending_within(segment.base_offset, segment.next_offset)
        if aborted or segment.aborted_path.name in names:
            replace_aborted(self._disk, segment.aborted_path, aborted)

    def compare_epochs(self) -> None:
        """Mark the epoch checkpoint as up to date if it has all the epochs already."""
        if self.epochs.entries() == self._stored_epochs:
            self.epochs.changed = False


def _snapshots(names: dict[str, int]) -> list[int]:
    return sorted(offset for name in names if (offset := parse_offset(name, SNAPSHOT)) is not None)
