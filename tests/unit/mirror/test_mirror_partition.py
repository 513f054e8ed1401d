"""What a mirror partition makes of the answers of its source."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from headrace.mirror.append_budget import AppendBudget
from headrace.mirror.mirror_partition import MirrorPartition
from headrace.mirror.progress import MirrorProgress
from headrace.model.errors import FencedLeaderEpoch, NotLeader, OffsetOutOfRange, ProtocolError
from headrace.model.ids import LeaderEpoch
from headrace.model.invariants import InvariantViolation
from headrace.model.links import Parting
from headrace.records.builder import build_batch
from headrace.records.reader import Record
from headrace.replication.follower import Fetched
from headrace.replication.partition import Partition
from headrace.runtime.clock import ManualClock
from tests.unit.replication.test_mirrored import ALONE, BATCHES, MIRROR, STOPPED, mirroring
from tests.unit.replication.test_roles import STATE
from tests.unit.storage.test_promotion import bytes_of

SOURCE_EPOCH = 7


class Copy:
    """A mirror partition, and what it has asked for."""

    def __init__(self, partition: Partition | None = None) -> None:
        self.partition = partition or mirroring()
        self.raised: list[int] = []
        self.lost = self.faulted = 0
        self.clock = ManualClock()
        self.turns: list[Callable[[], None]] = []
        self.budget = AppendBudget(self.turns.append)
        self.mirror = MirrorPartition(
            self.partition,
            MIRROR,
            MirrorProgress(),
            self.clock,
            budget=self.budget,
            raise_epoch=lambda _, epoch: self.raised.append(epoch),
            on_lost=lambda _: self.note("lost"),
            on_faulted=lambda _: self.note("faulted"),
        )
        self.mirror.source_epoch = SOURCE_EPOCH

    def note(self, what: str) -> None:
        setattr(self, what, getattr(self, what) + 1)

    def take(self, part: Fetched) -> None:
        self.mirror.take_fetched(SOURCE_EPOCH, part)

    @property
    def progress(self) -> MirrorProgress:
        return self.mirror.progress


def later(base_offset: int, epoch: int = SOURCE_EPOCH) -> bytes:
    return build_batch([Record(0, 1000, None, b"later")], base_offset=base_offset, leader_epoch=epoch)


def test_it_asks_from_its_end_with_its_last_epoch_and_counts_what_it_copies() -> None:
    copy = Copy()
    assert copy.mirror.topic_id == MIRROR.source_topic_id
    assert copy.mirror.fetch_position() == (SOURCE_EPOCH, 0, -1, -1)
    copy.take(Fetched(5, 0, BATCHES))
    assert copy.mirror.fetch_position() == (SOURCE_EPOCH, 4, 7, -1)
    assert (copy.progress.source_end, copy.progress.bytes_copied, copy.progress.caught_up_ms) == (5, len(BATCHES), None)
    asked_ms = copy.clock.wall_ms() - 200
    copy.take(Fetched(5, 0, later(4), asked_ms=asked_ms))
    assert copy.progress.contact_ms == asked_ms
    assert copy.progress.caught_up_ms == asked_ms, "the source may have got more while its answer was under way"


def test_messages_past_the_last_stable_offset_are_counted() -> None:
    copy = Copy()
    copy.take(Fetched(4, 0, BATCHES, undecided=3))
    assert (copy.progress.source_end, copy.progress.undecided) == (4, 3)
    copy.take(Fetched(5, 0, later(4)))
    assert copy.progress.undecided == 0


def test_an_idle_partition_is_caught_up_until_the_last_answer() -> None:
    copy = Copy()
    copy.take(Fetched(4, 0, BATCHES))
    now_ms = copy.clock.wall_ms()
    copy.mirror.caught_up_until(now_ms + 500)
    assert copy.progress.caught_up_ms == copy.progress.contact_ms == now_ms + 500
    copy.take(Fetched(9, 0))
    copy.mirror.caught_up_until(now_ms + 900)
    assert (copy.progress.contact_ms, copy.progress.caught_up_ms) == (now_ms + 900, now_ms + 500)


def test_a_batch_of_a_higher_epoch_waits_for_the_leader_epoch() -> None:
    copy = Copy(mirroring(replace(ALONE, leader_epoch=LeaderEpoch(3))))
    with pytest.raises(FencedLeaderEpoch):
        copy.take(Fetched(4, 0, BATCHES))
    assert copy.raised == [7]
    assert copy.partition.log.end_offset == 0
    copy.partition.lead(replace(ALONE, leader_epoch=LeaderEpoch(7)), 0)
    copy.take(Fetched(4, 0, BATCHES))
    assert bytes_of(copy.partition.log) == BATCHES


def test_answers_that_come_after_a_promotion_or_another_leader_are_dropped() -> None:
    copy = Copy()
    with pytest.raises(NotLeader):
        copy.mirror.take_fetched(SOURCE_EPOCH - 1, Fetched(4, 0, BATCHES))
    copy.partition.set_mirror(STOPPED)
    with pytest.raises(NotLeader):
        copy.take(Fetched(4, 0, BATCHES))
    copy.mirror.locate(100, 200)
    assert copy.partition.log.end_offset == 0


def test_an_empty_mirror_starts_where_its_source_does_and_lacks_nothing() -> None:
    copy = Copy()
    with pytest.raises(OffsetOutOfRange):
        copy.take(Fetched(-1, -1, is_out_of_range=True))
    assert copy.lost == 1
    copy.mirror.locate(50, 60)
    assert copy.mirror.fetch_position().offset == copy.partition.log.start_offset == 50
    assert copy.progress.lost_messages == 0


def test_records_that_the_source_removed_too_early_are_a_gap_that_is_counted_once() -> None:
    copy = Copy()
    copy.take(Fetched(4, 0, BATCHES))
    copy.mirror.locate(10, 12)
    copy.mirror.locate(10, 12)
    assert copy.progress.lost_messages == 6
    assert copy.mirror.fetch_position() == (SOURCE_EPOCH, 10, -1, -1)
    copy.take(Fetched(10, 10))
    assert copy.progress.caught_up_ms is not None, "a source without records is copied"
    assert copy.partition.high_watermark == 10
    copy.take(Fetched(11, 10, later(10)))
    assert copy.mirror.fetch_position() == (SOURCE_EPOCH, 11, 7, -1)
    assert copy.partition.high_watermark == 11


@pytest.mark.parametrize("how", ["diverging", "shorter"])
def test_a_source_with_another_history_faults_the_mirror_and_nothing_is_truncated(how: str) -> None:
    copy = Copy()
    copy.take(Fetched(4, 0, BATCHES))
    if how == "diverging":
        copy.take(Fetched(4, 0, diverging=(3, 2)))
    else:
        copy.mirror.locate(0, 3)
    assert copy.faulted == 1
    assert copy.progress.is_faulted
    assert "headrace link failover orders" in copy.progress.error
    assert bytes_of(copy.partition.log) == BATCHES


def reversed_copy(parting: Parting | None) -> Copy:
    """A former source with offsets 0 to 3, of which the new source has less."""
    copy = Copy()
    copy.take(Fetched(4, 0, BATCHES))
    partings = () if parting is None else (parting,)
    record = replace(MIRROR, source_promoted_epoch=200, partings=partings)
    copy.partition.set_mirror(record)
    copy.mirror.mirror = record
    return copy


def test_what_was_set_aside_is_truncated_when_the_new_source_says_where_histories_part() -> None:
    copy = reversed_copy(Parting(0, 2, 4, 4))
    copy.take(Fetched(9, 0, diverging=(3, 2)))
    assert (copy.partition.log.end_offset, copy.partition.high_watermark, copy.faulted) == (2, 2, 0)
    assert copy.mirror.fetch_position() == (SOURCE_EPOCH, 2, 3, -1)


@pytest.mark.parametrize(
    "parting",
    [
        pytest.param(None, id="never reversed"),
        pytest.param(Parting(0, 2, 4, 3), id="not all is set aside"),
        pytest.param(Parting(0, 3, 4, 4), id="below the parting"),
        pytest.param(Parting(0, 2, 3, 3), id="more records than were set aside"),
        pytest.param(Parting(1, 2, 4, 4), id="another partition"),
    ],
)
def test_nothing_else_is_truncated(parting: Parting | None) -> None:
    copy = reversed_copy(parting)
    copy.take(Fetched(9, 0, diverging=(3, 2)))
    assert (copy.partition.log.end_offset, copy.faulted) == (4, 1)
    with pytest.raises(InvariantViolation, match="invariant 95:"):
        copy.partition.drop_divergent(2)


def test_records_of_the_new_source_are_never_truncated() -> None:
    copy = reversed_copy(Parting(0, 2, 4, 4))
    copy.mirror.mirror = replace(copy.mirror.mirror, source_promoted_epoch=7)
    copy.take(Fetched(9, 0, diverging=(3, 2)))
    assert (copy.partition.log.end_offset, copy.faulted) == (4, 1)


def reversed_queue(start: int, parting: Parting) -> Copy:
    """A copy of four messages, of which those before `start` were deleted when the queue had its home here."""
    copy = reversed_copy(parting)
    record = replace(copy.mirror.mirror, queue={"queue.type": "standard"}, reversed_ms=1)
    copy.partition.set_mirror(record)
    copy.mirror.mirror = record
    copy.partition.log.raise_start(start)
    return copy


def test_what_was_deleted_from_a_queue_here_and_not_in_its_new_home_is_copied_again() -> None:
    copy = reversed_queue(1, Parting(0, 2, 4, 4))
    log = copy.partition.log
    copy.take(Fetched(4, 0, diverging=(3, 2)))
    assert (log.start_offset, log.end_offset) == (1, 2)
    copy.take(Fetched(4, 0, later(2)))
    assert (log.start_offset, log.end_offset, copy.partition.high_watermark, copy.faulted) == (0, 0, 0, 0)
    copy.take(Fetched(4, 0, BATCHES))
    assert bytes_of(log) == BATCHES
    assert copy.partition.high_watermark == 4
    copy.take(Fetched(5, 0, later(4)))
    assert log.end_offset == 5


def test_a_queue_of_which_all_was_set_aside_is_copied_from_where_its_new_home_starts() -> None:
    copy = reversed_queue(2, Parting(0, 2, 4, 4))
    copy.take(Fetched(4, 1, diverging=(3, 1)))
    assert copy.mirror.fetch_position() == (SOURCE_EPOCH, 1, -1, -1)
    assert copy.faulted == 0


@pytest.mark.parametrize(
    ("parting", "part"),
    [
        pytest.param(Parting(0, 2, 4, 3), Fetched(4, 0), id="not all is set aside"),
        pytest.param(Parting(0, 2, 3, 3), Fetched(4, 0), id="more records than were set aside"),
        pytest.param(Parting(0, 2, 4, 4), Fetched(4, 2), id="the source starts there as well"),
        pytest.param(Parting(0, 2, 4, 4), Fetched(4, -1), id="a source that does not say where it starts"),
        pytest.param(Parting(0, 3, 4, 4), Fetched(4, 0, diverging=(3, 1)), id="a source that has lost records"),
    ],
)
def test_no_other_queue_is_copied_again(parting: Parting, part: Fetched) -> None:
    copy = reversed_queue(2, parting)
    copy.take(part)
    assert (copy.partition.log.start_offset, copy.partition.log.end_offset) == (2, 4)


def test_only_a_reversed_queue_without_records_of_its_new_home_is_copied_again() -> None:
    whole = Parting(0, 2, 4, 4)
    others: list[dict[str, Any]] = [{"queue": {}}, {"source_promoted_epoch": 7}, {"reversed_ms": 0}]
    for changes in others:
        copy = reversed_queue(2, whole)
        record = replace(copy.mirror.mirror, **changes)
        copy.partition.set_mirror(record)
        copy.mirror.mirror = record
        copy.take(Fetched(4, 0))
        assert (copy.partition.log.start_offset, copy.partition.log.end_offset) == (2, 4)
        with pytest.raises(InvariantViolation, match="invariant 95:"):
            copy.partition.start_again(0)


def damaged_copy() -> Copy:
    """A mirror whose disk has lost the batch at offset 2 of 4, in a part that was synced."""
    copy = Copy()
    copy.take(Fetched(4, 0, BATCHES))
    copy.partition.log.note_damage(2)
    return copy


def test_what_the_disk_has_lost_is_copied_again_with_all_that_follows() -> None:
    copy = damaged_copy()
    copy.take(Fetched(5, 0, later(4)))
    assert copy.mirror.fetch_position().offset == copy.partition.high_watermark == 2
    assert copy.partition.log.damaged_from is None
    copy.take(Fetched(5, 0, BATCHES))
    copy.take(Fetched(5, 0, later(4)))
    assert bytes_of(copy.partition.log) == bytes(BATCHES) + later(4)
    assert copy.partition.high_watermark == 5


def test_what_the_source_has_removed_cannot_be_copied_again() -> None:
    copy = damaged_copy()
    copy.take(Fetched(5, 3, later(4)))
    assert (copy.partition.log.end_offset, copy.partition.log.damaged_from) == (5, 2)


def test_a_damaged_mirror_is_not_truncated_for_a_source_with_another_history() -> None:
    copy = damaged_copy()
    copy.take(Fetched(4, 0, diverging=(3, 2)))
    assert (copy.partition.log.end_offset, copy.faulted) == (4, 1)


def test_a_damaged_leader_leaves_what_other_replicas_have_to_them() -> None:
    copy = damaged_copy()
    copy.partition.lead(replace(STATE, leader_epoch=LeaderEpoch(10)), 0)
    copy.take(Fetched(5, 0, later(4)))
    assert (copy.partition.log.end_offset, copy.partition.log.damaged_from) == (5, 2)


def test_only_damage_is_a_reason_to_copy_again() -> None:
    copy = Copy()
    copy.take(Fetched(4, 0, BATCHES))
    with pytest.raises(InvariantViolation, match="invariant 92:"):
        copy.partition.drop_damaged(2)


def test_one_turn_of_the_event_loop_appends_some_batches_and_the_next_one_more() -> None:
    copy = Copy()
    copy.budget.left = 2
    copy.take(Fetched(4, 0, BATCHES))
    assert copy.mirror.fetch_position().offset == 2
    assert copy.progress.caught_up_ms is None
    copy.take(Fetched(4, 0, BATCHES))
    assert copy.mirror.fetch_position().offset == 2, "nothing is left of this turn"
    copy.budget.left = 10
    copy.take(Fetched(4, 0, BATCHES, asked_ms=7.0))
    assert (copy.mirror.fetch_position().offset, copy.progress.caught_up_ms) == (4, 7.0)


def test_a_turn_is_refilled_once() -> None:
    turns: list[Callable[[], None]] = []
    budget = AppendBudget(turns.append, 10)
    for batches in (0, 4, 6):
        budget.spend(batches)
    assert (budget.left, len(turns)) == (0, 1)
    turns[0]()
    assert budget.left == 10


@pytest.mark.parametrize(
    "part",
    [
        Fetched(-1, 0),
        Fetched(2**53 + 1, 0),
        Fetched(4, -2),
        Fetched(4, 2**63 - 1),
        Fetched(4, 0, undecided=2**62),
        Fetched(4, 0, b"no batch"),
    ],
)
def test_an_answer_that_no_log_gives_is_refused(part: Fetched) -> None:
    copy = Copy()
    with pytest.raises(ProtocolError, match="the source"):
        copy.take(part)
    assert (copy.progress.source_end, copy.mirror.fetch_position().offset) == (None, 0)


def test_what_an_earlier_leader_heard_is_not_confirmed_without_an_answer() -> None:
    copy = Copy()
    copy.mirror.progress = MirrorProgress(source_end=0, contact_ms=5.0, is_inherited=True)
    copy.mirror.caught_up_until(100.0)
    assert (copy.progress.contact_ms, copy.progress.caught_up_ms) == (5.0, None)
    copy.take(Fetched(0, 0, asked_ms=50.0))
    copy.mirror.caught_up_until(100.0)
    assert (copy.progress.contact_ms, copy.progress.caught_up_ms, copy.progress.is_inherited) == (100.0, 100.0, False)
