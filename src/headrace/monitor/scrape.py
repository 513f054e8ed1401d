"""A scrape: asks every collector, and renders the metrics in slices, between which the event loop goes on.

One scrape runs at a time and at most `_MAX_WAITING` wait for it; beyond that they are refused. A collector that fails
is logged and counted, and the rest is served.
"""

import asyncio
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping
from itertools import chain

from headrace.model.errors import HeadraceError
from headrace.observe.exposition import TextFormat, rendered
from headrace.observe.families import Metric, MetricFamily, counter, gauge
from headrace.observe.repeated_log import RepeatedLog

log = logging.getLogger(__name__)

_MAX_WAITING = 8

Collector = Callable[[], Awaitable[Iterable[MetricFamily]]]
"""Collects metrics. Work in proportion to partitions or groups belongs into iterators of samples, which are consumed in
slices; they copy what may change meanwhile."""

SCRAPES = counter("headrace_scrapes_total", "Scrapes of this broker's metrics, this one included.")
SCRAPE_SECONDS = gauge("headrace_scrape_duration_seconds", "How long the last complete scrape took.")
SCRAPE_ERRORS = counter("headrace_scrape_errors_total", "Metrics and collectors left out of scrapes after an error.")
METRICS = (SCRAPES, SCRAPE_SECONDS, SCRAPE_ERRORS)


class TooManyScrapes(HeadraceError):
    """Several scrapes wait already."""


class Scraper:
    def __init__(self, now_s: Callable[[], float]) -> None:
        self.collectors: dict[str, Collector] = {}
        """The collectors by name, in the order in which their metrics appear."""
        self._now_s = now_s
        self._lock = asyncio.Lock()
        self._waiting = 0
        self._count = 0
        self._errors = 0
        self._last_s = 0.0
        self._failures = RepeatedLog(log)

    def add(self, collectors: Mapping[str, Collector] | Iterable[tuple[str, Collector]]) -> None:
        self.collectors.update(collectors)

    async def text(self, text_format: TextFormat) -> AsyncGenerator[bytes, None]:
        """Yield the text in slices of a few milliseconds. Raises `TooManyScrapes` before the first."""
        if self._waiting >= _MAX_WAITING:
            raise TooManyScrapes(f"{_MAX_WAITING} scrapes wait already: scrape this broker less often")
        self._waiting += 1
        try:
            async with self._lock:
                began_s = self._now_s()
                self._count += 1
                families = [await self._collected(*each) for each in self.collectors.items()]
                for piece in rendered(chain(*families, self._own()), text_format, self._now_s, self._failed):
                    yield piece
                    await asyncio.sleep(0)
                self._last_s = self._now_s() - began_s
        finally:
            self._waiting -= 1

    async def _collected(self, name: str, collector: Collector) -> Iterable[MetricFamily]:
        try:
            return await collector()
        except Exception as error:
            self._note(f"the metrics of {name} cannot be collected: {error!r}")
            return ()

    def _failed(self, metric: Metric, error: Exception) -> None:
        self._note(f"the metric {metric.name} cannot be collected: {error!r}")

    def _note(self, problem: str) -> None:
        self._errors += 1
        self._failures.note(problem, problem, logging.ERROR)

    def _own(self) -> Iterable[MetricFamily]:
        yield SCRAPES.single(self._count)
        yield SCRAPE_SECONDS.single(self._last_s)
        yield SCRAPE_ERRORS.single(self._errors)
