"""A log whose disk fails, or whose batches are refused or damaged."""

import errno
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from struct import pack

import pytest
from tests.unit.storage.log_faults import fail_when, values

from headrace.model.errors import (
    DiskFull,
    LogClosed,
    StorageFailed,
)
from headrace.runtime.disk import OsDisk
from headrace.testing.disks import ModelDisk, TornWrite
from headrace.testing.logs import SMALL, LogBench


class TestTrouble:
    def test_a_full_disk_refuses_leaves_no_trace_and_goes_on_when_there_is_room(self) -> None:
        disk = ModelDisk()
        bench = LogBench(disk)
        bench.append(b"a", producer=5, sequence=0)
        bench.flush()
        size = bench.log.size_bytes
        disk.room_bytes = sum(disk.files(bench.folder).values()) + sum(disk.files(bench.root).values()) + 50
        for _ in range(3):
            with pytest.raises(DiskFull):
                bench.append(b"b" * 100, producer=5, sequence=1, epoch=1)
            assert disk.files(bench.folder)[bench.log.active.path.name] == size
        assert values(bench) == [b"a"]
        disk.room_bytes = None
        assert bench.append(b"b" * 100, producer=5, sequence=1, epoch=1).base_offset == 1
        bench.flush()
        assert bench.log.flushed_offset == 2

    def test_a_failed_write_that_cannot_be_undone_ends_writing(self) -> None:
        disk = ModelDisk()
        bench = LogBench(disk)
        bench.append(b"a")

        def hook(what: str, path: Path) -> None:
            if what in ("write", "truncate"):
                error = OSError(errno.EIO, "played")
                raise TornWrite(0.5, error) if what == "write" else error

        disk.hook = hook
        with pytest.raises(StorageFailed):
            bench.append(b"b")
        disk.hook = None
        with pytest.raises(StorageFailed):
            bench.append(b"b")
        assert values(bench) == [b"a"]
        assert values(bench.reopen()) == [b"a"]

    @pytest.mark.parametrize("error", [errno.EIO, errno.ENOSPC])
    def test_a_failed_sync_is_final(self, error: int) -> None:
        disk = ModelDisk()
        bench = LogBench(disk)
        bench.append(b"a")
        bench.flush()
        bench.append(b"b")
        disk.hook = fail_when("sync", ".log", error)
        ticket = bench.log.begin_flush()
        assert ticket is not None
        with pytest.raises(StorageFailed) as caught:
            ticket.sync()
        bench.log.fail(caught.value)
        disk.hook = None
        assert bench.log.flushed_offset == 1
        with pytest.raises(StorageFailed):
            bench.append(b"c")
        with pytest.raises(StorageFailed):
            bench.log.begin_flush()
        assert values(bench) == [b"a", b"b"], "reads go on"
        bench.manager.stop()
        assert not bench.reopen().manager.was_clean

    def test_no_room_for_the_epoch_checkpoint_is_not_final(self) -> None:
        disk = ModelDisk()
        bench = LogBench(disk)
        bench.append(b"a", epoch=3)
        disk.hook = fail_when("write", "checkpoint.tmp", errno.ENOSPC)
        with pytest.raises(DiskFull):
            bench.flush()
        assert bench.log.flushed_offset == 0
        disk.hook = None
        bench.flush()
        assert bench.log.flushed_offset == 1

    def test_no_room_for_indexes_and_snapshots_does_not_matter(self) -> None:
        disk = ModelDisk()
        bench = LogBench(disk)

        def hook(what: str, path: Path) -> None:
            if what == "write" and ("index" in path.name or "snapshot" in path.name):
                raise OSError(errno.ENOSPC, "played")

        disk.hook = hook
        for i in range(40):
            bench.append(b"%d" % i * 20)
        bench.flush()
        expected = values(bench)
        assert len(expected) == 40
        bench.manager.write_checkpoints()
        disk.hook = None
        again = bench.reopen(disk.after_power_loss())
        assert values(again) == expected
        assert len(again.log.segments[0].offsets) > 0

    def test_too_many_open_files_pass_by_themselves(self) -> None:
        disk = ModelDisk()
        bench = LogBench(disk)
        bench.append(b"x" * 800)
        disk.hook = fail_when("create", ".log", errno.EMFILE)
        with pytest.raises(DiskFull, match="ulimit"):
            bench.append(b"y" * 800)
        disk.hook = None
        bench.append(b"y" * 800)
        assert len(values(bench)) == 2

    def test_a_file_that_cannot_be_read_is_a_storage_failure_of_that_read(self, tmp_path: Path) -> None:
        bench = LogBench(OsDisk(), root=tmp_path)
        for _ in range(20):
            bench.append(b"x" * 60)
        bench = bench.reopen_cleanly()
        (bench.folder / "00000000000000000000.log").rename(tmp_path / "elsewhere")
        with pytest.raises(StorageFailed):
            bench.log.slice(3, 100, 20, at_least_one=True)
        bench.append(b"writing goes on")
        bench.manager.stop()

    def test_a_search_by_time_in_a_log_that_goes_away_or_cannot_be_read_says_so(self, tmp_path: Path) -> None:
        for expected in (StorageFailed, LogClosed):
            root = tmp_path / expected.__name__
            root.mkdir()
            bench = LogBench(OsDisk(), root=root)
            for _ in range(20):
                bench.append(b"x" * 60)
            bench = bench.reopen_cleanly()
            if expected is StorageFailed:
                (bench.folder / "00000000000000000000.log").rename(root / "elsewhere")
            else:
                bench.log.delete()
            with pytest.raises(expected):
                bench.log.offset_for_time(1, 20)
            with pytest.raises(expected):
                bench.log.max_timestamp(20)

    @pytest.mark.parametrize(("step", "suffix"), [("sync-dir", "orders-0"), ("create", ".snapshot.tmp")])
    def test_too_many_open_files_are_no_failed_sync(self, step: str, suffix: str) -> None:
        """A flood of connections may take all there are: that must not end all writing."""
        disk = ModelDisk()
        bench = LogBench(disk)
        bench.append(b"x" * 800)
        bench.append(b"y" * 800)
        disk.hook = fail_when(step, suffix, errno.EMFILE)
        with suppress(DiskFull):
            bench.flush()
        disk.hook = None
        bench.flush()
        assert bench.log.flushed_offset == 2
        assert values(bench.reopen(disk.after_power_loss())) == values(bench)

    def test_a_search_by_time_mends_no_index(self) -> None:
        """It runs beside appends and reads, which would see a segment that is being indexed as an empty one."""
        disk = ModelDisk()
        bench = LogBench(disk)
        for i in range(40):
            bench.append(b"x" * 60, timestamp=1000 + i)
        bench = bench.reopen_cleanly()
        segment = bench.log.segments[0]
        damaged = b"".join(pack(">ii", i, 13) for i in range(len(segment.offsets)))
        disk.damage(segment.offsets.path, 0, damaged)
        newest = segment.next_offset
        assert bench.log.max_timestamp(newest) == (newest - 1, 1000 + newest - 1, 0)
        assert disk.read_bytes(segment.offsets.path) == damaged
        assert [record.offset for record in bench.records(3)] == list(range(3, 40))
        assert disk.read_bytes(segment.offsets.path) != damaged

    def test_closing_tells_nobody_of_the_flush(self) -> None:
        """It runs in a thread of its own, and whoever waits belongs to the event loop."""
        bench = LogBench()
        told: list[int] = []
        bench.log.on_flushed = lambda log: told.append(log.flushed_offset)
        bench.append(b"x")
        bench.log.close()
        assert (bench.log.flushed_offset, told) == (1, [])

    @pytest.mark.parametrize("index", [".index", ".timeindex"])
    def test_no_room_for_the_rest_of_an_index_keeps_closed_segments_readable(self, index: str) -> None:
        """What was in the file of an index before must not get lost when the file goes."""
        disk = ModelDisk()
        bench = LogBench(disk, settings=replace(SMALL, segment_bytes=80_000, index_interval_bytes=1))
        while len(bench.log.segments) == 1:
            if len(bench.log.active.offsets) == 600:
                # One page of the index is in its file, the rest in memory.
                disk.hook = fail_when("write", index, errno.ENOSPC)
            bench.append(b"%d" % bench.log.end_offset, timestamp=bench.log.end_offset)
        disk.hook = None
        bench.flush()
        end = bench.log.end_offset
        for offset in (0, 5, 300, 599, 700, end - 2):
            assert [r.offset for r in bench.records(offset)] == list(range(offset, end))
            assert bench.log.offset_for_time(offset, end) == (offset, offset, 0)
        again = bench.reopen(disk.after_power_loss())
        assert [r.offset for r in again.records()] == list(range(end))
