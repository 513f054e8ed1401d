"""What a broker hosts follows the metadata, also where the disk does not play along."""

import asyncio
import errno
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from uuid import UUID

import pytest

from headrace.app import hosted_partitions as module
from headrace.app.hosted_partitions import HostedPartitions
from headrace.cluster.link_changes import LinkChanges
from headrace.cluster.metadata import Metadata
from headrace.cluster.sqlite import SqliteStore
from headrace.config.broker import broker_settings
from headrace.model.errors import DiskFull, UnknownTopic
from headrace.model.ids import BrokerId, TopicName
from headrace.model.image import Endpoint
from headrace.model.links import Link, Mirror, MirrorState
from headrace.records.batch import read_header
from headrace.records.builder import build_batch
from headrace.records.reader import Record
from headrace.replication.partitions import PartitionTable
from headrace.runtime.clock import SystemClock
from headrace.runtime.disk import OsDisk
from headrace.storage.checkpoints import CLEAN_STOP, RECOVERY_POINTS
from headrace.storage.datadir import DataDir
from headrace.storage.flusher import Flusher
from headrace.storage.manager import LogManager
from headrace.storage.summary import LOG_SUMMARIES
from headrace.testing.disks import FaultyDisk

BATCH = build_batch([Record(0, 1000, None, b"value")])


@dataclass
class Bench:
    metadata: Metadata
    partitions: PartitionTable
    disk: FaultyDisk
    root: Path

    def append(self, topic: str, index: int = 0) -> None:
        self.partitions.get(topic, index).append(BATCH, read_header(BATCH))


@asynccontextmanager
async def bench_in(root: Path) -> AsyncIterator[Bench]:
    clock, disk = SystemClock(), FaultyDisk(OsDisk())
    store = await SqliteStore.open(root / "metadata.sqlite", clock)
    metadata = Metadata(store, broker_settings({}), Endpoint("127.0.0.1", 9092))
    await metadata.open()
    logs = LogManager(DataDir(root, "cluster", BrokerId(1)), disk=disk, clock=clock)
    logs.start()
    partitions, flusher = PartitionTable(), Flusher()
    with ThreadPoolExecutor(2) as workers:
        hosting = HostedPartitions(metadata, logs, partitions, flusher, workers)
        await hosting.open_all()
        metadata.subscribe(hosting.image_changed)
        try:
            yield Bench(metadata, partitions, disk, root)
        finally:
            disk.hook = None
            await hosting.finish()
            await flusher.stop()
            logs.stop()
            await metadata.close()
            await store.close()


def run(root: Path, scenario: Callable[[Bench], Awaitable[None]]) -> None:
    async def main() -> None:
        async with bench_in(root) as bench:
            await scenario(bench)

    asyncio.run(main())


def test_a_topic_made_without_room_is_served_when_there_is_some(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_HOSTING_RETRY_S", 0.01)

    async def scenario(bench: Bench) -> None:
        tries = asyncio.Queue[None]()
        loop = asyncio.get_running_loop()

        def hook(step: str, path: Path) -> None:
            if step == "make" and path.name == "orders-1":
                loop.call_soon_threadsafe(tries.put_nowait, None)
                raise OSError(errno.ENOSPC, "played")

        bench.disk.hook = hook
        with pytest.raises(DiskFull):
            await bench.metadata.create_topic("orders", partitions=3)
        bench.append("orders", 0)
        for _ in range(3):
            await asyncio.wait_for(tries.get(), 60)
        bench.disk.hook = None
        async with asyncio.timeout(60):
            while len(bench.partitions.of_topic(TopicName("orders"))) < 3:  # noqa: ASYNC110 - there is no event for it
                await asyncio.sleep(0.01)
        bench.append("orders", 1)
        bench.append("orders", 2)

    run(tmp_path, scenario)


def test_other_changes_go_on_while_one_topic_cannot_be_made(tmp_path: Path) -> None:
    async def scenario(bench: Bench) -> None:
        def hook(step: str, path: Path) -> None:
            if step == "make" and path.name.startswith("orders"):
                raise OSError(errno.ENOSPC, "played")

        bench.disk.hook = hook
        with pytest.raises(DiskFull):
            await bench.metadata.create_topic("orders", partitions=1)
        await bench.metadata.create_topic("payments", partitions=1)
        bench.append("payments")
        await bench.metadata.delete_topic("orders")
        with pytest.raises(UnknownTopic):
            bench.append("orders")

    run(tmp_path, scenario)


def test_a_topic_made_anew_never_has_the_records_of_the_one_that_was_deleted(tmp_path: Path) -> None:
    """Not even if the folder of one of its partitions could not be put away."""

    async def scenario(bench: Bench) -> None:
        await bench.metadata.create_topic("orders", partitions=3)
        for index in range(3):
            bench.append("orders", index)

        def hook(step: str, path: Path) -> None:
            if step == "rename" and path.name == "orders-0":
                raise OSError(errno.EIO, "played")

        bench.disk.hook = hook
        await bench.metadata.delete_topic("orders")
        bench.disk.hook = None
        topic = await bench.metadata.create_topic("orders", partitions=3)
        for partition in bench.partitions.of_topic(topic.name):
            assert partition.log.end_offset == 0
            assert partition.topic_id == topic.topic_id

    run(tmp_path, scenario)
    run(tmp_path, still_empty)


async def still_empty(bench: Bench) -> None:
    found = [partition.log.end_offset for partition in bench.partitions.all()]
    assert found == [0, 0, 0]


PER_SEGMENT = 8


async def _append_segments(bench: Bench) -> None:
    """Offsets 0 to 7, 8 to 15 and 16 to 19, in three files, as a source or a producer wrote them."""
    partition = bench.partitions.get("orders", 0)
    for offset in range(20):
        if offset in (PER_SEGMENT, 2 * PER_SEGMENT):
            partition.log.roll()
        if partition.is_mirror:
            record = Record(0, 1000, None, b"value")
            partition.append_mirrored(memoryview(build_batch([record], base_offset=offset, leader_epoch=0)))
        else:
            bench.append("orders")


def _lose_power(root: Path) -> None:
    """Nothing was checkpointed, the end of the first file is lost, and what comes after it is there."""
    for name in (CLEAN_STOP, RECOVERY_POINTS, LOG_SUMMARIES):
        (root / name).unlink()
    first = root / "orders-0" / f"{0:020d}.log"
    os.truncate(first, first.stat().st_size * 5 // PER_SEGMENT)


MIRROR = Mirror(UUID(int=0), "eu", "orders", UUID(int=8), "abc")


@pytest.mark.parametrize(
    ("state", "offsets"),
    [
        pytest.param(None, [*range(5), *range(8, 20)], id="the only copy"),
        pytest.param(MirrorState.MIRRORING, [*range(5)], id="a mirror"),
        pytest.param(MirrorState.PAUSED, [*range(5)], id="a mirror that is paused"),
        pytest.param(MirrorState.PROMOTING, [*range(5), *range(8, 20)], id="the source was given up"),
        pytest.param(MirrorState.FAULTED, [*range(5), *range(8, 20)], id="the source is another topic now"),
    ],
)
def test_a_mirror_with_one_replica_ends_where_a_power_failure_has_lost_records(
    tmp_path: Path, state: MirrorState | None, offsets: list[int]
) -> None:
    """Its source has them: a gap would never be copied again. The only copy keeps what is behind (invariants 7, 49)."""

    async def before(bench: Bench) -> None:
        if state is None:
            await bench.metadata.create_topic("orders", partitions=1)
        else:
            changes = LinkChanges(bench.metadata)
            await changes.create(Link("eu", UUID(int=1), ("h:1",), topics=("orders",)))
            made = await changes.create_mirror("orders", MIRROR, 1, {})
            await changes.change_mirror(made.topic_id, lambda mirror: replace(mirror, state=state))
        await _append_segments(bench)

    async def after(bench: Bench) -> None:
        log = bench.partitions.get("orders", 0).log
        found = [header.base_offset for segment in log.segments for _, header in segment.headers()]
        assert found == offsets
        assert log.damaged_from == 5
        is_cut = offsets == [*range(5)]
        assert log.end_offset == (5 if is_cut else 20)
        corrupt = list((tmp_path / "orders-0").glob("*.corrupt"))
        assert len(corrupt) == (2 if is_cut else 0), "what is behind is kept for an operator"

    run(tmp_path, before)
    _lose_power(tmp_path)
    run(tmp_path, after)
