"""The newest batches of encrypted logs as their producers sent them, so that consumers at the end pay no decryption.

A log has a `Tail`: its newest batches by base offset. All logs of a broker share one `RecentBatches`, which bounds
their memory: the batch that was added first leaves first. Nothing of it is ever on disk.

What a tail has is what the log has at that offset: a batch is added when it was written, and a truncation takes a new
tail. A segment that may be compacted is not read from it, see `Slice`.
"""

from collections import deque
from typing import NamedTuple

_BATCH_OVERHEAD_BYTES = 300
"""Of the objects that hold a batch."""
_SHARE_MAX = 8
"""A batch may take so small a part of the memory, so that a few large ones do not displace everything."""


class RecentBatch(NamedTuple):
    batch: bytes
    """As a consumer gets it."""
    size: int
    """Its bytes on disk."""
    next_offset: int


Tail = dict[int, RecentBatch]


class RecentBatches:
    """Used in the event loop only, but for reading a tail."""

    __slots__ = ("_added", "_bytes", "_max_bytes")

    def __init__(self, max_bytes: int) -> None:
        """Without memory, 0, nothing is held."""
        self._max_bytes = max_bytes
        self._bytes = 0
        self._added: deque[tuple[Tail, int]] = deque()
        """The batches by age, each with its tail and offset; some are gone already."""

    @property
    def used_bytes(self) -> int:
        return self._bytes

    def add(self, tail: Tail, offset: int, recent: RecentBatch) -> None:
        size = len(recent.batch) + _BATCH_OVERHEAD_BYTES
        if size * _SHARE_MAX > self._max_bytes:
            return
        tail[offset] = recent
        self._added.append((tail, offset))
        self._bytes += size
        while self._bytes > self._max_bytes or len(self._added) * _BATCH_OVERHEAD_BYTES > self._max_bytes:
            self._remove(*self._added.popleft())

    def drop(self, tail: Tail) -> None:
        """Forget all batches of a log."""
        for offset in tuple(tail):
            self._remove(tail, offset)

    def _remove(self, tail: Tail, offset: int) -> None:
        gone = tail.pop(offset, None)
        if gone is not None:
            self._bytes -= len(gone.batch) + _BATCH_OVERHEAD_BYTES
