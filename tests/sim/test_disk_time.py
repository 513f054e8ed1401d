"""Flushes in virtual time: group commit as in production, and a sync that is under way when the power fails."""

from random import Random

import pytest

from headrace.model.ids import BrokerId
from headrace.records.batch import read_header
from headrace.records.builder import build_batch
from headrace.records.reader import Record
from headrace.storage.datadir import DataDir
from headrace.storage.log import Log
from headrace.storage.manager import LogManager, WantedPartition
from headrace.testing.disks import ModelDisk
from headrace.testing.logs import PARTITION, SMALL, TOPIC_ID
from headrace.testing.sim.disk_time import FlushTimes, InlineExecutor, SimFlusher
from headrace.testing.sim.world import Process, ProcessClock, World


def _open(world: World, disk: ModelDisk) -> LogManager:
    data_dir = DataDir(disk.root, "cluster", BrokerId(1))
    clock = ProcessClock(world)
    manager = LogManager(data_dir, disk=disk, clock=clock, make_pool=lambda count, name: InlineExecutor())
    manager.start()
    assert manager.open_logs({PARTITION: WantedPartition(TOPIC_ID, SMALL)}) == {}
    return manager


def _append(process: Process, log: Log, flusher: SimFlusher, value: bytes) -> None:
    batch = build_batch([Record(0, 1_700_000_000_000, None, value)])
    log.append(batch, read_header(batch), 0)
    process.enter(lambda: flusher.appended(log))


def test_one_sync_serves_what_was_appended_while_another_ran() -> None:
    world = World(1)
    process, disk = world.process("b1"), ModelDisk()
    log = _open(world, disk).logs[PARTITION]
    flusher = SimFlusher(process, FlushTimes(world.random))
    flushed: list[int] = []
    log.on_flushed = lambda log: flushed.append(log.flushed_offset)
    _append(process, log, flusher, b"0")
    world.run_for(0)
    for number in range(1, 6):
        _append(process, log, flusher, b"%d" % number)
    world.run_for(1)
    assert flushed[-1] == 6
    assert len(flushed) <= 3
    world.run(process, flusher.stop())


def test_a_sync_under_way_at_a_power_failure_may_have_reached_the_disk_or_not() -> None:
    ends = set()
    for seed in range(40):
        world = World(seed)
        process, disk = world.process("b1"), ModelDisk()
        log = _open(world, disk).logs[PARTITION]
        flusher = SimFlusher(process, FlushTimes(world.random))
        _append(process, log, flusher, b"safe")
        world.run_for(1)
        assert log.flushed_offset == 1
        for _ in range(5):
            _append(process, log, flusher, b"unsafe")
        process.die()
        process.reap()
        world.run_for(1)
        assert log.flushed_offset == 1
        ends.add(_open(world, disk.after_power_loss(Random(seed))).logs[PARTITION].end_offset)
    assert {1, 2} <= ends <= {1, 2, 3, 4, 5, 6}


def test_a_failed_sync_is_told() -> None:
    world = World(1)
    process, disk = world.process("b1"), ModelDisk()
    log = _open(world, disk).logs[PARTITION]
    told: list[BaseException] = []
    flusher = SimFlusher(process, FlushTimes(world.random), on_failed=lambda _, error: told.append(error))

    def fail(step: str, path: object) -> None:
        if step == "sync":
            raise OSError(5, "Input/output error")

    disk.hook = fail
    _append(process, log, flusher, b"x")
    world.run_for(1)
    assert "Input/output error" in str(told[0])
    assert log.failure is not None


def test_what_an_executor_is_given_runs_at_once() -> None:
    with InlineExecutor() as pool:
        assert list(pool.map(lambda number: number * 2, [1, 2])) == [2, 4]
        failed = pool.submit(lambda: 1 // 0)
    with pytest.raises(ZeroDivisionError):
        failed.result()
