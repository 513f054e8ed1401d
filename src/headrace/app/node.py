"""The parts of a broker, wired together: the same in production and in the simulation.

A single node opens the metadata, opens the logs (with recovery after a crash), and serves. A cluster member then
registers, is admitted by the controller, leads and follows. Clock, disk, network, threads and store are injected.

Stopping is the reverse: transfer leadership and redirect clients to the new leaders, accept no more requests, answer
those in flight, revoke the lease, flush and close the logs.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from concurrent.futures import Executor
from contextlib import AsyncExitStack
from dataclasses import dataclass
from random import Random
from typing import Any
from uuid import UUID, uuid4

from headrace.app.audit_writer import AuditWriter
from headrace.app.broker_home import BrokerHome
from headrace.app.client_quotas import client_quotas
from headrace.app.hosted_partitions import ClusterRuntime, HostedPartitions
from headrace.app.topic_ciphers import TopicCiphers
from headrace.cluster.access import AccessControl
from headrace.cluster.controller_loop import ControllerLoop
from headrace.cluster.data_keys import DataKeyMaker, KeyUpkeep
from headrace.cluster.endpoints import default_endpoint
from headrace.cluster.membership import Membership
from headrace.cluster.metadata import Metadata
from headrace.cluster.producer_ids import ProducerIds
from headrace.config.broker import BrokerSettings
from headrace.groups.service import GroupService
from headrace.kafka.audit_topic import AuditTopic
from headrace.kafka.departures import Departures
from headrace.kafka.fetch_sessions import FetchSessions
from headrace.kafka.recompression import Recompressor
from headrace.kafka.request_meter import KafkaRequestMeter
from headrace.kafka.schema_checks import SchemaChecks
from headrace.kafka.services import Services
from headrace.kafka.share_sessions import ShareSessions
from headrace.model.errors import SettingsError, StartupError
from headrace.model.features import LATEST_LEVEL
from headrace.model.image import Endpoint
from headrace.monitor.canary import Canary
from headrace.monitor.clients.instances import ClientInstances
from headrace.monitor.monitor import Monitor, MonitoredParts
from headrace.monitor.pipelines.service import PipelineReports
from headrace.observe.traffic import TrafficTable
from headrace.queues.service import QueueService
from headrace.queues.share.service import ShareLocator
from headrace.registry.door import shown_subjects
from headrace.replication.fetchers import Fetchers
from headrace.replication.isr import InSync
from headrace.replication.partitions import PartitionTable
from headrace.replication.peers import Peers
from headrace.replication.throttle import Throttle
from headrace.replication.transport import Transport
from headrace.runtime.clock import Clock
from headrace.runtime.disk import Disk
from headrace.runtime.expiries import Expiries
from headrace.schemas.service import RegistryService
from headrace.security.audit.log import AuditLog
from headrace.security.encryption.key_source import load_master_keys
from headrace.security.encryption.master_key import MasterKeys
from headrace.security.security import Security
from headrace.storage.cleaner import Cleaner
from headrace.storage.flusher import Flusher
from headrace.storage.log import Log
from headrace.storage.manager import LogManager
from headrace.transactions.markers import MarkerWriter
from headrace.transactions.service import TransactionService

log = logging.getLogger(__name__)

_SWEEP_EVERY_S = 0.1
_SESSION_ID_MAX = 2**31 - 1
_HIGH_WATERMARKS_EVERY_S = 5.0


@dataclass(frozen=True, slots=True)
class NodeDependencies:
    """The injected clock, disk, network, threads and randomness of a broker."""

    clock: Clock
    disk: Disk
    workers: Executor
    """For blocking work: opening logs, cold reads, checkpoints."""
    make_pool: Callable[[int, str], Executor]
    """Makes an executor with this many threads and this name; the caller shuts it down."""
    make_flusher: Callable[[Callable[[Log, BaseException], None]], Flusher]
    """Makes a flusher that calls this when a log's disk fails."""
    transport: Transport
    random: Random
    new_uuid: Callable[[], UUID] = uuid4


class Node:
    """A broker without sockets of its own: `start` wires and starts its parts, `stop` stops them."""

    def __init__(self, settings: BrokerSettings, home: BrokerHome, dependencies: NodeDependencies) -> None:
        """The caller closes `home`."""
        self.settings = settings
        self._home = home
        self._dependencies = dependencies
        self._undo = AsyncExitStack()
        self._services: Services | None = None
        self._membership: Membership | None = None
        self._peers: Peers | None = None
        self._logs: LogManager | None = None
        self.flusher: Flusher | None = None
        self.cleaner: Cleaner | None = None
        self.recovery_ms = 0.0
        """How long the logs took to open."""

    @property
    def services(self) -> Services:
        """The services used by request handlers, once started."""
        if self._services is None:
            raise RuntimeError("the broker has not been started")
        return self._services

    @property
    def membership(self) -> Membership | None:
        """This broker's cluster membership, once started; None on a single node."""
        return self._membership

    @property
    def failure(self) -> BaseException | None:
        """Why the data directory takes no more writes; None while it does."""
        return self._logs.failure if self._logs is not None else None

    @property
    def was_clean(self) -> bool:
        """Whether the last stop was clean."""
        return self._logs is not None and self._logs.was_clean

    async def start(self, bind: Callable[[Services, AsyncExitStack], Awaitable[Mapping[str, Endpoint]]]) -> None:
        """Start; ready for clients on return, in a cluster after the controller has admitted this broker.

        `bind` opens the listeners, returns the bound address of each by its name, and pushes their closing onto the
        stack. If this raises, `stop` cleans up.
        """
        settings, dependencies, undo, home = self.settings, self._dependencies, self._undo, self._home
        own_listener = settings.broker_listener
        endpoint = default_endpoint(own_listener.address, own_listener.advertise, own_listener.address.port)
        master = await self._load_master_keys()
        data_keys = DataKeyMaker(master, dependencies.clock.wall_ms)
        metadata = Metadata(
            home.store,
            settings,
            endpoint,
            is_single_node=home.is_single_node,
            new_uuid=dependencies.new_uuid,
            data_keys=data_keys,
        )
        await metadata.open(home.data_dir.cluster_id)
        undo.push_async_callback(metadata.close)
        # First listener: the others may write formats that older versions cannot read.
        metadata.subscribe(lambda _, image: self._mark_level(image.feature_level))
        self._mark_level(metadata.image.feature_level)
        if metadata.image.feature_level < LATEST_LEVEL:
            log.info(
                "the feature level is %d, as before the upgrade: once every broker runs this version, raise it to %d "
                "with headrace cluster upgrade; after that there is no downgrade to the previous version",
                metadata.image.feature_level,
                LATEST_LEVEL,
            )
        traffic = TrafficTable() if settings.metrics_enable else None
        partitions = PartitionTable(lambda: metadata.image, traffic=traffic)
        logs = await self._open_log_manager(partitions)
        flusher = self.flusher = dependencies.make_flusher(lambda _, error: logs.fail(error))
        undo.push_async_callback(flusher.stop)
        cluster = None if home.is_single_node else self._join(metadata, partitions)
        ciphers = TopicCiphers(master, settings.encryption_cache_bytes)
        hosting = HostedPartitions(
            metadata, logs, partitions, flusher, dependencies.workers, cluster=cluster, ciphers=ciphers
        )
        began_ms = dependencies.clock.monotonic_ms()
        await hosting.open_all()
        self.recovery_ms = dependencies.clock.monotonic_ms() - began_ms
        undo.push_async_callback(hosting.finish)
        metadata.subscribe(hosting.image_changed)
        await self._keep_data_keys(KeyUpkeep(metadata, data_keys), metadata)
        self._start_maintenance(logs, metadata)
        services = self._services = self._start_services(metadata, partitions)
        bound = await bind(services, undo)
        advertised = {
            each.name: default_endpoint(each.address, each.advertise, bound[each.name].port)
            for each in settings.kafka_listeners
        }
        own = advertised[own_listener.name]
        metadata.announce(own, advertised)
        if self._membership is not None:
            await self._register(self._membership, metadata, hosting, own, advertised)
            self._run_in_background(services.producer_ids.prefetch_blocks(), "producer ids")

    async def stop(self) -> None:
        """Undo what `start` did, in reverse order. Everything acknowledged is on disk when it returns."""
        await self._undo.aclose()

    # The parts

    def _mark_level(self, level: int) -> None:
        """Write the feature level to the data directory, so that versions that do not support it refuse to start on it.

        If that fails, the metadata store still refuses them, and the next start retries.
        """
        try:
            self._home.data_dir.raise_level(level, self._dependencies.disk)
        except OSError as error:
            log.warning("feature level %d could not be written to the data directory: %s", level, error)

    async def _load_master_keys(self) -> MasterKeys | None:
        """The master keys of encryption at rest; `StartupError` if they are configured but cannot be loaded."""
        settings = self.settings
        sources = (
            settings.encryption_master_key,
            settings.encryption_master_key_file,
            settings.encryption_master_key_command,
        )
        if not any(sources):
            return None
        loop = asyncio.get_running_loop()
        try:
            return await loop.run_in_executor(self._dependencies.workers, load_master_keys, *sources)
        except SettingsError as error:
            raise StartupError(str(error)) from None

    async def _keep_data_keys(self, upkeep: KeyUpkeep, metadata: Metadata) -> None:
        """Make and wrap data keys that need it: now, and after changes of the image in the background."""
        if upkeep.is_due():
            await upkeep.run()
        due = asyncio.Event()

        async def keep() -> None:
            while True:
                await due.wait()
                due.clear()
                await upkeep.run()

        metadata.subscribe(lambda *_: due.set() if upkeep.is_due() else None)
        self._run_in_background(keep(), "data-keys")

    async def _open_log_manager(self, partitions: PartitionTable) -> LogManager:
        dependencies = self._dependencies

        def failed(error: BaseException) -> None:
            partitions.failed(error)
            if self._membership is not None:
                self._membership.resign(f"its data directory failed: {error}")

        logs = self._logs = LogManager(
            self._home.data_dir,
            disk=dependencies.disk,
            clock=dependencies.clock,
            producer_expiry_ms=self.settings.producer_id_expiration_ms,
            on_failed=failed,
            make_pool=dependencies.make_pool,
            is_replicated=not self._home.is_single_node,
        )
        loop = asyncio.get_running_loop()
        await loop.run_in_executor(dependencies.workers, logs.start)
        self._undo.push_async_callback(asyncio.to_thread, logs.stop)
        return logs

    def _join(self, metadata: Metadata, partitions: PartitionTable) -> ClusterRuntime:
        dependencies, undo, home = self._dependencies, self._undo, self._home
        membership = self._membership = Membership(
            home.store, metadata, self.settings, dependencies.clock, home.data_dir.directory_id
        )
        undo.push_async_callback(membership.close)
        peers = self._peers = Peers(
            dependencies.transport, metadata, dependencies.random, self.settings.broker_listener.name
        )
        undo.push_async_callback(peers.close)
        fetchers = Fetchers(
            peers, metadata, broker_epoch=lambda: membership.epoch, clock=dependencies.clock, random=dependencies.random
        )
        undo.push_async_callback(fetchers.close)
        in_sync = InSync(partitions, metadata, fence=membership.fence, clock=dependencies.clock)
        self._run_in_background(in_sync.run(), "in-sync")
        return ClusterRuntime(lambda: membership.epoch, fetchers, in_sync.look_at, dependencies.clock)

    def _start_maintenance(self, logs: LogManager, metadata: Metadata) -> None:
        settings, dependencies = metadata.settings, self._dependencies
        self._run_in_background(
            logs.run_periodically(settings.log_flush_offset_checkpoint_interval_ms / 1000), "checkpoints"
        )
        if not self._home.is_single_node:
            self._run_in_background(
                logs.keep_high_watermarks(_HIGH_WATERMARKS_EVERY_S, dependencies.workers), "high-watermarks"
            )
        cleaner = self.cleaner = Cleaner(
            logs.logs.values,
            clock=dependencies.clock,
            retention_check_interval_ms=settings.log_retention_check_interval_ms,
            backoff_ms=settings.log_cleaner_backoff_ms,
            threads=settings.log_cleaner_threads,
            dedupe_buffer_bytes=settings.log_cleaner_dedupe_buffer_size,
            io_max_bytes_per_s=settings.log_cleaner_io_max_bytes_per_second,
        )
        cleaner.start()
        self._undo.push_async_callback(cleaner.stop)

        def settings_changed(*_: object) -> None:
            now = metadata.settings
            logs.producer_expiry_ms = now.producer_id_expiration_ms
            cleaner.reconfigure(
                backoff_ms=now.log_cleaner_backoff_ms,
                threads=now.log_cleaner_threads,
                dedupe_buffer_bytes=now.log_cleaner_dedupe_buffer_size,
                io_max_bytes_per_s=now.log_cleaner_io_max_bytes_per_second,
            )

        metadata.subscribe(settings_changed)

    def _start_services(self, metadata: Metadata, partitions: PartitionTable) -> Services:
        settings, dependencies, undo = self.settings, self._dependencies, self._undo
        clock, workers = dependencies.clock, dependencies.workers
        groups = GroupService(settings, metadata=metadata, partitions=partitions, clock=clock, workers=workers)
        groups.start()
        undo.push_async_callback(groups.stop)
        producer_ids = ProducerIds(self._home.store)
        transactions = TransactionService(
            settings,
            metadata=metadata,
            partitions=partitions,
            producer_ids=producer_ids,
            markers=MarkerWriter(
                partitions,
                lambda partition, producer_id, committed: groups.coordinator.transaction_ended(
                    partition, producer_id, committed=committed
                ),
            ),
            clock=clock,
            workers=workers,
            peers=self._peers,
        )
        transactions.start()
        undo.push_async_callback(transactions.stop)
        queues = QueueService(
            metadata=metadata,
            partitions=partitions,
            clock=clock,
            workers=workers,
            random=dependencies.random,
            peers=self._peers,
        )
        queues.start()
        undo.push_async_callback(queues.stop)
        pipelines = PipelineReports(
            metadata=metadata, partitions=partitions, clock=clock, workers=workers, peers=self._peers
        )
        pipelines.start()
        undo.push_async_callback(pipelines.stop)
        canary = Canary(metadata, partitions, queues, clock, workers)
        departures = Departures(clock)
        metadata.subscribe(departures.image_changed)
        audit_topic = AuditTopic(metadata, partitions, self._peers)
        audit = AuditLog(clock.wall_ms, dependencies.random.random)
        writer = AuditWriter(audit, audit_topic, metadata=metadata, clock=clock, workers=workers)
        writer.start()
        undo.push_async_callback(writer.stop)
        security = Security(audit)
        security.update(metadata.image.security, metadata.settings)
        metadata.subscribe(lambda _, image: security.update(image.security, metadata.settings))
        meter = KafkaRequestMeter() if settings.metrics_enable else None
        clients = ClientInstances(lambda: metadata.image.client_metrics)
        quotas = client_quotas(metadata, clock)
        monitor = Monitor(
            MonitoredParts(
                metadata=metadata,
                partitions=partitions,
                groups=groups,
                transactions=transactions,
                queues=queues,
                clock=clock,
                workers=workers,
                peers=self._peers,
                clients=clients,
                requests=None if meter is None else meter.requests,
                quotas=quotas,
            )
        )
        monitor.start()
        undo.push_async_callback(monitor.stop)
        random, membership = dependencies.random, self._membership

        def is_certain() -> bool:
            # Under a new lease, until admission, its leadership may date from before the old lease was lost.
            return membership is None or (membership.is_admitted and membership.is_lease_live())

        registry = RegistryService(
            metadata=metadata,
            partitions=partitions,
            clock=clock,
            workers=workers,
            shows=shown_subjects(security),
            is_certain=is_certain,
            peers=self._peers,
        )
        registry.start()
        undo.push_async_callback(registry.stop)
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
            canary=canary,
            monitor=monitor,
            clients=clients,
            peers=self._peers,
            coordinators={
                0: groups.coordinator,
                1: transactions.coordinator,
                2: ShareLocator(queues.state.coordinator),
            },
            meter=meter,
            leader_throttle=Throttle(lambda: metadata.settings.leader_replication_throttled_rate, clock.monotonic_ms()),
            is_certain=is_certain,
        )
        self._run_in_background(self._sweep(services.expiries), "expiries")
        self._run_in_background(canary.run(), "canary")
        return services

    async def _register(
        self,
        membership: Membership,
        metadata: Metadata,
        hosting: HostedPartitions,
        endpoint: Endpoint,
        listeners: Mapping[str, Endpoint],
    ) -> None:
        membership.on_admitted.append(hosting.refresh_roles)
        controlling = ControllerLoop(metadata, membership, self._dependencies.clock)
        await hosting.withdraw()
        await membership.register(endpoint, listeners)
        controlling.start()
        self._undo.push_async_callback(controlling.stop)
        await membership.wait_until_admitted()
        self._undo.push_async_callback(membership.begin_stopping)

    # In the background

    def _run_in_background(self, coroutine: Coroutine[Any, Any, None], name: str) -> None:
        """Run a background task until the broker stops."""
        task = asyncio.get_running_loop().create_task(coroutine, name=name)
        task.add_done_callback(_log_failure)

        async def end() -> None:
            task.cancel()
            await asyncio.wait((task,))

        self._undo.push_async_callback(end)

    async def _sweep(self, expiries: Expiries) -> None:
        while True:
            await asyncio.sleep(_SWEEP_EVERY_S)
            expiries.sweep(self._dependencies.clock.monotonic_ms())


def _log_failure(task: asyncio.Task[None]) -> None:
    if not task.cancelled() and (error := task.exception()) is not None:
        log.critical("a background task failed, restart the broker: %s", error, exc_info=error)
