"""A file of a log that a consumer reads from front to back, from the disk.

It is read through a handle of its own, for which the kernel reads ahead in large requests. What was brought in this way
and has been sent can be removed from the page cache: who reads 10 GB of old data once would else replace what others
read all the time. Only blocks that the page cache had nothing of are removed, since they may be in use otherwise.
"""

from collections import deque
from collections.abc import Callable
from typing import NamedTuple

from headrace.runtime.disk import DiskFile

BLOCK_BYTES = 16 * 1024 * 1024
"""What is removed from the page cache at a time. More than the kernel reads ahead, so that what it has brought in for
this file is not found in the next block."""
_PIECE_BYTES = 1024 * 1024


class ReadTo(NamedTuple):
    """Where reading on has stopped."""

    position: int
    is_end_of_file: bool


class OrderedFile:
    """Used by one worker thread at a time, but for `bring_in`."""

    __slots__ = ("_absent", "_handle", "_probed_to", "source")

    def __init__(self, source: DiskFile) -> None:
        self.source = source
        self._handle: DiskFile | None = None
        self._absent: deque[int] = deque()
        """The positions of the blocks that the page cache had nothing of."""
        self._probed_to = -1

    def bring_in(self, position: int, length: int) -> int:
        """Like `DiskFile.bring_in`; the kernel may go on with what follows. Raises `OSError`."""
        if self._handle is None:
            try:
                self._handle = self.source.reopened_in_order()
            except OSError:
                # No file can be opened now: the one that is open does, too.
                return self.source.bring_in(position, length)
        return self._handle.bring_in(position, length)

    def read_on(self, position: int, end: int, may_go_on: Callable[[], bool]) -> ReadTo:
        """Read from `position` up to `end` by pieces, as long as `may_go_on`. Blocking. Raises `OSError`."""
        while position < end and may_go_on():
            self._probe(position)
            size = min(_PIECE_BYTES, end - position)
            got = self.bring_in(position, size)
            position += got
            if got < size:
                return ReadTo(position, is_end_of_file=True)
        return ReadTo(position, is_end_of_file=False)

    def drop_before(self, position: int) -> None:
        """Remove what was brought in before `position` from the page cache. Blocking. Raises `OSError`."""
        absent = self._absent
        while absent and absent[0] + BLOCK_BYTES <= position:
            self.source.drop_cached(absent.popleft(), BLOCK_BYTES)

    def _probe(self, position: int) -> None:
        """Note whether the page cache has anything of the next block, before the kernel reads ahead into it."""
        block = position - position % BLOCK_BYTES + BLOCK_BYTES
        if block > self._probed_to:
            self._probed_to = block
            source = self.source
            # Nothing is appended to a block that is whole.
            if block + BLOCK_BYTES <= source.size() and not source.has_any_cached(block, BLOCK_BYTES):
                self._absent.append(block)
