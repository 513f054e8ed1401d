"""A partition on a log of its own: what its users are promised beside reading and writing."""

import asyncio
import errno
import threading
from pathlib import Path
from uuid import UUID

import pytest

from headrace.model.errors import DiskFull, OffsetOutOfRange, StorageFailed
from headrace.model.ids import LeaderEpoch, PartitionIndex, TopicId, TopicName
from headrace.records.batch import read_header
from headrace.records.builder import build_batch
from headrace.records.reader import Record
from headrace.replication.partition import Partition
from headrace.testing.disks import ModelDisk
from headrace.testing.logs import LogBench


def partition_of(bench: LogBench) -> Partition:
    return Partition(
        TopicName("orders"), PartitionIndex(0), TopicId(UUID(int=7)), bench.log, LeaderEpoch(0), appended=lambda _: None
    )


def delete_before(partition: Partition, offset: int) -> int:
    return asyncio.run(partition.delete_before(offset, asyncio.to_thread))


def test_deleting_records_does_not_make_the_event_loop_wait_for_the_disk() -> None:
    disk = ModelDisk()
    bench = LogBench(disk)
    bench.append(b"x", b"y", b"z")
    bench.flush()
    partition = partition_of(bench)
    threads: set[int] = set()

    def hook(step: str, path: Path) -> None:
        if step == "sync":
            threads.add(threading.get_ident())

    disk.hook = hook
    assert delete_before(partition, 2) == 2
    assert threads
    assert threading.get_ident() not in threads
    assert bench.reopen(disk.after_power_loss()).log.start_offset == 2
    with pytest.raises(OffsetOutOfRange):
        delete_before(partition, 4)
    assert delete_before(partition, -1) == 3


def test_waiting_for_a_commit_ends_with_the_flush_or_with_what_rules_it_out() -> None:
    bench = LogBench(ModelDisk())
    partition = partition_of(bench)

    async def scenario() -> None:
        bench.append(b"x")
        waiting = asyncio.ensure_future(partition.until_committed(1))
        await asyncio.sleep(0)
        assert not waiting.done()
        bench.flush()
        await waiting
        await partition.until_committed(1)
        bench.append(b"y")
        waiting = asyncio.ensure_future(partition.until_committed(2))
        await asyncio.sleep(0)
        partition.closed(StorageFailed("gone"))
        with pytest.raises(StorageFailed, match="gone"):
            await waiting

    asyncio.run(scenario())


def test_deleting_records_makes_room_on_a_full_disk() -> None:
    disk = ModelDisk()
    bench = LogBench(disk)
    for _ in range(40):
        bench.append(b"x" * 60)
    bench.flush()
    partition = partition_of(bench)
    whole = [segment.next_offset for segment in bench.log.segments[:-1]]

    def hook(step: str, path: Path) -> None:
        if step == "write":
            raise OSError(errno.ENOSPC, "played")

    disk.hook = hook
    with pytest.raises(DiskFull):
        delete_before(partition, whole[1] + 1)
    assert bench.log.start_offset == whole[1]
    bench.log.purge_deleted()
    disk.hook = None
    assert delete_before(partition, whole[1] + 1) == whole[1] + 1


def test_a_failure_that_leaves_the_log_as_it_was_is_nothing_to_those_who_wait() -> None:
    """What they wait for will be flushed: they would send it again for nothing."""
    disk = ModelDisk()
    bench = LogBench(disk)
    partition = partition_of(bench)
    batch = build_batch([Record(0, 1, None, b"x" * 600)])
    partition.append(batch, read_header(batch))
    told: list[BaseException | None] = []
    assert not partition.when_committed(1, told.append)

    def hook(step: str, path: Path) -> None:
        if step == "create":
            raise OSError(errno.EACCES, "played")

    disk.hook = hook
    with pytest.raises(StorageFailed):
        partition.append(batch, read_header(batch))
    assert told == []
    disk.hook = None
    bench.flush()
    assert told == [None]
