"""Sparse indexes of a segment, in Kafka's format. They are caches: a damaged one is rebuilt from the log.

    .index      8-byte entries: relative offset of a batch's last record, position of that batch in the segment
    .timeindex  12-byte entries: a timestamp, relative offset of the last record of the first batch that reached it

Both keys and values grow from entry to entry. An index uses the same memory at any size: the file has all entries
except a tail of at most one page, and searches cache the last two pages they read, so a sequential reader reads the
file once per page. No file stays open for writing.

Written by the event loop's thread only; `floor` and `last` may run in another thread at the same time.
"""

from array import array
from bisect import bisect_left, bisect_right
from pathlib import Path
from struct import Struct
from typing import NamedTuple

from headrace.storage.files import FilePool

OFFSET_ENTRY = Struct(">ii")
TIME_ENTRY = Struct(">qi")

_PAGE_ENTRIES = 512
_NO_PAGE: tuple[int, bytes] = (-1, b"")
_KEY, _VALUE = 0, 1
"""The fields of an entry."""


class IndexEntry(NamedTuple):
    key: int
    value: int


class SparseIndex:
    __slots__ = ("_entry", "_files", "_keys", "_other_page", "_page", "_stored", "_values", "path")

    def __init__(self, path: Path, entry: Struct, files: FilePool, stored_entries: int = 0) -> None:
        """`stored_entries` is the number of entries in the file (0 if there is no file yet)."""
        self.path = path
        self._entry = entry
        self._files = files
        self._stored = stored_entries
        self._keys = array("q")
        self._values = array("q")
        self._page = self._other_page = _NO_PAGE

    def __len__(self) -> int:
        return self._stored + len(self._keys)

    @property
    def size_bytes(self) -> int:
        return len(self) * self._entry.size

    @property
    def stored_entries(self) -> int:
        """How many entries the file has."""
        return self._stored

    def append(self, key: int, value: int) -> None:
        """Append an entry; writes a page to the file when one is full."""
        # In this order, so that a search in another thread that finds a key finds its value.
        self._values.append(value)
        self._keys.append(key)
        if len(self._keys) >= _PAGE_ENTRIES and not len(self) % _PAGE_ENTRIES:
            self.store()

    def store(self) -> bool:
        """Write the entries in memory to the file, without a sync. False if that fails: they then stay in memory."""
        keys, values = self._keys, self._values
        pack, size = self._entry.pack, self._entry.size
        data = b"".join(map(pack, keys, values))
        disk = self._files.disk
        try:
            file = disk.open(self.path, create=True)
            try:
                if file.size() != self._stored * size:
                    file.truncate(self._stored * size)
                file.append((data,))
            finally:
                file.close()
        except OSError:
            return False
        # In this order for a search in another thread: entries are in the file before they are dropped from memory.
        self._stored += len(keys)
        self._keys, self._values = array("q"), array("q")
        self._page = self._other_page = _NO_PAGE
        return True

    def withdraw(self) -> None:
        """Load every entry into memory and remove the file, so that it is not treated as the whole index later."""
        stored, size = self._stored, self._entry.size
        if stored:
            try:
                data = self._files.get(self.path).read(0, stored * size)
            except OSError:
                data = b""
            entries = list(self._entry.iter_unpack(data[: len(data) // size * size]))
            keys, values = array("q", (key for key, _ in entries)), array("q", (value for _, value in entries))
            self._keys, self._values = keys + self._keys, values + self._values
            self._stored = 0
            self._page = self._other_page = _NO_PAGE
        self._files.forget(self.path)
        self._files.disk.unlink(self.path)

    def floor(self, key: int) -> IndexEntry | None:
        """The last entry whose key is not above `key`."""
        keys, values = self._keys, self._values
        if keys and keys[0] <= key:
            i = bisect_right(keys, key) - 1
            return IndexEntry(keys[i], values[i])
        return self._floor_in_file(key, _KEY)

    def floor_of_value(self, value: int) -> IndexEntry | None:
        """The last entry whose value is not above `value`."""
        keys, values = self._keys, self._values
        if keys and values[0] <= value:
            i = bisect_right(values, value, 0, len(keys)) - 1
            return IndexEntry(keys[i], values[i])
        return self._floor_in_file(value, _VALUE)

    def last(self) -> IndexEntry | None:
        keys, values = self._keys, self._values
        if keys:
            return IndexEntry(keys[-1], values[-1])
        return self._stored_entry(self._stored - 1) if self._stored else None

    def keep_below(self, *, key: int | None = None, value: int | None = None) -> None:
        """Truncate at the first entry whose key (or value) is not below the given one."""

        def dropped(entry: IndexEntry) -> bool:
            return (key is not None and entry.key >= key) or (value is not None and entry.value >= value)

        count = bisect_left(range(len(self)), True, key=lambda i: dropped(self._entry_at(i)))
        self.keep_first(count)

    def clear(self) -> None:
        self.keep_first(0)

    def keep_first(self, entries: int) -> None:
        """Truncate to the first `entries` entries."""
        in_memory = max(0, entries - self._stored)
        self._keys, self._values = self._keys[:in_memory], self._values[:in_memory]
        if entries < self._stored:
            self._stored = entries
            self._page = self._other_page = _NO_PAGE

    def _entry_at(self, i: int) -> IndexEntry:
        if i >= self._stored:
            return IndexEntry(self._keys[i - self._stored], self._values[i - self._stored])
        return self._stored_entry(i)

    def _stored_entry(self, i: int) -> IndexEntry:
        size = self._entry.size
        data = self._files.get(self.path).read(i * size, size)
        return IndexEntry(*self._entry.unpack(data)) if len(data) == size else IndexEntry(-1, -1)

    def _floor_in_file(self, wanted: int, field: int) -> IndexEntry | None:
        """The last stored entry whose key, or value, is not above the wanted one."""
        stored = self._stored
        if not stored:
            return None
        number, page = self._page
        if number < 0 or not self._covers(number, page, wanted, field, stored):
            # A sequential reader finds its key in the next page, and another one may be in the page of the one before.
            other = self._other_page
            if other[0] < 0 or not self._covers(*other, wanted, field, stored):
                other = self._read_page(number + 1, stored)
            if not other[1] or not self._covers(*other, wanted, field, stored):
                pages = range((stored + _PAGE_ENTRIES - 1) // _PAGE_ENTRIES)
                found = bisect_right(pages, wanted, key=lambda n: self._stored_entry(n * _PAGE_ENTRIES)[field]) - 1
                if found < 0:
                    return None
                other = self._read_page(found, stored)
            self._other_page, self._page = (number, page), other
            page = other[1]
        unpack_from, size = self._entry.unpack_from, self._entry.size
        count = len(page) // size
        i = bisect_right(range(count), wanted, key=lambda n: unpack_from(page, n * size)[field]) - 1
        return IndexEntry(*unpack_from(page, i * size)) if i >= 0 else None

    def _covers(self, number: int, page: bytes, wanted: int, field: int, stored: int) -> bool:
        size = self._entry.size
        if len(page) < size or self._entry.unpack_from(page)[field] > wanted:
            return False
        is_last = (number + 1) * _PAGE_ENTRIES >= stored
        return is_last or self._entry.unpack_from(page, len(page) - size)[field] > wanted

    def _read_page(self, number: int, stored: int) -> tuple[int, bytes]:
        size = self._entry.size
        first = number * _PAGE_ENTRIES
        count = min(_PAGE_ENTRIES, stored - first)
        return (number, self._files.get(self.path).read(first * size, count * size)) if count > 0 else (number, b"")
