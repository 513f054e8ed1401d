"""A partition that leads, follows or does neither: what its users are told, and what it makes of what others say."""

from dataclasses import replace
from uuid import UUID

import pytest

from headrace.model.errors import FencedLeaderEpoch, NotLeader, OffsetNotAvailable, OffsetOutOfRange
from headrace.model.ids import BrokerId, LeaderEpoch, PartitionIndex, TopicId, TopicName
from headrace.model.image import PartitionState
from headrace.model.invariants import InvariantViolation
from headrace.records.batch import read_header
from headrace.records.builder import build_batch
from headrace.records.reader import Record
from headrace.replication.follower import Fetched
from headrace.replication.partition import Partition
from headrace.replication.partitions import PartitionTable
from headrace.replication.readable import Role
from headrace.runtime.clock import ManualClock
from headrace.storage.cleaner import Cleaner
from headrace.testing.disks import ModelDisk
from headrace.testing.inline_cleaner import drive, inline
from headrace.testing.logs import SMALL, LogBench

ONE, TWO, THREE = map(BrokerId, (1, 2, 3))
STATE = PartitionState(ONE, LeaderEpoch(5), (ONE, TWO), (ONE, TWO, THREE))


def make(bench: LogBench, *, high_watermark: int = 0) -> Partition:
    return Partition(
        TopicName("orders"),
        PartitionIndex(0),
        TopicId(UUID(int=7)),
        bench.log,
        LeaderEpoch(0),
        appended=lambda _: None,
        broker_id=ONE,
        high_watermark=high_watermark,
    )


def append(partition: Partition, *values: bytes) -> None:
    batch = build_batch([Record(0, 1000, None, value) for value in values])
    partition.append(batch, read_header(batch))


def fetched(partition: Partition, replica: BrokerId, offset: int, *, epoch: int = 1, now_ms: float = 0) -> None:
    partition.replica_fetched(replica, epoch, offset, log_start_offset=0, now_ms=now_ms)


def os_bench() -> LogBench:
    return LogBench(ModelDisk(), replace(SMALL, flush_policy="os"))


def test_a_replica_that_has_more_than_its_leader_does_not_count() -> None:
    partition = make(os_bench())
    partition.lead(STATE, 0)
    append(partition, b"x")
    with pytest.raises(InvariantViolation, match="invariant 29:"):
        fetched(partition, TWO, 2)
    assert partition.high_watermark == 0


def test_a_partition_without_a_role_refuses_and_says_who_leads() -> None:
    partition = make(os_bench())
    with pytest.raises(NotLeader, match="no broker leads"):
        append(partition, b"x")
    partition.follow(replace(STATE, leader=TWO))
    with pytest.raises(NotLeader, match="broker 2 leads"):
        append(partition, b"x")


def test_the_high_watermark_waits_for_everybody_in_sync_and_for_nobody_else() -> None:
    partition = make(os_bench())
    assert partition.lead(STATE, 0)
    append(partition, b"x", b"y")
    fetched(partition, THREE, 2)
    assert partition.high_watermark == 0
    fetched(partition, TWO, 2)
    assert partition.high_watermark == 2
    with pytest.raises(NotLeader, match="no replica"):
        fetched(partition, BrokerId(9), 2)


def test_nothing_is_committed_while_fewer_are_in_sync_than_must_be() -> None:
    bench = LogBench(ModelDisk(), replace(SMALL, flush_policy="os", min_insync_replicas=2))
    partition = make(bench)
    partition.lead(replace(STATE, isr=(ONE,)), 0)
    append(partition, b"x")
    fetched(partition, TWO, 1)
    assert partition.high_watermark == 0
    partition.lead(replace(STATE, isr=(ONE, TWO), partition_epoch=1), 0)
    assert partition.high_watermark == 1


def test_who_waits_for_a_commit_is_told_when_the_leader_changes() -> None:
    partition = make(os_bench())
    partition.lead(STATE, 0)
    append(partition, b"x")
    told: list[BaseException | None] = []
    assert not partition.when_committed(1, told.append)
    partition.lead(replace(STATE, leader_epoch=LeaderEpoch(6), partition_epoch=1), 0)
    assert told == []
    partition.follow(replace(STATE, leader=TWO, leader_epoch=LeaderEpoch(7)))
    assert len(told) == 1
    assert isinstance(told[0], NotLeader)
    assert not partition.when_committed(1, told.append)
    assert len(told) == 2


def test_a_follower_learns_what_is_committed_and_serves_no_more_than_that() -> None:
    leader, partition = make(os_bench()), make(os_bench())
    leader.lead(STATE, 0)
    append(leader, b"x")
    append(leader, b"y")
    partition.follow(replace(STATE, leader=TWO))
    cut = leader.slice_for_replica(0, 10_000, at_least_one=True)
    assert cut is not None
    data = cut.file.read(cut.position, cut.length)
    partition.take_fetched(5, Fetched(1, 0, data + data[:20]))
    assert (partition.log.end_offset, partition.high_watermark) == (2, 1)
    assert partition.fetch_position() == (5, 2, 5, 0)
    assert partition.slice(1, 1000, committed=False, at_least_one=True) is None
    with pytest.raises(OffsetNotAvailable):
        partition.slice(3, 1000, committed=False, at_least_one=True)
    partition.take_fetched(5, Fetched(9, 1))
    assert (partition.high_watermark, partition.log.start_offset) == (2, 1)
    with pytest.raises(FencedLeaderEpoch):
        partition.take_fetched(4, Fetched(9, 1))


def test_a_follower_drops_what_the_leader_does_not_have() -> None:
    partition = make(os_bench())
    partition.lead(replace(STATE, leader_epoch=LeaderEpoch(1)), 0)
    append(partition, b"x")
    partition.lead(replace(STATE, leader_epoch=LeaderEpoch(3)), 0)
    append(partition, b"y")
    append(partition, b"z")
    partition.follow(replace(STATE, leader=TWO))
    partition.take_fetched(5, Fetched(0, 0, diverging=(3, 2)))
    assert partition.fetch_position() == (5, 2, 3, 0)
    partition.take_fetched(5, Fetched(0, 0, diverging=(2, 1)))
    assert partition.fetch_position() == (5, 1, 1, 0)


def test_a_leader_says_where_histories_part_also_before_it_has_written_anything() -> None:
    partition = make(os_bench())
    assert partition.lead(replace(STATE, leader_epoch=LeaderEpoch(1)), 0)
    assert partition.diverges_at(0, 3) == (0, 0)
    append(partition, b"x")
    partition.lead(STATE, 0)
    assert partition.diverges_at(1, 1) is None
    assert partition.diverges_at(3, 2) == (1, 1)
    assert partition.diverges_at(3, 1) == (1, 1)


@pytest.mark.parametrize("has_records", [False, True])
def test_a_follower_that_is_left_behind_starts_anew_where_the_leader_starts(has_records: bool) -> None:
    bench = os_bench()
    partition = make(bench)
    if has_records:
        partition.lead(replace(STATE, leader_epoch=LeaderEpoch(1)), 0)
        append(partition, b"x")
    partition.follow(replace(STATE, leader=TWO))
    partition.take_fetched(5, Fetched(9, 7, is_out_of_range=True))
    assert partition.fetch_position() == (5, 7, -1, 7)
    assert partition.high_watermark == 7
    # The leader's log starts inside of a batch.
    leader = make(os_bench())
    leader.lead(STATE, 0)
    append(leader, *[b"%d" % at for at in range(9)])
    cut = leader.slice_for_replica(7, 10_000, at_least_one=True)
    assert cut is not None
    partition.take_fetched(5, Fetched(9, 7, cut.file.read(cut.position, cut.length)))
    assert (partition.log.start_offset, partition.log.end_offset, partition.high_watermark) == (7, 9, 9)
    assert [record.offset for record in bench.records()] == [7, 8]


def test_an_answer_without_a_way_on_is_an_error() -> None:
    partition = make(os_bench())
    partition.follow(replace(STATE, leader=TWO))
    with pytest.raises(OffsetOutOfRange):
        partition.take_fetched(5, Fetched(-1, -1, is_out_of_range=True))


def test_what_a_follower_has_may_be_told_when_it_is_on_disk() -> None:
    bench = LogBench(ModelDisk())
    leader, partition = make(os_bench()), make(bench)
    leader.lead(STATE, 0)
    append(leader, b"x")
    cut = leader.slice_for_replica(0, 10_000, at_least_one=True)
    assert cut is not None

    told: list[BaseException | None] = []
    partition.follow(replace(STATE, leader=TWO))
    assert partition.when_flushed(told.append)
    partition.take_fetched(5, Fetched(1, 0, cut.file.read(cut.position, cut.length)))
    assert not partition.when_flushed(told.append)
    assert not told
    bench.flush()
    assert told == [None]
    assert partition.when_flushed(told.append)


def test_a_new_leader_does_not_say_how_far_it_is_before_it_knows() -> None:
    bench = os_bench()
    bench.append(b"x", epoch=1)
    partition = make(bench)
    partition.lead(STATE, 0)
    with pytest.raises(OffsetNotAvailable):
        partition.check_offsets_known()
    fetched(partition, TWO, 1)
    partition.check_offsets_known()


def test_retention_and_compaction_stop_at_the_high_watermark() -> None:
    clock = ManualClock()
    bench = LogBench(ModelDisk(), replace(SMALL, retention_ms=1, flush_policy="os"), clock=clock)
    partition = make(bench)
    partition.lead(STATE, 0)
    for _ in range(40):
        append(partition, b"x" * 60)
    bench.flush()
    fetched(partition, TWO, 10)
    assert partition.high_watermark == 10
    clock.advance(10_000)
    cleaner = Cleaner(bench.manager.logs.values, clock=clock, run=inline)
    assert drive(cleaner.apply_retention())
    assert 0 < partition.log.start_offset <= 10
    assert partition.log.stable_offset == 10
    fetched(partition, TWO, 40)
    assert partition.high_watermark == 40
    drive(cleaner.apply_retention())
    assert partition.log.start_offset == 40


def test_listeners_hear_of_each_leader_epoch_and_of_its_end() -> None:
    table = PartitionTable()
    partition = make(os_bench())
    told: list[str] = []
    table.on_leading.append(lambda p: told.append(f"leads {p.leader_epoch}"))
    table.on_not_leading.append(lambda p: told.append("leads not"))
    table.add(partition)
    assert told == []
    table.lead(partition, STATE, 0)
    table.lead(partition, replace(STATE, isr=(ONE,), partition_epoch=1), 0)
    assert told == ["leads 5"]
    table.lead(partition, replace(STATE, leader_epoch=LeaderEpoch(6), partition_epoch=2), 0)
    table.idle(partition)
    assert told == ["leads 5", "leads not", "leads 6", "leads not"]
    assert partition.role is Role.IDLE
    table.follow(partition, replace(STATE, leader=TWO, leader_epoch=LeaderEpoch(7)))
    table.lead(partition, replace(STATE, leader_epoch=LeaderEpoch(8)), 0)
    table.remove(partition)
    assert told[4:] == ["leads 8", "leads not"]
