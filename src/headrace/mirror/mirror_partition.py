"""A mirror partition that this broker leads, as the fetcher of its source sees it: it copies what the source answers.

- It starts where the source's log starts, and follows that start. Where the source has removed records before they were
  copied, the copy starts again after them, since the source has nothing of what is here either; their number is
  reported.
- If the source's history is not that of the mirror any more (an unclean election there, or restored data), nothing is
  truncated, since consumers may have read it: the partition is *faulted* until an operator decides.
- Records that the disk here has lost are copied again, with everything after them, when the source has answered that
  its history is that of the mirror and still has them.
- An answer that no honest source gives is refused, and the partition asks again: offsets that no log has, or batches
  that were not read from a log.
- In a topic that was reversed, what the new source never had was set aside before; it is truncated (invariant 95). If
  it is a queue whose log starts later here than at the source, all of it is copied again: what was deleted here after
  the last copy is not deleted there.
"""

import logging
from collections.abc import Callable
from itertools import islice
from uuid import UUID

from headrace.mirror.append_budget import AppendBudget
from headrace.mirror.progress import MirrorProgress
from headrace.model.errors import FencedLeaderEpoch, NotLeader, OffsetOutOfRange, ProtocolError
from headrace.model.links import MAX_SOURCE_OFFSET, Mirror
from headrace.records.batch import Buffer, iter_headers
from headrace.replication.follower import Fetched, FetchPosition, truncation_point
from headrace.replication.mirrored import follow_start, highest_epoch, is_set_aside, restart_mirror, starts_again
from headrace.replication.partition import Partition
from headrace.runtime.clock import Clock

_log = logging.getLogger(__name__)


class MirrorPartition:
    """See the module. It is used by the event loop only."""

    def __init__(
        self,
        partition: Partition,
        mirror: Mirror,
        progress: MirrorProgress,
        clock: Clock,
        *,
        budget: AppendBudget,
        raise_epoch: Callable[[Partition, int], None],
        on_lost: Callable[["MirrorPartition"], None],
        on_faulted: Callable[["MirrorPartition"], None],
    ) -> None:
        """`raise_epoch` raises the leader epoch here; `on_lost` asks the source for its offsets and calls `locate`."""
        self.partition = partition
        self.mirror = mirror
        self.progress = progress
        self._source_epoch = -1
        self._source_epoch_ms = clock.wall_ms()
        """Since when it is known."""
        self.locate_problem = ""
        """Why the source does not say which offsets it has, after it did not have those at the position."""
        self._clock = clock
        self._budget = budget
        self._raise_epoch = raise_epoch
        self._on_lost = on_lost
        self._on_faulted = on_faulted

    def __str__(self) -> str:
        return f"the mirror {self.partition}"

    @property
    def topic_id(self) -> UUID:
        """Of the source topic: fetches name it."""
        return self.mirror.source_topic_id

    @property
    def index(self) -> int:
        return self.partition.index

    @property
    def source_epoch(self) -> int:
        """The leader epoch of the source partition."""
        return self._source_epoch

    @source_epoch.setter
    def source_epoch(self, epoch: int) -> None:
        if epoch != self._source_epoch:
            self._source_epoch, self._source_epoch_ms = epoch, self._clock.wall_ms()

    def fetch_position(self) -> FetchPosition:
        log = self.partition.log
        return FetchPosition(self.source_epoch, log.end_offset, log.epochs.latest, -1)

    def take_fetched(self, leader_epoch: int, part: Fetched) -> None:
        """Append what the source answered to a fetch at the current position."""
        partition, log, progress = self.partition, self.partition.log, self.progress
        if leader_epoch != self.source_epoch or not partition.is_leader or not partition.is_mirror:
            raise NotLeader(f"{partition} is not mirrored by this broker any more")
        if self._starts_again(part):
            _log.info("%s is copied again from %d on: what was deleted before %d while the queue had its home here is "
                      "in its new home", partition, part.log_start_offset, log.start_offset)  # fmt: skip
            partition.start_again(part.log_start_offset)
            progress.source_end = progress.caught_up_ms = None
            return
        if part.diverging is not None:
            offset = truncation_point(part.diverging, log.end_offset, log.end_offset_for_epoch)
            if is_set_aside(self.mirror, self.index, log, offset):
                _log.info("%s is truncated to %d of %d: the rest is not in the log of its new source, and was set "
                          "aside", partition, offset, log.end_offset)  # fmt: skip
                partition.drop_divergent(offset)
                progress.source_end = progress.caught_up_ms = None
                return
            self._fault(f"the source's history ends at offset {part.diverging[1]} in epoch {part.diverging[0]}")
            return
        if part.is_out_of_range:
            self._on_lost(self)
            why = f": {self.locate_problem}" if self.locate_problem else ""
            raise OffsetOutOfRange(f"the source of {partition} has no offset {log.end_offset}{why}")
        self.locate_problem = ""
        _check_offsets(part)
        if self._can_copy_again(part.log_start_offset):
            assert log.damaged_from is not None
            _log.warning("%s is damaged from offset %d on: everything from there to %d is copied again", partition,
                         log.damaged_from, log.end_offset)  # fmt: skip
            partition.drop_damaged(log.damaged_from)
            return
        if len(part.records):
            batches, count = _first_batches(part.records, self._budget.left)
            self._budget.spend(count)
            epoch = highest_epoch(batches)
            if epoch > partition.leader_epoch:
                self._raise_epoch(partition, epoch)
                raise FencedLeaderEpoch(f"{partition} waits for the leader epoch {epoch} of its source")
            end_before = log.end_offset
            partition.append_mirrored(batches)
            if log.end_offset > end_before:
                progress.bytes_copied += len(batches)
            elif self._budget.left > 0:
                # It would be asked for the same at once.
                raise ProtocolError(f"the source answers a fetch at offset {end_before} without a whole batch of it")
        follow_start(log, part.log_start_offset)
        now_ms = self._clock.wall_ms()
        progress.source_end, progress.error, progress.is_inherited = part.high_watermark, "", False
        # The answer may be as old as its request.
        progress.contact_ms = min(now_ms, part.asked_ms)
        progress.undecided = part.undecided
        progress.checked_epoch = max(progress.checked_epoch, leader_epoch)
        if log.end_offset >= part.high_watermark:
            progress.caught_up_ms = part.asked_ms

    def _starts_again(self, part: Fetched) -> bool:
        """True if everything here is dropped and copied again: see `starts_again`."""
        log, parting = self.partition.log, self.mirror.parting(self.index)
        if part.is_out_of_range or not starts_again(self.mirror, self.index, log, part.log_start_offset):
            return False
        # A source with another history may have lost what is here. All of this was set aside, or is truncated first.
        return part.diverging is None or (parting is not None and log.start_offset >= parting.offset)

    def _can_copy_again(self, source_start: int) -> bool:
        """True if the disk here has lost records that the source still has, and no other replica in sync has them."""
        lost = self.partition.log.damaged_from
        return lost is not None and 0 <= source_start <= lost and not self.partition.has_others_in_sync

    @staticmethod
    def when_flushed(callback: Callable[[BaseException | None], None]) -> bool:
        """True: the source does not count what a link has."""
        return True

    def locate(self, source_start: int, source_end: int) -> None:
        """Continue where the source has records, after it did not have those at the position."""
        log = self.partition.log
        if not self.partition.is_leader or not self.partition.is_mirror:
            return
        if not 0 <= source_start <= source_end <= MAX_SOURCE_OFFSET:
            self.locate_problem = f"it says that it has offsets {source_start} to {source_end}"
        elif source_end < log.end_offset:
            self._fault(f"the source ends at offset {source_end}")
        elif source_start > log.end_offset:
            if log.end_offset > 0:
                lost = source_start - log.end_offset
                self.progress.lost_messages += lost
                _log.error("%s lacks %d messages: its source has removed offsets %d to %d before they were copied",
                           self.partition, lost, log.end_offset, source_start - 1)  # fmt: skip
            restart_mirror(log, source_start)

    def caught_up_until(self, asked_ms: float) -> None:
        """Note that the source, asked at this time, had nothing new: its answers name only partitions that changed."""
        progress = self.progress
        if asked_ms > self._source_epoch_ms and not progress.is_faulted:
            progress.checked_epoch = max(progress.checked_epoch, self.source_epoch)
        if progress.contact_ms is not None and not progress.is_inherited and asked_ms >= progress.contact_ms:
            progress.contact_ms, progress.error = asked_ms, ""
            if progress.source_end is not None and self.partition.log.end_offset >= progress.source_end:
                progress.caught_up_ms = asked_ms

    def _fault(self, what: str) -> None:
        link, topic, log = self.mirror.link, self.partition.topic, self.partition.log
        self.progress.is_faulted = True
        self.progress.error = (
            f"{self.partition} has records up to offset {log.end_offset} (epoch {log.epochs.latest}), but {what}: the "
            f"source cluster has lost committed records. Nothing was changed here. Make the copy writable with "
            f"headrace link failover {topic}, or delete {topic} so that the link {link} copies it again"
        )
        _log.error("%s", self.progress.error)
        self._on_faulted(self)


def _check_offsets(part: Fetched) -> None:
    """Refuse offsets that no log has: lags are computed from them."""
    if not (-1 <= part.log_start_offset <= MAX_SOURCE_OFFSET and 0 <= part.high_watermark <= MAX_SOURCE_OFFSET):
        raise ProtocolError(f"the source says that it has offsets {part.log_start_offset} to {part.high_watermark}")
    if part.undecided > MAX_SOURCE_OFFSET:
        raise ProtocolError(f"the source says that {part.undecided} messages wait for the end of a transaction")


def _first_batches(records: Buffer, most: int) -> tuple[memoryview, int]:
    """The first whole batches of an answer, and their number; the rest is asked for again."""
    view, end, count = memoryview(records), 0, 0
    for at, header in islice(iter_headers(view), max(0, most)):
        end, count = at + header.size, count + 1
    return view[:end], count
