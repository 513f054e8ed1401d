"""The high watermark of a log lies within it, and nothing that is not committed is removed."""

from dataclasses import replace
from pathlib import Path

import pytest

from headrace.model.ids import BrokerId
from headrace.model.invariants import InvariantViolation
from headrace.records.batch import read_header
from headrace.records.builder import build_batch
from headrace.records.reader import Record
from headrace.runtime.clock import ManualClock
from headrace.storage.datadir import DataDir
from headrace.storage.files import FilePool
from headrace.storage.manager import LogManager, WantedPartition
from headrace.storage.segment import Segment
from headrace.storage.segments import SegmentList
from headrace.testing.disks import ModelDisk
from headrace.testing.logs import PARTITION, SMALL, TOPIC_ID, LogBench


def log_with(records: int, *, high_watermark: int) -> LogBench:
    bench = LogBench()
    for number in range(records):
        bench.append(b"%d" % number)
    bench.log.restore_high_watermark(high_watermark)
    return bench


@pytest.mark.parametrize(("restored", "expected"), [(-1, 0), (3, 3), (9, 5)])
def test_a_restored_one_is_fitted_into_the_log(restored: int, expected: int) -> None:
    assert log_with(5, high_watermark=restored).log.high_watermark == expected


@pytest.mark.parametrize("offset", [1, 6])
def test_it_neither_goes_back_nor_passes_the_end(offset: int) -> None:
    log = log_with(5, high_watermark=2).log
    log.advance_high_watermark(2)
    log.advance_high_watermark(5)
    with pytest.raises(InvariantViolation, match="invariant 1:"):
        log.advance_high_watermark(offset)
    assert log.high_watermark == 5


def test_a_truncation_lowers_it_to_what_is_left() -> None:
    log = log_with(5, high_watermark=4).log
    log.truncate_to(4)
    assert log.high_watermark == 4
    log.truncate_to(2)
    assert (log.end_offset, log.high_watermark) == (2, 2)
    log.truncate_fully_and_start_at(40)
    assert (log.start_offset, log.high_watermark) == (40, 40)


@pytest.mark.parametrize("policy", ["ack", "os"])
def test_records_that_replace_committed_ones_are_not_committed_after_a_crash(policy: str) -> None:
    """A reversed topic is truncated below its high watermark, and gets other records at the same offsets."""
    disk, settings = ModelDisk(), replace(SMALL, flush_policy=policy)

    def start() -> LogManager:
        data_dir = DataDir(disk.root, "cluster", BrokerId(1))
        manager = LogManager(data_dir, disk=disk, clock=ManualClock(), is_replicated=True)
        manager.start()
        assert not manager.open_logs({PARTITION: WantedPartition(TOPIC_ID, settings, is_replicated=True)})
        return manager

    def append(manager: LogManager, count: int) -> None:
        for _ in range(count):
            batch = build_batch([Record(0, 1000, None, b"value")])
            manager.logs[PARTITION].append(batch, read_header(batch), 0)

    manager = start()
    log = manager.logs[PARTITION]
    append(manager, 5)
    log.restore_high_watermark(5)
    manager.write_high_watermarks()
    log.truncate_to(2)
    append(manager, 2)
    disk = disk.after_process_kill()
    again = start()
    assert again.logs[PARTITION].end_offset == 4
    assert again.high_watermark_of(PARTITION) == 2


def test_a_log_without_a_partition_is_all_committed_also_after_a_truncation() -> None:
    bench = LogBench()
    for number in range(5):
        bench.append(b"%d" % number)
    bench.log.truncate_to(2)
    bench.append(b"again")
    bench.flush()
    assert bench.log.stable_offset == bench.log.end_offset == 3


def test_records_that_are_not_committed_are_not_removed() -> None:
    log = log_with(5, high_watermark=3).log
    log.advance_start(3)
    with pytest.raises(InvariantViolation, match="invariant 30:"):
        log.advance_start(4)
    assert log.start_offset == 3


def test_segments_out_of_order_are_refused() -> None:
    files = FilePool(ModelDisk())
    first, second = (Segment(Path("/data/orders-0"), base, files) for base in (0, 10))
    segments = SegmentList([first, second])
    with pytest.raises(InvariantViolation, match="invariant 4:"):
        segments.replace([second, first])
