"""The log as its users see it. What it does under arbitrary operations and stops is in `tests/property/storage`."""

import errno
from dataclasses import replace
from pathlib import Path

import pytest
from tests.unit.storage.log_faults import fail_when, values

from headrace.model.errors import (
    CorruptBatch,
    DiskFull,
    FencedProducer,
    LogClosed,
    OffsetOutOfRange,
    OutOfOrderSequence,
    RecordTooLarge,
)
from headrace.records.batch import read_header
from headrace.records.builder import build_batch
from headrace.records.reader import Record
from headrace.runtime.disk import OsDisk
from headrace.testing.disks import ModelDisk
from headrace.testing.logs import SMALL, LogBench


def test_on_a_real_disk(tmp_path: Path) -> None:
    bench = LogBench(OsDisk(), root=tmp_path)
    for i in range(40):
        bench.append(b"%d" % i, b"x" * i)
    bench.flush()
    bench = bench.reopen()
    assert len(values(bench)) == 80
    bench = bench.reopen_cleanly()
    assert values(bench)[2:4] == [b"1", b"x"]
    assert len(bench.log.segments) > 3
    bench.log.delete()
    assert not bench.folder.exists()


class TestAppend:
    def test_stamps_offset_and_epoch(self) -> None:
        bench = LogBench()
        bench.append(b"a", b"b")
        result = bench.append(b"c", b"d", b"e", epoch=4)
        assert result == (2, 4, -1, False, 0)
        part = bench.log.slice(3, 1000, 5, at_least_one=True)
        assert part is not None
        header = read_header(part.file.read(part.position, part.length))
        assert (header.base_offset, header.leader_epoch, header.record_count) == (2, 4, 3)
        assert bench.log.end_offset_for_epoch(0) == (0, 2)
        assert bench.log.end_offset_for_epoch(4) == (4, 5)
        assert bench.log.end_offset_for_epoch(5) == (-1, -1)

    def test_tells_the_time_of_arrival_where_the_topic_stamps_it(self) -> None:
        bench = LogBench()
        batch = build_batch([Record(0, 1, None, b"x")], log_append_time_ms=1234)
        assert bench.log.append(batch, read_header(batch), 0).append_time_ms == 1234

    def test_answers_a_retry_with_the_original_offsets(self) -> None:
        bench = LogBench()
        bench.append(b"other")
        bench.append(b"a", b"b", producer=5, sequence=0)
        bench.append(b"c", producer=5, sequence=2)
        size = bench.log.size_bytes
        assert bench.append(b"a", b"b", producer=5, sequence=0)[:4] == (1, 2, -1, True)
        assert bench.log.size_bytes == size
        with pytest.raises(OutOfOrderSequence):
            bench.append(b"d", producer=5, sequence=9)

    def test_remembers_producers_across_restarts(self) -> None:
        bench = LogBench()
        for sequence in range(20):
            bench.append(b"x" * 50, producer=5, sequence=sequence)
        for again in (bench.reopen_cleanly(), bench.reopen(), bench.reopen()):
            assert again.append(b"x" * 50, producer=5, sequence=16).base_offset == 16
            assert again.append(b"x" * 50, producer=5, sequence=16).duplicate
            batch = build_batch([Record(0, 0, None, b"")], producer_id=5, producer_epoch=-1, base_sequence=20)
            with pytest.raises(FencedProducer):
                again.log.append(batch, read_header(batch), 0)

    def test_forgets_producers_that_have_gone(self) -> None:
        bench = LogBench()
        bench.append(b"x", producer=5, sequence=0)
        bench.clock.advance(1000)
        assert bench.log.expire_producers(1001) == 0
        assert bench.log.expire_producers(999) == 1

    def test_refuses_a_batch_larger_than_a_segment(self) -> None:
        bench = LogBench()
        bench.append(b"small")
        with pytest.raises(RecordTooLarge):
            bench.append(b"x" * 1000)
        assert len(bench.log.segments) == 1

    def test_a_closed_log_refuses(self) -> None:
        bench = LogBench()
        log = bench.log
        bench.append(b"x")
        bench.manager.stop()
        with pytest.raises(LogClosed):
            log.append(b"", read_header(bytes(61)), 0)
        with pytest.raises(LogClosed):
            log.begin_flush()
        with pytest.raises(LogClosed):
            log.slice(0, 100, 1, at_least_one=True)


class TestRolling:
    def test_by_size(self) -> None:
        bench = LogBench()
        for _ in range(30):
            bench.append(b"x" * 60)
        assert len(bench.log.segments) == 5
        assert all(segment.size <= 1000 for segment in bench.log.segments)
        bench.log.settings = replace(SMALL, segment_bytes=100_000)
        for _ in range(30):
            bench.append(b"x" * 60)
        assert len(bench.log.segments) == 5

    def test_by_the_age_of_records(self) -> None:
        bench = LogBench(settings=replace(SMALL, segment_ms=1000))
        bench.append(b"x", timestamp=5000)
        bench.append(b"x", timestamp=6000)
        assert len(bench.log.segments) == 1
        bench.append(b"x", timestamp=6001)
        assert [segment.base_offset for segment in bench.log.segments] == [0, 2]

    def test_by_the_clock_where_records_have_no_time(self) -> None:
        bench = LogBench(settings=replace(SMALL, segment_ms=1000))
        bench.append(b"x", timestamp=-1)
        bench.clock.advance(1001)
        bench.append(b"x", timestamp=-1)
        assert len(bench.log.segments) == 2

    def test_by_a_full_index(self) -> None:
        bench = LogBench(settings=replace(SMALL, segment_bytes=100_000, segment_index_bytes=24, index_interval_bytes=0))
        for _ in range(6):
            bench.append(b"x", timestamp=1)
        assert [segment.base_offset for segment in bench.log.segments] == [0, 4]

    def test_by_the_distance_of_offsets(self) -> None:
        bench = LogBench()
        bench.append(b"x")
        far = build_batch([Record(0, 0, None, b"y")], base_offset=2**32, leader_epoch=0)
        assert bench.log.append_replicated(far) == 2**32 + 1
        assert [segment.base_offset for segment in bench.log.segments] == [0, 2**32]
        assert values(bench) == [b"x", b"y"]

    def test_an_empty_segment_is_not_rolled(self) -> None:
        bench = LogBench()
        bench.log.roll()
        assert len(bench.log.segments) == 1


class TestSlice:
    def test_ends_with_the_limits(self) -> None:
        bench = LogBench()
        for _ in range(5):
            bench.append(b"a", b"b")
        one = bench.log.slice(0, 1, 10, at_least_one=True)
        assert one is not None
        size = one.length
        assert bench.log.slice(0, size - 1, 10, at_least_one=False) is None
        part = bench.log.slice(3, 2 * size + 5, 10, at_least_one=True)
        assert part is not None
        assert (part.position, part.length, part.first_batch_offset) == (size, 2 * size, 2)
        assert part.end_offset == 6
        part = bench.log.slice(0, 10_000, 5, at_least_one=True)
        assert part is not None
        assert part.length == 3 * size, "the batch with offset 4 starts below 5"
        assert bench.log.slice(10, 100, 10, at_least_one=True) is None
        assert bench.log.slice(4, 100, 4, at_least_one=True) is None

    def test_outside_of_the_log(self) -> None:
        bench = LogBench()
        bench.append(b"a", b"b")
        bench.log.advance_start(1)
        for offset in (0, 3):
            with pytest.raises(OffsetOutOfRange):
                bench.log.slice(offset, 100, 2, at_least_one=True)

    def test_a_slice_outlives_its_segment(self, tmp_path: Path) -> None:
        bench = LogBench(OsDisk(), root=tmp_path)
        for i in range(20):
            bench.append(b"%03d" % i * 20)
        part = bench.log.slice(0, 200, 20, at_least_one=True)
        assert part is not None
        bench.log.advance_start(20)
        bench.log.purge_deleted()
        bench.manager.stop()
        assert b"000000" in part.file.read(part.position, part.length)


class TestReplicated:
    def test_refuses_damage_and_offsets_that_go_back(self) -> None:
        bench = LogBench()
        batch = build_batch([Record(0, 0, None, b"y")], base_offset=7, leader_epoch=3)
        assert bench.log.append_replicated(batch) == 8
        with pytest.raises(OffsetOutOfRange):
            bench.log.append_replicated(batch)
        damaged = bytearray(build_batch([Record(0, 0, None, b"y")], base_offset=9))
        damaged[-1] ^= 1
        with pytest.raises(CorruptBatch):
            bench.log.append_replicated(damaged)
        assert (bench.log.end_offset, bench.log.epochs.latest) == (8, 3)


class TestFlush:
    def test_covers_what_was_there_when_it_began(self) -> None:
        bench = LogBench()
        bench.append(b"a")
        ticket = bench.log.begin_flush()
        assert ticket is not None
        bench.append(b"b")
        ticket.sync()
        bench.log.complete_flush(ticket)
        assert bench.log.flushed_offset == 1
        bench.flush()
        assert bench.log.flushed_offset == 2
        assert bench.log.begin_flush() is None

    def test_says_nothing_about_a_log_that_was_truncated_since(self) -> None:
        bench = LogBench()
        bench.append(b"a")
        bench.append(b"b")
        ticket = bench.log.begin_flush()
        assert ticket is not None
        ticket.sync()
        bench.log.truncate_to(1)
        bench.append(b"c")
        bench.log.complete_flush(ticket)
        assert bench.log.flushed_offset <= 1

    def test_survives_the_removal_of_a_segment_meanwhile(self) -> None:
        bench = LogBench()
        for _ in range(20):
            bench.append(b"x" * 60)
        ticket = bench.log.begin_flush()
        assert ticket is not None
        bench.log.advance_start(15)
        ticket.sync()
        bench.log.complete_flush(ticket)
        assert bench.log.flushed_offset == 20


class TestStartOffset:
    def test_removes_whole_segments_and_keeps_their_files_for_a_while(self) -> None:
        bench = LogBench(settings=replace(SMALL, file_delete_delay_ms=60_000))
        for _ in range(20):
            bench.append(b"x" * 60, epoch=1)
        bench.log.advance_start(15)
        assert bench.log.start_offset == 15
        assert [segment.base_offset for segment in bench.log.segments] == [14]
        deleted = [name for name in bench.disk.files(bench.folder) if name.endswith(".deleted")]
        assert deleted
        bench.clock.advance(59_999)
        bench.log.purge_deleted()
        assert [name for name in bench.disk.files(bench.folder) if name.endswith(".deleted")] == deleted
        bench.clock.advance(1)
        bench.log.purge_deleted()
        assert not [name for name in bench.disk.files(bench.folder) if name.endswith(".deleted")]
        assert bench.reopen().log.start_offset == 15
        assert bench.log.epochs.entries() == [(1, 15)]

    @pytest.mark.parametrize("is_clean", [False, True])
    def test_what_is_below_it_does_not_come_back_with_a_power_failure(self, is_clean: bool) -> None:
        """The start that removes the segment below it makes that last, because the start offset is forgotten then."""
        disk = ModelDisk()
        bench = LogBench(disk)
        bench.append(b"deleted")
        bench.log.advance_start(1)
        bench.log.roll()
        bench.flush()
        bench.checkpoint()
        if is_clean:
            bench.manager.stop()
        again = bench.reopen(disk)
        again.checkpoint()
        last = again.reopen(disk.after_power_loss())
        assert (last.log.start_offset, values(last)) == (1, [])

    def test_does_not_go_past_the_end_or_back(self) -> None:
        bench = LogBench()
        bench.append(b"x", b"y")
        with pytest.raises(OffsetOutOfRange):
            bench.log.advance_start(3)
        bench.log.advance_start(2)
        bench.log.advance_start(1)
        assert bench.log.start_offset == 2

    def test_stays_as_it_was_if_it_cannot_be_made_durable(self) -> None:
        disk = ModelDisk()
        bench = LogBench(disk)
        bench.append(b"x", b"y")
        disk.hook = fail_when("write", ".tmp", errno.ENOSPC)
        with pytest.raises(DiskFull):
            bench.log.advance_start(1)
        assert bench.log.start_offset == 0
