"""The in-memory list of a log's segments: finds the segment and the file position of an offset."""

from bisect import bisect_right
from collections.abc import Collection, Sequence
from itertools import islice, pairwise

from headrace.model.invariants import invariant
from headrace.records.batch import BatchHeader
from headrace.storage.segment import Segment

POSITIONS_MAX = 2048
_SLICE_ENDS_MAX = 64


class SegmentList:
    """Segments in the order of their offsets; the last one is active. Changes no file."""

    __slots__ = ("_bases", "_closed_bytes", "active", "all", "positions", "slice_ends", "unsynced")

    def __init__(self, segments: list[Segment]) -> None:
        self.all = segments
        """Replaced, never changed in place: iterate over it in any thread."""
        self.active = segments[-1]
        self.positions: dict[int, int] = {}
        """File positions of recent batches in the active segment by base offset, for readers at the tail."""
        self.slice_ends: dict[int, tuple[Segment, int]] = {}
        """Where the batches are at which recent slices ended, by base offset: those who read on find them here."""
        self.unsynced: list[Segment] = []
        """Closed segments that no flush has covered yet. If there are any, the directory must be synced too."""
        self._bases: list[int] = []
        self._closed_bytes = 0
        self._note_bounds()

    def _note_bounds(self) -> None:
        self._bases = [segment.base_offset for segment in self.all]
        invariant(all(one < next_one for one, next_one in pairwise(self._bases)), 4, "segments lie in order")
        self._closed_bytes = sum(segment.size for segment in self.all[:-1])

    @property
    def first(self) -> Segment:
        return self.all[0]

    @property
    def bases(self) -> Sequence[int]:
        """The base offset of each segment."""
        return self._bases

    @property
    def size_bytes(self) -> int:
        return self._closed_bytes + self.active.size

    def replace(self, segments: Sequence[Segment]) -> bool:
        """Replace the list; True if another segment is now active."""
        self.all = list(segments)
        self.slice_ends = {}
        self._note_bounds()
        if self.all[-1] is self.active:
            return False
        self.active = self.all[-1]
        self.positions = {}
        return True

    def forget_unsynced(self, segments: Collection[Segment]) -> None:
        """Drop segments from `unsynced` that were synced or removed."""
        self.unsynced = [segment for segment in self.unsynced if segment not in segments]

    # Finding offsets

    def start_of(self, offset: int) -> int:
        """The base offset of the segment that contains `offset`."""
        return self._bases[max(0, bisect_right(self._bases, offset) - 1)]

    def locate(self, offset: int) -> tuple[Segment, int, BatchHeader] | None:
        """The first batch that ends at or after `offset`, with its segment and its position there."""
        for segment in self.all[max(0, bisect_right(self._bases, offset) - 1) :]:
            if segment.size:
                found = segment.locate(offset)
                if found is not None:
                    return segment, *found
        return None

    def bytes_before(self, offset: int) -> int:
        """The bytes in all segments before the first batch that ends at or after `offset`."""
        found = self.locate(offset)
        if found is None:
            return self.size_bytes
        before = 0
        for segment in self.all:
            if segment is found[0]:
                break
            before += segment.size
        return before + found[1]

    def end_position(self, segment: Segment, below: int, end_offset: int) -> int:
        """The position in a segment of the first batch that starts at or after `below`, or the segment's end.

        `end_offset` is the log's.
        """
        is_active = segment is self.active
        if below >= (end_offset if is_active else segment.next_offset):
            return segment.size
        if is_active:
            position = self.positions.get(below)
            if position is not None:
                return position
        found = segment.locate(below)
        if found is None:
            return segment.size
        position, header = found
        return position if header.base_offset >= below else position + header.size

    def forget_old_positions(self) -> None:
        """Drop all but the positions of the newest batches."""
        retained = POSITIONS_MAX // 2
        self.positions = dict(islice(self.positions.items(), len(self.positions) - retained, None))

    def note_slice_end(self, offset: int, segment: Segment, position: int) -> None:
        """Remember the batch with this base offset, at which a slice has ended."""
        ends = self.slice_ends
        if len(ends) >= _SLICE_ENDS_MAX:
            del ends[next(iter(ends))]
        ends[offset] = (segment, position)

    def forget_positions(self) -> None:
        """Drop all positions, because the active segment was truncated, or the log is idle."""
        if self.positions or self.slice_ends:
            self.positions, self.slice_ends = {}, {}
