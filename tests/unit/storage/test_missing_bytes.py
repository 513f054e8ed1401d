"""A power failure keeps the name of a new segment and not the end of the one before: no batch shows that it is torn."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from headrace.config.topic import TopicSettings
from headrace.records.builder import build_batch
from headrace.records.reader import Record
from headrace.storage.cleaner import Cleaner
from headrace.testing.disks import ModelDisk, PowerLoss, stop_at
from headrace.testing.inline_cleaner import drive, inline
from headrace.testing.logs import SMALL, LogBench

LOST = 5
"""The first offset that is not there any more: the segment before ends just before it."""


def bench_with_segments(*, is_replicated: bool) -> LogBench:
    """Three segments: 0 to 7, 8 to 15 and 16 to 19, nothing of it synced, one record in a batch."""
    bench = LogBench(settings=replace(SMALL, segment_bytes=10_000), is_replicated=is_replicated)
    for number in range(20):
        if number in (8, 16):
            bench.log.roll()
        bench.append(b"%d" % number, producer=1, sequence=number)
    return bench


def names_of(bench: LogBench, ending: str) -> list[str]:
    return sorted(name for name in bench.disk.files(bench.folder) if name.endswith(ending))


def path_of(bench: LogBench, base_offset: int) -> Path:
    return bench.folder / f"{base_offset:020d}.log"


def lose_end(bench: LogBench, segment: int, offset: int) -> None:
    """Cut a file off where the batch with an offset starts, behind the back of the log."""
    position = next(at for at, header in bench.log.segments[segment].headers() if header.base_offset == offset)
    file = bench.disk.open(bench.log.segments[segment].path)
    file.truncate(position)
    file.sync_data()


def offsets_of(bench: LogBench) -> list[int]:
    return [record.offset for record in bench.records()]


@pytest.mark.parametrize("is_replicated", [False, True])
@pytest.mark.parametrize("left_bytes", [0, 22])
def test_a_log_ends_there_if_no_batch_is_behind(left_bytes: int, is_replicated: bool) -> None:
    bench = bench_with_segments(is_replicated=is_replicated)
    bench.log.truncate_to(16)
    lose_end(bench, 0, LOST)
    bench.disk.open(path_of(bench, 8)).truncate(left_bytes)
    bench.disk.open(path_of(bench, 16)).truncate(0)
    again = bench.reopen()
    assert again.log.end_offset == LOST
    assert offsets_of(again) == list(range(LOST))
    assert again.log.damaged_from is None, "nothing that was acknowledged is lost"
    assert names_of(again, ".log") == [path_of(again, 0).name]
    assert again.append(b"next", producer=1, sequence=LOST).base_offset == LOST
    assert offsets_of(again.reopen()) == list(range(LOST + 1))


def test_the_only_replica_keeps_what_is_behind_and_names_what_is_lost(caplog: pytest.LogCaptureFixture) -> None:
    bench = bench_with_segments(is_replicated=False)
    lose_end(bench, 0, LOST)
    again = bench.reopen()
    assert offsets_of(again) == [0, 1, 2, 3, 4, *range(8, 20)]
    assert again.log.damaged_from == LOST
    assert f"offsets from {LOST} up to 8 are lost" in caplog.text
    again.manager.write_checkpoints()
    assert offsets_of(again.reopen()) == offsets_of(again)


@pytest.mark.parametrize("first_lost", [LOST, 8, 12])
def test_a_replica_of_several_ends_where_bytes_are_missing(first_lost: int) -> None:
    bench = bench_with_segments(is_replicated=True)
    if first_lost == 8:
        bench.disk.open(path_of(bench, 8)).truncate(0)
    else:
        lose_end(bench, first_lost // 8, first_lost)
    again = bench.reopen()
    assert again.log.end_offset == first_lost
    assert offsets_of(again) == list(range(first_lost))
    assert again.log.damaged_from == first_lost, "it may have been in sync with more, if it was not a power failure"
    assert path_of(again, 16).name + ".corrupt" in names_of(again, ".corrupt")
    assert again.append(b"next", producer=1, sequence=first_lost).base_offset == first_lost
    assert offsets_of(again.reopen()) == list(range(first_lost + 1))


def test_a_replica_of_several_ends_where_a_page_is_missing_between_batches() -> None:
    bench = bench_with_segments(is_replicated=True)
    disk = bench.disk
    assert isinstance(disk, ModelDisk)
    position = next(at for at, header in bench.log.segments[1].headers() if header.base_offset == 10)
    original = disk.read_bytes(path_of(bench, 8))
    disk.damage(path_of(bench, 8), position, bytes(70))
    again = bench.reopen()
    assert offsets_of(again) == list(range(10))
    assert again.log.damaged_from == again.log.end_offset == 10
    kept = disk.read_bytes(again.folder / (path_of(again, 8).name + ".corrupt"))
    assert len(kept) == len(original)
    assert again.append(b"next", producer=1, sequence=10).base_offset == 10


def test_a_replica_that_ends_before_the_damage_is_whole_when_it_goes_on_from_there() -> None:
    bench = bench_with_segments(is_replicated=True)
    lose_end(bench, 0, LOST)
    again = bench.reopen()
    again.log.truncate_to(LOST)
    assert again.log.damaged_from is None
    assert again.reopen().log.damaged_from is None


def stop_anywhere(bench: LogBench, check: Callable[[LogBench], None]) -> None:
    """Open a log with the process killed at each step, and again after that."""
    disk = bench.disk
    assert isinstance(disk, ModelDisk)
    steps = len(bench.reopen(disk.after_process_kill()).disk.steps)  # type: ignore[attr-defined]
    for number in range(1, steps + 1):
        stopped = disk.after_process_kill()
        stopped.hook = stop_at(number)
        with pytest.raises(PowerLoss):
            bench.reopen(stopped)
        stopped.hook = None
        check(bench.reopen(stopped.after_process_kill()))
        check(bench.reopen(stopped.after_power_loss()))


def test_setting_files_aside_may_be_interrupted_anywhere() -> None:
    bench = bench_with_segments(is_replicated=True)
    bench.flush()
    lose_end(bench, 1, 12)

    def check(again: LogBench) -> None:
        assert offsets_of(again) == list(range(12))
        assert again.log.damaged_from in (None, 12)
        assert path_of(again, 16).name + ".corrupt" in names_of(again, ".corrupt")

    stop_anywhere(bench, check)


@pytest.mark.parametrize("is_replicated", [False, True])
def test_what_was_synced_and_is_gone_is_not_given_out_again(is_replicated: bool) -> None:
    bench = LogBench(settings=replace(SMALL, segment_bytes=10_000), is_replicated=is_replicated)
    for number in range(6):
        bench.append(b"%d" % number)
    bench.flush()
    bench.manager.write_checkpoints()
    bench.append(b"not synced")
    bench.log.roll()
    lose_end(bench, 0, LOST)
    again = bench.reopen()
    assert again.log.end_offset == 7
    assert again.log.damaged_from == LOST
    assert again.append(b"next").base_offset == 7


@pytest.mark.parametrize("is_replicated", [False, True])
def test_offsets_that_compaction_took_from_the_end_of_a_segment_are_not_missed(is_replicated: bool) -> None:
    settings = replace(SMALL, segment_bytes=250, cleanup_policy=("compact",), min_cleanable_dirty_ratio=0.0)
    bench = LogBench(settings=settings, is_replicated=is_replicated)
    for key in (b"a", b"b", b"b", b"c", b"d"):
        bench.append(b"v" * 40, key=key)
    assert [segment.base_offset for segment in bench.log.segments] == [0, 2, 4]
    bench.flush()
    drive(Cleaner(lambda: [bench.log], clock=bench.clock, run=inline).compact_dirtiest())
    left = [0, 2, 3, 4]
    assert offsets_of(bench) == left
    assert [segment.base_offset for segment in bench.log.segments] == [0, 2, 4]
    again = bench.reopen(bench.disk.after_process_kill())  # type: ignore[attr-defined]
    assert offsets_of(again) == left
    assert again.log.damaged_from is None


def test_a_follower_leaves_no_gap_between_segments_where_its_leader_has_one_between_offsets() -> None:
    bench = LogBench(settings=replace(SMALL, segment_bytes=100), is_replicated=True)
    for offset in (0, 7):
        bench.log.append_replicated(build_batch([Record(0, 0, None, b"y" * 40)], base_offset=offset, leader_epoch=0))
    assert [segment.base_offset for segment in bench.log.segments] == [0, 1]
    again = bench.reopen()
    assert offsets_of(again) == [0, 7]
    assert again.log.damaged_from is None


def after_reboot(bench: LogBench, settings: TopicSettings | None = None) -> LogBench:
    """The log after the machine was restarted, with what its disk has now."""
    disk = bench.disk
    assert isinstance(disk, ModelDisk)
    again = disk.after_process_kill()
    again.boots += 1
    return LogBench(again, settings or bench.settings, is_replicated=bench.is_replicated)


def test_after_a_power_failure_the_only_replica_ends_where_unsynced_bytes_are_missing(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Its producer got no answer for any of it, and sends all of it again: it must not find its later batches."""
    bench = bench_with_segments(is_replicated=False)
    lose_end(bench, 0, LOST)
    again = after_reboot(bench)
    assert offsets_of(again) == list(range(LOST))
    assert again.log.damaged_from is None, "nothing that was acknowledged is lost"
    assert "nothing from there on was acknowledged" in caplog.text
    assert names_of(again, ".corrupt") == [path_of(again, 8).name + ".corrupt", path_of(again, 16).name + ".corrupt"]
    assert again.append(b"5", producer=1, sequence=LOST).base_offset == LOST
    assert offsets_of(again.reopen()) == list(range(LOST + 1))


def test_a_page_that_is_missing_in_the_middle_of_a_file_ends_the_log_as_well() -> None:
    bench = bench_with_segments(is_replicated=False)
    disk = bench.disk
    assert isinstance(disk, ModelDisk)
    position = next(at for at, header in bench.log.segments[1].headers() if header.base_offset == 10)
    disk.damage(path_of(bench, 8), position, bytes(70))
    again = after_reboot(bench)
    assert offsets_of(again) == list(range(10))
    assert again.log.damaged_from is None
    assert path_of(again, 8).name + ".corrupt" in names_of(again, ".corrupt")
    assert again.append(b"10", producer=1, sequence=10).base_offset == 10


def test_flipped_bits_leave_a_gap_after_a_power_failure_too() -> None:
    """They were written: what comes after them may have been acknowledged."""
    bench = bench_with_segments(is_replicated=False)
    disk = bench.disk
    assert isinstance(disk, ModelDisk)
    position = next(at for at, header in bench.log.segments[1].headers() if header.base_offset == 10)
    disk.damage(path_of(bench, 8), position + 62, b"!!")
    again = after_reboot(bench)
    assert offsets_of(again) == [*range(10), *range(11, 20)]
    assert again.log.damaged_from == 10


def test_what_was_synced_stays_after_a_power_failure_whatever_is_damaged() -> None:
    """Below the recovery point nothing can be unsynced: that is damage, and leaves a gap."""
    bench = bench_with_segments(is_replicated=False)
    bench.flush()
    bench.manager.write_checkpoints()
    lose_end(bench, 0, LOST)
    again = after_reboot(bench)
    assert offsets_of(again) == [0, 1, 2, 3, 4, *range(8, 20)]


def test_what_the_page_cache_had_was_acknowledged_with_flush_policy_os() -> None:
    bench = bench_with_segments(is_replicated=False)
    lose_end(bench, 0, LOST)
    again = after_reboot(bench, replace(bench.settings, flush_policy="os"))
    assert offsets_of(again) == [0, 1, 2, 3, 4, *range(8, 20)]
    assert again.log.damaged_from == LOST


def test_an_end_after_a_power_failure_may_be_interrupted_anywhere() -> None:
    bench = bench_with_segments(is_replicated=False)
    bench.flush()
    lose_end(bench, 1, 12)
    disk = bench.disk
    assert isinstance(disk, ModelDisk)
    disk = disk.after_process_kill()
    disk.boots += 1
    steps = len(bench.reopen(disk.after_process_kill()).disk.steps)  # type: ignore[attr-defined]
    for number in range(1, steps + 1):
        stopped = disk.after_process_kill()
        stopped.hook = stop_at(number)
        with pytest.raises(PowerLoss):
            bench.reopen(stopped)
        for left in (stopped.after_process_kill(), stopped.after_power_loss()):
            again = bench.reopen(left)
            assert offsets_of(again) == list(range(12))
            assert again.log.damaged_from is None
            assert path_of(again, 16).name + ".corrupt" in names_of(again, ".corrupt")
