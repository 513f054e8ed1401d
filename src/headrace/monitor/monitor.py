"""What this broker and the whole cluster are doing, for the HTTP API, the dashboard, the terminal, health and metrics.

Every method answers for the whole cluster. A broker that does not answer, because it is down or of an older version,
is listed without data, and its part of the figures is missing: that is never an error.

Figures are at most a second old, and so are the lags in seconds. With more than 1,000 topics or groups they are used
for longer, so that watching a large cluster costs at most a twentieth of a core: 15,000 groups for 7.5 s, or up to 30 s
for the first look in a while. One topic or group by name is always current.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from functools import partial
from typing import Any

from headrace.model.errors import HeadraceError
from headrace.model.ids import BrokerId, TopicName
from headrace.model.image import ClusterImage, TopicImage
from headrace.monitor import merge
from headrace.monitor.cached import Cached
from headrace.monitor.calls import (
    AskClient,
    AskGroup,
    AskHistory,
    AskTopic,
    AskTotals,
    LedPartitions,
)
from headrace.monitor.clients.connected import ConnectedClient, ConnectedPeer, merged_clients
from headrace.monitor.clients.view import ClientDetail, ClientStat
from headrace.monitor.cluster_view import ClusterFigures
from headrace.monitor.health.problem import HealthProblem
from headrace.monitor.history import merge_histories
from headrace.monitor.lag import LagBook
from headrace.monitor.local_groups import Coordinated
from headrace.monitor.loop_slices import sliced
from headrace.monitor.own_figures import MonitoredParts, OwnFigures
from headrace.monitor.quota_use import QuotaUseStat, merged_use
from headrace.monitor.snapshots import (
    BrokerStat,
    BrokerTotals,
    GroupDetail,
    GroupStat,
    HistoryData,
    Overview,
    QueueStat,
    ShareGroupStat,
    SharePartitionStat,
    TopicDetail,
    TopicStat,
    TransactionStat,
)
from headrace.queues.catalog import is_queue

_MAX_AGE_MS = 500.0
"""Together with the age of the sections (`sections.py`) less than a second."""


__all__ = ["Monitor", "MonitoredParts"]


class Monitor:
    def __init__(self, parts: MonitoredParts) -> None:
        self._parts = parts
        self._metadata = metadata = parts.metadata
        self._clock = clock = parts.clock
        self._own = OwnFigures(parts)
        self._cluster = ClusterFigures(metadata, clock, parts.peers)
        self._readers: tuple[list[GroupStat], merge.TopicReaders] = [], merge.TopicReaders()
        """The readers of topics, with the groups that they were made from."""
        self._worst: tuple[list[GroupStat], list[GroupStat]] = [], []
        """The groups that are farthest behind, of those that they were found among."""
        self._counts: merge.TopicCounts | None = None
        self._ordered: tuple[Mapping[TopicName, TopicImage], list[TopicImage]] = {}, []
        self._brokers: Cached[BrokerStat] = Cached(self._gather_brokers, clock, _MAX_AGE_MS)
        self._topics = Cached(self._merge_topics, clock, _MAX_AGE_MS)
        self._groups = Cached(self._merge_groups, clock, _MAX_AGE_MS)
        self._shares: Cached[SharePartitionStat] = Cached(lambda: self._gather("shares"), clock, _MAX_AGE_MS)
        self._queues = Cached(self._merge_queues, clock, _MAX_AGE_MS)
        self._transactions = Cached(self._merge_transactions, clock, _MAX_AGE_MS)
        self._connected = Cached(self._merge_connected, clock, _MAX_AGE_MS)
        self._quota_use = Cached(self._merge_quota_use, clock, _MAX_AGE_MS)
        self._problems = Cached(lambda: self._gather("problems"), clock, _MAX_AGE_MS)

    def set_connection_count(self, count: Callable[[], int]) -> None:
        """Set where the number of open connections comes from, once there are listeners."""
        self._own.process.connections = count

    def set_connected(self, peers: Callable[[], Iterable[ConnectedPeer]]) -> None:
        """Set where the clients of open connections come from, once there are listeners."""
        self._own.connected.peers = peers

    def set_loop_lag(self, worst_s: Callable[[], float]) -> None:
        """Set where the longest delay of the event loop within the last minute comes from."""
        self._own.process.loop_lag_s = worst_s

    def set_problems(self, find: Callable[[], list[HealthProblem]]) -> None:
        """Set where the problems that this broker sees come from."""
        self._own.find_problems = find

    def start(self) -> None:
        """Begin to take samples."""
        self._own.start()

    async def sample(self) -> None:
        """Take a sample now, besides those that are taken every few seconds."""
        await self._own.sample()

    async def stop(self) -> None:
        """Take no more samples, and cancel what is being computed."""
        await self._own.stop()
        merged: tuple[Cached[Any], ...] = (
            self._brokers,
            self._topics,
            self._groups,
            self._shares,
            self._queues,
            self._transactions,
            self._problems,
            self._connected,
            self._quota_use,
        )
        for cached in merged:
            await cached.stop()

    # -- the cluster

    async def overview(self) -> Overview:
        """The cluster at a glance: totals, brokers, disks, and the groups and queues that need attention most."""
        brokers, groups, queues = await self.brokers(), await self.groups(), await self.queues()
        counts = await self._topic_counts()
        if self._worst[0] is not groups:
            self._worst = groups, merge.worst_groups(groups)
        return merge.overview(counts, brokers, groups, self._worst[1], queues, self._clock.wall_ms())

    async def _topic_counts(self) -> merge.TopicCounts:
        image = self._metadata.image
        if self._counts is None or self._counts.image is not image:
            counts = merge.TopicCounts(image)
            async for topic in sliced(image.topics.values()):
                counts.add(topic)
            self._counts = counts
        return self._counts

    async def brokers(self) -> list[BrokerStat]:
        """Every broker of the cluster by id, alive or not."""
        return await self._brokers.get()

    async def _gather_brokers(self) -> list[BrokerStat]:
        found = await self._cluster.gather(
            self._own.totals, lambda broker_id: self._cluster.ask(broker_id, AskTotals(), BrokerTotals)
        )
        return merge.broker_stats(self._metadata.image, found.answers, found.problems, self._clock.wall_ms())

    async def _gather(self, section: str) -> list[Any]:
        """The rows of all brokers that answer."""
        found = await self._cluster.gather(
            self._own.sections[section].rows, lambda broker_id: self._cluster.rows(broker_id, section)
        )
        return [row for _, rows in sorted(found.answers.items()) for row in rows]

    async def own_rows(self, section: str) -> list[Any]:
        """The rows of this broker alone. Not to be changed."""
        return await self._own.sections[section].rows()

    async def own_totals(self) -> BrokerTotals:
        """What this broker has and does."""
        return await self._own.totals()

    async def problems(self) -> list[HealthProblem]:
        """The problems that each broker sees; some are seen by several."""
        return await self._problems.get()

    # -- topics

    async def topics(self) -> list[TopicStat]:
        """Every topic, internal ones and queues as well, by name."""
        return await self._topics.get()

    async def _merge_topics(self) -> list[TopicStat]:
        led, groups, image = await self._gather("topics"), await self.groups(), self._metadata.image
        summed = merge.TopicMerge(image, is_queue, await self._readers_of(groups))
        async for row in sliced(led):
            summed.add(row)
        return [summed.stat(topic) async for topic in sliced(self._by_name(image))]

    def _by_name(self, image: ClusterImage) -> list[TopicImage]:
        """The topics in the order of their names, sorted once for an image."""
        if self._ordered[0] is not image.topics:
            self._ordered = image.topics, sorted(image.topics.values(), key=lambda each: each.name)
        return self._ordered[1]

    async def _readers_of(self, groups: list[GroupStat]) -> merge.TopicReaders:
        """The groups by topic: thousands of groups are used for longer than the topics."""
        if self._readers[0] is not groups:
            readers = merge.TopicReaders()
            async for group in sliced(groups):
                readers.add(group)
            self._readers = groups, readers
        return self._readers[1]

    async def topic(self, name: str) -> TopicDetail | None:
        """A topic with its partitions and the groups that read it; None if there is none."""
        topic = self._metadata.image.topics.get(TopicName(name))
        if topic is None:
            return None
        brokers = {broker for each in topic.partitions for broker in each.replicas} - {self._metadata.broker_id}
        asked = await asyncio.gather(*(self._ask_topic(broker, name) for broker in sorted(brokers)))
        led = [self._own.view.topic(name), *asked]
        partitions = [partition for each in led for partition in each.partitions]
        groups = (await self._readers_of(await self.groups())).groups(name)
        summed = merge.TopicMerge(self._metadata.image, is_queue, merge.TopicReaders(groups))
        stat = merge.topic_stat(summed, topic, partitions, [each.rates for each in led])
        return TopicDetail(stat, merge.topic_partitions(topic, partitions), list(merge.topic_groups(groups, name)))

    async def _ask_topic(self, broker_id: BrokerId, name: str) -> LedPartitions:
        if self._metadata.image.is_alive(broker_id):
            with suppress(HeadraceError):
                return await self._cluster.ask(broker_id, AskTopic(name), LedPartitions)
        return LedPartitions([])

    # -- groups

    async def groups(self) -> list[GroupStat]:
        """Every group of any kind, by name, with its lag."""
        return await self._groups.get()

    async def _merge_groups(self) -> list[GroupStat]:
        groups, shares = await self._gather("groups"), merge.shares_by_group(await self._shares.get())
        merged = [merge.with_share_lag(each, shares.get(each.group, ())) async for each in sliced(groups, 1_000)]
        return sorted(merged, key=lambda each: each.group)

    async def group(self, name: str) -> GroupDetail | None:
        """A group with its members and its lag in each partition; None if there is none, or no coordinator answers."""
        try:
            coordinator = self._parts.groups.coordinator.leader_for(name)
            if coordinator == self._metadata.broker_id:
                found = await self._own.groups.detail(name)
            else:
                found = await self._cluster.ask(coordinator, AskGroup(name), GroupDetail | None)  # type: ignore[arg-type]
        except HeadraceError:
            return None
        if found is None or found.stat.kind != "share":
            return found
        return merge.share_detail(found, await self._shares.get())

    async def share_groups(self) -> list[ShareGroupStat]:
        """Every share group, with its position in the partitions where members have fetched."""
        return merge.share_groups(await self.groups(), await self._shares.get())

    # -- queues

    async def queues(self) -> list[QueueStat]:
        """Every queue, by name."""
        return await self._queues.get()

    async def _merge_queues(self) -> list[QueueStat]:
        led = await self._gather("queues")
        return merge.queue_stats(merge.defined_queues(self._parts.queues.queues(), self._metadata.image), led)

    async def queue(self, name: str) -> QueueStat | None:
        """A queue; None if there is none."""
        return next((each for each in await self.queues() if each.queue == name), None)

    # -- transactions

    async def transactions(self) -> list[TransactionStat]:
        """Every transactional id, by name: open transactions have `started_ms`."""
        return await self._transactions.get()

    async def _merge_transactions(self) -> list[TransactionStat]:
        return sorted(await self._gather("transactions"), key=lambda each: each.transactional_id)

    # -- this broker alone, for its metrics

    async def led_queues(self) -> list[QueueStat]:
        """The queues that this broker leads."""
        return await self._own.view.queues()

    async def led_shares(self) -> list[SharePartitionStat]:
        """The share groups in partitions that this broker leads."""
        return await self._own.view.shares()

    def coordinated_groups(self) -> list[Coordinated]:
        """The groups that this broker coordinates."""
        return self._own.groups.coordinated()

    def new_lag_book(self) -> LagBook:
        """A lag book for a reader that refreshes it at its own pace."""
        return self._own.new_lag_book()

    # -- history

    async def history(self, kind: str, name: str = "") -> HistoryData:
        """The last hour of an object, a point every `STEP_S` seconds. Unknown objects have no series.

        `kind` is cluster (without a name), broker (by id), topic, group or queue.
        """
        if kind == "broker":
            return await self._history_of_broker(name)
        own_kind, own_name = ("broker", "") if kind == "cluster" else (kind, name)
        found = await self._cluster.gather(
            partial(self._own.history, own_kind, own_name),
            lambda broker_id: self._cluster.ask(broker_id, AskHistory(own_kind, own_name), HistoryData),
        )
        return merge_histories([each for _, each in sorted(found.answers.items())], self._clock.wall_ms())

    async def _history_of_broker(self, name: str) -> HistoryData:
        if name == str(self._metadata.broker_id):
            return await self._own.history("broker", "")
        try:
            return await self._cluster.ask(BrokerId(int(name)), AskHistory("broker", ""), HistoryData)
        except (HeadraceError, ValueError):
            return merge_histories([], self._clock.wall_ms())

    # -- clients

    async def connected_clients(self) -> list[ConnectedClient]:
        """The clients that are connected to any broker."""
        return await self._connected.get()

    async def _merge_connected(self) -> list[ConnectedClient]:
        return await merged_clients(await self._gather("connections"))

    async def quota_use(self) -> list[QuotaUseStat]:
        """Who uses how much of what, on all brokers. Clients without a quota are counted for a while from now on."""
        return await self._quota_use.get()

    async def _merge_quota_use(self) -> list[QuotaUseStat]:
        return await merged_use(await self._gather("quotas"))

    async def clients(self) -> list[ClientStat]:
        """The clients that push metrics to any broker, or ask which to push."""
        return await self._gather("clients")

    async def client(self, instance_id: str) -> ClientDetail | None:
        """One of them with its metrics; None if it has not pushed lately."""
        if (own := self._own.clients.detail(instance_id)) is not None:
            return own
        found = await self._cluster.gather(
            _nothing,
            lambda broker_id: self._cluster.ask(broker_id, AskClient(instance_id), ClientDetail | None),  # type: ignore[arg-type]
        )
        return next((each for each in found.answers.values() if each is not None), None)

    # -- calls of other brokers

    async def serve(self, call: bytes) -> bytes:
        """Answer the call of another broker."""
        return await self._own.serve(call)


async def _nothing() -> None:
    """Nothing of this broker."""
