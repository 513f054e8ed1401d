"""Which logs are opened by their summary, and that every other one is read."""

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from uuid import UUID

import pytest

from headrace.model.errors import CorruptBatch
from headrace.model.ids import BrokerId
from headrace.records.batch import check_batch
from headrace.runtime.clock import ManualClock
from headrace.runtime.disk import DiskFile, OsDisk
from headrace.storage.checkpoints import CLEAN_STOP, RECOVERY_POINTS
from headrace.storage.datadir import DataDir
from headrace.storage.manager import LogManager, WantedPartition
from headrace.storage.summary import LOG_SUMMARIES
from headrace.testing.disks import ModelDisk, PowerLoss, stop_at
from headrace.testing.logs import PARTITION, SMALL, LogBench

VALUES = [f"value {number}".encode().ljust(60, b".") for number in range(12)]
SUMMARIES = Path("/data") / LOG_SUMMARIES


def idle_log(disk: ModelDisk | None = None, *, is_replicated: bool = False) -> LogBench:
    """Several segments, all of it flushed, and a checkpoint behind that."""
    bench = LogBench(disk or ModelDisk(), is_replicated=is_replicated)
    for number, value in enumerate(VALUES):
        bench.append(value, producer=7, sequence=number, epoch=number // 4)
    bench.flush()
    bench.checkpoint()
    assert len(bench.log.segments) > 1
    return bench


def disk_of(bench: LogBench) -> ModelDisk:
    assert isinstance(bench.disk, ModelDisk)
    return bench.disk


def active_path(bench: LogBench) -> Path:
    return bench.log.active.path


def restarted(bench: LogBench, change: Callable[[ModelDisk], object] | None = None) -> LogBench:
    """Killed and started again, with something changed in between."""
    disk = disk_of(bench).after_process_kill()
    if change is not None:
        change(disk)
    return bench.reopen(disk)


def values(bench: LogBench) -> list[bytes | None]:
    return [record.value for record in bench.records()]


class ReadingDisk(ModelDisk):
    """Notes which files of partitions are opened."""

    opened: list[str]

    def open(self, path: Path, *, create: bool = False) -> DiskFile:
        if path.parent != self.root:
            self.opened.append(path.name)
        return super().open(path, create=create)


def reading_disk(bench: LogBench) -> ReadingDisk:
    """What a process that is killed now leaves."""
    disk = ReadingDisk()
    disk.__dict__.update(disk_of(bench).after_process_kill().__dict__)
    disk.opened = []
    return disk


class TestIdle:
    def test_is_opened_without_reading_or_syncing_anything_of_it(self) -> None:
        disk = reading_disk(idle_log())
        again = LogBench(disk)
        assert disk.opened == []
        assert disk.steps == [("sync-dir", "data")], "that of the data directory"
        assert values(again) == VALUES

    def test_also_if_only_its_oldest_segments_have_gone(self) -> None:
        bench = idle_log()
        bench.log.advance_start(bench.log.active.base_offset)
        bench.log.purge_deleted()
        bench.checkpoint()
        disk = reading_disk(bench)
        again = LogBench(disk)
        assert disk.opened == []
        assert values(again) == VALUES[bench.log.active.base_offset :]

    def test_knows_transactions_that_were_aborted_or_are_open(self) -> None:
        bench = LogBench()
        bench.append(b"aborted", producer=1, transactional=True)
        bench.end_transaction(1, committed=False)
        bench.append(b"open", producer=2, transactional=True)
        bench.flush()
        bench.checkpoint()
        again = restarted(bench)
        assert again.log.summary is not None
        assert list(again.log.aborted) == list(bench.log.aborted) != []
        assert again.log.stable_offset == 2

    def test_goes_on_where_it_was(self) -> None:
        again = restarted(idle_log())
        assert again.log.summary is not None
        assert again.log.flushed_offset == len(VALUES)
        duplicate = again.append(VALUES[-1], producer=7, sequence=11, epoch=2)
        assert (duplicate.duplicate, duplicate.base_offset) == (True, 11)
        assert again.append(b"next", producer=7, sequence=12, epoch=2).base_offset == 12
        assert again.log.epochs.entries() == [(0, 0), (1, 4), (2, 8)]
        again.flush()
        read = restarted(again)
        assert read.log.summary is None
        assert values(read) == [*VALUES, b"next"]

    def test_stays_so_over_several_kills(self) -> None:
        bench = idle_log()
        for _ in range(3):
            bench = restarted(bench)
            assert bench.log.summary is not None
            bench.checkpoint()
        assert values(bench) == VALUES

    def test_is_opened_so_after_a_clean_stop_even_if_the_machine_was_started_again(self) -> None:
        bench = idle_log()
        bench.append(b"last")
        bench.manager.stop()
        again = bench.reopen(disk_of(bench).after_power_loss())
        assert again.log.summary is not None
        assert values(again) == [*VALUES, b"last"]

    def test_an_empty_log_too(self) -> None:
        bench = LogBench()
        bench.checkpoint()
        again = restarted(bench)
        assert again.log.summary is not None
        assert again.append(b"first").base_offset == 0


class TestIsRead:
    """Whatever was done to the log or its checkpoints since the summary."""

    def test_when_something_was_appended_since(self) -> None:
        bench = idle_log()
        bench.append(b"acknowledged")
        bench.flush()
        again = restarted(bench)
        assert again.log.summary is None
        assert values(again) == [*VALUES, b"acknowledged"]

    def test_when_it_was_rolled_since(self) -> None:
        bench = idle_log()
        bench.log.roll()
        assert restarted(bench).log.summary is None
        bench.append(b"acknowledged")
        bench.flush()
        again = restarted(bench)
        assert again.log.summary is None
        assert values(again) == [*VALUES, b"acknowledged"]

    def test_when_it_was_rolled_since_and_is_too_small_for_an_index(self) -> None:
        """Nothing but the name of the new segment tells of what is in it."""
        bench = LogBench()
        bench.append(b"first")
        bench.flush()
        bench.checkpoint()
        bench.log.roll()
        bench.append(b"acknowledged")
        bench.flush()
        again = restarted(bench)
        assert again.log.summary is None
        assert values(again) == [b"first", b"acknowledged"]

    @pytest.mark.parametrize("share", [0.0, 0.3, 0.9])
    def test_when_an_append_was_torn(self, share: float) -> None:
        bench = idle_log()
        disk_of(bench).hook = stop_at(1, torn_share=share)
        with suppress(PowerLoss):
            bench.append(b"torn" * 20)
        again = restarted(bench)
        assert again.log.summary is None
        assert values(again) == VALUES
        assert again.log.damaged_from is None

    def test_when_bytes_were_added(self) -> None:
        bench = idle_log()
        again = restarted(bench, lambda disk: disk.open(active_path(bench)).append((b"garbage",)))
        assert again.log.summary is None
        assert values(again) == VALUES
        assert again.log.active.size == bench.log.active.size

    @pytest.mark.parametrize("is_replicated", [False, True])
    def test_when_bytes_are_missing_that_were_on_disk(self, is_replicated: bool) -> None:
        """A disk that has lied about a sync: the loss is named, and no offset given out again."""
        bench = idle_log(is_replicated=is_replicated)
        size = bench.log.active.size
        again = restarted(bench, lambda disk: disk.open(active_path(bench)).truncate(size - 10))
        assert again.log.summary is None
        assert values(again) == VALUES[:-1]
        assert again.log.damaged_from == len(VALUES) - 1
        assert again.append(b"next").base_offset == len(VALUES)

    def test_when_bytes_were_changed(self) -> None:
        bench = idle_log()
        again = restarted(bench, lambda disk: disk.damage(active_path(bench), 70, b"\xff"))
        assert again.log.summary is None
        assert again.log.damaged_from is not None
        assert [name for name in disk_of(again).files(again.folder) if ".corrupt" in name]

    def test_when_the_file_was_put_back_from_a_backup(self) -> None:
        bench = idle_log()

        def restore(disk: ModelDisk) -> None:
            data = disk.read_bytes(active_path(bench))
            disk.unlink(active_path(bench))
            disk.open(active_path(bench), create=True).append((data,))

        again = restarted(bench, restore)
        assert again.log.summary is None
        assert values(again) == VALUES

    def test_after_a_power_failure(self) -> None:
        bench = idle_log()
        again = bench.reopen(disk_of(bench).after_power_loss())
        assert again.log.summary is None
        assert values(again) == VALUES

    def test_where_no_boot_is_known(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(ModelDisk, "boot_id", lambda _: "")
        assert restarted(idle_log()).log.summary is None

    def test_when_the_volume_comes_back_without_what_was_not_synced(self) -> None:
        """In the same boot. The indexes that a summary counts on may be missing then."""
        bench = idle_log()
        disk = disk_of(bench).after_power_loss()
        disk.boots = disk_of(bench).boots
        again = bench.reopen(disk)
        assert again.log.summary is None
        assert values(again) == VALUES

    def test_when_the_clean_stop_was_an_earlier_one(self) -> None:
        bench = idle_log()
        bench.append(b"acknowledged")
        bench.flush()
        again = restarted(bench, lambda disk: disk.write_atomic(bench.root / CLEAN_STOP, b"{}"))
        assert again.log.summary is None
        assert values(again) == [*VALUES, b"acknowledged"]

    def test_when_its_recovery_point_is_missing_or_another(self) -> None:
        for points in (b"0\n0\n", b"0\n1\norders 0 11\n", b"damaged"):
            again = restarted(
                idle_log(),
                lambda disk, data=points: disk.write_atomic(disk.root / RECOVERY_POINTS, data),  # type: ignore[misc]
            )
            assert again.log.summary is None
            assert values(again) == VALUES

    def test_when_there_is_no_summary_or_none_that_can_be_read(self) -> None:
        bench = idle_log()
        whole = disk_of(bench).read_bytes(SUMMARIES)
        newer = whole.replace(b'"version":1', b'"version":2')
        for data in (b"", b"\n", b"[]\n[]", whole[:-1], whole.replace(b"orders", b"others"), newer, whole[50:]):
            again = restarted(bench, lambda disk, data=data: disk.write_atomic(SUMMARIES, data))  # type: ignore[misc]
            assert again.log.summary is None
            assert values(again) == VALUES
        assert restarted(bench, lambda disk: disk.unlink(SUMMARIES)).log.summary is None
        assert restarted(bench).log.summary is not None

    def test_when_the_topic_is_another_one_of_its_name(self) -> None:
        disk = disk_of(idle_log()).after_process_kill()
        manager = LogManager(DataDir(Path("/data"), "c", BrokerId(1)), disk=disk, clock=ManualClock())
        manager.start()
        assert not manager.open_logs({PARTITION: WantedPartition(UUID(int=8), SMALL)})
        assert manager.logs[PARTITION].end_offset == 0
        assert len(manager.strays) == 1

    def test_when_it_was_being_truncated(self) -> None:
        """At whatever step: no record is there that was to go and has come back with others behind it."""
        number = 0
        while True:
            number += 1
            bench = idle_log()
            disk_of(bench).hook = stop_at(number)
            try:
                bench.log.truncate_to(9)
            except PowerLoss:
                again = restarted(bench)
                assert values(again) in (VALUES, VALUES[:9])
                assert again.append(b"next").base_offset == len(values(again)) - 1
                continue
            break
        assert number > 3
        assert bench.log.summary is None
        assert restarted(bench).log.summary is None

    def test_when_an_index_it_counts_on_is_shorter(self) -> None:
        bench = idle_log()
        path = bench.log.active.offsets.path
        assert bench.log.active.offsets.stored_entries > 0
        for change in (lambda disk: disk.unlink(path), lambda disk: disk.open(path).truncate(0)):
            again = restarted(bench, change)
            assert again.log.summary is None
            assert values(again) == VALUES


class TestCaches:
    def test_an_index_of_a_closed_segment_is_made_anew(self) -> None:
        bench = idle_log()
        path = bench.log.segments[0].offsets.path
        for change in (lambda disk: disk.unlink(path), lambda disk: disk.open(path).truncate(9)):
            again = restarted(bench, change)
            assert again.log.summary is not None
            assert disk_of(again).read_bytes(path) == disk_of(bench).read_bytes(path)
            assert values(again) == VALUES

    def test_an_index_with_more_than_was_counted_is_cut(self) -> None:
        """Killed while it stopped: the index is newer than the summary."""
        bench = idle_log()
        active = bench.log.active
        again = restarted(bench, lambda disk: disk.open(active.times.path, create=True).append((bytes(12),)))
        assert again.log.summary is not None
        assert len(again.log.active.times) == len(active.times)
        assert values(again) == VALUES

    def test_files_that_an_interrupted_change_has_left_are_removed(self) -> None:
        bench = idle_log()
        left = bench.folder / "00000000000000000000.log.deleted"
        again = restarted(bench, lambda disk: disk.write_cache(left, b"old"))
        assert again.log.summary is not None
        assert left.name not in disk_of(again).files(again.folder)

    def test_bit_rot_is_found_by_those_who_read(self) -> None:
        """As after a clean stop, and as in closed segments: nothing but the bytes themselves tells of it."""
        bench = idle_log()
        again = restarted(bench, lambda disk: disk.damage(active_path(bench), 70, b"\xff", is_seen=False))
        assert again.log.summary is not None
        part = again.log.slice(again.log.active.base_offset, 10_000, again.log.end_offset, at_least_one=True)
        assert part is not None
        with pytest.raises(CorruptBatch):
            check_batch(part.file.read(part.position, part.length))


class TestSummarize:
    def test_says_nothing_of_a_log_that_is_not_all_on_disk_and_committed(self) -> None:
        bench = idle_log()
        assert bench.log.summary is not None
        bench.append(b"not flushed")
        bench.log.summarize()
        assert bench.log.summary is None
        bench.flush()
        bench.log.restore_high_watermark(bench.log.end_offset - 1)
        bench.log.summarize()
        assert bench.log.summary is None
        bench.log.advance_high_watermark(bench.log.end_offset)
        bench.log.summarize()
        assert bench.log.summary is not None

    def test_says_nothing_of_a_damaged_log(self) -> None:
        bench = idle_log()
        bench.log.note_damage(3)
        bench.append(b"more")
        bench.flush()
        bench.log.summarize()
        assert bench.log.summary is None

    def test_costs_nothing_while_nothing_changes(self) -> None:
        bench = idle_log()
        before, steps = bench.log.summary, len(disk_of(bench).steps)
        bench.checkpoint()
        assert bench.log.summary is before
        assert len(disk_of(bench).steps) == steps

    def test_leaves_out_a_log_with_a_crowd_of_producers(self) -> None:
        bench = LogBench()
        for producer in range(700):
            bench.append(b"v", producer=producer, sequence=0)
        bench.flush()
        bench.checkpoint()
        assert len(disk_of(bench).read_bytes(SUMMARIES)) < 1000
        assert restarted(bench).log.summary is None


def test_on_a_real_disk(tmp_path: Path) -> None:
    bench = LogBench(OsDisk(), root=tmp_path)
    for number, value in enumerate(VALUES):
        bench.append(value, producer=7, sequence=number)
    bench.flush()
    bench.checkpoint()
    again = bench.reopen()
    assert (again.log.summary is not None) == bool(OsDisk().boot_id())
    assert values(again) == VALUES
    again.append(b"next")
    again.flush()
    last = again.reopen()
    assert last.log.summary is None
    assert values(last) == [*VALUES, b"next"]


@pytest.mark.parametrize("is_flushed", [True, False])
def test_an_idle_log_drops_the_positions_of_its_batches(*, is_flushed: bool) -> None:
    bench = idle_log()
    bench.append(b"last")
    if is_flushed:
        bench.flush()
    bench.log.summarize()
    segments = bench.log._state.segments
    assert segments.positions, "it was written to since it was looked at before"
    bench.log.summarize()
    assert not segments.positions
    assert values(bench) == [*VALUES, b"last"]
    bench.append(b"more")
    assert len(segments.positions) == 1
    assert values(bench) == [*VALUES, b"last", b"more"]
    assert [record.value for record in bench.records(len(VALUES), 1)] == [b"last", b"more"]
