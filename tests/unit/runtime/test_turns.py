"""Works that share the event loop."""

import asyncio
from collections.abc import Iterator

from tests.waiting import until_async

from headrace.runtime.turns import Turns


def steps(name: str, count: int, done: list[str]) -> Iterator[None]:
    for number in range(count):
        done.append(f"{name}{number}")
        if number < count - 1:
            yield


def test_a_short_work_is_done_at_once() -> None:
    async def run() -> list[str]:
        done: list[str] = []
        Turns().run(steps("a", 1, done))
        return done

    assert asyncio.run(run()) == ["a0"]


def test_works_take_turns_and_leave_the_loop_to_others() -> None:
    async def run() -> list[str]:
        done: list[str] = []
        turns = Turns()
        turns.run(steps("a", 3, done))
        turns.run(steps("b", 3, done))
        while len(done) < 8:
            done.append("loop") if done.count("loop") < 2 else None
            await asyncio.sleep(0)
        return done

    assert asyncio.run(run()) == ["a0", "loop", "a1", "loop", "b0", "a2", "b1", "b2"]


def test_a_work_that_fails_does_not_stop_the_others() -> None:
    def failing() -> Iterator[None]:
        yield
        raise ValueError

    async def run() -> list[str]:
        problems: list[str] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: problems.append(context["message"]))
        done: list[str] = []
        turns = Turns()
        turns.run(failing())
        turns.run(steps("a", 2, done))
        await until_async(lambda: len(done) == 2)
        assert problems
        return done

    assert asyncio.run(run()) == ["a0", "a1"]
