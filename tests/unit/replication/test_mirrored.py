"""A partition of a mirror topic: read-only, byte-identical, and writable after its promotion."""

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from uuid import UUID

import pytest

from headrace.model.errors import DiskFull, MirrorIsReadOnly, MirrorNotReady, NotLeader, PolicyViolation
from headrace.model.ids import LeaderEpoch
from headrace.model.image import PartitionState
from headrace.model.invariants import InvariantViolation
from headrace.model.links import Mirror, MirrorState, Parting
from headrace.records.batch import iter_headers, read_header
from headrace.records.builder import build_batch
from headrace.records.markers import Marker
from headrace.records.reader import Record
from headrace.replication import mirrored
from headrace.replication.follower import Fetched
from headrace.replication.mirrored import follow_start, highest_epoch, restart_mirror
from headrace.replication.partition import Partition
from headrace.testing.disks import ModelDisk
from headrace.testing.inline_cleaner import drive
from headrace.testing.logs import SMALL, LogBench
from tests.unit.replication.test_roles import ONE, STATE, TWO, append, fetched, make
from tests.unit.storage.test_promotion import bytes_of, source

OS = replace(SMALL, flush_policy="os")
ALONE = PartitionState(ONE, LeaderEpoch(9), (ONE,), (ONE,))
MIRROR = Mirror(UUID(int=7), "eu", "orders", UUID(int=8), "abc")
STOPPED = replace(MIRROR, state=MirrorState.STOPPED, promoted_epoch=100)
PROMOTED = replace(ALONE, leader_epoch=LeaderEpoch(100))
BATCHES = memoryview(bytes_of(source().log))


def mirroring(state: PartitionState = ALONE, bench: LogBench | None = None) -> Partition:
    partition = make(bench or LogBench(ModelDisk(), OS))
    partition.set_mirror(MIRROR)
    partition.lead(state, 0)
    return partition


def idempotent(partition: Partition, producer: int, sequence: int) -> bool:
    """Append a batch of an idempotent producer; whether it is a duplicate."""
    batch = build_batch([Record(0, 1000, None, b"v")], producer_id=producer, producer_epoch=0, base_sequence=sequence)
    return partition.append(batch, read_header(batch)).duplicate


def test_no_producer_marker_or_deletion_changes_a_mirror() -> None:
    partition = mirroring()
    partition.append_mirrored(BATCHES)

    async def in_worker(work: Callable[[], None]) -> None:
        work()

    with pytest.raises(MirrorIsReadOnly, match=r"link eu.*headrace link promote orders"):
        append(partition, b"x")
    with pytest.raises(MirrorIsReadOnly):
        partition.append_marker(3, 0, Marker(committed=True, coordinator_epoch=0))
    with pytest.raises(MirrorIsReadOnly):
        drive(partition.delete_before(1, in_worker))
    assert bytes_of(partition.log) == BATCHES
    assert partition.log.start_offset == 0


def of_producer(number: int, *, is_open: bool = False) -> bytes:
    return build_batch(
        [Record(0, 1000, None, b"v")],
        base_offset=number,
        leader_epoch=7,
        producer_id=number,
        producer_epoch=0,
        base_sequence=0,
        transactional=is_open,
    )


def test_a_source_cannot_make_a_mirror_remember_any_number_of_producers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mirrored, "MAX_PRODUCERS", 5)
    monkeypatch.setattr(mirrored, "MAX_OPEN_TRANSACTIONS", 8)
    leader, follower, ordinary = mirroring(), make(LogBench(ModelDisk(), OS)), make(LogBench(ModelDisk(), OS))
    follower.set_mirror(MIRROR)
    for each in (follower, ordinary):
        each.follow(replace(STATE, leader=TWO))
    for number in range(20):
        batch = of_producer(number, is_open=number in (2, 4))
        leader.append_mirrored(memoryview(batch))
        for each in (follower, ordinary):
            each.take_fetched(each.leader_epoch, Fetched(0, 0, batch))
    assert [len(each.log.producers) <= 6 for each in (leader, follower, ordinary)] == [True, True, False]
    assert [number for number, _ in leader.log.producers.open_transactions()] == [2, 4], "they are aborted at its end"
    assert len(ordinary.log.producers) == 20, "of its own producers nothing is forgotten"
    for number in range(20, 27):
        leader.append_mirrored(memoryview(of_producer(number, is_open=True)))
    with pytest.raises(PolicyViolation, match="open transactions"):
        leader.append_mirrored(memoryview(of_producer(27, is_open=True)))


@pytest.mark.parametrize("state", [MirrorState.PAUSED, MirrorState.PROMOTING, MirrorState.FAULTED])
def test_a_mirror_is_read_only_in_every_state_before_it_is_promoted(state: MirrorState) -> None:
    partition = mirroring()
    partition.set_mirror(replace(MIRROR, state=state))
    partition.lead(PROMOTED, 0)
    with pytest.raises(MirrorIsReadOnly):
        append(partition, b"x")
    assert partition.log.end_offset == 0


def test_a_mirror_takes_no_epoch_above_its_own() -> None:
    partition = mirroring(replace(ALONE, leader_epoch=LeaderEpoch(6)))
    assert highest_epoch(BATCHES) == 7
    with pytest.raises(InvariantViolation, match="invariant 92"):
        partition.append_mirrored(BATCHES)


def test_a_high_epoch_before_a_lower_one_is_noticed() -> None:
    record = Record(0, 1000, None, b"v")
    first = build_batch([record], base_offset=0, leader_epoch=500)
    assert highest_epoch(memoryview(first + build_batch([record], base_offset=1, leader_epoch=3))) == 500


def test_only_a_mirror_takes_batches_of_another_cluster() -> None:
    partition = mirroring()
    partition.set_mirror(STOPPED)
    with pytest.raises(InvariantViolation, match="invariant 93"):
        partition.append_mirrored(BATCHES)
    partition.follow(replace(STATE, leader=TWO, leader_epoch=LeaderEpoch(200)))
    with pytest.raises(NotLeader):
        partition.append_mirrored(BATCHES)


def test_batches_that_are_there_already_are_skipped_and_the_rest_is_appended() -> None:
    partition = mirroring()
    first = next(header.size for _, header in iter_headers(BATCHES))
    partition.append_mirrored(BATCHES[:first])
    partition.append_mirrored(BATCHES)
    assert bytes_of(partition.log) == BATCHES
    assert partition.high_watermark == 4
    assert partition.last_stable_offset == 2, "the transaction of producer 3 is open"


def test_a_source_that_starts_inside_a_batch() -> None:
    batch = build_batch([Record(0, 1000, None, b"v")] * 5, base_offset=10, leader_epoch=3)
    partition = mirroring()
    restart_mirror(partition.log, 12)
    partition.append_mirrored(memoryview(batch))
    assert (partition.log.start_offset, partition.log.end_offset, partition.high_watermark) == (12, 15, 15)


def test_a_mirror_follows_the_start_of_its_source_and_no_further_than_it_has_committed() -> None:
    partition = mirroring()
    partition.append_mirrored(BATCHES)
    follow_start(partition.log, 2)
    assert partition.log.start_offset == 2
    follow_start(partition.log, 1)
    assert partition.log.start_offset == 2
    follow_start(partition.log, 50)
    assert partition.log.start_offset == 4


def test_a_mirror_restarts_past_its_end_and_never_before() -> None:
    partition = mirroring()
    partition.append_mirrored(BATCHES)
    with pytest.raises(InvariantViolation, match="invariant 92"):
        restart_mirror(partition.log, 3)
    assert bytes_of(partition.log) == BATCHES
    restart_mirror(partition.log, 50)
    assert (partition.log.start_offset, partition.log.end_offset, partition.high_watermark) == (50, 50, 50)
    assert partition.log.epochs.entries() == []


@pytest.mark.parametrize("order", ["epoch first", "record first"])
def test_a_promoted_partition_accepts_producers_with_mirrored_ids(order: str) -> None:
    partition = mirroring()
    partition.append_mirrored(BATCHES)
    if order == "epoch first":
        partition.lead(PROMOTED, 0)
        partition.set_mirror(STOPPED)
    else:
        partition.set_mirror(STOPPED)
        with pytest.raises(MirrorIsReadOnly, match="being promoted"):
            append(partition, b"x")
        partition.lead(PROMOTED, 0)
    assert not idempotent(partition, 1, 0)
    assert idempotent(partition, 1, 0)
    assert partition.last_stable_offset == partition.high_watermark == 7
    partition.lead(replace(PROMOTED, leader_epoch=LeaderEpoch(101)), 0)
    assert partition.log.end_offset == 7, "it is promoted once"


def test_a_promotion_that_fails_on_a_full_disk_is_completed_before_the_first_append() -> None:
    disk = ModelDisk()
    partition = mirroring(bench=LogBench(disk, OS))
    partition.append_mirrored(BATCHES)

    def full(what: str, path: Path) -> None:
        if what == "write" and path.suffix == ".log":
            raise OSError(28, "No space left on device")

    disk.hook = full
    partition.lead(PROMOTED, 0)
    partition.set_mirror(STOPPED)
    with pytest.raises(DiskFull):
        append(partition, b"x")
    assert bytes_of(partition.log) == BATCHES
    disk.hook = None
    append(partition, b"x")
    assert partition.log.end_offset == 7
    assert len(partition.log.producers) == 0


def test_a_former_leader_that_mirrored_more_truncates_to_the_promotion() -> None:
    leader, former = mirroring(), mirroring()
    leader.append_mirrored(BATCHES)
    more = build_batch([Record(0, 1000, None, b"later")], base_offset=4, leader_epoch=7)
    former.append_mirrored(BATCHES)
    former.append_mirrored(memoryview(more))
    two = replace(PROMOTED, replicas=(ONE, TWO), isr=(ONE,))
    leader.lead(two, 0)
    leader.set_mirror(STOPPED)
    former.follow(replace(two, leader=TWO))
    _, offset, last_epoch, _ = former.fetch_position()
    diverging = leader.diverges_at(last_epoch, offset)
    assert diverging == (7, 4)
    former.take_fetched(100, Fetched(4, 0, diverging=diverging))
    former.take_fetched(100, Fetched(4, 0, bytes_of(leader.log)[len(BATCHES) :]))
    assert bytes_of(former.log) == bytes_of(leader.log)
    assert len(former.log.producers) == 0
    fetched(leader, TWO, 6)


def test_what_followers_had_before_a_truncation_does_not_count_after_it() -> None:
    partition = mirroring(replace(STATE, leader_epoch=LeaderEpoch(9)))
    partition.append_mirrored(BATCHES)
    fetched(partition, TWO, 4)
    assert partition.high_watermark == 4
    partition.set_mirror(replace(MIRROR, source_promoted_epoch=200, partings=(Parting(0, 2, 4, 4),)))
    partition.drop_divergent(2)
    assert (partition.log.end_offset, partition.high_watermark) == (2, 2)
    later = build_batch([Record(0, 1, None, b"x"), Record(0, 1, None, b"y")], base_offset=2, leader_epoch=8)
    partition.append_mirrored(memoryview(later))
    assert partition.high_watermark == 2, "the follower has other records at these offsets"
    assert partition.diverges_at(7, 4) == (3, 2), "it is told where it parts"
    fetched(partition, TWO, 2)
    fetched(partition, TWO, 4)
    assert partition.high_watermark == 4


def following(mirror: Mirror | None, *, high_watermark: int = 4) -> Partition:
    """A follower with four records, which are committed as far as it knows, in epoch 9 of its leader."""
    partition = make(LogBench(ModelDisk(), OS))
    partition.follow(replace(STATE, leader=TWO, leader_epoch=LeaderEpoch(9)))
    partition.take_fetched(9, Fetched(high_watermark, 0, BATCHES))
    assert partition.high_watermark == high_watermark
    partition.set_mirror(mirror)
    return partition


REVERSED = replace(MIRROR, reversed_ms=1, source_promoted_epoch=200, partings=(Parting(0, 2, 4, 4),))


def test_a_follower_drops_with_its_leader_what_was_set_aside(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    # Also after the topic was promoted again, or with records that were never committed past what was set aside.
    for known in (REVERSED, replace(REVERSED, state=MirrorState.STOPPED)):
        partition = following(known)
        partition.take_fetched(9, Fetched(2, 0, diverging=(3, 2)))
        assert (partition.log.end_offset, partition.high_watermark) == (2, 2)
    assert [record.levelname for record in caplog.records] == ["INFO", "INFO"]
    assert "is truncated to 2 of 4 with its leader of epoch 9: the rest was set aside" in caplog.text


def test_a_follower_waits_until_it_knows_what_was_set_aside() -> None:
    reversing = replace(REVERSED, state=MirrorState.REVERSING)
    for partings in ((), (Parting(0, 2, 4, 3),)):
        partition = following(replace(reversing, partings=partings))
        with pytest.raises(MirrorNotReady, match="not known to be set aside yet"):
            partition.take_fetched(9, Fetched(2, 0, diverging=(3, 2)))
        assert partition.log.end_offset == 4
        partition.set_mirror(reversing)
        partition.take_fetched(9, Fetched(2, 0, diverging=(3, 2)))
        assert partition.log.end_offset == 2


REVERSED_QUEUE = replace(REVERSED, queue={"queue.type": "standard"})


def test_a_follower_of_a_reversed_queue_starts_again_with_its_leader(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    # Whether its leader has copied as much as the follower has, or less.
    for known in (REVERSED_QUEUE, replace(REVERSED_QUEUE, state=MirrorState.STOPPED)):
        for answer in (Fetched(5, 1), Fetched(5, 1, diverging=(3, 2)), Fetched(1, 1, is_out_of_range=True)):
            partition = following(known)
            partition.log.raise_start(3)
            partition.take_fetched(9, answer)
            log = partition.log
            assert (log.start_offset, log.end_offset, partition.high_watermark) == (1, 1, 1)
    assert {record.levelname for record in caplog.records} == {"INFO"}


def test_a_follower_starts_again_only_when_it_knows_that_a_queue_was_reversed() -> None:
    reversing = replace(REVERSED_QUEUE, state=MirrorState.REVERSING, partings=())
    for known in (None, MIRROR, REVERSED, replace(REVERSED_QUEUE, source_promoted_epoch=7), reversing):
        partition = following(known)
        partition.log.raise_start(3)
        with pytest.raises(MirrorNotReady) if known is reversing else nullcontext():
            partition.take_fetched(9, Fetched(5, 1))
        assert (partition.log.start_offset, partition.log.end_offset) == (3, 4)


@pytest.mark.parametrize(
    "known",
    [None, MIRROR, replace(REVERSED, partings=(Parting(0, 3, 4, 4),)), replace(REVERSED, source_promoted_epoch=7)],
    ids=["no mirror", "not reversed", "below the parting", "of the new source"],
)
def test_a_follower_that_loses_other_committed_records_says_so(
    known: Mirror | None, caplog: pytest.LogCaptureFixture
) -> None:
    partition = following(known)
    partition.take_fetched(9, Fetched(2, 0, diverging=(3, 2)))
    (record,) = caplog.records
    assert record.levelname == "ERROR"
    assert "is truncated to 2, below offset 4 that was committed" in record.message


def test_a_topic_that_is_being_reversed_takes_markers_until_its_end_is_fixed() -> None:
    reversing = replace(MIRROR, state=MirrorState.REVERSING)
    partition = make(LogBench(ModelDisk(), OS))
    partition.lead(ALONE, 0)
    for producer in (3, 4):
        batch = build_batch(
            [Record(0, 1, None, b"x")], producer_id=producer, producer_epoch=0, base_sequence=0, transactional=True
        )
        partition.append(batch, read_header(batch))
    partition.set_mirror(reversing)
    with pytest.raises(MirrorIsReadOnly):
        append(partition, b"x")
    partition.append_marker(3, 0, Marker(committed=True, coordinator_epoch=0))
    partition.freeze()
    with pytest.raises(MirrorIsReadOnly):
        partition.append_marker(4, 0, Marker(committed=True, coordinator_epoch=0))
    partition.set_mirror(None)
    partition.set_mirror(reversing)
    partition.append_marker(4, 0, Marker(committed=True, coordinator_epoch=0))
    partition.set_mirror(reversing.with_parting(Parting(0, 2, 4, 2)))
    assert not partition.takes_markers
