"""The services of a broker's request handlers, made and started in the order in which they depend on each other."""

import asyncio
from dataclasses import dataclass
from pathlib import Path

from headrace.app.audit_writer import AuditWriter
from headrace.app.client_quotas import client_quotas
from headrace.app.link_groups import LinkGroups
from headrace.app.link_queues import LinkQueues
from headrace.app.link_schemas import LinkSchemas
from headrace.app.node_dependencies import NodeDependencies
from headrace.app.started_parts import StartedParts
from headrace.cluster.access import AccessControl
from headrace.cluster.membership import Membership
from headrace.cluster.metadata import Metadata
from headrace.cluster.producer_ids import ProducerIds
from headrace.cluster.store import MetadataStore
from headrace.config.broker import BrokerSettings
from headrace.groups.service import GroupService
from headrace.kafka.audit_topic import AuditTopic
from headrace.kafka.backlog_waits import BacklogWaits
from headrace.kafka.departures import Departures
from headrace.kafka.fetch_sessions import FetchSessions
from headrace.kafka.recompression import Recompressor
from headrace.kafka.request_meter import KafkaRequestMeter
from headrace.kafka.schema_checks import SchemaChecks
from headrace.kafka.services import Services
from headrace.kafka.share_sessions import ShareSessions
from headrace.mirror.divergent_topic import DivergentTopics
from headrace.mirror.fetcher import MirrorFetchers
from headrace.mirror.figure_exchange import FigureExchange, load_figures
from headrace.mirror.figures import Figures
from headrace.mirror.group_setback import GroupSetback
from headrace.mirror.group_sync import GroupSync
from headrace.mirror.last_known import LastKnown
from headrace.mirror.link_audit import LinkAudit
from headrace.mirror.link_task import LinkTasks
from headrace.mirror.links import Links
from headrace.mirror.queue_sync import QueueSync
from headrace.mirror.reversals import Reversals
from headrace.mirror.schema_sync import SchemaSync
from headrace.mirror.sources import Sources
from headrace.monitor.canary import Canary
from headrace.monitor.clients.instances import ClientInstances
from headrace.monitor.monitor import Monitor, MonitoredParts
from headrace.monitor.pipelines.service import PipelineReports
from headrace.monitor.quota_exchange import QuotaExchange
from headrace.monitor.stored_exchange import StoredExchange
from headrace.monitor.topic_backlogs import TopicBacklogs
from headrace.queues.service import QueueService
from headrace.queues.share.service import ShareLocator
from headrace.quotas.broker_quotas import BrokerQuotas
from headrace.registry.door import shown_subjects
from headrace.replication.partitions import PartitionTable
from headrace.replication.peers import Peers
from headrace.replication.throttle import Throttle
from headrace.runtime.clock import Clock
from headrace.runtime.expiries import Expiries
from headrace.schemas.service import RegistryService
from headrace.security.audit.log import AuditLog
from headrace.security.security import Security
from headrace.storage.between_syncs import BetweenSyncs
from headrace.transactions.markers import MarkerWriter
from headrace.transactions.service import TransactionService

_SWEEP_EVERY_S = 0.1
_SESSION_ID_MAX = 2**31 - 1


@dataclass(frozen=True, slots=True)
class NodeServices:
    """Makes and starts the services; `started` stops them."""

    settings: BrokerSettings
    """Those that the broker was started with."""
    data_dir: Path
    store: MetadataStore
    dependencies: NodeDependencies
    started: StartedParts
    metadata: Metadata
    partitions: PartitionTable
    peers: Peers | None
    """None on a single node, and so is `membership`."""
    membership: Membership | None
    between_syncs: BetweenSyncs
    """Whether logs are being synced."""

    def start(self) -> Services:
        """Make and start all of them."""
        metadata, partitions, settings = self.metadata, self.partitions, self.settings
        clock, workers, random = self.dependencies.clock, self.dependencies.workers, self.dependencies.random
        groups = self._groups()
        producer_ids = ProducerIds(self.store)
        transactions = self._transactions(groups, producer_ids)
        quotas = client_quotas(metadata, clock)
        queues = self._queues(quotas)
        pipelines = self._pipelines()
        canary = Canary(metadata, partitions, queues, clock, workers)
        departures = Departures(clock)
        metadata.subscribe(departures.image_changed)
        audit_topic = AuditTopic(metadata, partitions, self.peers)
        security = self._security(audit_topic)
        self._exchange_use(quotas)
        self._topic_backlogs(groups)
        meter = KafkaRequestMeter() if settings.metrics_enable else None
        clients = ClientInstances(lambda: metadata.image.client_metrics)
        monitor = Monitor(
            MonitoredParts(
                metadata=metadata,
                partitions=partitions,
                groups=groups,
                transactions=transactions,
                queues=queues,
                clock=clock,
                workers=workers,
                peers=self.peers,
                clients=clients,
                requests=None if meter is None else meter.requests,
                quotas=quotas,
            )
        )
        self.started.start(monitor)
        registry = self._registry(security)
        services = Services(
            clock=clock,
            metadata=metadata,
            partitions=partitions,
            producer_ids=producer_ids,
            fetch_sessions=FetchSessions(
                settings.max_incremental_fetch_session_cache_slots, lambda: random.randint(1, _SESSION_ID_MAX)
            ),
            expiries=Expiries(),
            workers=workers,
            recompressor=Recompressor(metadata, partitions, workers),
            schema_checks=SchemaChecks(metadata, partitions, registry.lookup, workers),
            backlog_waits=BacklogWaits(metadata, partitions, clock),
            groups=groups,
            transactions=transactions,
            queues=queues,
            share_sessions=ShareSessions(lambda: metadata.settings.group_share_max_share_sessions),
            departures=departures,
            security=security,
            quotas=quotas,
            access=AccessControl(metadata),
            broker_listener=settings.broker_listener.name,
            audit_topic=audit_topic,
            pipelines=pipelines,
            registry=registry,
            links=self._links(groups, queues, registry, security),
            canary=canary,
            monitor=monitor,
            clients=clients,
            peers=self.peers,
            coordinators={
                0: groups.coordinator,
                1: transactions.coordinator,
                2: ShareLocator(queues.state.coordinator),
            },
            meter=meter,
            between_syncs=self.between_syncs,
            leader_throttle=Throttle(lambda: metadata.settings.leader_replication_throttled_rate, clock.monotonic_ms()),
            is_certain=self._is_certain,
        )
        self.started.run_in_background(_sweep(services.expiries, clock), "expiries")
        self.started.run_in_background(canary.run(), "canary")
        return services

    def _is_certain(self) -> bool:
        # Under a new lease, until admission, its leadership may date from before the old lease was lost.
        membership = self.membership
        return membership is None or (membership.is_admitted and membership.is_lease_live())

    def _groups(self) -> GroupService:
        groups = GroupService(
            self.settings,
            metadata=self.metadata,
            partitions=self.partitions,
            clock=self.dependencies.clock,
            workers=self.dependencies.workers,
        )
        self.started.start(groups)
        return groups

    def _transactions(self, groups: GroupService, producer_ids: ProducerIds) -> TransactionService:
        markers = MarkerWriter(
            self.partitions,
            lambda partition, producer_id, committed: groups.coordinator.transaction_ended(
                partition, producer_id, committed=committed
            ),
        )
        transactions = TransactionService(
            self.settings,
            metadata=self.metadata,
            partitions=self.partitions,
            producer_ids=producer_ids,
            markers=markers,
            clock=self.dependencies.clock,
            workers=self.dependencies.workers,
            peers=self.peers,
        )
        self.started.start(transactions)
        return transactions

    def _queues(self, quotas: BrokerQuotas) -> QueueService:
        queues = QueueService(
            metadata=self.metadata,
            partitions=self.partitions,
            clock=self.dependencies.clock,
            workers=self.dependencies.workers,
            random=self.dependencies.random,
            peers=self.peers,
            disk=quotas.disk,
        )
        self.started.start(queues)
        return queues

    def _pipelines(self) -> PipelineReports:
        pipelines = PipelineReports(
            metadata=self.metadata,
            partitions=self.partitions,
            clock=self.dependencies.clock,
            workers=self.dependencies.workers,
            peers=self.peers,
        )
        self.started.start(pipelines)
        return pipelines

    def _security(self, audit_topic: AuditTopic) -> Security:
        metadata, clock = self.metadata, self.dependencies.clock
        audit = AuditLog(clock.wall_ms, self.dependencies.random.random)
        self.started.start(
            AuditWriter(audit, audit_topic, metadata=metadata, clock=clock, workers=self.dependencies.workers)
        )
        security = Security(audit)
        security.update(metadata.image.security, metadata.settings)
        metadata.subscribe(lambda _, image: security.update(image.security, metadata.settings))
        return security

    def _exchange_use(self, quotas: BrokerQuotas) -> None:
        """Tell other brokers what clients use here, and count what they use there."""
        if self.peers is not None:
            exchange = QuotaExchange(quotas, self.metadata, self.dependencies.clock, self.peers)
            exchange.start()
            self.started.run_in_background(exchange.run(), "quota shares")
        stored = StoredExchange(quotas.stored, self.metadata, self.partitions, self.peers)
        stored.start()
        self.started.run_in_background(stored.run(), "stored bytes")

    def _topic_backlogs(self, groups: GroupService) -> None:
        backlogs = TopicBacklogs(
            metadata=self.metadata,
            partitions=self.partitions,
            groups=groups,
            clock=self.dependencies.clock,
            workers=self.dependencies.workers,
            peers=self.peers,
        )
        backlogs.start()
        self.started.run_in_background(backlogs.run(), "topic backlogs")

    def _links(
        self, groups: GroupService, queues: QueueService, registry: RegistryService, security: Security
    ) -> Links:
        metadata, clock, random = self.metadata, self.dependencies.clock, self.dependencies.random
        make_transport, files_dir = self.dependencies.link_transport, self.settings.link_files_dir
        sources = Sources(lambda link: make_transport(link, files_dir), random, metadata.broker_id)
        self.started.push_async_callback(sources.close)
        known, disk, folder = LastKnown(), self.dependencies.disk, self.data_dir
        load_figures(known, disk, folder)
        fetchers = MirrorFetchers(self.partitions, metadata, sources.of, clock=clock, random=random, known=known)
        self.started.push_async_callback(fetchers.close)
        metadata.subscribe(fetchers.image_changed)
        figures = Figures(metadata, self.partitions, fetchers, self.peers, known)
        workers = self.dependencies.workers
        exchange = FigureExchange(
            metadata, self.partitions, figures, known, clock=clock, disk=disk, folder=folder, workers=workers
        )
        self.started.run_in_background(exchange.run(), "figures of mirrors")
        audit = LinkAudit(security.audit)
        tasks = LinkTasks(metadata, sources, clock, audit)
        self.started.run_in_background(tasks.run(), "links")
        link_groups = LinkGroups(groups)
        group_sync = GroupSync(metadata, sources, figures, link_groups)
        self.started.run_in_background(group_sync.run(), "offsets of linked groups")
        schemas = SchemaSync(metadata, sources, LinkSchemas(registry, audit), clock)
        self.started.run_in_background(schemas.run(), "schemas of links")
        link_queues = LinkQueues(queues, workers)
        queue_sync = QueueSync(metadata, self.partitions, sources, fetchers, figures, link_queues, clock)
        figures.state_progress = queue_sync.progress
        self.started.run_in_background(queue_sync.run(), "state of linked queues")
        divergent = DivergentTopics(metadata, self.partitions, self.peers)
        setback = GroupSetback(metadata, link_groups, self.partitions, self.peers)
        reversals = Reversals(metadata, self.partitions, sources, divergent, setback, clock, workers, link_queues)
        self.started.run_in_background(reversals.run(), "reversals of mirrors")
        return Links(metadata, figures, sources, tasks, clock, self.peers, reversals, schemas)

    def _registry(self, security: Security) -> RegistryService:
        registry = RegistryService(
            metadata=self.metadata,
            partitions=self.partitions,
            clock=self.dependencies.clock,
            workers=self.dependencies.workers,
            shows=shown_subjects(security),
            is_certain=self._is_certain,
            peers=self.peers,
        )
        self.started.start(registry)
        return registry


async def _sweep(expiries: Expiries, clock: Clock) -> None:
    while True:
        await asyncio.sleep(_SWEEP_EVERY_S)
        expiries.sweep(clock.monotonic_ms())
