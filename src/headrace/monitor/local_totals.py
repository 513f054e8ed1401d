"""The totals of this broker: its process, its disks, its partitions."""

import asyncio
from collections.abc import Callable
from concurrent.futures import Executor
from typing import NamedTuple

from headrace.cluster.metadata import Metadata
from headrace.monitor import process_figures
from headrace.monitor.loop_slices import sliced
from headrace.monitor.snapshots import NO_LATENCY, NO_RATES, BrokerTotals, DiskStat, LatencyStat, ProcessStat, Rates
from headrace.replication.partitions import PartitionTable
from headrace.runtime.clock import Clock
from headrace.version import version

_AGE_PER_PARTITION_MS = 0.2


class HostedSums(NamedTuple):
    replicas: int = 0
    leaders: int = 0
    size_bytes: int = 0
    under_min_isr: int = 0


class LocalTotals:
    def __init__(self, metadata: Metadata, partitions: PartitionTable, clock: Clock, workers: Executor) -> None:
        self._metadata = metadata
        self._partitions = partitions
        self._clock = clock
        self._workers = workers
        self._started_ms = clock.wall_ms()
        self.connections: Callable[[], int] = lambda: 0
        self.loop_lag_s: Callable[[], float] | None = None
        # Of the last sample:
        self.rates: Rates = NO_RATES
        self.latency: LatencyStat = NO_LATENCY
        self.requests_per_s = 0.0
        self.cpu_percent: float | None = None
        self.full_in_s: float | None = None
        self._sums = HostedSums()
        self._summed_ms = 0.0

    async def current(self, *, groups: int, queues: int, open_transactions: int) -> BrokerTotals:
        sums = await self._partition_sums()
        # A volume that hangs, or thousands of open files, must not hold up the event loop.
        process, disk = await asyncio.get_running_loop().run_in_executor(self._workers, self._from_system)
        return BrokerTotals(
            version(),
            self._clock.wall_ms(),
            process,
            [] if disk is None else [disk],
            rates=self.rates,
            requests_per_s=self.requests_per_s,
            latency=self.latency,
            connections=self.connections(),
            leaders=sums.leaders,
            partitions=sums.replicas,
            size_bytes=sums.size_bytes,
            groups=groups,
            queues=queues,
            open_transactions=open_transactions,
            under_min_isr=sums.under_min_isr,
            loop_lag_ms=None if self.loop_lag_s is None else self.loop_lag_s() * 1000,
        )

    async def _partition_sums(self) -> HostedSums:
        """The sums over all partitions: of some thousands they are used for a few seconds."""
        now_ms, sums = self._clock.monotonic_ms(), self._sums
        if now_ms < self._summed_ms + sums.replicas * _AGE_PER_PARTITION_MS:
            return sums
        leaders = replicas = size_bytes = under_min_isr = 0
        async for partition in sliced(tuple(self._partitions.all())):
            replicas += 1
            size_bytes += partition.log.size_bytes
            if partition.is_leader:
                leaders += 1
                under_min_isr += partition.in_sync_count < partition.settings.min_insync_replicas
        self._sums, self._summed_ms = HostedSums(replicas, leaders, size_bytes, under_min_isr), now_ms
        return self._sums

    def _from_system(self) -> tuple[ProcessStat, DiskStat | None]:
        """What the operating system knows. Blocking."""
        process = ProcessStat(
            self._started_ms,
            self.cpu_percent,
            process_figures.memory_bytes(),
            process_figures.open_files(),
            process_figures.thread_count(),
        )
        data_dir = self._metadata.boot_settings.data_dir
        return process, process_figures.disk(self._metadata.broker_id, data_dir, self.full_in_s)
