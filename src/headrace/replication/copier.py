"""A follower replica: appends the batches that its leader sends, or truncates its log.

`follower.py` decides what a response means; this module applies it to the log.
"""

import logging
from collections.abc import Callable

from headrace.model.errors import CorruptBatch, FencedLeaderEpoch, OffsetOutOfRange, StorageFailed
from headrace.model.invariants import invariant
from headrace.observe.traffic import TopicTraffic
from headrace.records.batch import check_batch, iter_headers
from headrace.replication.follower import (
    Fetched,
    FetchPosition,
    known_high_watermark,
    restart_point,
    truncation_point,
    whole_batches,
)
from headrace.replication.readable import ReadableReplica, Role
from headrace.replication.waiters import CommitWaiters
from headrace.storage.log import Log

_log = logging.getLogger(__name__)

_ANY_OFFSET = 2**63


def _never_reversed(offset: int) -> bool:
    """False: the topic is no former source."""
    return False


def _ignore_append(log: Log) -> None:
    """Does nothing: the partition is closed."""


class ReplicaCopier:
    """The follower's side of a replica."""

    __slots__ = (
        "_appended",
        "_flush_waiters",
        "_leaders_high_watermark",
        "_replica",
        "check_reversed",
        "starts_again",
        "traffic",
    )

    def __init__(self, replica: ReadableReplica, *, appended: Callable[[Log], None]) -> None:
        """`appended` is called after each append, to request a flush."""
        self._replica = replica
        self._appended = appended
        self._flush_waiters = CommitWaiters()
        self._leaders_high_watermark = 0
        self.check_reversed: Callable[[int], bool] = _never_reversed
        """Called before the log is truncated to an offset below its high watermark. True if the topic was reversed, and
        what is dropped was set aside; raises an error while that is not known here yet."""
        self.starts_again: Callable[[int], bool] = _never_reversed
        """Called with the start of the leader's log if that is before the one here. True if the topic is a queue that
        was reversed, whose leader has dropped its log; raises an error while that is not known here yet."""
        self.traffic: TopicTraffic | None = None
        """Where bytes are counted; None if they are not."""

    def forget_owner(self) -> None:
        """Drop the callbacks: the partition is closed, and nothing that refers to it may stay with it."""
        self._appended = _ignore_append
        self.check_reversed = self.starts_again = _never_reversed

    @property
    def lag(self) -> int:
        """The number of committed offsets that this replica does not have yet."""
        replica = self._replica
        return 0 if replica.is_leader else max(0, self._leaders_high_watermark - replica.log.end_offset)

    def failed(self, error: BaseException) -> None:
        """Fail the flush waiters: nothing more is acknowledged to the leader."""
        self._flush_waiters.fail(error)

    def flushed(self, offset: int) -> None:
        """Notify the flush waiters: everything below `offset` is on disk."""
        if self._flush_waiters:
            self._flush_waiters.advanced(offset)

    def fetch_position(self) -> FetchPosition:
        """The position of the next fetch from the leader."""
        log = self._replica.log
        return FetchPosition(self._replica.leader_epoch, log.end_offset, log.epochs.latest, log.start_offset)

    def take_fetched(self, leader_epoch: int, part: Fetched) -> None:
        """Apply the response to a fetch at `fetch_position`: append, or truncate what is not in the leader's history.

        `FencedLeaderEpoch` if that epoch is not followed any more. If the log raises an error, it has all batches
        before the failed one.
        """
        replica = self._replica
        if replica.role is not Role.FOLLOWER or leader_epoch != replica.leader_epoch:
            raise FencedLeaderEpoch(f"{replica} does not follow leader epoch {leader_epoch} any more")
        log = replica.log
        try:
            if part.log_start_offset < log.start_offset and self.starts_again(part.log_start_offset):
                self._start_again(part.log_start_offset)
                return
            if part.diverging is not None:
                self._truncate(truncation_point(part.diverging, log.end_offset, log.end_offset_for_epoch))
                return
            if part.is_out_of_range:
                self._restart(part)
                return
            if len(part.records):
                self._append_fetched(whole_batches(part.records))
                if self.traffic is not None:
                    self.traffic.replicated_in += len(part.records)
            self._learn(part)
        except StorageFailed as error:
            if log.failure is not None:
                self.failed(error)
            raise

    def _append_fetched(self, batches: memoryview) -> None:
        log = self._replica.log
        try:
            append_batches(log, batches, log.append_replicated)
        finally:
            self._appended(log)

    def _learn(self, part: Fetched) -> None:
        log = self._replica.log
        self._leaders_high_watermark = part.high_watermark
        known = known_high_watermark(part.high_watermark, log.high_watermark, log.end_offset)
        if known > log.high_watermark:
            log.advance_high_watermark(known)
            if self._replica.data_waiters:
                self._replica.data_waiters.advanced()
        if log.start_offset < part.log_start_offset:
            log.raise_start(min(part.log_start_offset, known))

    def _truncate(self, offset: int) -> None:
        log, leader_epoch = self._replica.log, self._replica.leader_epoch
        if offset < log.high_watermark and self.check_reversed(offset):
            _log.info("%s is truncated to %d of %d with its leader of epoch %d: the rest was set aside when its topic "
                      "was reversed", self._replica, offset, log.end_offset, leader_epoch)  # fmt: skip
        elif offset < log.high_watermark:
            _log.error("%s is truncated to %d, below offset %d that was committed: the leader of epoch %d has another "
                       "history", self._replica, offset, log.high_watermark, leader_epoch)  # fmt: skip
        elif offset < log.end_offset:
            _log.info("%s is truncated to %d of %d: the rest is not in the log of leader epoch %d", self._replica,
                      offset, log.end_offset, leader_epoch)  # fmt: skip
        log.truncate_to(offset)
        invariant(log.end_offset <= offset, 28, "records that the leader does not have are dropped")
        self.release_waiters()

    def _restart(self, part: Fetched) -> None:
        log = self._replica.log
        at = restart_point(part, log.end_offset)
        if at is None:
            raise OffsetOutOfRange(
                f"the leader of {self._replica} has no offset {log.end_offset}, and does not say what it has"
            )
        if at > log.end_offset:
            _log.info("%s restarts empty at %d, where its leader's log starts", self._replica, at)
            log.truncate_fully_and_start_at(at)
            self.release_waiters()
        else:
            self._truncate(at)

    def _start_again(self, offset: int) -> None:
        log = self._replica.log
        _log.info("%s starts again at %d, before %d, with its leader: what was deleted from it when its queue had its "
                  "home here is in the queue", self._replica, offset, log.start_offset)  # fmt: skip
        log.truncate_fully_and_start_at(offset)
        self.release_waiters()

    def drop_damaged(self) -> None:
        """Truncate the log where the damage begins, so that the rest is fetched from the leader. Blocking."""
        log = self._replica.log
        if log.damaged_from is None:
            return
        _log.warning("%s is damaged from offset %d on: everything from there is fetched again", self._replica,
                     log.damaged_from)  # fmt: skip
        log.truncate_to(log.damaged_from)
        self.release_waiters()

    def when_flushed(self, callback: Callable[[BaseException | None], None]) -> bool:
        """True if the whole log may be acknowledged to the leader: under `flush.policy=ack` when it is on disk.

        Otherwise call back when the caller should check again, or with the error that rules it out.
        """
        log = self._replica.log
        if not log.settings.flushes_before_ack or log.flushed_offset >= log.end_offset:
            return True
        if log.failure is not None:
            raise StorageFailed(f"{log.directory} takes no more writes since it failed: {log.failure}")
        self._flush_waiters.add(log.end_offset, callback)
        return False

    def release_waiters(self) -> None:
        """Wake the flush waiters to check again, because the log, the role or the settings changed."""
        if self._flush_waiters:
            self._flush_waiters.advanced(_ANY_OFFSET)


def append_batches(log: Log, batches: memoryview, append: Callable[[memoryview], int]) -> None:
    """Append what is past the end of the log, with `append`."""
    skipped = 0
    for at, header in iter_headers(batches):
        if header.next_offset > log.end_offset:
            if header.base_offset < log.end_offset == log.start_offset:
                # The other log starts inside a batch, and so does this one: the whole batch is needed. It is checked
                # first, since the log is emptied for it.
                if check_batch(batches, at).base_offset < 0:
                    raise CorruptBatch(f"a batch at offset {header.base_offset} was not read from a log")
                start = log.start_offset
                log.truncate_fully_and_start_at(header.base_offset)
                append(batches[at : at + header.size])
                log.advance_high_watermark(start)
                log.raise_start(start)
                skipped = at + header.size
            break
        skipped = at + header.size
    append(batches[skipped:])
