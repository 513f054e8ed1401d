"""Retention and compaction on real logs, on a disk in memory or a real one."""

import asyncio
import errno
import threading
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from headrace.config.topic import TopicSettings
from headrace.records.batch import check_batch
from headrace.records.builder import build_batch
from headrace.records.reader import Record, iter_records
from headrace.runtime.clock import ManualClock
from headrace.runtime.disk import Disk, OsDisk
from headrace.storage.batches import read_batches
from headrace.storage.cleaner import CHECKPOINT, Cleaned, Cleaner, drive, inline
from headrace.storage.log import Log
from headrace.storage.structure import LogStructure
from headrace.testing.disks import ModelDisk

DAY = 86_400_000
FOLDER = Path("/data/prices-0")
COMPACT = TopicSettings(cleanup_policy=("compact",), segment_bytes=1000, min_cleanable_dirty_ratio=0.0)
DELETE = TopicSettings(segment_bytes=1000)


class Bench:
    """One log and a cleaner for it, at a clock that is turned by hand."""

    def __init__(self, settings: TopicSettings = COMPACT, disk: Disk | None = None, folder: Path = FOLDER) -> None:
        self.clock = ManualClock()
        self.folder = folder
        if disk is None:
            disk = ModelDisk()
            disk.make_dir(folder)
        self.disk = disk
        self.recovery_point = 0
        self.log = self.open(settings)
        self.cleaner = self.make_cleaner()

    def make_cleaner(self, **options: Any) -> Cleaner:
        return Cleaner(lambda: [self.log], clock=self.clock, run=inline, **options)

    def open(self, settings: TopicSettings) -> Log:
        return Log.open(
            self.folder, settings, disk=self.disk, clock=self.clock, clean=False,
            recovery_point=self.recovery_point, producer_expiry_ms=DAY, persist=self._persist,
        )  # fmt: skip

    def _persist(self, log: LogStructure) -> None:
        self.recovery_point = log.flushed_offset

    def reopen(self) -> None:
        self.log.close()
        self.log = self.open(self.log.settings)
        self.cleaner = self.make_cleaner()

    def put(self, *items: tuple[str, str | None], timestamp: int | None = None, **options: Any) -> None:
        now = self.clock.wall_ms() if timestamp is None else timestamp
        records = [Record(0, now, key.encode(), None if value is None else value.encode()) for key, value in items]
        batch = build_batch(records, **options)
        self.log.append(batch, check_batch(batch), 0)

    def flush(self) -> None:
        ticket = self.log.begin_flush()
        if ticket is not None:
            ticket.sync()
            self.log.complete_flush(ticket)

    def roll(self) -> None:
        self.log.roll()
        self.flush()

    def compact(self) -> Cleaned | None:
        return drive(self.cleaner.compact_dirtiest())

    def retain(self) -> int:
        return drive(self.cleaner.apply_retention())

    def records(self) -> list[Record]:
        return list(read_log(self.log))

    def items(self) -> list[tuple[int, str, str | None]]:
        return [
            (record.offset, (record.key or b"").decode(), None if record.value is None else record.value.decode())
            for record in self.records()
        ]


def read_log(log: Log) -> Iterable[Record]:
    """What a consumer sees that fetches from the start to the end."""
    offset = log.start_offset
    while (found := log.slice(offset, 300, log.end_offset, at_least_one=True)) is not None:
        for batch in read_batches(found.file, found.position, found.position + found.length):
            for record in iter_records(batch.data):
                if record.offset >= offset:
                    yield record
            offset = batch.header.next_offset


def names(bench: Bench) -> set[str]:
    return set(bench.disk.files(bench.folder))


# Compaction


def test_only_the_last_value_of_each_key_stays() -> None:
    bench = Bench()
    for number in range(30):
        bench.put((f"key-{number % 3}", f"value-{number}"), ("other", str(number)))
    bench.roll()
    bench.put(("key-0", "active"))
    done = bench.compact()
    assert done is not None
    assert (done.clean_until, done.records_read, done.records_kept) == (60, 60, 4)
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


# Retention


def test_retention_by_time() -> None:
    bench = Bench(replace(DELETE, retention_ms=DAY))
    bench.put(("a", "1"))
    bench.roll()
    bench.clock.advance(DAY // 2)
    bench.put(("b", "2"))
    bench.roll()
    assert bench.retain() == 0
    bench.clock.advance(DAY // 2 + 1)
    assert bench.retain() == 1
    assert bench.log.start_offset == 1
    assert bench.items() == [(1, "b", "2")]


def test_a_lone_active_segment_past_retention_goes_too() -> None:
    bench = Bench(replace(DELETE, retention_ms=DAY))
    bench.put(("a", "1"))
    bench.flush()
    bench.clock.advance(DAY + 1)
    assert bench.retain() == 1
    assert (bench.log.start_offset, bench.log.end_offset, bench.records()) == (1, 1, [])
    bench.put(("b", "2"))
    assert bench.items() == [(1, "b", "2")]
    bench.reopen()
    assert bench.items() == [(1, "b", "2")]


@pytest.mark.parametrize("is_power_lost", [False, True])
def test_a_producer_whose_records_are_all_gone_is_known_after_a_crash(is_power_lost: bool) -> None:
    """Else what it sends again, not knowing that it was taken, would be taken a second time."""
    bench = Bench(replace(DELETE, retention_ms=1000))
    bench.put(("a", "1"), producer_id=7, producer_epoch=0, base_sequence=0)
    bench.flush()
    bench.clock.advance(1001)
    assert bench.retain() == 1
    assert isinstance(bench.disk, ModelDisk)
    bench.disk = bench.disk.after_power_loss() if is_power_lost else bench.disk.after_process_kill()
    bench.log = bench.open(bench.log.settings)
    assert bench.log.end_offset == 1
    bench.put(("a", "1"), producer_id=7, producer_epoch=0, base_sequence=0)
    assert bench.log.end_offset == 1
    bench.put(("a", "2"), producer_id=7, producer_epoch=0, base_sequence=1)
    assert bench.log.end_offset == 2


def test_what_is_closed_goes_even_where_there_is_no_room_to_close_the_active_segment() -> None:
    """Else a full disk would stay full."""
    bench = Bench(replace(DELETE, retention_ms=DAY))
    for number in range(30):
        bench.put(("key", f"value-{number}"))
    bench.flush()
    closed = len(bench.log.segments) - 1
    bench.clock.advance(2 * DAY)

    def hook(step: str, path: Path) -> None:
        if step == "create":
            raise OSError(errno.ENOSPC, "played")

    assert isinstance(bench.disk, ModelDisk)
    bench.disk.hook = hook
    assert bench.retain() == closed > 0
    assert len(bench.log.segments) == 1


def test_retention_by_size() -> None:
    bench = Bench(DELETE)
    for number in range(60):
        bench.put(("key", f"{number:050}"))
    bench.flush()
    sizes = [segment.size for segment in bench.log.segments]
    assert bench.retain() == 0
    bench.log.settings = replace(DELETE, retention_bytes=sum(sizes[2:]))
    assert bench.retain() == 2
    assert bench.log.size_bytes == sum(sizes[2:])
    bench.log.settings = replace(DELETE, retention_bytes=sum(sizes[3:]) + 1)
    assert bench.retain() == 0
    bench.log.settings = replace(DELETE, retention_bytes=0)
    assert bench.retain() == len(sizes) - 3
    assert len(bench.log.segments) == 1
    assert bench.records() != []


def test_records_that_come_in_while_retention_looks_are_not_taken_for_old() -> None:
    bench = Bench(replace(DELETE, retention_ms=DAY))
    bench.put(("a", "1"))
    bench.flush()
    bench.clock.advance(DAY + 1)

    async def run(work: Callable[[], Any]) -> Any:
        result = work()
        bench.put(("fresh", "2"))
        return result

    bench.cleaner = Cleaner(lambda: [bench.log], clock=bench.clock, run=run)
    bench.retain()
    assert (1, "fresh", "2") in bench.items()


def test_records_that_wait_for_their_acknowledgement_stay() -> None:
    bench = Bench(replace(DELETE, retention_ms=DAY))
    bench.put(("a", "1"), timestamp=0)
    assert bench.retain() == 0
    bench.flush()
    assert bench.retain() == 1


def test_segments_without_any_timestamp_count_from_when_they_were_opened() -> None:
    bench = Bench(replace(DELETE, retention_ms=DAY))
    bench.put(("a", "1"), timestamp=-1)
    bench.roll()
    bench.clock.advance(DAY // 2)
    bench.reopen()
    assert bench.retain() == 0
    bench.clock.advance(DAY // 2 + 1)
    assert bench.retain() == 0
    bench.clock.advance(DAY)
    assert bench.retain() == 1


def test_no_retention_without_end() -> None:
    bench = Bench(replace(DELETE, retention_ms=-1, retention_bytes=-1))
    bench.put(("a", "1"))
    bench.roll()
    bench.clock.advance(1000 * DAY)
    assert bench.retain() == 0


def test_compacted_topics_are_not_cut_but_may_be_both() -> None:
    bench = Bench(replace(COMPACT, retention_ms=DAY))
    bench.put(("a", "1"))
    bench.roll()
    bench.clock.advance(2 * DAY)
    assert bench.retain() == 0
    bench.log.settings = replace(COMPACT, cleanup_policy=("compact", "delete"), retention_ms=DAY)
    assert bench.retain() == 1


def test_segments_before_a_start_offset_in_the_middle_stay_until_all_of_them_is_before_it() -> None:
    bench = Bench(DELETE)
    bench.put(("a", "1"))
    bench.put(("a", "2"))
    bench.log.advance_start(1)
    assert bench.retain() == 0
    assert len(bench.log.segments) == 1
    assert [offset for offset, _, _ in bench.items()] == [1]


# In the background, with threads and a real disk


def test_appends_and_reads_go_on_while_a_log_is_compacted(tmp_path: Path) -> None:
    folder = tmp_path / "prices-0"
    folder.mkdir()
    bench = Bench(replace(COMPACT, segment_bytes=20_000), OsDisk(), folder)
    for number in range(3000):
        bench.put((f"key-{number % 100}", f"value-{number}"))
    bench.flush()
    loop_thread = threading.get_ident()
    threads: set[int] = set()

    async def run(work: Callable[[], Any]) -> Any:
        def noted() -> Any:
            threads.add(threading.get_ident())
            return work()

        return await asyncio.to_thread(noted)

    async def main() -> None:
        cleaner = Cleaner(lambda: [bench.log], clock=bench.clock, run=run, backoff_ms=1, threads=2)
        held = bench.log.slice(0, 10_000, bench.log.end_offset, at_least_one=True)
        assert held is not None
        expected = held.file.read(held.position, held.length)
        cleaner.start()
        number = 3000
        while len(bench.log.segments) > 4:
            bench.put((f"key-{number % 100}", f"value-{number}"))
            number += 1
            latest = {record.key: record.value for record in bench.records()}
            assert latest[f"key-{(number - 1) % 100}".encode()] == f"value-{number - 1}".encode()
            assert len(latest) == 100
            assert bench.log.offset_for_time(0) is not None
            await asyncio.sleep(0)
        assert held.file.read(held.position, held.length) == expected
        await cleaner.stop()

    asyncio.run(asyncio.wait_for(main(), 60))
    assert loop_thread not in threads
    before = bench.records()
    bench.reopen()
    assert bench.records() == before


async def is_busy(cleaner: Cleaner) -> None:
    while not cleaner.is_busy:  # noqa: ASYNC110 - there is no event for it, as only tests ask
        await asyncio.sleep(0)


def test_stop_gives_up_work_without_a_trace(tmp_path: Path) -> None:
    folder = tmp_path / "prices-0"
    folder.mkdir()
    bench = Bench(replace(COMPACT, segment_bytes=20_000), OsDisk(), folder)
    for number in range(1000):
        bench.put((f"key-{number % 10}", "v"))
    bench.roll()
    before = bench.records()

    async def main() -> None:
        cleaner = Cleaner(lambda: [bench.log], clock=bench.clock, io_max_bytes_per_s=1)
        cleaner.start()
        await is_busy(cleaner)
        await asyncio.wait_for(cleaner.stop(), 60)

    asyncio.run(main())
    assert bench.records() == before
    assert not any(name.endswith((".cleaned", ".swap")) for name in names(bench))


def test_a_log_deleted_under_compaction_ends_it(tmp_path: Path) -> None:
    folder = tmp_path / "prices-0"
    folder.mkdir()
    bench = Bench(replace(COMPACT, segment_bytes=20_000), OsDisk(), folder)
    for number in range(1000):
        bench.put((f"key-{number % 10}", "v"))
    bench.roll()

    async def main() -> None:
        cleaner = Cleaner(lambda: [bench.log], clock=bench.clock, io_max_bytes_per_s=1000)
        work = asyncio.create_task(cleaner.compact(bench.log))
        await is_busy(cleaner)
        bench.log.delete()
        assert await asyncio.wait_for(work, 60) is None

    asyncio.run(main())
    assert not folder.exists()
