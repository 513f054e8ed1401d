"""From the format of 0.1 to Kafka's: written only when the feature level allows it, and rewritten across failovers."""

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest
from tests.unit.groups.test_service import service, stable, value_of
from tests.waiting import until_async as until

from headrace.cluster import layout
from headrace.cluster.feature_level import update_features
from headrace.cluster.metadata import Metadata
from headrace.cluster.store import Put
from headrace.coordinator import record_rewrite
from headrace.groups.offsets import Committer, OffsetCommit
from headrace.groups.service import GroupService
from headrace.model.errors import DiskFull
from headrace.model.features import FEATURE, FIRST_LEVEL, LATEST_LEVEL
from headrace.records.batch import iter_headers
from headrace.records.reader import iter_records
from headrace.replication.partition import Partition
from headrace.replication.partitions import PartitionTable

Scenario = Callable[[GroupService, Partition, PartitionTable, Metadata], Coroutine[Any, Any, None]]


def run(folder: Path, scenario: Scenario) -> None:
    """At feature level 1."""

    async def body() -> None:
        async with service(folder) as (groups, partition, table):
            metadata = groups._metadata
            record = layout.encode_cluster(layout.ClusterIdentity(metadata.image.cluster_id, FIRST_LEVEL))
            table.remove(partition)
            await metadata.commit([], [Put(layout.CLUSTER, record)])
            table.add(partition)
            await scenario(groups, partition, table, metadata)

    asyncio.run(body())


def keys(partition: Partition) -> list[tuple[int, bool]]:
    """The first byte of every key in the log, and whether it has a value."""
    cut = partition.slice(partition.log.start_offset, 1 << 20, committed=False, at_least_one=True)
    if cut is None:
        return []
    data = memoryview(cut.file.read(cut.position, cut.length))
    return [
        (record.key[0], record.value is not None)
        for at, header in iter_headers(data)
        for record in iter_records(data[at : at + header.size], header)
        if record.key
    ]


async def commit(groups: GroupService, count: int, *, first: int = 0) -> None:
    for number in range(first, first + count):
        await value_of(groups.commit(f"g{number}", Committer(), [OffsetCommit("t", 0, number)]))


async def offsets(groups: GroupService, count: int) -> list[int]:
    await asyncio.gather(*groups.coordinator.loading)
    found = [await value_of(groups.fetch(f"g{number}", None)) for number in range(count)]
    return [one["t"][0].offset for one in found]


def test_at_level_1_only_the_old_format_is_written(tmp_path: Path) -> None:
    async def scenario(groups: GroupService, partition: Partition, table: PartitionTable, _: Metadata) -> None:
        await stable(groups)
        await commit(groups, 3)
        assert {byte >> 4 for byte, _ in keys(partition)} == {9}
        table.remove(partition)
        table.add(partition)
        assert await offsets(groups, 3) == [0, 1, 2]
        assert {byte >> 4 for byte, _ in keys(partition)} == {9}, "nor when it is loaded"

    run(tmp_path, scenario)


def test_what_is_old_is_rewritten_when_the_level_rises(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(record_rewrite, "_RECORDS_PER_STEP", 2)

    async def scenario(groups: GroupService, partition: Partition, table: PartitionTable, metadata: Metadata) -> None:
        joined = await stable(groups)
        await commit(groups, 5)
        (shard,) = groups.coordinator.shards()
        before = len(keys(partition))
        await update_features(metadata, {FEATURE: LATEST_LEVEL})
        await until(lambda: not shard.machine.has_old_records)
        written = keys(partition)[before:]
        assert written.count((0, True)) == 6, "five offsets and a group"
        assert written.count((0x94, False)) + written.count((0x92, False)) == 6
        assert written[0] == (0x91, True), "the marker comes first"
        await commit(groups, 1, first=5)
        assert keys(partition)[-1] == (0, True)
        table.remove(partition)
        table.add(partition)
        assert await offsets(groups, 6) == [0, 1, 2, 3, 4, 5]
        groups.heartbeat("g", Committer("one", None, joined.generation))
        (shard,) = groups.coordinator.shards()
        assert not shard.machine.has_old_records

    run(tmp_path, scenario)


def test_a_rewrite_that_is_interrupted_goes_on_where_the_shard_is_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(record_rewrite, "_RECORDS_PER_STEP", 1)

    async def scenario(groups: GroupService, partition: Partition, table: PartitionTable, metadata: Metadata) -> None:
        await commit(groups, 6)
        append, left = Partition.append, 2

        def until_full(self: Partition, *given: Any) -> Any:
            nonlocal left
            left -= 1
            if left < 0:
                raise DiskFull("no room")
            return append(self, *given)

        with monkeypatch.context() as patch:
            patch.setattr(Partition, "append", until_full)
            await update_features(metadata, {FEATURE: LATEST_LEVEL})
            await until(lambda: left < 0)
            table.remove(partition)
        assert keys(partition).count((0, True)) == 2
        table.add(partition)
        assert await offsets(groups, 6) == [0, 1, 2, 3, 4, 5]
        (shard,) = groups.coordinator.shards()
        await until(lambda: not shard.machine.has_old_records)
        assert keys(partition).count((0, True)) == 6
        assert keys(partition).count((0x91, True)) == 1

    run(tmp_path, scenario)
