"""The service around the groups: a log that cannot be written, a coordinator that goes away."""

import asyncio
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from headrace.cluster.metadata import Metadata
from headrace.cluster.sqlite import SqliteStore
from headrace.config.broker import broker_settings
from headrace.config.topic import TopicSettings
from headrace.coordinator.shard import ShardState
from headrace.groups.classic_protocol import Joined, JoinRequest
from headrace.groups.offsets import Committer, OffsetCommit
from headrace.groups.service import GroupService
from headrace.model.errors import CoordinatorNotAvailable, DiskFull, NotCoordinator
from headrace.model.ids import LeaderEpoch, PartitionIndex, TopicId
from headrace.model.image import OFFSETS_TOPIC, Endpoint
from headrace.replication.partition import Partition
from headrace.replication.partitions import PartitionTable
from headrace.runtime.clock import ManualClock
from headrace.runtime.disk import OsDisk
from headrace.storage.log import Log


async def value_of(deferred: Any) -> Any:
    future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    deferred.then(future.set_result)
    return (await asyncio.wait_for(future, 60)).get()


@asynccontextmanager
async def service(folder: Path) -> AsyncIterator[tuple[GroupService, Partition, PartitionTable]]:
    clock, disk = ManualClock(), OsDisk()
    settings = broker_settings({"data.dir": str(folder), "group.initial.rebalance.delay.ms": "0"})
    disk.make_dir(folder / "log")
    log = Log.open(
        folder / "log", TopicSettings(flush_policy="os"), disk=disk, clock=clock, clean=False, recovery_point=0,
        producer_expiry_ms=1000,
    )  # fmt: skip
    partition = Partition(
        OFFSETS_TOPIC, PartitionIndex(0), TopicId(UUID(int=7)), log, LeaderEpoch(0), appended=lambda _: None
    )
    store = await SqliteStore.open(folder / "metadata.db", clock)
    metadata = Metadata(store, settings, Endpoint("h", 1))
    await metadata.open()
    await metadata.create_topic(OFFSETS_TOPIC, partitions=1)
    table = PartitionTable()
    with ThreadPoolExecutor(1) as workers:
        groups = GroupService(
            settings, metadata=metadata, partitions=table, clock=clock, workers=workers, new_id=lambda: "id"
        )
        groups.start()
        table.add(partition)
        yield groups, partition, table
        await groups.stop()
        await metadata.close()
        await store.close()
    log.close()


def wants(name: str) -> JoinRequest:
    return JoinRequest("", None, name, "/h", 10_000, 20_000, "consumer", (("range", b""),), new_member_id=name)


async def stable(groups: GroupService) -> Joined:
    joined: Joined = await value_of(groups.join("g", wants("one")))
    await value_of(groups.sync("g", Committer("one", None, joined.generation), (None, None), {"one": b"all"}))
    return joined


def test_what_cannot_be_written_is_told_and_the_group_is_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def run() -> None:
        async with service(tmp_path) as (groups, partition, _):
            joined = await stable(groups)
            by = Committer("one", None, joined.generation)
            await value_of(groups.commit("g", by, [OffsetCommit("t", 0, 5)]))
            waiting = groups.join("g", wants("two"))
            assert not waiting.done

            def full(*_: object) -> None:
                raise DiskFull("no room")

            with monkeypatch.context() as patch:
                patch.setattr(Partition, "append", full)
                with pytest.raises(CoordinatorNotAvailable):
                    await value_of(groups.commit("g", by, [OffsetCommit("t", 0, 6)]))
            with pytest.raises(NotCoordinator):
                await value_of(waiting)
            await asyncio.gather(*groups.coordinator.loading)
            found = await value_of(groups.fetch("g", None))
            assert found["t"][0].offset == 5
            groups.heartbeat("g", by)
            await value_of(groups.commit("g", by, [OffsetCommit("t", 0, 7)]))
            assert partition.log.end_offset == 3

    asyncio.run(run())


def test_a_shard_that_goes_away_leaves_nobody_waiting(tmp_path: Path) -> None:
    async def run() -> None:
        async with service(tmp_path) as (groups, partition, table):
            await stable(groups)
            waiting = groups.join("g", wants("two"))
            table.remove(partition)
            with pytest.raises(NotCoordinator):
                await value_of(waiting)
            with pytest.raises(NotCoordinator):
                await value_of(groups.fetch("g", None))
            assert len(groups.coordinator.timers) == 1, "that of retention"

    asyncio.run(run())


def test_a_transaction_s_offsets_survive_a_load(tmp_path: Path) -> None:
    async def run() -> None:
        async with service(tmp_path) as (groups, partition, table):
            nobody = Committer()
            await value_of(groups.commit_in_transaction("g", nobody, [OffsetCommit("t", 0, 5)], 77, 0))
            await value_of(groups.commit_in_transaction("g", nobody, [OffsetCommit("t", 1, 6)], 78, 0))
            for _ in range(2):
                (shard,) = groups.coordinator.shards()
                assert shard.machine.offsets.is_unstable("g", "t", 0)
                assert shard.machine.offsets.is_unstable("g", "t", 1)
                table.remove(partition)
                table.add(partition)
                await asyncio.gather(*groups.coordinator.loading)
            (shard,) = groups.coordinator.shards()
            assert shard.state is ShardState.ACTIVE
            shard.end_transaction(77, committed=True)
            shard.end_transaction(78, committed=False)
            found = await value_of(groups.fetch("g", None, require_stable=True))
            assert {index: value.offset for index, value in found["t"].items()} == {0: 5}

    asyncio.run(run())


def test_whoever_needs_the_topic_while_it_is_made_waits_until_it_is_there(tmp_path: Path) -> None:
    async def run() -> None:
        async with service(tmp_path) as (groups, _, _):
            metadata = groups._metadata
            await metadata.delete_topic(OFFSETS_TOPIC)
            shown, hosted = asyncio.Event(), asyncio.Event()

            async def host(old: Any, new: Any) -> None:
                shown.set()
                await hosted.wait()

            metadata.subscribe(host)
            first = asyncio.create_task(groups.coordinator.ensure_topic())
            await asyncio.wait_for(shown.wait(), 60)
            assert OFFSETS_TOPIC in metadata.image.topics
            second = asyncio.create_task(groups.coordinator.ensure_topic())
            await asyncio.sleep(0)
            assert not second.done()
            hosted.set()
            await asyncio.wait_for(asyncio.gather(first, second), 60)

    asyncio.run(run())
