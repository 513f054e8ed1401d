"""The leader epoch history of a log (KIP-101): the start offset of each epoch, in Kafka's checkpoint format.

0                   version
2                   number of lines that follow
0 0                 epoch, start offset
3 1042
"""

from bisect import bisect_right
from collections.abc import Iterable

from headrace.model.ids import NO_EPOCH


class EpochsDamaged(Exception):
    """The checkpoint is damaged: rebuild it from the log."""


class Epochs:
    """Start offsets by leader epoch; both grow from entry to entry."""

    __slots__ = ("_epochs", "_starts", "changed", "latest")

    def __init__(self) -> None:
        self._epochs: list[int] = []
        self._starts: list[int] = []
        self.latest: int = NO_EPOCH
        self.changed = False
        """Whether the checkpoint is out of date; reset by the code that writes it."""

    def entries(self) -> list[tuple[int, int]]:
        return list(zip(self._epochs, self._starts, strict=True))

    def assign(self, epoch: int, start_offset: int) -> None:
        """Record that `epoch` starts at an offset; an epoch that is not new changes nothing."""
        if epoch <= self.latest:
            return
        # An epoch without records is dropped, so that each start offset belongs to one epoch.
        while self._starts and self._starts[-1] >= start_offset:
            self._starts.pop()
            self._epochs.pop()
        self._epochs.append(epoch)
        self._starts.append(start_offset)
        self.latest = epoch
        self.changed = True

    def end_offset_for(self, epoch: int, log_end_offset: int) -> tuple[int, int]:
        """The largest epoch not above `epoch`, and the offset at which it ends; (-1, -1) if unknown."""
        if epoch < 0 or epoch > self.latest:
            return -1, -1
        if epoch == self.latest:
            return epoch, log_end_offset
        following = bisect_right(self._epochs, epoch)
        if following == 0:
            # Older than every epoch here: all of the log comes after it.
            return epoch, self._starts[0]
        return self._epochs[following - 1], self._starts[following]

    def epoch_of(self, offset: int) -> int:
        """The epoch that wrote an offset; -1 if unknown."""
        i = bisect_right(self._starts, offset)
        return self._epochs[i - 1] if i else NO_EPOCH

    def truncate_from(self, end_offset: int) -> None:
        """Remove epochs that start at or after `end_offset`."""
        while self._starts and self._starts[-1] >= end_offset:
            self._starts.pop()
            self._epochs.pop()
            self.changed = True
        self.latest = self._epochs[-1] if self._epochs else NO_EPOCH

    def truncate_before(self, start_offset: int) -> None:
        """Remove epochs that end below the log's start; the epoch at the start now starts there."""
        following = bisect_right(self._starts, start_offset)
        if following > 1 or (following == 1 and self._starts[0] < start_offset):
            del self._starts[: following - 1]
            del self._epochs[: following - 1]
            self._starts[0] = start_offset
            self.changed = True

    def clear(self) -> None:
        self.changed = self.changed or bool(self._epochs)
        self._epochs.clear()
        self._starts.clear()
        self.latest = NO_EPOCH

    @classmethod
    def from_entries(cls, entries: Iterable[tuple[int, int]]) -> "Epochs":
        """Make the epochs from the pairs of `entries`."""
        result = cls()
        for epoch, start_offset in entries:
            result.assign(epoch, start_offset)
        result.changed = False
        return result

    def to_text(self) -> str:
        lines = [f"{epoch} {start}" for epoch, start in self.entries()]
        return "\n".join(["0", str(len(lines)), *lines, ""])

    @classmethod
    def from_text(cls, text: str) -> "Epochs":
        """Parse a checkpoint; raises `EpochsDamaged` unless it is whole and in order."""
        result = cls()
        try:
            version, count, *lines = text.split("\n")
            if version != "0" or lines.pop() != "" or len(lines) != int(count):
                raise EpochsDamaged("wrong version or number of lines")
            for line in lines:
                epoch, start = map(int, line.split(" "))
                if epoch <= result.latest or (result._starts and start <= result._starts[-1]) or start < 0:
                    raise EpochsDamaged("not in order")
                result.assign(epoch, start)
        except (ValueError, IndexError) as error:
            raise EpochsDamaged("not a checkpoint") from error
        result.changed = False
        return result
