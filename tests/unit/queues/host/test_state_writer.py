"""Keeping what an engine changes: many decisions to a write, nothing told too soon, and nobody writes out of turn."""

import asyncio
from collections.abc import Sequence

import pytest

from headrace.coordinator.machine import InternalRecord
from headrace.coordinator.result import Result
from headrace.model.errors import CoordinatorNotAvailable, HeadraceError, QueueUnavailable, StaleQueueLeader
from headrace.queues.host import state_writer
from headrace.queues.host.state_writer import StateWriter
from headrace.runtime.clock import SystemClock


class Store:
    def __init__(self) -> None:
        self.term = 0
        self.writes: list[tuple[int, dict[bytes, bytes | None]]] = []
        self.problems: list[HeadraceError] = []
        self.go_on = asyncio.Event()
        self.go_on.set()

    async def open(self, queue: str, epoch: int) -> int:
        if self.problems and isinstance(self.problems[0], StaleQueueLeader):
            raise self.problems[0]
        self.term += 1
        return self.term

    async def read(self, queue: str, term: int) -> list[InternalRecord]:
        return []

    async def write(self, queue: str, term: int, entries: Sequence[InternalRecord]) -> None:
        await self.go_on.wait()
        if term != self.term:
            raise StaleQueueLeader("another term")
        if self.problems:
            raise self.problems.pop(0)
        self.writes.append((term, dict(entries)))

    async def forget(self, queue: str) -> None:
        raise NotImplementedError


class Setup:
    def __init__(self) -> None:
        self.store = Store()
        self.changes: list[InternalRecord] = []
        self.written = 0
        self.lost: list[HeadraceError] = []
        self.writer = StateWriter(
            "q", 3, self.store, SystemClock(), take=self._take, written=self._written, lost=self._lost
        )

    def _take(self) -> Sequence[InternalRecord]:
        changes, self.changes = self.changes, []
        return changes

    def _written(self) -> None:
        self.written += 1

    def _lost(self, error: HeadraceError) -> None:
        self.lost.append(error)
        self.writer.close(QueueUnavailable("closed"))

    def decide(self, key: str) -> "asyncio.Future[None]":
        self.changes.append(InternalRecord(key.encode(), b"v"))
        return asyncio.ensure_future(self.writer.persisted())


def test_what_gathers_while_a_write_is_under_way_goes_with_the_next() -> None:
    async def run() -> None:
        setup = Setup()
        await setup.writer.open()
        setup.store.go_on.clear()
        first = [setup.decide("a"), setup.decide("b")]
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        others = [setup.decide(key) for key in "cde"]
        await asyncio.sleep(0.01)
        assert not any(each.done() for each in first + others)
        setup.store.go_on.set()
        async with asyncio.timeout(30):
            await asyncio.gather(*first, *others)
        assert [set(entries) for _, entries in setup.store.writes] == [{b"a", b"b"}, {b"c", b"d", b"e"}]
        assert setup.written == 2
        # Nothing to write is no write.
        await setup.writer.persisted()
        assert len(setup.store.writes) == 2

    asyncio.run(run())


def test_a_write_that_may_have_been_made_is_made_again_in_another_term() -> None:
    async def run() -> None:
        setup = Setup()
        await setup.writer.open()
        setup.store.problems = [CoordinatorNotAvailable("unknown"), CoordinatorNotAvailable("unknown")]
        async with asyncio.timeout(30):
            await setup.decide("a")
        assert setup.store.writes == [(3, {b"a": b"v"})]
        assert not setup.lost

    asyncio.run(run())


def test_a_leader_that_was_replaced_tells_everybody_and_stops() -> None:
    async def run() -> None:
        setup = Setup()
        await setup.writer.open()
        setup.store.problems = [StaleQueueLeader("a later epoch")]
        waiting = [setup.decide("a"), setup.decide("b")]
        async with asyncio.timeout(30):
            results = await asyncio.gather(*waiting, return_exceptions=True)
        assert [type(result) for result in results] == [QueueUnavailable] * 2
        assert len(setup.lost) == 1
        with pytest.raises(QueueUnavailable):
            await setup.writer.persisted()
        assert setup.store.writes == []

    asyncio.run(run())


def test_nobody_waits_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state_writer, "_PATIENCE_S", 0.05)

    async def run() -> None:
        setup = Setup()
        await setup.writer.open()
        setup.store.go_on.clear()
        with pytest.raises(QueueUnavailable, match="in time"):
            await setup.decide("a")
        # Nor is anything begun that could not be kept.
        with pytest.raises(QueueUnavailable, match="cannot be written now"):
            await setup.decide("b")
        setup.store.go_on.set()
        setup.writer.close(QueueUnavailable("closed"))
        await setup.writer.stopped()

    asyncio.run(run())


def test_those_who_wait_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state_writer, "_WAITING_MAX", 0)

    async def run() -> None:
        setup = Setup()
        await setup.writer.open()
        with pytest.raises(QueueUnavailable, match="overloaded"):
            await setup.decide("b")

    asyncio.run(run())


def test_large_changes_are_several_writes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state_writer, "_PART_BYTES", 10)

    async def run() -> None:
        setup = Setup()
        await setup.writer.open()
        keys = [f"key-{number}" for number in range(5)]
        setup.changes = [InternalRecord(key.encode(), b"v") for key in keys]
        async with asyncio.timeout(30):
            await setup.writer.persisted()
        assert [key.decode() for _, entries in setup.store.writes for key in entries] == keys
        assert len(setup.store.writes) == 5
        assert setup.written == 1

    asyncio.run(run())


def test_who_was_told_that_it_takes_too_long_is_not_told_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state_writer, "_PATIENCE_S", 0.05)

    async def run() -> None:
        setup = Setup()
        await setup.writer.open()
        setup.store.go_on.clear()
        setup.changes.append(InternalRecord(b"a", b"v"))
        told: list[HeadraceError | None] = []
        first = asyncio.Event()

        def tell(result: Result[None]) -> None:
            told.append(result.error)
            first.set()

        setup.writer.when_persisted(tell)
        async with asyncio.timeout(30):
            await first.wait()
            setup.store.go_on.set()
            await setup.writer.stopped()
        assert setup.written == 1
        assert [type(error) for error in told] == [QueueUnavailable]

    asyncio.run(run())
