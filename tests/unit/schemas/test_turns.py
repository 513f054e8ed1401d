"""The lock whose users take turns."""

import asyncio

import pytest

from headrace.schemas.errors import RegistryBusy
from headrace.schemas.turns import FairTurns


async def _hold(turns: FairTurns, name: str, done: list[str]) -> None:
    async with turns.turn(name):
        done.append(name)


async def _begun(turns: FairTurns, names: str, done: list[str]) -> list[asyncio.Task[None]]:
    tasks = [asyncio.create_task(_hold(turns, name, done)) for name in names]
    await asyncio.sleep(0)
    return tasks


def test_names_take_turns() -> None:
    async def test() -> None:
        turns, done = FairTurns(10, 5), list[str]()
        async with turns.turn("x"):
            tasks = await _begun(turns, "aaabc", done)
        await asyncio.gather(*tasks)
        assert "".join(done) == "abcaa"

    asyncio.run(test())


def test_those_that_wait_no_longer_do_not_count() -> None:
    async def test() -> None:
        turns, done = FairTurns(10, 2), list[str]()
        async with turns.turn("x"):
            gone = await _begun(turns, "aa", done)
            for task in gone:
                task.cancel()
            await asyncio.gather(*gone, return_exceptions=True)
            tasks = await _begun(turns, "aab", done)
            with pytest.raises(RegistryBusy):
                await _hold(turns, "a", done)
        await asyncio.gather(*tasks)
        assert "".join(done) == "aba"

    asyncio.run(test())


def test_a_turn_that_was_given_to_a_cancelled_task_goes_to_the_next() -> None:
    async def test() -> None:
        turns, done = FairTurns(10, 5), list[str]()
        async with turns.turn("x"):
            first, second = await _begun(turns, "ab", done)
        first.cancel()
        await asyncio.gather(first, second, return_exceptions=True)
        assert first.cancelled()
        assert done == ["b"]

    asyncio.run(test())
