"""A replica on this broker: its log, its role, and reads up to the high watermark, as leader or follower."""

from enum import Enum, auto

from headrace.model.errors import FencedLeaderEpoch, OffsetNotAvailable, OffsetOutOfRange, UnknownLeaderEpoch
from headrace.model.ids import LeaderEpoch, PartitionIndex, TopicName
from headrace.replication.waiters import DataWaiters
from headrace.storage.log import Log
from headrace.storage.slice import Slice


class Role(Enum):
    IDLE = auto()
    """Neither leads nor follows: this broker has not been admitted, or there is no leader."""
    LEADER = auto()
    FOLLOWER = auto()


class ReadableReplica:
    """A log up to its high watermark, which the log itself stores. `Partition` sets the role and the leader epoch."""

    __slots__ = ("data_waiters", "index", "is_leader", "leader_epoch", "log", "role", "topic")

    def __init__(self, topic: TopicName, index: PartitionIndex, log: Log, leader_epoch: LeaderEpoch) -> None:
        self.topic = topic
        self.index = index
        self.log = log
        self.leader_epoch = leader_epoch
        self.role = Role.IDLE
        self.is_leader = False
        self.data_waiters = DataWaiters()
        """Consumer fetches, notified when the high watermark moves."""

    def __str__(self) -> str:
        return f"{self.topic}-{self.index}"

    @property
    def last_stable_offset(self) -> int:
        """The end for read_committed consumers: the start of the oldest open transaction, or the high watermark."""
        high_watermark = self.log.high_watermark
        unstable = self.log.producers.first_unstable_offset(high_watermark)
        if unstable is None or unstable >= high_watermark:
            return high_watermark
        return max(unstable, self.log.start_offset)

    def check_epoch(self, current_epoch: int) -> None:
        """Fence a client with a different leader epoch; -1 means that it sent none."""
        if current_epoch in (-1, self.leader_epoch):
            return
        if current_epoch < self.leader_epoch:
            raise FencedLeaderEpoch(f"{self.topic}-{self.index} is at leader epoch {self.leader_epoch}")
        raise UnknownLeaderEpoch(f"{self.topic}-{self.index} is at leader epoch {self.leader_epoch}")

    def aborted_within(self, offset: int, below: int) -> list[tuple[int, int]]:
        """Producer id and first offset of each aborted transaction that overlaps a range."""
        return [(entry.producer_id, entry.first_offset) for entry in self.log.aborted.within(offset, below)]

    def slice(self, offset: int, max_bytes: int, *, committed: bool, at_least_one: bool) -> Slice | None:
        """Locate the bytes from `offset` to the high watermark, or to the last stable offset if `committed`."""
        below = self.last_stable_offset if committed else self.log.high_watermark
        if offset >= below:
            if offset > self.log.end_offset:
                if not self.is_leader:
                    raise OffsetNotAvailable(f"offset {offset} of {self.topic}-{self.index} has not arrived here yet")
                raise OffsetOutOfRange(
                    f"offset {offset} of {self.topic}-{self.index} is past the end {self.log.end_offset}"
                )
            return None
        return self.log.slice(offset, max_bytes, below, at_least_one=at_least_one)

    def epoch_at(self, offset: int) -> int:
        """The leader epoch that wrote an offset; for an empty log the current one, which will write it."""
        epoch = self.log.epochs.epoch_of(offset)
        return self.leader_epoch if epoch < 0 else epoch

    def end_of_epoch(self, epoch: int) -> tuple[int, int]:
        """The largest epoch up to `epoch` and its end offset; (-1, -1) if unknown.

        The log knows only epochs with records. The current one is known without: it ends at the end of the log. Epochs
        between the last one with records and the current one have written nothing to this log.
        """
        log = self.log
        if epoch == self.leader_epoch:
            return epoch, log.end_offset
        if log.epochs.latest < epoch < self.leader_epoch:
            return (epoch if log.epochs.latest < 0 else log.epochs.latest), log.end_offset
        return log.end_offset_for_epoch(epoch)

    def diverges_at(self, last_fetched_epoch: int, offset: int) -> tuple[int, int] | None:
        """Where a reader at this last fetched epoch and next `offset` diverges from the log; None if it does not."""
        if last_fetched_epoch < 0:
            return None
        epoch, end_offset = self.end_of_epoch(last_fetched_epoch)
        if epoch < 0:
            return None
        return (epoch, end_offset) if epoch < last_fetched_epoch or end_offset < offset else None
