"""The figures of this broker alone: what other brokers ask it for, and what it samples of itself."""

import asyncio
from collections.abc import Callable
from concurrent.futures import Executor
from dataclasses import dataclass, field
from typing import Any

import msgspec

from headrace.cluster.metadata import Metadata
from headrace.groups.service import GroupService
from headrace.model.errors import PeerUnavailable
from headrace.model.ids import TopicName
from headrace.monitor.calls import (
    AskClient,
    AskCommitted,
    AskGroup,
    AskHistory,
    AskPositions,
    AskQuotaDemand,
    AskRows,
    AskStoredBytes,
    AskTopic,
    AskTotals,
    MonitorCall,
)
from headrace.monitor.clients.connected import ConnectedClients
from headrace.monitor.clients.instances import ClientInstances
from headrace.monitor.clients.view import LocalClients
from headrace.monitor.health.problem import HealthProblem
from headrace.monitor.history import FigureHistory
from headrace.monitor.lag import LagBook
from headrace.monitor.latency import RequestSample
from headrace.monitor.local_groups import LocalGroups
from headrace.monitor.local_totals import LocalTotals
from headrace.monitor.local_view import LocalView
from headrace.monitor.log_times import LogTimes
from headrace.monitor.quota_exchange import quota_demand
from headrace.monitor.quota_use import LocalQuotaUse
from headrace.monitor.rates import RateTable
from headrace.monitor.sampler import Sampler
from headrace.monitor.sections import Section
from headrace.monitor.snapshots import (
    BrokerTotals,
    HistoryData,
)
from headrace.monitor.topic_backlogs import committed_in
from headrace.observe.request_metrics import RequestMetrics
from headrace.queues.service import QueueService
from headrace.quotas.broker_quotas import BrokerQuotas
from headrace.replication.calls import answer_to, unknown_call
from headrace.replication.partitions import PartitionTable
from headrace.replication.peers import Peers
from headrace.runtime.clock import Clock
from headrace.transactions.service import TransactionService

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
    quotas: BrokerQuotas = field(default_factory=BrokerQuotas)


class OwnFigures:
    def __init__(self, parts: MonitoredParts) -> None:
        self._parts = parts
        self._metadata = metadata = parts.metadata
        self._clock = clock = parts.clock
        rates = RateTable()
        times = self._times = LogTimes(clock, parts.workers)
        self._lag = LagBook(metadata, parts.partitions, clock, times, parts.peers)
        self._history = FigureHistory(metadata.boot_settings.monitor_history_series_max)
        self.groups = LocalGroups(
            metadata=metadata, groups=parts.groups, clock=clock, lag=self._lag, history=self._history
        )
        self.view = LocalView(
            metadata=metadata,
            partitions=parts.partitions,
            transactions=parts.transactions,
            queues=parts.queues,
            clock=clock,
            times=times,
            rates=rates,
            history=self._history,
        )
        self.process = LocalTotals(metadata, parts.partitions, clock, parts.workers)
        self.clients = LocalClients(parts.clients, clock, metadata.broker_id)
        self.connected = ConnectedClients(metadata.broker_id)
        self.find_problems: Callable[[], list[HealthProblem]] = list
        """The problems that this broker sees, set once its health is checked."""
        self.sections: dict[str, Section[Any]] = {
            "topics": Section(self.view.topics, clock),
            "groups": Section(self.groups.stats, clock),
            "shares": Section(self.view.shares, clock),
            "queues": Section(self.view.queues, clock),
            "transactions": Section(self.view.transactions, clock),
            "problems": Section(self._problems, clock),
            "clients": Section(self.clients.stats, clock),
            "connections": Section(self.connected.rows, clock),
            "quotas": Section(LocalQuotaUse(parts.quotas, clock, metadata.broker_id).rows, clock),
        }
        self._sampler = Sampler(
            clock=clock,
            rates=rates,
            history=self._history,
            local=self.view,
            local_totals=self.process,
            requests=RequestSample(parts.requests),
            totals=self.totals,
            topics=self.view.topics,
            groups=self.sections["groups"].rows,
            queues=self.view.queues,
            has_topic=lambda name: TopicName(name) in metadata.image.topics,
        )
        self._sampling: asyncio.Task[None] | None = None

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
        for section in self.sections.values():
            await section.stop()

    async def totals(self) -> BrokerTotals:
        return await self.process.current(
            groups=self.groups.count,
            queues=len(self._parts.queues.hosted()),
            open_transactions=self.view.open_transactions,
        )

    async def history(self, kind: str, name: str) -> HistoryData:
        return self._history.read(kind, name, self._clock.wall_ms())

    def new_lag_book(self) -> LagBook:
        """A lag book for a reader that refreshes it at its own pace."""
        return LagBook(self._metadata, self._parts.partitions, self._clock, self._times, self._parts.peers)

    async def _problems(self) -> list[HealthProblem]:
        return self.find_problems()

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
                return await self.totals()
            case AskRows(section, version, page):
                if section not in self.sections:
                    raise PeerUnavailable(f"this version of Headrace knows no section {section}")
                return await self.sections[section].page(version, page)
            case AskTopic(topic):
                return self.view.topic(topic)
            case AskGroup(group):
                return await self.groups.detail(group)
            case AskPositions():
                return await self._lag.served(call)
            case AskHistory(kind, name):
                return await self.history(kind, name)
            case AskClient(instance_id):
                return self.clients.detail(instance_id)
            case AskCommitted(topics):
                return committed_in(self._parts.groups, dict.fromkeys(topics))
            case AskQuotaDemand():
                return await quota_demand(self._parts.quotas, self._clock)
            case AskStoredBytes():
                return self._parts.quotas.stored.report
