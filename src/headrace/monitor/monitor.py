"""What this broker and the whole cluster are doing, for the HTTP API, the dashboard, the terminal, health and metrics.

Every method answers for the whole cluster. A broker that does not answer, because it is down or of an older version,
is listed without data, and its part of the figures is missing: that is never an error.

Figures are at most a second old, and so are the lags in seconds. With more than 2,500 topics or groups they are used
for longer, so that watching a large cluster costs at most a tenth of a core: 15,000 groups for 5 s, or up to 30 s for
the first look in a while. One topic or group by name is always current.
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import Executor
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import msgspec

from headrace.cluster.metadata import Metadata
from headrace.groups.service import GroupService
from headrace.model.errors import HeadraceError, PeerUnavailable
from headrace.model.ids import BrokerId, TopicName
from headrace.monitor import merge
from headrace.monitor.cached import Cached
from headrace.monitor.calls import (
    AskClient,
    AskGroup,
    AskHistory,
    AskPositions,
    AskRows,
    AskTopic,
    AskTotals,
    LedPartitions,
    MonitorCall,
)
from headrace.monitor.clients.instances import ClientInstances
from headrace.monitor.clients.view import ClientDetail, ClientStat, LocalClients
from headrace.monitor.cluster_view import ClusterView
from headrace.monitor.health.problem import HealthProblem
from headrace.monitor.history import History, merge_histories
from headrace.monitor.lag import LagBook
from headrace.monitor.latency import RequestSample
from headrace.monitor.local_groups import Coordinated, LocalGroups
from headrace.monitor.local_totals import LocalTotals
from headrace.monitor.local_view import LocalView
from headrace.monitor.log_times import LogTimes
from headrace.monitor.loop_slices import sliced
from headrace.monitor.rates import RateTable
from headrace.monitor.sampler import Sampler
from headrace.monitor.sections import Section
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
from headrace.observe.request_metrics import RequestMetrics
from headrace.queues.catalog import is_queue
from headrace.queues.service import QueueService
from headrace.replication.calls import answer_to, unknown_call
from headrace.replication.partitions import PartitionTable
from headrace.replication.peers import Peers
from headrace.runtime.clock import Clock
from headrace.transactions.service import TransactionService

_MAX_AGE_MS = 500.0
"""Together with the age of the sections (`sections.py`) less than a second."""

_decode_call = msgspec.msgpack.Decoder(MonitorCall).decode


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
    clients: ClientInstances = field(default_factory=lambda: ClientInstances(dict))
    requests: RequestMetrics | None = None
    """None if requests are not counted."""


class Monitor:
    def __init__(self, parts: MonitoredParts) -> None:
        self._parts = parts
        self._metadata = metadata = parts.metadata
        self._clock = clock = parts.clock
        rates = RateTable()
        times = self._times = LogTimes(clock, parts.workers)
        self._lag = LagBook(metadata, parts.partitions, clock, times, parts.peers)
        self._history = History(parts.metadata.boot_settings.monitor_history_series_max)
        self._local_groups = LocalGroups(
            metadata=metadata, groups=parts.groups, clock=clock, lag=self._lag, history=self._history
        )
        self._local = LocalView(
            metadata=metadata,
            partitions=parts.partitions,
            transactions=parts.transactions,
            queues=parts.queues,
            clock=clock,
            times=times,
            rates=rates,
            history=self._history,
        )
        self._local_totals = LocalTotals(metadata, parts.partitions, clock, parts.workers)
        self._local_clients = LocalClients(parts.clients, clock, metadata.broker_id)
        self._cluster = ClusterView(metadata, clock, parts.peers)
        self._sections: dict[str, Section[Any]] = {
            "topics": Section(self._local.topics, clock),
            "groups": Section(self._local_groups.stats, clock),
            "shares": Section(self._local.shares, clock),
            "queues": Section(self._local.queues, clock),
            "transactions": Section(self._local.transactions, clock),
            "problems": Section(self._own_problems, clock),
            "clients": Section(self._local_clients.stats, clock),
        }
        self.find_problems: Callable[[], list[HealthProblem]] = list
        """The problems that this broker sees, set once its health is checked."""
        self._sampler = Sampler(
            clock=clock,
            rates=rates,
            history=self._history,
            local=self._local,
            local_totals=self._local_totals,
            requests=RequestSample(parts.requests),
            totals=self._own_totals,
            topics=self._local.topics,
            groups=self._sections["groups"].rows,
            queues=self._local.queues,
        )
        self._sampling: asyncio.Task[None] | None = None
        self._brokers: Cached[BrokerStat] = Cached(self._gather_brokers, clock, _MAX_AGE_MS)
        self._topics = Cached(self._merge_topics, clock, _MAX_AGE_MS)
        self._groups = Cached(self._merge_groups, clock, _MAX_AGE_MS)
        self._shares: Cached[SharePartitionStat] = Cached(lambda: self._gather("shares"), clock, _MAX_AGE_MS)
        self._queues = Cached(self._merge_queues, clock, _MAX_AGE_MS)
        self._transactions = Cached(self._merge_transactions, clock, _MAX_AGE_MS)
        self._problems = Cached(lambda: self._gather("problems"), clock, _MAX_AGE_MS)

    def set_connection_count(self, count: Callable[[], int]) -> None:
        """Set where the number of open connections comes from, once there are listeners."""
        self._local_totals.connections = count

    def set_loop_lag(self, worst_s: Callable[[], float]) -> None:
        """Set where the longest delay of the event loop within the last minute comes from."""
        self._local_totals.loop_lag_s = worst_s

    def start(self) -> None:
        """Begin to take samples."""
        self._sampling = asyncio.get_running_loop().create_task(self._sampler.run(), name="monitor")

    async def sample(self) -> None:
        """Take a sample now, besides those that are taken every few seconds."""
        await self._sampler.sample()

    async def stop(self) -> None:
        """Take no more samples, and cancel what is being computed."""
        if self._sampling is not None:
            self._sampling.cancel()
            await asyncio.wait((self._sampling,))
        merged: tuple[Cached[Any], ...] = (
            self._brokers,
            self._topics,
            self._groups,
            self._shares,
            self._queues,
            self._transactions,
            self._problems,
        )
        for cached in merged:
            await cached.stop()
        for section in self._sections.values():
            await section.stop()

    # -- the cluster

    async def overview(self) -> Overview:
        """The cluster at a glance: totals, brokers, disks, and the groups and queues that need attention most."""
        brokers, groups, queues = await self.brokers(), await self.groups(), await self.queues()
        return merge.overview(self._metadata.image, brokers, groups, queues, self._clock.wall_ms())

    async def brokers(self) -> list[BrokerStat]:
        """Every broker of the cluster by id, alive or not."""
        return await self._brokers.get()

    async def _gather_brokers(self) -> list[BrokerStat]:
        found = await self._cluster.gather(
            self._own_totals, lambda broker_id: self._cluster.ask(broker_id, AskTotals(), BrokerTotals)
        )
        return merge.broker_stats(self._metadata.image, found.answers, found.problems, self._clock.wall_ms())

    async def _own_totals(self) -> BrokerTotals:
        return await self._local_totals.current(
            groups=self._local_groups.count,
            queues=len(self._parts.queues.hosted()),
            open_transactions=self._local.open_transactions,
        )

    async def _gather(self, section: str) -> list[Any]:
        """The rows of all brokers that answer."""
        found = await self._cluster.gather(
            self._sections[section].rows, lambda broker_id: self._cluster.rows(broker_id, section)
        )
        return [row for _, rows in sorted(found.answers.items()) for row in rows]

    async def own_rows(self, section: str) -> list[Any]:
        """The rows of this broker alone. Not to be changed."""
        return await self._sections[section].rows()

    async def own_totals(self) -> BrokerTotals:
        """What this broker has and does."""
        return await self._own_totals()

    async def problems(self) -> list[HealthProblem]:
        """The problems that each broker sees; some are seen by several."""
        return await self._problems.get()

    async def _own_problems(self) -> list[HealthProblem]:
        return self.find_problems()

    # -- topics

    async def topics(self) -> list[TopicStat]:
        """Every topic, internal ones and queues as well, by name."""
        return await self._topics.get()

    async def _merge_topics(self) -> list[TopicStat]:
        led, groups, image = await self._gather("topics"), await self.groups(), self._metadata.image
        summed = merge.TopicMerge(image, is_queue)
        async for row in sliced(led):
            summed.add(row)
        async for group in sliced(groups):
            summed.add_group(group)
        return [summed.stat(topic) async for _, topic in sliced(sorted(image.topics.items()))]

    async def topic(self, name: str) -> TopicDetail | None:
        """A topic with its partitions and the groups that read it; None if there is none."""
        topic = self._metadata.image.topics.get(TopicName(name))
        if topic is None:
            return None
        brokers = {broker for each in topic.partitions for broker in each.replicas} - {self._metadata.broker_id}
        asked = await asyncio.gather(*(self._ask_topic(broker, name) for broker in sorted(brokers)))
        led = [self._local.topic(name), *asked]
        partitions = [partition for each in led for partition in each.partitions]
        groups = [group async for group in sliced(await self.groups(), 1_000) if merge.reads(group, name)]
        summed = merge.TopicMerge(self._metadata.image, is_queue)
        stat = merge.topic_stat(summed, topic, partitions, [each.rates for each in led], groups)
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
                found = await self._local_groups.detail(name)
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
        return await self._local.queues()

    async def led_shares(self) -> list[SharePartitionStat]:
        """The share groups in partitions that this broker leads."""
        return await self._local.shares()

    def coordinated_groups(self) -> list[Coordinated]:
        """The groups that this broker coordinates."""
        return self._local_groups.coordinated()

    def new_lag_book(self) -> LagBook:
        """A lag book for a reader that refreshes it at its own pace."""
        parts = self._parts
        return LagBook(self._metadata, parts.partitions, self._clock, self._times, parts.peers)

    # -- history

    async def history(self, kind: str, name: str = "") -> HistoryData:
        """The last hour of an object, a point every `STEP_S` seconds. Unknown objects have no series.

        `kind` is cluster (without a name), broker (by id), topic, group or queue.
        """
        if kind == "broker":
            return await self._history_of_broker(name)
        own_kind, own_name = ("broker", "") if kind == "cluster" else (kind, name)
        found = await self._cluster.gather(
            partial(self._own_history, own_kind, own_name),
            lambda broker_id: self._cluster.ask(broker_id, AskHistory(own_kind, own_name), HistoryData),
        )
        return merge_histories([each for _, each in sorted(found.answers.items())], self._clock.wall_ms())

    async def _history_of_broker(self, name: str) -> HistoryData:
        if name == str(self._metadata.broker_id):
            return await self._own_history("broker", "")
        try:
            return await self._cluster.ask(BrokerId(int(name)), AskHistory("broker", ""), HistoryData)
        except (HeadraceError, ValueError):
            return merge_histories([], self._clock.wall_ms())

    async def _own_history(self, kind: str, name: str) -> HistoryData:
        return self._history.read(kind, name, self._clock.wall_ms())

    # -- clients that push metrics

    async def clients(self) -> list[ClientStat]:
        """The clients that push metrics to any broker, or ask which to push."""
        return await self._gather("clients")

    async def client(self, instance_id: str) -> ClientDetail | None:
        """One of them with its metrics; None if it has not pushed lately."""
        if (own := self._local_clients.detail(instance_id)) is not None:
            return own
        found = await self._cluster.gather(
            _nothing,
            lambda broker_id: self._cluster.ask(broker_id, AskClient(instance_id), ClientDetail | None),  # type: ignore[arg-type]
        )
        return next((each for each in found.answers.values() if each is not None), None)

    # -- calls of other brokers

    async def serve(self, call: bytes) -> bytes:
        """Answer the call of another broker."""
        try:
            asked = _decode_call(call)
        except msgspec.MsgspecError as error:
            return unknown_call(error)
        return await answer_to(lambda: self._serve(asked))

    async def _serve(self, call: MonitorCall) -> Any:
        match call:
            case AskTotals():
                return await self._own_totals()
            case AskRows(section, version, page):
                if section not in self._sections:
                    raise PeerUnavailable(f"this version of Headrace knows no section {section}")
                return await self._sections[section].page(version, page)
            case AskTopic(topic):
                return self._local.topic(topic)
            case AskGroup(group):
                return await self._local_groups.detail(group)
            case AskPositions():
                return await self._lag.served(call)
            case AskHistory(kind, name):
                return await self._own_history(kind, name)
            case AskClient(instance_id):
                return self._local_clients.detail(instance_id)


async def _nothing() -> None:
    """Nothing of this broker."""
