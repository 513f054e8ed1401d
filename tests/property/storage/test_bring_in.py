"""What the page cache lacks of a slice is read by pieces, each after giving way, and nothing else is read."""

from itertools import pairwise
from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from headrace.storage.slice import PIECE_BYTES, Slice

SIZE_MAX = 8 * PIECE_BYTES


class Recorded:
    """A file that notes what is read of it; the page cache has some of its parts."""

    path = Path("segment")
    piece_bytes = PIECE_BYTES

    def __init__(self, size: int, cached: set[int], part_bytes: int) -> None:
        self.size, self.cached, self.part_bytes = size, cached, part_bytes
        self.events: list[tuple[int, int] | str] = []

    def is_cached(self, position: int, length: int) -> bool:
        parts = range(position // self.part_bytes, (position + length - 1) // self.part_bytes + 1)
        return position + length <= self.size and all(part in self.cached for part in parts)

    def bring_in(self, position: int, length: int) -> int:
        length = max(0, min(length, self.size - position))
        self.events.append((position, length))
        parts = range(position // self.part_bytes, (position + length - 1) // self.part_bytes + 1)
        self.cached |= set(parts if length else ())
        return length

    def read_into(self, position: int, buffer: memoryview) -> int:
        return self.bring_in(position, len(buffer))

    def give_way(self) -> int:
        self.events.append("give way")
        return self.piece_bytes


@given(
    size=st.integers(1, SIZE_MAX),
    ends=st.tuples(st.integers(0, SIZE_MAX), st.integers(0, SIZE_MAX)),
    cached=st.sets(st.integers(0, 2 * SIZE_MAX // PIECE_BYTES)),
)
def test_pieces(size: int, ends: tuple[int, int], cached: set[int]) -> None:
    start, end = sorted(min(each, size) for each in ends)
    file: Any = Recorded(size, set(cached), PIECE_BYTES // 2)
    Slice(file, start, end - start, 0, True).bring_in(file.give_way)
    reads = [event for event in file.events if not isinstance(event, str)]
    assert [isinstance(event, str) for event in file.events] == [True, False] * len(reads), "one wait before each read"
    assert all(length <= PIECE_BYTES for _, length in reads)
    assert all(one[0] + one[1] <= other[0] for one, other in pairwise(reads)), "nothing twice"
    assert end == start or file.is_cached(start, end - start)
    # The batch after the slice is located in the event loop, which reads its header.
    assert end == size or file.is_cached(end, min(61, size - end))


def test_nothing_is_read_of_what_is_cached() -> None:
    file: Any = Recorded(SIZE_MAX, set(range(1000)), PIECE_BYTES)
    Slice(file, 10, SIZE_MAX - PIECE_BYTES, 0, True).bring_in(file.give_way)
    assert file.events == []


def test_large_pieces_are_read_through_the_file_of_an_ordered_reader() -> None:
    file: Any = Recorded(SIZE_MAX, set(), PIECE_BYTES)
    ordered: Any = Recorded(SIZE_MAX, set(), PIECE_BYTES)
    ordered.piece_bytes = 4 * PIECE_BYTES
    Slice(file, 0, 6 * PIECE_BYTES, 0, True).bring_in(ordered.give_way, ordered)
    assert file.events == []
    assert ordered.events[:3] == ["give way", (0, 4 * PIECE_BYTES), "give way"]
    assert ordered.events[3][0] == 4 * PIECE_BYTES


def test_small_pieces_are_not_read_through_it_since_the_kernel_would_read_more() -> None:
    file: Any = Recorded(SIZE_MAX, set(), PIECE_BYTES)
    ordered: Any = Recorded(SIZE_MAX, set(), PIECE_BYTES)
    Slice(file, 0, 2 * PIECE_BYTES, 0, True).bring_in(file.give_way, ordered)
    assert ordered.events == []
    assert [event for event in file.events if isinstance(event, tuple)][:2] == [
        (0, PIECE_BYTES),
        (PIECE_BYTES, PIECE_BYTES),
    ]
