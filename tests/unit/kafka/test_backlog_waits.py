"""Producers that wait for room in a backlog whose policy is `block`."""

import asyncio
from types import SimpleNamespace
from typing import Any

from headrace.kafka.backlog_waits import BacklogWaits
from headrace.model.backlog import BacklogBound, BacklogPolicy
from headrace.records.builder import build_batch
from headrace.records.reader import Record
from headrace.replication.backlog import BacklogGuard
from headrace.runtime.clock import ManualClock


class Measure:
    def __init__(self, messages: int) -> None:
        self.count = messages

    def messages(self) -> int:
        return self.count

    def size_bytes(self) -> int:
        return 0

    def oldest_ms(self) -> int | None:
        return None

    def undroppable(self) -> int:
        return 0

    def now_ms(self) -> int:
        return 0


def guard_of(measure: Measure) -> BacklogGuard:
    return BacklogGuard("topic orders", "", BacklogBound(10, 0, 0, BacklogPolicy.BLOCK), measure)


def test_a_small_request_comes_after_a_large_one_that_waits() -> None:
    async def test() -> None:
        guard = guard_of(Measure(8))
        partition = SimpleNamespace(is_leader=True, backlog=guard)
        partitions: Any = SimpleNamespace(get=lambda topic, index: partition)
        waits = BacklogWaits(SimpleNamespace(), partitions, ManualClock())  # type: ignore[arg-type]
        batch = build_batch([Record(0, 0, None, b"x", ())])
        request: Any = SimpleNamespace(topics=[("orders", [(0, batch)])])
        assert waits.concerned(request) == []
        large = asyncio.create_task(guard.until_room(5, 0))
        await asyncio.sleep(0)
        assert waits.concerned(request) == [(guard, 1, len(batch))]
        large.cancel()

    asyncio.run(test())


def test_those_behind_a_request_that_has_given_up_go_on() -> None:
    async def test() -> None:
        measure = Measure(8)
        guard = guard_of(measure)
        large = asyncio.create_task(guard.until_room(5, 0, wait_s=0.05))
        await asyncio.sleep(0)
        small = asyncio.create_task(guard.until_room(1, 0, wait_s=60))
        await large
        await asyncio.wait_for(small, 10)
        assert not guard.has_waiting

    asyncio.run(test())
