import asyncio
import errno
from dataclasses import replace
from pathlib import Path
from uuid import UUID

import pytest

from headrace.config.topic import TopicSettings
from headrace.model.errors import StartupError, StorageFailed
from headrace.model.features import FIRST_LEVEL, LATEST_LEVEL
from headrace.model.ids import BrokerId, PartitionIndex, TopicName, TopicPartition
from headrace.records.batch import read_header
from headrace.records.builder import build_batch
from headrace.records.reader import Record
from headrace.runtime.clock import ManualClock
from headrace.runtime.disk import FileStamp, OsDisk
from headrace.storage.datadir import DataDir
from headrace.storage.manager import LogManager, WantedPartition
from headrace.testing.disks import ModelDisk

ONE, TWO = UUID(int=1), UUID(int=2)
BATCH = build_batch([Record(0, 1000, None, b"value")])
HEADER = read_header(BATCH)
ROOT = Path("/data")


def partition(topic: str, index: int = 0) -> TopicPartition:
    return TopicPartition(TopicName(topic), PartitionIndex(index))


def manager(disk: ModelDisk) -> LogManager:
    result = LogManager(DataDir(ROOT, "c", BrokerId(1)), disk=disk, clock=ManualClock())
    result.start()
    return result


def wanted(*names: str, topic_id: UUID = ONE) -> dict[TopicPartition, WantedPartition]:
    return {partition(name): WantedPartition(topic_id, TopicSettings()) for name in names}


class TestDataDir:
    def test_a_new_one_is_marked_and_known_again(self, tmp_path: Path) -> None:
        path = tmp_path / "deep" / "data"
        first = DataDir.acquire(path, OsDisk(), broker_id=BrokerId(1))
        first.release()
        assert DataDir.cluster_of(path, OsDisk()) == first.cluster_id
        assert DataDir.cluster_of(tmp_path / "none", OsDisk()) is None
        again = DataDir.acquire(path, OsDisk(), broker_id=BrokerId(1), cluster_id=first.cluster_id)
        assert again.cluster_id == first.cluster_id
        assert again.directory_id == first.directory_id
        assert len(again.directory_id) == 22
        again.release()

    def test_one_of_an_earlier_version_gets_an_id_of_its_own(self, tmp_path: Path) -> None:
        (tmp_path / "meta.properties").write_text("product=headrace\nformat=1\ncluster.id=c\nbroker.id=1\n")
        first = DataDir.acquire(tmp_path, OsDisk(), broker_id=BrokerId(1))
        first.release()
        again = DataDir.acquire(tmp_path, OsDisk(), broker_id=BrokerId(1))
        again.release()
        assert again.cluster_id == "c"
        assert again.directory_id == first.directory_id != ""

    def test_its_level_rises_with_the_clusters_and_older_versions_refuse_it_then(self, tmp_path: Path) -> None:
        first = DataDir.acquire(tmp_path, OsDisk(), broker_id=BrokerId(1), level=FIRST_LEVEL)
        first.release()
        assert "format=1\n" in (tmp_path / "meta.properties").read_text()
        again = DataDir.acquire(tmp_path, OsDisk(), broker_id=BrokerId(1), level=LATEST_LEVEL)
        assert again.level == FIRST_LEVEL, "a known directory keeps its level"
        again.raise_level(LATEST_LEVEL, OsDisk())
        again.raise_level(FIRST_LEVEL, OsDisk())
        again.release()
        assert f"format={LATEST_LEVEL}\n" in (tmp_path / "meta.properties").read_text()
        last = DataDir.acquire(tmp_path, OsDisk(), broker_id=BrokerId(1))
        last.release()
        assert (last.level, last.cluster_id, last.directory_id) == (LATEST_LEVEL, first.cluster_id, first.directory_id)

    def test_one_broker_at_a_time(self, tmp_path: Path) -> None:
        first = DataDir.acquire(tmp_path, OsDisk(), broker_id=BrokerId(1))
        with pytest.raises(StartupError, match="Another broker is using"):
            DataDir.acquire(tmp_path, OsDisk(), broker_id=BrokerId(1))
        first.release()
        DataDir.acquire(tmp_path, OsDisk(), broker_id=BrokerId(1)).release()

    @pytest.mark.parametrize(
        ("name", "content", "says"),
        [
            ("thesis.tex", "", "not a Headrace data directory"),
            ("meta.properties", "version=1\nnode.id=1\n", "another program"),
            (
                "meta.properties",
                "product=headrace\nformat=99\ncluster.id=c\nbroker.id=1\n",
                "newer version of Headrace",
            ),
            ("meta.properties", "product=headrace\nformat=1\ncluster.id=c\nbroker.id=2\n", "belongs to broker 2"),
            ("meta.properties", "product=headrace\nformat=1\ncluster.id=d\nbroker.id=1\n", "belongs to cluster d"),
            ("meta.properties", "product=headrace\nformat=x\n", "damaged"),
        ],
    )
    def test_what_is_not_ours_is_refused(self, tmp_path: Path, name: str, content: str, says: str) -> None:
        (tmp_path / name).write_text(content)
        with pytest.raises(StartupError, match=says):
            DataDir.acquire(tmp_path, OsDisk(), broker_id=BrokerId(1), cluster_id="c")
        assert (tmp_path / name).read_text() == content

    def test_what_cannot_be_used_is_refused(self, tmp_path: Path) -> None:
        (tmp_path / "file").write_text("")
        with pytest.raises(StartupError, match="cannot be used"):
            DataDir.acquire(tmp_path / "file", OsDisk(), broker_id=BrokerId(1))


def test_logs_come_back_after_a_clean_stop() -> None:
    disk = ModelDisk()
    first = manager(disk)
    assert first.open_logs(wanted("a", "b.c-d")) == {}
    first.logs[partition("a")].append(BATCH, HEADER, 0)
    first.stop()
    second = manager(disk.after_power_loss())
    assert second.was_clean
    second.open_logs(wanted("a", "b.c-d"))
    assert second.logs[partition("a")].end_offset == 1
    third = manager(disk.after_process_kill())
    assert third.was_clean


def test_a_start_makes_the_directory_unclean() -> None:
    disk = ModelDisk()
    manager(disk).stop()
    manager(disk)
    assert not manager(disk.after_power_loss()).was_clean


def test_folders_nobody_wants_are_reported_and_kept() -> None:
    disk = ModelDisk()
    first = manager(disk)
    first.open_logs(wanted("kept", "gone"))
    first.logs[partition("gone")].append(BATCH, HEADER, 0)
    first.stop()
    second = manager(disk)
    second.open_logs(wanted("kept"))
    assert second.strays == [ROOT / "gone-0"]
    second.stop()
    third = manager(disk)
    third.open_logs(wanted("kept", "gone"))
    assert third.logs[partition("gone")].end_offset == 1


def test_an_older_topic_of_the_same_name_is_moved_aside() -> None:
    disk = ModelDisk()
    first = manager(disk)
    first.open_logs(wanted("a"))
    first.logs[partition("a")].append(BATCH, HEADER, 0)
    first.stop()
    second = manager(disk)
    second.open_logs(wanted("a", topic_id=TWO))
    assert second.logs[partition("a")].end_offset == 0
    assert [stray.name.endswith("-stray") for stray in second.strays] == [True]
    assert "00000000000000000000.log" in disk.files(second.strays[0])


def test_a_log_made_again_under_a_deleted_name_starts_anew_even_after_a_crash() -> None:
    disk = ModelDisk()
    first = manager(disk)
    first.open_logs(wanted("a"))
    log = first.logs[partition("a")]
    for _ in range(5):
        log.append(BATCH, HEADER, 0)
    ticket = log.begin_flush()
    assert ticket is not None
    ticket.sync()
    log.complete_flush(ticket)
    log.advance_start(3)
    first.write_checkpoints()
    first.delete_log(partition("a"))
    assert first.create_log(partition("a"), TWO, TopicSettings()).end_offset == 0
    second = manager(disk.after_power_loss())
    second.open_logs(wanted("a", topic_id=TWO))
    log = second.logs[partition("a")]
    assert (log.start_offset, log.end_offset) == (0, 0)


def test_an_interrupted_deletion_is_finished_at_the_next_start(tmp_path: Path) -> None:
    disk = OsDisk()
    data_dir = DataDir.acquire(tmp_path, disk, broker_id=BrokerId(1))
    leftover = tmp_path / "a-0.0123456789abcdef-delete"
    leftover.mkdir()
    (leftover / "00000000000000000000.log").write_bytes(b"x")
    first = LogManager(data_dir, disk=disk, clock=ManualClock())
    first.start()
    first.open_logs({})
    first.stop()
    assert not leftover.exists()
    assert first.strays == []


def test_a_partition_that_cannot_be_opened_does_not_stop_the_others() -> None:
    disk = ModelDisk()
    first = manager(disk)
    first.open_logs(wanted("a", "b"))
    first.write_checkpoints()

    def hook(what: str, path: Path) -> None:
        if what == "sync-dir" and path.name == "a-0":
            raise OSError(errno.EIO, "played")

    disk.hook = hook
    second = manager(disk)
    failed = second.open_logs(wanted("a", "b"))
    assert list(failed) == [partition("a")]
    assert list(second.logs) == [partition("b")]


def test_when_the_directory_fails_every_log_refuses_and_it_is_told_once() -> None:
    told: list[BaseException] = []
    result = LogManager(DataDir(ROOT, "c", BrokerId(1)), disk=ModelDisk(), clock=ManualClock(), on_failed=told.append)
    result.start()
    result.open_logs(wanted("a", "b"))
    error = StorageFailed("played")
    result.fail(error)
    result.fail(StorageFailed("again"))
    assert told == [error]
    for log in result.logs.values():
        with pytest.raises(StorageFailed):
            log.append(BATCH, HEADER, 0)
    with pytest.raises(StorageFailed):
        result.create_log(partition("c"), ONE, TopicSettings())


def test_checkpoints_are_kafkas() -> None:
    disk = ModelDisk()
    first = manager(disk)
    first.open_logs(wanted("b", "a"))
    log = first.logs[partition("b")]
    for _ in range(3):
        log.append(BATCH, HEADER, 0)
    ticket = log.begin_flush()
    assert ticket is not None
    ticket.sync()
    log.complete_flush(ticket)
    log.advance_start(2)
    assert disk.read_bytes(ROOT / "recovery-point-offset-checkpoint") == b"0\n2\na 0 0\nb 0 3\n"
    assert disk.read_bytes(ROOT / "log-start-offset-checkpoint") == b"0\n1\nb 0 2\n"
    metadata = disk.read_bytes(ROOT / "b-0" / "partition.metadata")
    assert metadata == b"version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAQ\n"


def test_a_file_that_cannot_be_removed_does_not_end_the_work_in_the_background(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def test() -> None:
        disk = ModelDisk()
        logs = manager(disk)
        logs.open_logs(wanted("a"))
        log = logs.logs[partition("a")]
        log.settings = replace(log.settings, file_delete_delay_ms=0)
        log.append(BATCH, HEADER, 0)
        log.roll()
        log.remove_segments_below(1)
        ticket = log.begin_flush()
        assert ticket is not None
        ticket.sync()
        log.complete_flush(ticket)
        written = asyncio.Event()
        loop = asyncio.get_running_loop()

        def hook(step: str, path: Path) -> None:
            if step == "unlink" and path.name.endswith(".deleted"):
                raise OSError(errno.EIO, "played")
            if step == "rename" and "recovery-point" in path.name:
                loop.call_soon_threadsafe(written.set)

        disk.hook = hook
        task = asyncio.create_task(logs.run_periodically(0.001))
        await asyncio.wait_for(written.wait(), 60)
        assert not task.done()
        task.cancel()

    asyncio.run(test())
    assert "cannot be removed" in caplog.text


def test_logs_that_have_changed_are_summarized_in_turns_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each writes to its files: hundreds in one turn of the event loop would hold up every request."""
    turns: dict[str, set[int]] = {}
    turn = 0

    async def test() -> None:
        disk = ModelDisk()
        logs = manager(disk)
        logs.open_logs(wanted("a", "b", "c"))
        for name in "abc":
            log = logs.logs[partition(name)]
            log.append(BATCH, HEADER, 0)
            ticket = log.begin_flush()
            assert ticket is not None
            ticket.sync()
            log.complete_flush(ticket)
        written = asyncio.Event()
        loop = asyncio.get_running_loop()

        def count() -> None:
            nonlocal turn
            turn += 1
            loop.call_soon(count)

        def hook(step: str, path: Path) -> None:
            if step == "rename" and "recovery-point" in path.name:
                loop.call_soon_threadsafe(written.set)

        def stamp(path: Path) -> FileStamp:
            turns.setdefault(path.parent.name, set()).add(turn)
            return known(path)

        known = disk.stamp
        monkeypatch.setattr(disk, "stamp", stamp)
        disk.hook = hook
        count()
        task = asyncio.create_task(logs.run_periodically(0.001))
        await asyncio.wait_for(written.wait(), 60)
        task.cancel()

    asyncio.run(test())
    assert len(turns) == 3
    assert len(set.union(*turns.values())) == 3


def test_a_stop_without_room_for_the_checkpoints_is_not_a_clean_one(caplog: pytest.LogCaptureFixture) -> None:
    disk = ModelDisk()
    logs = manager(disk)
    logs.open_logs(wanted("a"))
    logs.logs[partition("a")].append(BATCH, HEADER, 0)

    def hook(step: str, path: Path) -> None:
        if step == "write" and path.parent == ROOT:
            raise OSError(errno.ENOSPC, "played")

    disk.hook = hook
    logs.stop()
    assert "were not written" in caplog.text
    disk.hook = None
    again = manager(disk.after_power_loss())
    assert not again.was_clean
    again.open_logs(wanted("a"))
    assert again.logs[partition("a")].end_offset == 1


def test_a_log_made_while_the_directory_fails_refuses_too() -> None:
    disk = ModelDisk()
    logs = manager(disk)
    failing = StorageFailed("played")

    def hook(step: str, path: Path) -> None:
        if step == "create" and path.name.endswith(".log"):
            logs.fail(failing)

    disk.hook = hook
    log = logs.create_log(partition("a"), ONE, TopicSettings())
    assert log.failure is failing
