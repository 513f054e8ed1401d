"""Looks at the broker every five seconds: rates from counters, points for the history, the disk's forecast.

With so many partitions and groups that a look takes more than 0.1 s, the pause is 50 times as long as the look took: at
most a fiftieth of a core.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable

from headrace.monitor import process_figures
from headrace.monitor.forecast import full_in_s
from headrace.monitor.history import FigureHistory, Values
from headrace.monitor.latency import RequestSample
from headrace.monitor.local_totals import LocalTotals
from headrace.monitor.local_view import LocalView
from headrace.monitor.loop_slices import sliced
from headrace.monitor.rates import RateTable
from headrace.monitor.snapshots import BrokerTotals, GroupStat, LedTopic, QueueStat
from headrace.runtime.clock import Clock

log = logging.getLogger(__name__)

EVERY_S = 5.0
_PAUSE_PER_LOOK = 50
_DISK_SAMPLES = 120
"""Ten minutes of them."""


class Sampler:
    def __init__(
        self,
        *,
        clock: Clock,
        rates: RateTable,
        history: FigureHistory,
        local: LocalView,
        local_totals: LocalTotals,
        requests: RequestSample,
        totals: Callable[[], Awaitable[BrokerTotals]],
        topics: Callable[[], Awaitable[list[LedTopic]]],
        groups: Callable[[], Awaitable[list[GroupStat]]],
        queues: Callable[[], Awaitable[list[QueueStat]]],
        has_topic: Callable[[str], bool],
    ) -> None:
        """`totals`, `topics`, `groups` and `queues` return the figures of this broker. `has_topic`: whether a topic is
        in the cluster."""
        self._clock = clock
        self._rates = rates
        self._history = history
        self._local = local
        self._local_totals = local_totals
        self._requests = requests
        self._totals = totals
        self._topics = topics
        self._groups = groups
        self._queues = queues
        self._has_topic = has_topic
        self._turn = asyncio.Lock()
        self._disk: deque[tuple[float, float]] = deque(maxlen=_DISK_SAMPLES)
        """Monotonic time in s, and free bytes."""
        self._cpu: tuple[float, float] | None = None
        """Monotonic time in ms, and processor time in s."""

    async def run(self) -> None:
        """Take samples until cancelled. A look that fails is logged, and the next one is taken as usual."""
        while True:
            began_ms = self._clock.monotonic_ms()
            try:
                await self.sample()
            except Exception:
                log.exception("the broker could not be sampled")
            took_s = (self._clock.monotonic_ms() - began_ms) / 1000
            await asyncio.sleep(max(EVERY_S - took_s, took_s * _PAUSE_PER_LOOK))

    async def sample(self) -> None:
        """Take a sample, after one that is in progress."""
        async with self._turn:
            await self._sample()

    async def _sample(self) -> None:
        await self._measure_rates()
        self._measure_cpu()
        totals = await self._totals()
        if totals.disks:
            self._disk.append((self._clock.monotonic_ms() / 1000, totals.disks[0].free_bytes))
            self._local_totals.full_in_s = full_in_s(self._disk)
        wall_ms = self._clock.wall_ms()
        self._history.add("broker", "", wall_ms, _of_broker(totals))
        async for topic in sliced(await self._topics()):
            self._history.add("topic", topic.topic, wall_ms, _of_topic(topic))
        async for group in sliced(await self._groups()):
            self._history.add("group", group.group, wall_ms, _of_group(group))
        async for queue in sliced(await self._queues()):
            self._history.add("queue", queue.queue, wall_ms, _of_queue(queue))
        self._history.drop_idle(wall_ms)
        for kind in ("topic", "queue"):
            self._history.drop_unless(kind, self._has_topic)

    async def _measure_rates(self) -> None:
        now_ms = self._clock.monotonic_ms()
        await self._local.note_counters(now_ms)
        self._rates.finish(now_ms)
        self._requests.take(now_ms)
        totals = self._local_totals
        totals.rates = self._local.total_rates()
        totals.requests_per_s, totals.latency = self._requests.per_s, self._requests.latency

    def _measure_cpu(self) -> None:
        now_ms, used_s = self._clock.monotonic_ms(), process_figures.cpu_seconds()
        if self._cpu is not None and now_ms > self._cpu[0]:
            self._local_totals.cpu_percent = 100_000 * (used_s - self._cpu[1]) / (now_ms - self._cpu[0])
        self._cpu = now_ms, used_s


def _of_broker(totals: BrokerTotals) -> Values:
    rates, latency = totals.rates, totals.latency
    return {
        "messages_in_per_s": rates.messages_in_per_s,
        "bytes_in_per_s": rates.bytes_in_per_s,
        "messages_out_per_s": rates.messages_out_per_s,
        "bytes_out_per_s": rates.bytes_out_per_s,
        "requests_per_s": totals.requests_per_s,
        "produce_p50_ms": latency.produce_p50_ms,
        "produce_p99_ms": latency.produce_p99_ms,
        "fetch_p50_ms": latency.fetch_p50_ms,
        "fetch_p99_ms": latency.fetch_p99_ms,
        "connections": totals.connections,
        "cpu_percent": totals.process.cpu_percent,
        "memory_bytes": totals.process.memory_bytes,
        "disk_free_bytes": sum(disk.free_bytes for disk in totals.disks),
    }


def _of_topic(topic: LedTopic) -> Values:
    return {
        "messages_in_per_s": topic.rates.messages_in_per_s,
        "bytes_in_per_s": topic.rates.bytes_in_per_s,
        "messages_out_per_s": topic.rates.messages_out_per_s,
        "bytes_out_per_s": topic.rates.bytes_out_per_s,
    }


def _of_group(group: GroupStat) -> Values:
    return {
        "lag_messages": group.lag_messages,
        "lag_seconds": group.lag_seconds,
        "consumed_per_s": group.consumed_per_s,
    }


def _of_queue(queue: QueueStat) -> Values:
    return {
        "visible": queue.visible,
        "in_flight": queue.in_flight,
        "delayed": queue.delayed,
        "oldest_age_s": queue.oldest_age_s if queue.visible is None or queue.oldest_age_s is not None else 0.0,
        "sent_per_s": queue.sent_per_s,
        "received_per_s": queue.received_per_s,
        "deleted_per_s": queue.deleted_per_s,
    }
