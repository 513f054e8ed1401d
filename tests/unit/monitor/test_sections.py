"""Rows of a broker's figures: computed once for all who ask, and sent in pages of bounded size."""

import asyncio
from collections.abc import Iterator

import msgspec
import pytest

from headrace.monitor.cached import Cached
from headrace.monitor.calls import PAGE_BYTES
from headrace.monitor.sections import Section, decoded_rows, encoded_pages
from headrace.monitor.snapshots import GroupStat, GroupTopicLag
from headrace.runtime.clock import ManualClock


def groups(count: int) -> list[GroupStat]:
    return [
        GroupStat(f"group-{number:05}", "classic", "Empty", "consumer", 0, 1, [GroupTopicLag("topic", 3, number, 1.5)])
        for number in range(count)
    ]


def test_rows_come_back_from_pages_as_they_were() -> None:
    rows = groups(10_000)
    pages = asyncio.run(encoded_pages(rows))
    assert len(pages) > 2
    assert all(len(page) < PAGE_BYTES + 16 for page in pages)
    assert [row for page in pages for row in decoded_rows("groups", msgspec.Raw(page))] == rows
    assert asyncio.run(encoded_pages([])) == [b"\x90"]


def test_fields_that_a_newer_version_appends_are_ignored_and_missing_ones_have_defaults() -> None:
    row = msgspec.msgpack.decode(msgspec.msgpack.encode(groups(1)[0]))
    newer, older = [*row, "new"], row[:6]
    (read,) = decoded_rows("groups", msgspec.Raw(msgspec.msgpack.encode([newer])))
    assert read == groups(1)[0]
    (read,) = decoded_rows("groups", msgspec.Raw(msgspec.msgpack.encode([older])))
    assert read == GroupStat("group-00000", "classic", "Empty", "consumer", 0, 1)


def test_pages_of_a_version_stay_the_same_while_rows_change() -> None:
    async def run() -> None:
        clock, sizes = ManualClock(), iter([5_000, 10])

        async def build() -> list[GroupStat]:
            return groups(next(sizes))

        section = Section(build, clock)
        first = await section.page(0, 0)
        assert first.pages > 1
        clock.advance(60_000)
        second = await section.page(first.version, 1)
        assert second.version == first.version
        found = decoded_rows("groups", first.rows) + decoded_rows("groups", second.rows)
        assert found == groups(5_000)[: len(found)]
        # A version that is gone: the first page of the current one.
        newest = await section.page(99, 1)
        assert newest.version != first.version
        assert decoded_rows("groups", newest.rows) == groups(10)

    asyncio.run(run())


def test_all_who_ask_share_one_computation() -> None:
    async def run() -> None:
        clock, computed, go = ManualClock(), list[int](), asyncio.Event()

        async def compute() -> list[int]:
            computed.append(1)
            await go.wait()
            return [len(computed)]

        cached = Cached(compute, clock, 500)
        asked = [asyncio.ensure_future(cached.get()) for _ in range(5)]
        await asyncio.sleep(0)
        asked[0].cancel()
        go.set()
        assert await asyncio.gather(*asked[1:]) == [[1]] * 4
        clock.advance(499)
        assert await cached.get() == [1]
        clock.advance(1)
        assert await cached.get() == [2]

    asyncio.run(run())


def test_many_rows_are_returned_while_they_are_computed_again() -> None:
    async def run() -> None:
        clock, versions, go = ManualClock(), iter(range(10)), asyncio.Event()
        go.set()

        async def compute() -> list[int]:
            await go.wait()
            return [next(versions)] * 3_000

        cached = Cached(compute, clock, 500)
        assert (await cached.get())[0] == 0
        go.clear()
        clock.advance(1499)
        assert (await cached.get())[0] == 0, "3,000 rows are used for 1.5 s"
        clock.advance(1)
        assert (await cached.get())[0] == 0
        go.set()
        for _ in range(5):
            await asyncio.sleep(0)
        assert (await cached.get())[0] == 1
        clock.advance(31_000)
        assert (await cached.get())[0] == 2, "what is older than 30 s is waited for"

    asyncio.run(run())


def test_an_error_goes_to_those_who_wait_and_is_not_remembered() -> None:
    async def run() -> None:
        outcomes: Iterator[ValueError | list[int]] = iter([ValueError("played"), [1]])

        async def compute() -> list[int]:
            outcome = next(outcomes)
            if isinstance(outcome, ValueError):
                raise outcome
            return outcome

        cached = Cached(compute, ManualClock(), 500)
        with pytest.raises(ValueError, match="played"):
            await cached.get()
        assert await cached.get() == [1]
        await cached.stop()

    asyncio.run(run())
