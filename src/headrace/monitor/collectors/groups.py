"""Groups that this broker coordinates: members, states and lag, in messages and in seconds.

`kafka_consumergroup_*` are kafka_exporter's names. Every group is exported by its coordinator, so that a sum over all
brokers has it once. A group that has stopped has a lag like any other, as long as its offsets are stored.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from typing import NamedTuple

from headrace.config.broker import BrokerSettings
from headrace.monitor.collectors.limits import OmittedSeries
from headrace.monitor.lag import LagBook, LagFigures, Place
from headrace.monitor.local_groups import Coordinated
from headrace.monitor.loop_slices import sliced
from headrace.monitor.monitor import Monitor
from headrace.monitor.scrape import Collector
from headrace.observe.families import MetricFamily, Sample, escaped, gauge

_TOPIC = ("consumergroup", "topic")
_PARTITION = ("consumergroup", "topic", "partition")

OFFSET = gauge("kafka_consumergroup_current_offset", "The committed offset of a group in a partition.", *_PARTITION)
OFFSET_SUM = gauge("kafka_consumergroup_current_offset_sum", "Their sum over the partitions of a topic.", *_TOPIC)
LAG = gauge("kafka_consumergroup_lag", "Messages behind the high watermark of a partition.", *_PARTITION)
LAG_SUM = gauge("kafka_consumergroup_lag_sum", "Their sum over the partitions of a topic.", *_TOPIC)
MEMBERS = gauge("kafka_consumergroup_members", "Members of a group.", "consumergroup")
LAG_SECONDS = gauge(
    "headrace_group_lag_seconds",
    "How long ago the next record that the group reads was written; 0 if it has read all.",
    "group",
    "topic",
    "partition",
)
LAG_SECONDS_MAX = gauge("headrace_group_lag_max_seconds", "The largest of its partitions.", "group")
STATE = gauge("headrace_group_state", "1 for the state that a group is in.", "group", "kind", "state")
GROUPS = gauge("headrace_groups", "Groups that this broker coordinates.", "kind", "state")
METRICS = (LAG_SECONDS, LAG_SECONDS_MAX, STATE, GROUPS)
KAFKA_EXPORTER_METRICS = (OFFSET, OFFSET_SUM, LAG, LAG_SUM, MEMBERS)

WAIT_S = 0.7
"""The most that a scrape waits for leaders on other brokers."""

Held = tuple[Coordinated, list[tuple[Place, int, LagFigures | None]]]
"""A group, and where it is: partition, committed offset and lag."""


class _Row(NamedTuple):
    """A group's position in one partition, with the text of its labels."""

    group: str
    topic: str
    partition: int
    offset: int
    lag: LagFigures | None

    def kafka_labels(self) -> str:
        return f'consumergroup="{self.group}",topic="{self.topic}",partition="{self.partition}"'

    def labels(self) -> str:
        return f'group="{self.group}",topic="{self.topic}",partition="{self.partition}"'


class _TopicSum:
    __slots__ = ("lag", "offset")

    def __init__(self) -> None:
        self.offset = 0
        self.lag: int | None = None


def group_collector(monitor: Monitor, settings: Callable[[], BrokerSettings], omitted: OmittedSeries) -> Collector:
    lag_book = monitor.new_lag_book()

    async def collect() -> Iterable[MetricFamily]:
        limits = settings()
        every = await _refreshed(monitor.coordinated_groups(), lag_book)
        kinds = Counter((each.group.kind, each.group.state_name) for each, _ in every)
        shown = omitted.bounded("groups", every, len(every), limits.metrics_group_max)
        rows: list[_Row] = []
        sums: dict[tuple[str, str], _TopicSum] = {}
        async for found, held in sliced(shown):
            group = escaped(found.group.group_id)
            for (topic, partition), offset, lag in held:
                rows.append(_Row(group, topic, partition, offset, lag))
                _add(sums, (group, topic), offset, lag)
        bounded = omitted.bounded("group_partitions", rows, len(rows), limits.metrics_group_partition_max)
        return (
            GROUPS.family([(GROUPS.label_text(*labels), count) for labels, count in kinds.items()]),
            *_group_families(shown),
            *_position_families(bounded),
            *_sum_families(sums),
        )

    return collect


async def _refreshed(groups: Sequence[Coordinated], lag: LagBook) -> list[Held]:
    """Each group with its positions and their lag, which is unknown if a leader has not answered in time."""
    found = [(each, each.committed()) async for each in sliced(groups)]
    positions: dict[Place, set[int]] = {}
    async for _, committed in sliced(found):
        for place, value in committed:
            positions.setdefault(place, set()).add(value.offset)
    with suppress(TimeoutError):
        async with asyncio.timeout(WAIT_S):
            await lag.refresh(positions, is_all=True)
    return [
        (each, [(place, value.offset, lag.at(place, value.offset)) for place, value in committed])
        async for each, committed in sliced(found)
    ]


def _add(sums: dict[tuple[str, str], _TopicSum], key: tuple[str, str], offset: int, lag: LagFigures | None) -> None:
    total = sums.get(key)
    if total is None:
        total = sums[key] = _TopicSum()
    total.offset += offset
    if lag is not None:
        total.lag = lag.lag_messages + (total.lag or 0)


def _group_families(shown: list[Held]) -> Iterator[MetricFamily]:
    yield MEMBERS.family((MEMBERS.label_text(each.group.group_id), each.group.member_count) for each, _ in shown)
    yield STATE.family(
        (STATE.label_text(each.group.group_id, each.group.kind, each.group.state_name), 1) for each, _ in shown
    )
    yield LAG_SECONDS_MAX.family(_largest(shown))


def _largest(shown: list[Held]) -> Iterator[Sample]:
    for each, held in shown:
        seconds = [lag.lag_seconds for _, _, lag in held if lag is not None and lag.lag_seconds is not None]
        if seconds:
            yield LAG_SECONDS_MAX.label_text(each.group.group_id), max(seconds)


def _position_families(rows: list[_Row]) -> Iterator[MetricFamily]:
    yield OFFSET.family((row.kafka_labels(), row.offset) for row in rows)
    yield LAG.family((row.kafka_labels(), row.lag.lag_messages) for row in rows if row.lag is not None)
    yield LAG_SECONDS.family(
        (row.labels(), row.lag.lag_seconds) for row in rows if row.lag is not None and row.lag.lag_seconds is not None
    )


def _sum_families(sums: dict[tuple[str, str], _TopicSum]) -> Iterator[MetricFamily]:
    def labels(key: tuple[str, str]) -> str:
        return f'consumergroup="{key[0]}",topic="{key[1]}"'

    yield OFFSET_SUM.family((labels(key), total.offset) for key, total in sums.items())
    yield LAG_SUM.family((labels(key), total.lag) for key, total in sums.items() if total.lag is not None)
