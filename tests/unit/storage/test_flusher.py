import asyncio
import errno
import threading
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path

import pytest

from headrace.model.errors import StorageFailed
from headrace.model.ids import PartitionIndex, TopicName, TopicPartition
from headrace.storage.flusher import Flusher
from headrace.storage.log import Log
from headrace.storage.ticket import FlushTicket
from headrace.testing.disks import ModelDisk
from headrace.testing.logs import SMALL, LogBench

OFFSETS = TopicPartition(TopicName("__consumer_offsets"), PartitionIndex(7))


class Gate:
    """A hook that holds every sync of a log file until it is opened."""

    def __init__(self, expected: int = 1) -> None:
        self.open = threading.Event()
        self.syncs = 0
        self.began = threading.Event()
        self.all_began = threading.Event()
        self._expected = expected

    def __call__(self, what: str, path: Path) -> None:
        if what == "sync" and path.name.endswith(".log"):
            self.syncs += 1
            self.began.set()
            if self.syncs == self._expected:
                self.all_began.set()
            self.open.wait(60)


async def flushed_to(log: Log, offset: int) -> None:
    """Return when the log is flushed up to an offset."""
    moved, before = asyncio.Event(), log.on_flushed

    def note(log: Log) -> None:
        moved.set()
        if before is not None:
            before(log)

    log.on_flushed = note
    async with asyncio.timeout(60):
        while log.flushed_offset < offset:
            moved.clear()
            await moved.wait()


async def begun(gate: Gate) -> None:
    assert await asyncio.to_thread(gate.began.wait, 60)


def run(test: Callable[[], Awaitable[None]]) -> None:
    async def main() -> None:
        await test()

    asyncio.run(main())


def test_one_sync_serves_everything_that_came_while_the_last_one_ran() -> None:
    async def test() -> None:
        disk, gate = ModelDisk(), Gate()
        bench = LogBench(disk)
        flushed: list[int] = []
        bench.log.on_flushed = lambda log: flushed.append(log.flushed_offset)
        flusher = Flusher()
        disk.hook = gate
        for _ in range(3):
            bench.append(b"x")
            flusher.appended(bench.log)
        await begun(gate)
        for _ in range(5):
            bench.append(b"x")
            flusher.appended(bench.log)
        assert flushed == []
        gate.open.set()
        await flushed_to(bench.log, 8)
        assert flushed == [3, 8]
        assert gate.syncs == 2
        await flusher.stop()

    run(test)


def test_logs_are_synced_side_by_side() -> None:
    async def test() -> None:
        gate = Gate(expected=3)
        benches = [LogBench(ModelDisk()) for _ in range(3)]
        flusher = Flusher(threads=3)
        for bench in benches:
            bench.disk.hook = gate  # type: ignore[attr-defined]
            bench.append(b"x")
            flusher.appended(bench.log)
        assert await asyncio.to_thread(gate.all_began.wait, 60)
        gate.open.set()
        await asyncio.gather(*(flushed_to(bench.log, 1) for bench in benches))
        await flusher.stop()

    run(test)


def test_others_see_whether_any_sync_is_in_progress() -> None:
    async def test() -> None:
        gates, benches = [Gate(), Gate()], [LogBench(ModelDisk()) for _ in range(2)]
        flusher = Flusher(threads=2)
        assert not flusher.between_syncs.is_syncing
        for gate, bench in zip(gates, benches, strict=True):
            bench.disk.hook = gate  # type: ignore[attr-defined]
            bench.append(b"x")
            flusher.appended(bench.log)
            await begun(gate)
            assert flusher.between_syncs.is_syncing
        gates[0].open.set()
        await flushed_to(benches[0].log, 1)
        assert flusher.between_syncs.is_syncing, "the other log is being synced"
        gates[1].open.set()
        await flushed_to(benches[1].log, 1)
        await flusher.settled()
        assert not flusher.between_syncs.is_syncing
        await flusher.stop()

    run(test)


def test_a_failed_sync_ends_writing_and_is_told() -> None:
    async def test() -> None:
        disk = ModelDisk()
        bench = LogBench(disk)
        told: asyncio.Future[tuple[Log, BaseException]] = asyncio.get_running_loop().create_future()
        flusher = Flusher(on_failed=lambda log, error: told.set_result((log, error)))

        def hook(what: str, path: Path) -> None:
            if what == "sync" and path.name.endswith(".log"):
                raise OSError(errno.EIO, "played")

        disk.hook = hook
        bench.append(b"x")
        flusher.appended(bench.log)
        log, error = await asyncio.wait_for(told, 60)
        assert log is bench.log
        assert isinstance(error, StorageFailed)
        assert bench.log.flushed_offset == 0
        with pytest.raises(StorageFailed):
            bench.append(b"y")
        await flusher.stop()

    run(test)


def test_no_room_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headrace.storage.flusher._RETRY_WHEN_FULL_S", 0.01)

    async def test() -> None:
        disk = ModelDisk()
        bench = LogBench(disk)
        flusher = Flusher()
        tries: list[Path] = []

        def hook(what: str, path: Path) -> None:
            if what == "write" and "epoch" in path.name:
                tries.append(path)
                if len(tries) < 3:
                    raise OSError(errno.ENOSPC, "played")

        disk.hook = hook
        bench.append(b"x", epoch=1)
        flusher.appended(bench.log)
        await flushed_to(bench.log, 1)
        assert len(tries) == 3
        await flusher.stop()

    run(test)


def test_under_policy_os_it_waits_for_messages_time_or_a_closed_segment() -> None:
    async def test() -> None:
        disk = ModelDisk()
        bench = LogBench(disk, settings=replace(SMALL, flush_policy="os", flush_messages=3))
        steps = len(disk.steps)
        flusher = Flusher()
        for _ in range(2):
            bench.append(b"x")
            flusher.appended(bench.log)
        await flusher.settled()
        assert {what for what, _ in disk.steps[steps:]} == {"write"}
        bench.append(b"x")
        flusher.appended(bench.log)
        await flushed_to(bench.log, 3)

        bench.log.settings = replace(SMALL, flush_policy="os", flush_ms=20)
        bench.append(b"x")
        flusher.appended(bench.log)
        assert bench.log.flushed_offset == 3
        await flushed_to(bench.log, 4)

        bench.log.settings = replace(SMALL, flush_policy="os")
        bench.append(b"x")
        bench.log.roll()
        bench.append(b"x")
        flusher.appended(bench.log)
        await flushed_to(bench.log, 6)
        await flusher.stop()

    run(test)


def test_stopping_waits_for_what_is_under_way() -> None:
    async def test() -> None:
        disk, gate = ModelDisk(), Gate()
        bench = LogBench(disk)
        flusher = Flusher()
        disk.hook = gate
        bench.append(b"x")
        flusher.appended(bench.log)
        await begun(gate)
        stopping = asyncio.create_task(flusher.stop())
        await asyncio.sleep(0)
        gate.open.set()
        await stopping
        assert bench.log.flushed_offset == 1

    run(test)


def test_a_log_deleted_during_its_sync_is_no_failure() -> None:
    async def test() -> None:
        disk, gate = ModelDisk(), Gate()
        bench = LogBench(disk)
        told: list[Log] = []
        flusher = Flusher(on_failed=lambda log, error: told.append(log))
        disk.hook = gate
        bench.append(b"x", epoch=1)
        flusher.appended(bench.log)
        await begun(gate)
        disk.hook = None
        bench.log.delete()
        gate.open.set()
        await flusher.stop()
        assert not told

    run(test)


def test_an_append_made_by_whom_a_flush_wakes_starts_no_second_sync_beside_the_next(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Two at once would write the same snapshot under the same temporary name, and the slower one would fail."""
    under_way: list[FlushTicket] = []
    most: list[int] = []
    begin, complete = Log.begin_flush, Log.complete_flush

    def begin_flush(log: Log) -> FlushTicket | None:
        ticket = begin(log)
        if ticket is not None:
            under_way.append(ticket)
            most.append(len(under_way))
        return ticket

    def complete_flush(log: Log, ticket: FlushTicket) -> None:
        under_way.remove(ticket)
        complete(log, ticket)

    monkeypatch.setattr(Log, "begin_flush", begin_flush)
    monkeypatch.setattr(Log, "complete_flush", complete_flush)

    async def test() -> None:
        disk, gate = ModelDisk(), Gate()
        bench = LogBench(disk)
        flusher = Flusher()

        def append() -> None:
            bench.append(b"x")
            flusher.appended(bench.log)

        disk.hook = gate
        append()
        await begun(gate)
        append()
        bench.log.on_flushed = lambda log: append() if log.end_offset < 3 else None
        gate.open.set()
        await flushed_to(bench.log, 3)
        await flusher.settled()
        assert max(most) == 1
        await flusher.stop()

    run(test)


def test_a_log_deleted_during_its_sync_writes_nothing_into_the_folder_of_the_next_one() -> None:
    """A topic made anew has folders of the same names, and would take old producers and epochs for its own."""

    async def test() -> None:
        disk, gate = ModelDisk(), Gate()
        bench = LogBench(disk)
        flusher = Flusher()
        bench.append(b"x", epoch=1)
        bench.log.roll()
        bench.append(b"x", epoch=2)
        disk.hook = gate
        flusher.appended(bench.log)
        await begun(gate)
        bench.log.delete()
        disk.make_dir(bench.folder)
        gate.open.set()
        await flusher.stop()
        assert disk.files(bench.folder) == {}

    run(test)


def test_the_log_of_an_internal_topic_does_not_wait_for_those_of_producers() -> None:
    async def test() -> None:
        gate = Gate(expected=2)
        produced = [LogBench(ModelDisk()) for _ in range(4)]
        offsets = LogBench(ModelDisk(), partition=OFFSETS)
        flusher = Flusher(threads=2)
        for bench in produced:
            bench.disk.hook = gate  # type: ignore[attr-defined]
            bench.append(b"x")
            flusher.appended(bench.log)
        assert await asyncio.to_thread(gate.all_began.wait, 60)
        # Each thread for all logs waits for a slow disk.
        offsets.append(b"x")
        flusher.appended(offsets.log)
        await flushed_to(offsets.log, 1)
        assert not any(bench.log.flushed_offset for bench in produced)
        gate.open.set()
        await asyncio.gather(*(flushed_to(bench.log, 1) for bench in produced))
        await flusher.stop()

    run(test)
