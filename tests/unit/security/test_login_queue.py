import asyncio
import threading
from collections.abc import Callable

import pytest

from headrace.security.login_queue import LoginQueue, LoginsBusy


def test_addresses_take_turns() -> None:
    order: list[str] = []
    first_may_end = threading.Event()

    def step(name: str) -> Callable[[], None]:
        return lambda: order.append(name)

    async def run() -> None:
        queue = LoginQueue(threads=1)
        try:
            busy = asyncio.ensure_future(queue.run("attacker", lambda: first_may_end.wait(30)))
            attacks = [asyncio.ensure_future(queue.run("attacker", step(f"attack {n}"))) for n in range(5)]
            good = asyncio.ensure_future(queue.run("good", step("good")))
            await asyncio.sleep(0)
            first_may_end.set()
            await asyncio.gather(busy, good, *attacks)
        finally:
            queue.close()

    asyncio.run(run())
    assert order.index("good") <= 1
    assert [name for name in order if name != "good"] == [f"attack {n}" for n in range(5)]


def test_waiting_steps_are_bounded() -> None:
    may_end = threading.Event()

    async def run() -> None:
        queue = LoginQueue(threads=1, max_waiting=5, max_waiting_per_address=3)
        try:
            running = [asyncio.ensure_future(queue.run("a", lambda: may_end.wait(30))) for _ in range(4)]
            await asyncio.sleep(0)
            with pytest.raises(LoginsBusy):
                await queue.run("a", lambda: True)
            running += [asyncio.ensure_future(queue.run(name, lambda: True)) for name in ("b", "c")]
            await asyncio.sleep(0)
            with pytest.raises(LoginsBusy):
                await queue.run("d", lambda: True)
            may_end.set()
            assert all(await asyncio.gather(*running))
            assert await queue.run("d", lambda: True)
        finally:
            queue.close()

    asyncio.run(run())


def test_a_step_that_is_cancelled_gives_its_turn_to_another() -> None:
    may_end = threading.Event()

    async def run() -> None:
        queue = LoginQueue(threads=1)
        try:
            busy = asyncio.ensure_future(queue.run("a", lambda: may_end.wait(30)))
            await asyncio.sleep(0)
            cancelled = asyncio.ensure_future(queue.run("a", lambda: True))
            later = asyncio.ensure_future(queue.run("b", lambda: True))
            await asyncio.sleep(0)
            cancelled.cancel()
            may_end.set()
            assert await busy
            assert await later
            with pytest.raises(asyncio.CancelledError):
                await cancelled
        finally:
            queue.close()

    asyncio.run(run())
