"""A partition: a log and the part this broker plays for it. On one node the part is always leader.

Promises:
- offsets are given in the order in which `append` is called;
- the high watermark never goes back, and nobody reads at or past it;
- under `flush.policy=ack` the high watermark covers only what is on disk, so that whatever anybody has read, or got an
  acks=all answer for, is there after a power cut (invariants 1 and 2 of `docs/invariants.md`).
"""

import asyncio
from collections.abc import Awaitable, Callable

from headrace.config.topic import TopicSettings
from headrace.model.errors import (
    FencedLeaderEpoch,
    HeadraceError,
    OffsetOutOfRange,
    StorageFailed,
    UnknownLeaderEpoch,
)
from headrace.model.ids import LeaderEpoch, PartitionIndex, TopicId, TopicName
from headrace.model.invariants import invariant
from headrace.records.batch import BatchHeader, Buffer
from headrace.records.markers import Marker
from headrace.replication.waiters import CommitWaiters, DataWaiters
from headrace.storage.log import AppendResult, Log, Slice


class Partition:
    __slots__ = (
        "_appended",
        "_commit_waiters",
        "_visible_when_flushed",
        "data_waiters",
        "high_watermark",
        "index",
        "leader_epoch",
        "log",
        "topic",
        "topic_id",
    )

    def __init__(
        self,
        topic: TopicName,
        index: PartitionIndex,
        topic_id: TopicId,
        log: Log,
        leader_epoch: LeaderEpoch,
        *,
        appended: Callable[[Log], None],
    ) -> None:
        """`appended` is called after each append, for whoever flushes."""
        self.topic = topic
        self.index = index
        self.topic_id = topic_id
        self.log = log
        self.leader_epoch = leader_epoch
        self.data_waiters = DataWaiters()
        self._commit_waiters = CommitWaiters()
        self._appended = appended
        self._visible_when_flushed = log.settings.flushes_before_ack
        self.high_watermark = log.flushed_offset if self._visible_when_flushed else log.end_offset
        log.on_flushed = self._flushed

    def __str__(self) -> str:
        return f"{self.topic}-{self.index}"

    @property
    def settings(self) -> TopicSettings:
        return self.log.settings

    @property
    def in_sync_count(self) -> int:
        """How many replicas are in sync, this one included."""
        return 1

    @property
    def last_stable_offset(self) -> int:
        """Where a read_committed reader stops: at the first transaction that is not over, or the high watermark."""
        high_watermark = self.high_watermark
        unstable = self.log.producers.first_unstable_offset(high_watermark)
        if unstable is None or unstable >= high_watermark:
            return high_watermark
        return max(unstable, self.log.start_offset)

    def reconfigure(self, settings: TopicSettings) -> None:
        """Settings changed while running; they hold for the next append."""
        self.log.settings = settings
        self._visible_when_flushed = settings.flushes_before_ack
        if self.log.flushed_offset < self.log.end_offset:
            self._appended(self.log)
        self._advance()

    def check_epoch(self, current_epoch: int) -> None:
        """Fence a client whose idea of the leader epoch differs; -1 means that it does not say."""
        if current_epoch in (-1, self.leader_epoch):
            return
        if current_epoch < self.leader_epoch:
            raise FencedLeaderEpoch(f"{self.topic}-{self.index} is at leader epoch {self.leader_epoch}")
        raise UnknownLeaderEpoch(f"{self.topic}-{self.index} is at leader epoch {self.leader_epoch}")

    def append(self, batch: Buffer, header: BatchHeader) -> AppendResult:
        """Write one validated batch to the log. Whether it is committed is another matter: see `when_committed`."""
        try:
            result = self.log.append(batch, header, self.leader_epoch)
        except StorageFailed as error:
            if self.log.failure is not None:
                self.failed(error)
            raise
        if not result.duplicate:
            self._appended(self.log)
            if not self._visible_when_flushed:
                self._advance()
        return result

    def append_marker(self, producer_id: int, producer_epoch: int, marker: Marker) -> AppendResult:
        """End a producer's transaction on this partition."""
        try:
            result = self.log.append_marker(producer_id, producer_epoch, marker, self.leader_epoch)
        except StorageFailed as error:
            if self.log.failure is not None:
                self.failed(error)
            raise
        self._appended(self.log)
        if not self._visible_when_flushed:
            self._advance()
        return result

    def aborted_within(self, offset: int, below: int) -> list[tuple[int, int]]:
        """Producer and first offset of each aborted transaction with anything in a range."""
        return [(entry.producer_id, entry.first_offset) for entry in self.log.aborted.within(offset, below)]

    def when_committed(self, offset: int, callback: Callable[[BaseException | None], None]) -> bool:
        """True if everything below `offset` is committed already; else call back when it is, or cannot be any more."""
        if offset <= self.high_watermark:
            return True
        self._commit_waiters.add(offset, callback)
        return False

    async def until_committed(self, offset: int) -> None:
        """Return when everything below `offset` is committed, or raise what rules that out."""
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def settled(error: BaseException | None) -> None:
            if not done.done():
                if error is None:
                    done.set_result(None)
                else:
                    done.set_exception(error)

        if not self.when_committed(offset, settled):
            await done

    def failed(self, error: BaseException) -> None:
        """The log directory failed: nothing unflushed will ever be acknowledged; what is committed stays readable."""
        self._commit_waiters.fail(error if isinstance(error, StorageFailed) else StorageFailed(str(error)))

    def closed(self, error: BaseException) -> None:
        """The partition is going away: answer everybody who waits."""
        self._commit_waiters.fail(error)
        self.data_waiters.advanced()

    def slice(self, offset: int, max_bytes: int, *, committed: bool, at_least_one: bool) -> Slice | None:
        """Bytes from `offset` up to the high watermark, or to the last stable offset for `committed` readers."""
        below = self.last_stable_offset if committed else self.high_watermark
        if offset >= below:
            if offset > self.log.end_offset:
                raise OffsetOutOfRange(
                    f"offset {offset} of {self.topic}-{self.index} is past the end {self.log.end_offset}"
                )
            return None
        return self.log.slice(offset, max_bytes, below, at_least_one=at_least_one)

    def epoch_at(self, offset: int) -> int:
        """The leader epoch that wrote an offset, or that will: an empty log's first record is of the current one."""
        epoch = self.log.epochs.epoch_of(offset)
        return self.leader_epoch if epoch < 0 else epoch

    def end_of_epoch(self, epoch: int) -> tuple[int, int]:
        """The largest epoch up to `epoch` and where it ends; (-1, -1) if it is not known.

        The log knows of an epoch by its records. The current one is known without: it ends where the log does.
        """
        if epoch == self.leader_epoch:
            return epoch, self.log.end_offset
        return self.log.end_offset_for_epoch(epoch)

    def diverges_at(self, last_fetched_epoch: int, offset: int) -> tuple[int, int] | None:
        """Where a reader that last read at this epoch and wants `offset` next has left the log's history, if it has."""
        if last_fetched_epoch < 0:
            return None
        epoch, end_offset = self.end_of_epoch(last_fetched_epoch)
        if epoch < 0:
            return None
        return (epoch, end_offset) if epoch < last_fetched_epoch or end_offset < offset else None

    async def delete_before(self, offset: int, in_worker: Callable[[Callable[[], None]], Awaitable[None]]) -> int:
        """DeleteRecords: the new log start offset, durable on return. -1 means up to the high watermark.

        `in_worker` runs what waits for the disk.
        """
        target = self.high_watermark if offset == -1 else offset
        if target < 0 or target > self.high_watermark:
            raise OffsetOutOfRange(
                f"cannot delete before offset {offset} of {self.topic}-{self.index}: "
                f"the high watermark is {self.high_watermark}"
            )
        log = self.log
        before = log.raise_start(target)
        try:
            await in_worker(log.persist_start)
        except HeadraceError:
            if log.start_offset == target:
                log.lower_start(before)
            raise
        return log.start_offset

    def _flushed(self, _: Log) -> None:
        if self._visible_when_flushed:
            self._advance()

    def _advance(self) -> None:
        log = self.log
        committed = log.flushed_offset if self._visible_when_flushed else log.end_offset
        if committed <= self.high_watermark:
            return
        invariant(committed <= log.end_offset, 1, "the high watermark is within the log")
        self.high_watermark = committed
        if self._commit_waiters:
            self._commit_waiters.advanced(committed)
        if self.data_waiters:
            self.data_waiters.advanced()
