"""Bounds of the number of series: what is beyond them is left out, and counted."""

from collections.abc import Iterable
from itertools import islice
from typing import TypeVar

from headrace.monitor.scrape import Collector
from headrace.observe.families import MetricFamily, gauge

T = TypeVar("T")

OMITTED = gauge(
    "headrace_metrics_omitted",
    "Objects without metrics of their own, because there are more than metrics.*.max: topics, partitions, groups, "
    "group_partitions or queues.",
    "kind",
)
METRICS = (OMITTED,)
KINDS = ("topics", "partitions", "groups", "group_partitions", "queues")


class OmittedSeries:
    """How many objects the last scrape has left out, by kind."""

    def __init__(self) -> None:
        self.counts: dict[str, int] = dict.fromkeys(KINDS, 0)

    def bounded(self, kind: str, things: Iterable[T], count: int, most: int) -> list[T]:
        """The first of `count` things, in their order, so that the same ones are shown each time."""
        self.counts[kind] = max(0, count - most)
        return list(islice(things, max(0, most)))


def omitted_collector(omitted: OmittedSeries) -> Collector:
    """Must be the last of all collectors."""

    async def collect() -> Iterable[MetricFamily]:
        return (OMITTED.family((OMITTED.label_text(kind), count) for kind, count in omitted.counts.items()),)

    return collect
