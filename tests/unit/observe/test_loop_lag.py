"""The lag of the event loop."""

import asyncio
import time

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
