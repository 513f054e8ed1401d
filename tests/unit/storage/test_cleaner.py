"""Compaction of real logs, on a disk in memory."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.unit.storage.cleaner_bench import COMPACT, DAY, DELETE, FOLDER, Bench, names

from headrace.records.batch import check_batch
from headrace.records.builder import build_batch
from headrace.records.reader import Record
from headrace.storage.cleaner import CHECKPOINT, Cleaner
from headrace.testing.disks import ModelDisk
from headrace.testing.inline_cleaner import drive, inline


def test_only_the_last_value_of_each_key_stays() -> None:
    bench = Bench()
    for number in range(30):
        bench.put((f"key-{number % 3}", f"value-{number}"), ("other", str(number)))
    bench.roll()
    bench.put(("key-0", "active"))
    done = bench.compact()
    assert done is not None
    assert (done.clean_until, done.records_read, done.records_retained) == (60, 60, 4)
    assert done.bytes_after < done.bytes_before
    assert bench.items() == [
        (54, "key-0", "value-27"), (56, "key-1", "value-28"), (58, "key-2", "value-29"), (59, "other", "29"),
        (60, "key-0", "active"),
    ]  # fmt: skip
    assert bench.compact() is None


def test_segments_are_merged_and_the_active_one_is_left_alone() -> None:
    bench = Bench()
    for number in range(200):
        bench.put((f"key-{number % 5}", "v" * 50))
    assert len(bench.log.segments) > 10
    active = bench.log.active
    bench.flush()
    bench.compact()
    assert len(bench.log.segments) <= 3
    assert bench.log.active is active
    assert {n for n in names(bench) if n.endswith((".cleaned", ".swap", ".deleted"))} == set()
    assert sum(n.endswith(".log") for n in names(bench)) == len(bench.log.segments)


def test_a_log_reads_the_same_after_it_was_closed_and_opened() -> None:
    bench = Bench()
    for number in range(100):
        bench.put((f"key-{number % 7}", f"value-{number}"))
    bench.flush()
    bench.compact()
    before, end = bench.records(), bench.log.end_offset
    bench.reopen()
    assert (bench.records(), bench.log.end_offset) == (before, end)
    assert bench.compact() is None


def test_what_is_not_on_disk_does_not_replace_what_is() -> None:
    bench = Bench()
    bench.put(("key", "old"))
    bench.roll()
    bench.put(("key", "new"))
    bench.log.roll()
    bench.compact()
    assert [value for _, _, value in bench.items()] == ["old", "new"]
    bench.flush()
    bench.compact()
    assert [value for _, _, value in bench.items()] == ["new"]


def test_tombstones_stay_for_a_day_and_then_go() -> None:
    bench = Bench()
    bench.put(("gone", "x"), ("kept", "y"))
    bench.put(("gone", None))
    bench.roll()
    bench.compact()
    assert bench.items() == [(1, "kept", "y"), (2, "gone", None)]
    bench.clock.advance(DAY - 1)
    assert bench.compact() is None
    bench.clock.advance(1)
    assert bench.compact() is not None
    assert bench.items() == [(1, "kept", "y")]
    bench.clock.advance(10 * DAY)
    assert bench.compact() is None


def test_tombstones_are_remembered_when_the_log_is_opened_again() -> None:
    bench = Bench()
    bench.put(("gone", "x"))
    bench.put(("gone", None))
    bench.roll()
    bench.compact()
    bench.reopen()
    assert bench.compact() is None
    bench.clock.advance(DAY)
    assert bench.compact() is not None
    assert bench.items() == []


def test_dirty_ratio() -> None:
    bench = Bench(replace(COMPACT, min_cleanable_dirty_ratio=0.5))
    for number in range(20):
        bench.put((f"key-{number}", "v" * 40))
    bench.roll()
    assert bench.compact() is not None
    bench.put(("key-1", "v" * 40))
    bench.roll()
    assert bench.compact() is None
    for number in range(20):
        bench.put((f"key-{number}", "v" * 40))
    bench.roll()
    assert bench.compact() is not None


def test_min_compaction_lag_keeps_young_records() -> None:
    bench = Bench(replace(COMPACT, min_compaction_lag_ms=60_000))
    bench.put(("key", "1"), ("key", "2"))
    bench.roll()
    assert bench.compact() is None
    bench.clock.advance(60_001)
    assert bench.compact() is not None
    assert bench.items() == [(1, "key", "2")]


def test_max_compaction_lag_cleans_whatever_the_ratio_and_rolls_for_it() -> None:
    bench = Bench(replace(COMPACT, min_cleanable_dirty_ratio=1.0, max_compaction_lag_ms=60_000))
    bench.put(("key", "1"), ("key", "2"))
    assert bench.compact() is None
    bench.clock.advance(60_001)
    bench.compact()
    bench.flush()
    assert bench.compact() is not None
    assert bench.items() == [(1, "key", "2")]


def test_several_passes_where_memory_for_keys_is_short() -> None:
    bench = Bench()
    bench.cleaner = bench.make_cleaner(dedupe_buffer_bytes=240 * 10)
    for number in range(100):
        bench.put((f"key-{number % 50}", f"value-{number}"))
    bench.roll()
    passes = 0
    while (done := bench.compact()) is not None:
        assert done.clean_until > done.first_dirty
        passes += 1
    assert passes > 3
    assert bench.items() == [(n, f"key-{n - 50}", f"value-{n}") for n in range(50, 100)]


def test_an_idempotent_producer_goes_on_after_its_records_are_gone() -> None:
    bench = Bench()
    for number in range(3):
        bench.put(("key", str(number)), producer_id=5, producer_epoch=0, base_sequence=number)
    bench.put(("key", "last"))
    bench.roll()
    bench.compact()
    assert [value for _, _, value in bench.items()] == ["last"]
    for name in names(bench):
        if name.endswith(".snapshot"):
            bench.disk.unlink(FOLDER / name)
    bench.log = bench.open(COMPACT)
    again = build_batch([Record(0, 0, b"key", b"2")], producer_id=5, producer_epoch=0, base_sequence=2)
    result = bench.log.append(again, check_batch(again), 0)
    assert (result.duplicate, result.base_offset) == (True, 2)


def test_offsets_in_gaps_lead_to_the_next_record() -> None:
    bench = Bench()
    for number in range(60):
        bench.put(("same", f"value-{number}"))
    bench.put(("other", "x"))
    bench.roll()
    bench.compact()
    for offset in (0, 17, 59):
        found = bench.log.slice(offset, 10_000, bench.log.end_offset, at_least_one=True)
        assert found is not None
        assert found.first_batch_offset == 59


def test_time_lookups_after_compaction() -> None:
    bench = Bench()
    start = bench.clock.wall_ms()
    for number in range(40):
        bench.put((f"key-{number % 20}", "v"))
        bench.clock.advance(1000)
    bench.roll()
    bench.compact()
    found = bench.log.offset_for_time(start + 5_000)
    assert found is not None
    assert (found.offset, found.timestamp) == (20, start + 20_000)
    newest = bench.log.max_timestamp()
    assert newest is not None
    assert newest.offset == 39


def test_a_damaged_log_is_left_alone(caplog: pytest.LogCaptureFixture) -> None:
    bench = Bench()
    bench.put(("key", "1"))
    bench.put(("key", "2"))
    bench.roll()
    before = dict(bench.disk.files(FOLDER))
    assert isinstance(bench.disk, ModelDisk)
    bench.disk.damage(FOLDER / f"{0:020d}.log", 70, b"\xff")
    assert bench.compact() is None
    assert "cannot be compacted" in caplog.text
    assert bench.disk.files(FOLDER) == before
    caplog.clear()
    assert bench.compact() is None
    assert "cannot be compacted" not in caplog.text


@pytest.mark.parametrize("what_is_wrong", ["damaged", "gone"])
def test_a_log_whose_need_cannot_be_told_does_not_keep_the_others_from_being_compacted(what_is_wrong: str) -> None:
    """It may be deleted just then. The task that asks must not end with it: no log would ever be compacted again."""
    disk = ModelDisk()
    benches = []
    for folder in (Path("/data/broken-0"), Path("/data/prices-0")):
        disk.make_dir(folder)
        bench = Bench(replace(COMPACT, max_compaction_lag_ms=DAY), disk, folder)
        for number in range(30):
            bench.put(("key", f"value-{number}"))
        bench.roll()
        bench.reopen()
        benches.append(bench)
    broken, sound = benches
    path = broken.log.segments[0].path
    if what_is_wrong == "gone":
        disk.unlink(path)
    else:
        disk.damage(path, 16, b"\7")
    broken.log.segments[0].forget_files()
    broken.log.segments[0].first_timestamp = None
    cleaner = Cleaner(lambda: [broken.log, sound.log], clock=sound.clock, run=inline)
    assert drive(cleaner.compact_dirtiest()) is not None
    assert [value for _, _, value in sound.items()] == ["value-29"]
    assert drive(cleaner.compact_dirtiest()) is None


def test_a_full_disk_only_puts_compaction_off() -> None:
    bench = Bench()
    for number in range(30):
        bench.put((f"key-{number % 10}", "v" * 30))
    bench.roll()
    before = bench.records()
    assert isinstance(bench.disk, ModelDisk)
    bench.disk.room_bytes = sum(bench.disk.files(FOLDER).values()) + 100
    assert bench.compact() is None
    assert bench.records() == before
    bench.disk.room_bytes = None
    assert bench.compact() is not None
    assert len(bench.records()) == 10


@pytest.mark.parametrize("step", range(12))
def test_records_deleted_meanwhile_do_not_come_back(step: int) -> None:
    bench = Bench()
    for number in range(60):
        bench.put((f"key-{number}", "v" * 30))
    bench.roll()
    steps = 0

    async def run(work: Callable[[], Any]) -> Any:
        nonlocal steps
        if steps == step:
            bench.log.advance_start(55)
        steps += 1
        return work()

    bench.cleaner = Cleaner(lambda: [bench.log], clock=bench.clock, run=run)
    bench.compact()
    assert [record.offset for record in bench.records()] == list(range(55, 60))
    assert (bench.log.start_offset, bench.log.end_offset) == (55, 60)
    bench.cleaner = bench.make_cleaner()
    bench.put((f"key-{step}", "again"))
    bench.roll()
    assert bench.compact() is not None
    bench.reopen()
    assert bench.records()[-1].key == f"key-{step}".encode()
    assert {record.offset for record in bench.records() if record.offset >= 55} == set(range(55, 61))


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("step", range(5))
def test_a_truncation_meanwhile_ends_the_compaction(step: int, when: str) -> None:
    """A follower that adopts another history has the segment of before with other records in it, and the records that
    superseded those below are gone."""
    bench = Bench()
    for number in range(8):
        bench.put((f"key-{number % 3}", "v" * 30))
    bench.roll()
    steps = 0

    def adopt_another_history() -> None:
        bench.log.truncate_to(5)
        for number in range(5, 8):
            bench.put((f"new-{number}", "w" * 30))
        bench.roll()

    async def run(work: Callable[[], Any]) -> Any:
        nonlocal steps
        if steps == step and when == "before":
            adopt_another_history()
        found = work()
        if steps == step and when == "after":
            adopt_another_history()
        steps += 1
        return found

    bench.cleaner = Cleaner(lambda: [bench.log], clock=bench.clock, run=run)
    bench.compact()
    assert steps > step
    last = {(4, "key-1"), (3, "key-0"), (2, "key-2"), (5, "new-5"), (6, "new-6"), (7, "new-7")}
    assert last <= {(offset, key) for offset, key, _ in bench.items()}
    bench.reopen()
    assert last <= {(offset, key) for offset, key, _ in bench.items()}


def test_a_checkpoint_of_another_history_is_not_believed() -> None:
    bench = Bench()
    bench.put(("key", "1"), ("key", "2"))
    bench.roll()
    bench.compact()
    assert bench.disk.read_bytes(FOLDER / CHECKPOINT) == b"0\n2 0 -1\n"
    bench.log.truncate_to(0)
    batch = build_batch([Record(0, 0, b"key", b"3"), Record(0, 0, b"key", b"4"), Record(0, 0, b"key", b"5")])
    bench.log.append(batch, check_batch(batch), 1)
    bench.roll()
    bench.cleaner = bench.make_cleaner()
    bench.compact()
    assert bench.items() == [(2, "key", "5")]


def test_delete_only_topics_are_not_compacted() -> None:
    bench = Bench(DELETE)
    bench.put(("key", "1"), ("key", "2"))
    bench.roll()
    assert bench.compact() is None
