"""A machine that counts, on a real log: answers come when committed, and a restart finds the same state."""

import asyncio
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from uuid import UUID

import pytest

from headrace.config.topic import TopicSettings
from headrace.coordinator.coordinator import Coordinator
from headrace.coordinator.log_replay import load
from headrace.coordinator.machine import EntryMachine, InternalRecord, Outcome
from headrace.coordinator.shard import Shard, ShardState
from headrace.coordinator.timers import Timers
from headrace.model.errors import (
    CoordinatorLoading,
    CoordinatorNotAvailable,
    InvalidRecord,
    NotCoordinator,
    ProtocolError,
    StorageFailed,
)
from headrace.model.ids import BrokerId, LeaderEpoch, PartitionIndex, TopicId, TopicName
from headrace.model.image import PartitionState
from headrace.model.invariants import InvariantViolation
from headrace.model.state_partition import java_hash, partition_for
from headrace.records.batch import iter_headers, read_header
from headrace.records.builder import build_batch
from headrace.records.reader import Record
from headrace.replication.partition import Partition
from headrace.replication.partitions import PartitionTable
from headrace.runtime.clock import SystemClock
from headrace.runtime.disk import OsDisk
from headrace.storage.flusher import Flusher
from headrace.storage.log import Log


class Counts(EntryMachine):
    def __init__(self) -> None:
        self.totals: dict[bytes, int] = {}

    def replay(self, entry: InternalRecord, producer_id: int) -> None:
        if entry.value is None:
            self.totals.pop(entry.key, None)
        else:
            self.totals[entry.key] = int(entry.value)

    def replay_end(self, producer_id: int, *, committed: bool) -> None: ...

    def loaded(self, now_ms: float) -> None: ...

    def add(self, key: bytes, amount: int) -> Outcome[InternalRecord, int]:
        if amount < 0:
            raise InvalidRecord("only up")
        total = self.totals.get(key, 0) + amount
        return Outcome([InternalRecord(key, str(total).encode())], total)


OWN, OTHER = BrokerId(0), BrokerId(1)
STATE = PartitionState(OWN, LeaderEpoch(5), (OWN, OTHER), (OWN, OTHER))


def append(partition: Partition, entry: InternalRecord) -> None:
    batch = build_batch([Record(0, 1, entry.key, entry.value)])
    partition.append(batch, read_header(batch))


@asynccontextmanager
async def hosted(folder: Path, *, is_single_node: bool = True) -> AsyncIterator[tuple[Partition, Flusher]]:
    disk = OsDisk()
    disk.make_dir(folder)
    log = Log.open(
        folder, TopicSettings(), disk=disk, clock=SystemClock(), clean=False, recovery_point=0, producer_expiry_ms=1000
    )
    flusher = Flusher(threads=1)
    yield (
        Partition(
            TopicName("__t"),
            PartitionIndex(0),
            TopicId(UUID(int=7)),
            log,
            LeaderEpoch(0),
            appended=flusher.appended,
            high_watermark=None if is_single_node else 0,
        ),
        flusher,
    )
    await flusher.stop()
    if log.failure is None:
        log.close()


def active(partition: Partition, reloads: list[object] | None = None) -> Shard[Counts]:
    shard = Shard(partition, Counts(), SystemClock(), reload=(reloads if reloads is not None else []).append)
    shard.state = ShardState.ACTIVE
    return shard


async def value_of(deferred: object) -> object:
    future: asyncio.Future[object] = asyncio.get_running_loop().create_future()
    deferred.then(future.set_result)  # type: ignore[attr-defined]
    return (await asyncio.wait_for(future, 60)).get()  # type: ignore[attr-defined]


def test_answers_come_when_committed_and_survive_a_restart(tmp_path: Path) -> None:
    async def run() -> None:
        async with hosted(tmp_path / "__t-0") as (partition, _):
            shard = active(partition)
            results = [shard.run(lambda _: shard.machine.add(b"a", 2)) for _ in range(50)]
            assert not any(result.done for result in results), "nothing is on disk yet"
            assert [await value_of(result) for result in results] == list(range(2, 101, 2))
            assert partition.log.flushed_offset == 50
            assert (
                await value_of(
                    shard.run(lambda _: Outcome([InternalRecord(b"b", b"9"), InternalRecord(b"b", None)], "x"))
                )
                == "x"
            )
        async with hosted(tmp_path / "__t-0") as (partition, _):
            machine = Counts()
            with ThreadPoolExecutor(1) as workers:
                assert await load(partition, machine, workers) == 52
            assert machine.totals == {b"a": 100}

    asyncio.run(run())


def test_an_answer_before_its_records_are_committed_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def run() -> None:
        async with hosted(tmp_path / "__t-0", is_single_node=False) as (partition, _):
            table = PartitionTable()
            table.add(partition)
            table.lead(partition, STATE, 0)
            shard = active(partition)
            append(partition, InternalRecord(b"a", b"1"))
            monkeypatch.setattr(Partition, "when_committed", lambda *_: True)
            with pytest.raises(InvariantViolation, match="invariant 17"):
                shard.run(lambda _: Outcome((), shard.machine.totals))

    asyncio.run(run())


def test_a_turn_of_the_loop_is_one_batch(tmp_path: Path) -> None:
    async def run() -> None:
        async with hosted(tmp_path / "__t-0") as (partition, _):
            shard = active(partition)
            results = [shard.run(lambda _: shard.machine.add(b"a", 1)) for _ in range(20)]
            await value_of(results[-1])
            assert len(list(partition.log.active.headers())) == 1

    asyncio.run(run())


def test_refusals_write_nothing(tmp_path: Path) -> None:
    async def run() -> None:
        async with hosted(tmp_path / "__t-0") as (partition, _):
            shard = active(partition)
            with pytest.raises(InvalidRecord):
                await value_of(shard.run(lambda _: shard.machine.add(b"a", -1)))
            shard.state = ShardState.LOADING
            with pytest.raises(CoordinatorLoading):
                await value_of(shard.run(lambda _: shard.machine.add(b"a", 1)))
            assert partition.log.end_offset == 0

    asyncio.run(run())


def test_a_failed_disk_is_told_and_the_shard_loads_again(tmp_path: Path) -> None:
    async def run() -> None:
        async with hosted(tmp_path / "__t-0") as (partition, flusher):
            reloads: list[object] = []
            shard = active(partition, reloads)
            result = shard.run(lambda _: shard.machine.add(b"a", 1))
            await flusher.stop()
            partition.log.fail(OSError("gone"))
            await asyncio.sleep(0)
            partition.failed(StorageFailed("gone"))
            with pytest.raises(CoordinatorNotAvailable):
                await value_of(result)
            assert shard.state is ShardState.LOADING
            assert reloads == [shard]

    asyncio.run(run())


def test_whoever_waits_is_told_that_the_coordinator_has_moved(tmp_path: Path) -> None:
    async def run() -> None:
        async with hosted(tmp_path / "__t-0", is_single_node=False) as (partition, _):
            partition.lead(STATE, 0)
            reloads: list[object] = []
            shard = active(partition, reloads)
            written = shard.run(lambda _: shard.machine.add(b"a", 1))
            await asyncio.sleep(0)
            assert partition.log.end_offset == 1
            not_written = shard.run(lambda _: shard.machine.add(b"a", 1))
            partition.follow(replace(STATE, leader=OTHER, leader_epoch=LeaderEpoch(6)))
            for result in (written, not_written, shard.run(lambda _: shard.machine.add(b"a", 1))):
                with pytest.raises(NotCoordinator):
                    await value_of(result)
            with pytest.raises(NotCoordinator):
                await value_of(shard.write_in_transaction([InternalRecord(b"b", b"1")], 7, 0, None))
            assert (partition.log.end_offset, reloads) == (1, [])

    asyncio.run(run())


def test_a_shard_begins_and_ends_with_an_epoch_and_reads_what_is_committed(tmp_path: Path) -> None:
    async def run() -> None:
        async with hosted(tmp_path / "__t-0", is_single_node=False) as (partition, flusher):
            table, lost = PartitionTable(), list[object]()
            with ThreadPoolExecutor(1) as workers:
                coordinator = Coordinator(
                    TopicName("__t"),
                    partition_count=1,
                    topic_settings={},
                    make_machine=lambda _: Counts(),
                    metadata=SimpleNamespace(  # type: ignore[arg-type]
                        image=SimpleNamespace(topics={"__t": SimpleNamespace(partitions=[0])}, feature_level=2),
                        subscribe=lambda _: None,
                    ),
                    partitions=table,
                    clock=SystemClock(),
                    workers=workers,
                    on_lost=lost.append,
                )
                table.add(partition)
                coordinator.start()
                with pytest.raises(NotCoordinator):
                    coordinator.shard("k")
                with pytest.raises(ProtocolError, match="32767 bytes"):
                    coordinator.shard("ü" * 20_000)
                assert not coordinator.is_here("k")
                table.lead(partition, replace(STATE, isr=(OWN,)), 0)
                first = coordinator.shard("k")
                assert await value_of(first.run(lambda _: first.machine.add(b"a", 4))) == 4
                assert first.epoch == 5

                table.lead(partition, replace(STATE, leader_epoch=LeaderEpoch(6), partition_epoch=1), 0)
                second = coordinator.shard("k")
                assert (first.state, second.epoch, lost) == (ShardState.CLOSED, 6, [first])
                append(partition, InternalRecord(b"a", b"5"))
                await flusher.settled()
                with pytest.raises(CoordinatorLoading):
                    second.check()
                partition.replica_fetched(OTHER, 9, 2, log_start_offset=0, now_ms=0)
                await asyncio.wait_for(asyncio.gather(*coordinator.loading), 30)
                assert second.machine.totals == {b"a": 5}
                assert second.is_active

                table.follow(partition, replace(STATE, leader=OTHER, leader_epoch=LeaderEpoch(7), partition_epoch=2))
                with pytest.raises(NotCoordinator):
                    coordinator.shard("k")
                assert lost == [first, second]
                await coordinator.stop()

    asyncio.run(run())


@pytest.mark.parametrize(("text", "value"), [("", 0), ("a", 97), ("group", 98629247), ("polygenelubricants", -(2**31))])
def test_hashes_as_java_does(text: str, value: int) -> None:
    assert java_hash(text) == value
    assert 0 <= partition_for(text, 50) < 50


def test_timers_fire_in_order_and_forget_what_was_moved() -> None:
    timers, fired = Timers(), []
    for key, deadline in (("b", 20), ("a", 10), ("c", 30)):
        timers.set(key, deadline, lambda key=key: fired.append(key))  # type: ignore[misc]
    timers.set("a", 25, lambda: fired.append("moved"))
    timers.cancel("c")
    assert timers.next_deadline_ms() == 20
    assert timers.fire_due(26) == 2
    assert fired == ["b", "moved"]
    assert timers.next_deadline_ms() is None
    for _ in range(5000):
        timers.set("x", 1, lambda: None)
    assert len(timers) == 1
    assert len(timers._heap) < 3000


def test_many_records_are_several_batches(tmp_path: Path) -> None:
    async def run() -> None:
        async with hosted(tmp_path / "__t-0") as (partition, _):
            shard = active(partition)
            entries = [InternalRecord(b"%d" % number + bytes(300_000), b"1") for number in range(10)]
            await value_of(shard.run(lambda _: Outcome([*entries, InternalRecord(bytes(3_000_000), b"1")], None)))
            sizes = [header.size for _, header in partition.log.active.headers()]
            assert len(sizes) == 5
            assert sum(size > 1_100_000 for size in sizes) == 1, "the one that is larger by itself"
            machine = Counts()
            with ThreadPoolExecutor(1) as workers:
                assert await load(partition, machine, workers) == 11
            assert machine.totals == shard.machine.totals

    asyncio.run(run())


def test_what_was_asked_before_a_failure_and_not_written_is_refused(tmp_path: Path) -> None:
    async def run() -> None:
        async with hosted(tmp_path / "__t-0") as (partition, _):
            reloads: list[object] = []
            shard = active(partition, reloads)
            result = shard.run(lambda _: shard.machine.add(b"a", 1))
            shard._failed(OSError("an earlier write did not make it"))
            with pytest.raises(CoordinatorNotAvailable):
                await value_of(result)
            await asyncio.sleep(0.01)
            assert partition.log.end_offset == 0, "nothing slips into the log behind the machine that loads now"
            assert reloads == [shard]

    asyncio.run(run())


def test_loading_reads_what_comes_meanwhile(tmp_path: Path) -> None:
    async def run() -> None:
        async with hosted(tmp_path / "__t-0") as (partition, _):
            shard = active(partition)
            for number in range(3):
                shard.run(lambda _, number=number: Outcome([InternalRecord(b"k%d" % number, b"1")], None))  # type: ignore[misc]
                await asyncio.sleep(0)
            machine = Counts()
            with ThreadPoolExecutor(1) as workers:
                loading = asyncio.ensure_future(load(partition, machine, workers))
                await asyncio.sleep(0)
                shard.run(lambda _: Outcome([InternalRecord(b"late", b"1")], None))
                assert await loading == 4
            assert machine.totals[b"late"] == 1

    asyncio.run(run())


class Pairs(Counts):
    """Writes each record together with a copy."""

    def encode(self, record: InternalRecord) -> tuple[InternalRecord, ...]:
        return record, InternalRecord(b"copy of " + record.key, record.value)


def test_what_the_log_has_of_a_record_is_in_one_batch(tmp_path: Path) -> None:
    async def run() -> None:
        async with hosted(tmp_path / "__t-0") as (partition, _):
            shard = Shard(partition, Pairs(), SystemClock(), reload=lambda _: None)
            shard.state = ShardState.ACTIVE
            records = [InternalRecord(b"%d" % number + bytes(300_000), b"1") for number in range(10)]
            await value_of(shard.run(lambda _: Outcome(records, None)))
            cut = partition.slice(0, 1 << 30, committed=False, at_least_one=True)
            assert cut is not None
            data = memoryview(cut.file.read(cut.position, cut.length))
            sizes = [header.record_count for _, header in iter_headers(data)]
            assert sum(sizes) == 20
            assert len(sizes) > 1
            assert all(size % 2 == 0 for size in sizes), sizes

    asyncio.run(run())
