"""The lag of the event loop."""

import asyncio
import time

import pytest

from headrace.observe.loop_lag import LoopLag
from tests.waiting import until_async


def test_a_blocked_loop_is_late() -> None:
    async def test() -> None:
        lag = LoopLag(time.monotonic)
        lag.start()
        await until_async(lambda: lag.lateness.count > 0)
        time.sleep(0.4)  # noqa: ASYNC251  Blocks the loop on purpose.
        seen = lag.lateness.count
        await until_async(lambda: lag.lateness.count > seen)
        lag.stop()
        late = lag.lateness.quantile(1.0)
        assert late is not None
        assert late >= 0.25

    asyncio.run(test())


def test_the_worst_of_the_last_minute_is_remembered_and_forgotten() -> None:
    now_s = 1000.0
    lag = LoopLag(lambda: now_s)

    async def late_by(late_s: float) -> None:
        nonlocal now_s
        lag.start()
        now_s += 0.1 + late_s
        lag._fire()
        lag.stop()

    async def body() -> None:
        nonlocal now_s
        assert lag.worst_s() == 0.0
        await late_by(2.0)
        await late_by(0.5)
        assert lag.worst_s() == pytest.approx(2.0)
        for _ in range(20):
            now_s += 2.0
            await late_by(0.1)
        assert lag.worst_s() == pytest.approx(2.0)
        now_s += 30.0
        assert lag.worst_s() == pytest.approx(0.1)
        now_s += 60.0
        assert lag.worst_s() == 0.0

    asyncio.run(body())
