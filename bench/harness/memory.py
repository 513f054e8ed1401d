"""Memory as on a machine that has run for a while: full of pages of files that may be dropped at any time.

The host of a virtual machine takes back memory that is free, and gives it again a page at a time when it is written
to. That may cost the machine seconds of system time per GB, many times what a broker does with a GB, and it is paid by
whoever happens to need a page that nobody had before: a log that grows, or what is read from the disk. So the page
cache is filled with a file of zeros before each measurement. New pages then come from those that the kernel drops.
"""

import os
from pathlib import Path

_LEAST_FREE_BYTES = 384 * 1024 * 1024
_PIECE_BYTES = 1024 * 1024
_PIECES_PER_LOOK = 32


def free_bytes() -> int:
    """What is in nobody's use, neither a program's nor the page cache's."""
    for line in Path("/proc/meminfo").read_text().splitlines():
        if line.startswith("MemFree:"):
            return int(line.split()[1]) * 1024
    return 0


class PageCacheFiller:
    """A file without blocks on the disk, as long as the machine's memory; what is read of it is in the page cache."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._size = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        self._position = 0
        with path.open("wb") as file:
            file.truncate(self._size)

    def fill(self) -> None:
        """Take all memory that is free but little."""
        piece = bytearray(_PIECE_BYTES)
        with self._path.open("rb", buffering=0) as file:
            for _ in range(self._size // (_PIECES_PER_LOOK * _PIECE_BYTES) + 1):
                if free_bytes() < _LEAST_FREE_BYTES:
                    return
                for _ in range(_PIECES_PER_LOOK):
                    os.preadv(file.fileno(), [piece], self._position)
                    self._position = (self._position + _PIECE_BYTES) % self._size
