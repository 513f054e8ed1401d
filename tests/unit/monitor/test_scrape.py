"""Scrapes: in slices, one at a time, and without the parts that fail."""

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Iterable, Iterator

import pytest

from headrace.monitor.collectors.limits import OmittedSeries, omitted_collector
from headrace.monitor.scrape import Scraper, TooManyScrapes
from headrace.observe.exposition import SLICE_S, TextFormat
from headrace.observe.families import MetricFamily, Sample, gauge

VALUE = gauge("x_value", "A value.", "number")


async def read(scraper: Scraper) -> str:
    return b"".join([piece async for piece in scraper.text(TextFormat.PROMETHEUS)]).decode()


def test_the_loop_goes_on_between_slices() -> None:
    async def test() -> None:
        def slow() -> Iterator[Sample]:
            for number in range(3200):
                if number % 32 == 0:
                    time.sleep(SLICE_S / 2)
                yield VALUE.label_text(number), number

        async def collect() -> Iterable[MetricFamily]:
            return [VALUE.family(slow())]

        scraper = Scraper(time.monotonic)
        scraper.add({"slow": collect})
        turns = 0

        async def count_turns() -> None:
            nonlocal turns
            while True:
                await asyncio.sleep(0)
                turns += 1

        counting = asyncio.create_task(count_turns())
        text = await read(scraper)
        counting.cancel()
        assert text.count("x_value{") == 3200
        assert turns >= 20

    asyncio.run(test())


def test_parts_that_fail_are_left_out_and_counted(caplog: pytest.LogCaptureFixture) -> None:
    async def fails() -> Iterable[MetricFamily]:
        raise ValueError("planted")

    def half() -> Iterator[Sample]:
        yield VALUE.label_text(1), 1
        raise ValueError("planted, too")

    async def collect() -> Iterable[MetricFamily]:
        return [VALUE.family(half())]

    scraper = Scraper(time.monotonic)
    scraper.add({"one": fails, "other": collect})
    with caplog.at_level(logging.ERROR):
        first, second = asyncio.run(read(scraper)), asyncio.run(read(scraper))
    assert 'x_value{number="1"} 1\n' in first
    assert "headrace_scrape_errors_total 2\n" in first
    assert "headrace_scrape_errors_total 4\n" in second
    assert "headrace_scrapes_total 2\n" in second
    # The same problem is logged once.
    assert sorted(record.message for record in caplog.records) == [
        "the metric x_value cannot be collected: ValueError('planted, too')",
        "the metrics of one cannot be collected: ValueError('planted')",
    ]


def test_scrapes_wait_for_each_other_and_are_bounded() -> None:
    async def test() -> None:
        release = asyncio.Event()
        running = 0

        async def collect() -> Iterable[MetricFamily]:
            nonlocal running
            running += 1
            assert running == 1
            await release.wait()
            running -= 1
            return [VALUE.family([(VALUE.label_text(0), 0)])]

        scraper = Scraper(time.monotonic)
        scraper.add({"waiting": collect})
        tasks = [asyncio.create_task(read(scraper)) for _ in range(8)]
        await asyncio.sleep(0)
        with pytest.raises(TooManyScrapes, match="less often"):
            await read(scraper)
        release.set()
        assert all("x_value" in text for text in await asyncio.gather(*tasks))
        assert "x_value" in await read(scraper)

    asyncio.run(test())


def test_a_scrape_that_is_abandoned_lets_the_next_one_run() -> None:
    async def test() -> None:
        async def collect() -> Iterable[MetricFamily]:
            return [VALUE.family([(VALUE.label_text(0), 0)])]

        scraper = Scraper(time.monotonic)
        scraper.add({"quick": collect})
        for _ in range(20):
            pieces: AsyncIterator[bytes] = scraper.text(TextFormat.PROMETHEUS)
            await anext(pieces)
            await pieces.aclose()  # type: ignore[attr-defined]
        assert "x_value" in await read(scraper)

    asyncio.run(test())


def test_the_same_things_are_shown_each_time_and_the_rest_is_counted() -> None:
    omitted = OmittedSeries()
    assert omitted.bounded("topics", ["a", "b", "c"], 3, 2) == ["a", "b"]
    assert omitted.bounded("queues", ["q"], 1, 0) == []

    async def text() -> str:
        scraper = Scraper(time.monotonic)
        scraper.add({"limits": omitted_collector(omitted)})
        return await read(scraper)

    found = asyncio.run(text())
    assert 'headrace_metrics_omitted{kind="topics"} 1\n' in found
    assert 'headrace_metrics_omitted{kind="queues"} 1\n' in found
    assert omitted.bounded("topics", ["a"], 1, 2) == ["a"]
    assert omitted.counts["topics"] == 0
