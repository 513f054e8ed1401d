"""Work in slices: other work has its turn, however long one object takes."""

import asyncio
import time

from headrace.monitor.loop_slices import CHECKED_EVERY, SLICE_S, sliced


def spend(seconds: float) -> None:
    ends_s = time.perf_counter() + seconds
    while time.perf_counter() < ends_s:
        pass


def test_other_work_has_its_turn_within_a_slice() -> None:
    async def work() -> int:
        turns = 0

        async def other() -> None:
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0)

        task = asyncio.create_task(other())
        began_s = time.perf_counter()
        async for _ in sliced(range(20 * CHECKED_EVERY)):
            spend(SLICE_S / CHECKED_EVERY)
        assert time.perf_counter() - began_s >= 20 * SLICE_S
        task.cancel()
        return turns

    assert asyncio.run(work()) >= 10


def test_quick_work_is_done_at_once() -> None:
    async def work() -> list[int]:
        return [each async for each in sliced(range(10 * CHECKED_EVERY))]

    assert asyncio.run(work()) == list(range(10 * CHECKED_EVERY))
