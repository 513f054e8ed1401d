from bisect import bisect_right
from pathlib import Path
from random import Random

import pytest

from headrace.storage.files import FilePool
from headrace.storage.index import OFFSET_ENTRY, SparseIndex
from headrace.testing.disks import ModelDisk

PATH = Path("/data/00000000000000000000.index")


def filled(count: int, disk: ModelDisk) -> tuple[SparseIndex, list[tuple[int, int]]]:
    index = SparseIndex(PATH, OFFSET_ENTRY, FilePool(disk))
    entries = [(i * 10 + 5, i * 4096) for i in range(count)]
    for key, value in entries:
        index.append(key, value)
    return index, entries


@pytest.mark.parametrize("count", [0, 1, 511, 512, 513, 1024, 5000])
@pytest.mark.parametrize("stored", [False, True])
def test_finds_the_last_entry_not_above_a_key(count: int, stored: bool) -> None:
    index, entries = filled(count, ModelDisk())
    if stored:
        assert index.store()
    keys = [key for key, _ in entries]
    random = Random(count)
    in_order = list(range(0, count * 10 + 20, 7))
    for key in in_order + [random.randrange(-5, count * 10 + 20) for _ in range(500)]:
        i = bisect_right(keys, key) - 1
        assert index.floor(key) == (entries[i] if i >= 0 else None)
    for value in [random.randrange(-5, count * 4096 + 20) for _ in range(100)]:
        i = bisect_right([v for _, v in entries], value) - 1
        assert index.floor_of_value(value) == (entries[i] if i >= 0 else None)
    assert index.last() == (entries[-1] if entries else None)
    assert len(index) == count


def test_the_file_is_kafkas_and_opens_again() -> None:
    disk = ModelDisk()
    index, entries = filled(700, disk)
    index.store()
    assert disk.read_bytes(PATH) == b"".join(OFFSET_ENTRY.pack(*entry) for entry in entries)
    again = SparseIndex(PATH, OFFSET_ENTRY, FilePool(disk), stored_entries=700)
    again.append(7000, 1)
    again.store()
    assert disk.files(PATH.parent)[PATH.name] == 701 * 8
    assert again.last() == (7000, 1)


@pytest.mark.parametrize("stored", [0, 300, 600])
@pytest.mark.parametrize("kept", [0, 1, 299, 300, 301, 512, 599, 600])
def test_keeps_what_lies_below(stored: int, kept: int) -> None:
    disk = ModelDisk()
    index = SparseIndex(PATH, OFFSET_ENTRY, FilePool(disk))
    for i in range(600):
        index.append(i, i * 2)
        if i + 1 == stored:
            index.store()
    index.keep_below(key=kept)
    assert len(index) == kept
    index.append(10_000, 20_000)
    index.store()
    assert disk.files(PATH.parent)[PATH.name] == (kept + 1) * 8
    assert index.floor(9_999) == ((kept - 1, (kept - 1) * 2) if kept else None)


def test_memory_stays_the_same_however_long_the_index() -> None:
    index, _ = filled(100_000, ModelDisk())
    assert len(index._keys) < 1024


def test_a_full_disk_loses_nothing() -> None:
    disk = ModelDisk(room_bytes=1000)
    index, entries = filled(600, disk)
    assert not index.store()
    assert index.floor(10**9) == entries[-1]
    disk.room_bytes = None
    assert index.store()
    assert disk.read_bytes(PATH) == b"".join(OFFSET_ENTRY.pack(*entry) for entry in entries)
