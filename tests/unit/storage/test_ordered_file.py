"""A file that is read from front to back, and leaves the page cache behind the reader."""

import errno
from pathlib import Path
from typing import Any

import pytest

from headrace.storage.ordered_file import BLOCK_BYTES, OrderedFile

MIB = 1 << 20


class Recorded:
    """A file whose handles note what is done with them; reading brings in `ahead_bytes` more."""

    path = Path("segment")

    def __init__(self, size: int, cached: set[int] | None = None, ahead_bytes: int = 8 * MIB) -> None:
        self.size_bytes, self.ahead_bytes = size, ahead_bytes
        self.cached = cached or set()
        """By MiB."""
        self.read: list[tuple[int, int]] = []
        self.dropped: list[tuple[int, int]] = []
        self.handles = 0

    def size(self) -> int:
        return self.size_bytes

    def reopened_in_order(self) -> "Recorded":
        self.handles += 1
        return self

    def bring_in(self, position: int, length: int) -> int:
        got = max(0, min(length, self.size_bytes - position))
        self.read.append((position, got))
        self.cached |= set(range(position // MIB, min(self.size_bytes, position + got + self.ahead_bytes) // MIB))
        return got

    def has_any_cached(self, position: int, length: int) -> bool:
        return any(at in self.cached for at in range(position // MIB, (position + length) // MIB))

    def drop_cached(self, position: int, length: int) -> None:
        self.dropped.append((position, length))


def ordered(file: Any) -> OrderedFile:
    return OrderedFile(file)


def test_it_reads_by_pieces_through_one_handle_of_its_own() -> None:
    file = Recorded(100 * MIB)
    reading = ordered(file)
    assert reading.read_on(3 * MIB + 5, 5 * MIB + 6, lambda: True) == (5 * MIB + 6, False)
    assert file.read == [(3 * MIB + 5, MIB), (4 * MIB + 5, MIB), (5 * MIB + 5, 1)]
    reading.bring_in(0, 10)
    assert file.handles == 1


def test_it_stops_before_the_next_piece_when_it_may_not_go_on() -> None:
    file, answers = Recorded(100 * MIB), iter([True, True, False])
    assert ordered(file).read_on(0, 50 * MIB, lambda: next(answers)) == (2 * MIB, False)
    assert file.read == [(0, MIB), (MIB, MIB)]


def test_it_stops_at_the_end_of_the_file() -> None:
    file = Recorded(2 * MIB + 7)
    assert ordered(file).read_on(MIB, 50 * MIB, lambda: True) == (2 * MIB + 7, True)
    assert file.read == [(MIB, MIB), (2 * MIB, 7)]


def test_what_was_brought_in_leaves_the_page_cache_by_blocks() -> None:
    file = Recorded(200 * MIB)
    reading = ordered(file)
    reading.read_on(0, 80 * MIB, lambda: True)
    reading.drop_before(2 * BLOCK_BYTES - 1)
    assert file.dropped == [], "of the first block it is not known"
    reading.drop_before(3 * BLOCK_BYTES + 1)
    assert file.dropped == [(BLOCK_BYTES, BLOCK_BYTES), (2 * BLOCK_BYTES, BLOCK_BYTES)]
    reading.drop_before(3 * BLOCK_BYTES + 1)
    assert len(file.dropped) == 2, "once"


def test_a_block_that_was_in_the_page_cache_stays_there() -> None:
    file = Recorded(200 * MIB, cached={40})
    reading = ordered(file)
    reading.read_on(0, 100 * MIB, lambda: True)
    reading.drop_before(100 * MIB)
    assert [position // BLOCK_BYTES for position, _ in file.dropped] == [1, 3, 4, 5]


def test_a_block_that_is_still_appended_to_stays_there() -> None:
    file = Recorded(3 * BLOCK_BYTES - 1)
    reading = ordered(file)
    reading.read_on(0, 2 * BLOCK_BYTES, lambda: True)
    file.size_bytes = 4 * BLOCK_BYTES - 1
    reading.read_on(2 * BLOCK_BYTES, 4 * BLOCK_BYTES, lambda: True)
    reading.drop_before(4 * BLOCK_BYTES)
    assert file.dropped == [(BLOCK_BYTES, BLOCK_BYTES)]


def test_errors_of_the_disk_are_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any) -> int:
        raise OSError("played")

    monkeypatch.setattr(Recorded, "bring_in", fail)
    with pytest.raises(OSError, match="played"):
        ordered(Recorded(MIB)).read_on(0, MIB, lambda: True)


def test_without_another_handle_it_reads_through_the_one_that_is_open(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_: Any) -> Recorded:
        raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr(Recorded, "reopened_in_order", fail)
    file = Recorded(100 * MIB)
    assert ordered(file).bring_in(5, MIB) == MIB
    assert file.read == [(5, MIB)]
