"""Which offset of a partition may be committed when acknowledgements come in any order. Pure.

A committed offset means that everything before it is done. So only the contiguous prefix of acknowledged messages
counts: one behind an unacknowledged message is remembered, and committed when that is acknowledged.
"""

from collections import deque


class AckTracker:
    """The delivered messages of one partition, in the order of delivery.

    Offsets grow but may have gaps (compaction, transaction markers): the next offset to read after a message is known
    only as its own offset + 1, which is committed.
    """

    __slots__ = ("_committed", "_handed", "_open", "_position")

    def __init__(self) -> None:
        self._handed: deque[int] = deque()
        self._open: set[int] = set()
        self._position: int | None = None
        self._committed: int | None = None

    @property
    def open_count(self) -> int:
        """The number of messages that were delivered and are not acknowledged."""
        return len(self._open)

    def handed(self, offset: int) -> None:
        """A message was delivered. A redelivered one (after a seek back) clears the tracker."""
        if (self._handed and offset <= self._handed[-1]) or (self._position is not None and offset < self._position):
            self.clear()
        self._handed.append(offset)
        self._open.add(offset)

    def done(self, offset: int) -> None:
        """A message is acknowledged. No effect if it already was, or was never delivered."""
        self._open.discard(offset)
        while self._handed and self._handed[0] not in self._open:
            self._position = self._handed.popleft() + 1

    @property
    def position(self) -> int | None:
        """The offset after the contiguous prefix of acknowledged messages; None if there is none."""
        return self._position

    def to_commit(self) -> int | None:
        """The offset to commit, if it is another than was committed last."""
        return self._position if self._position != self._committed else None

    def committed(self, offset: int) -> None:
        self._committed = offset

    def uncommitted(self) -> None:
        """The last commit was not made after all."""
        self._committed = None

    def clear(self) -> None:
        """Forget unacknowledged messages: the partition is read again from another offset."""
        self._handed.clear()
        self._open.clear()
        self._position = self._committed = None
