"""The parts of a broker, wired together: the same in production and in the simulation.

A single node opens the metadata, opens the logs (with recovery after a crash), and serves. A cluster member then
registers, is admitted by the controller, leads and follows. Clock, disk, network, threads and store are injected.

Stopping is the reverse: transfer leadership and redirect clients to the new leaders, accept no more requests, answer
those in flight, revoke the lease, flush and close the logs.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AsyncExitStack

from headrace.app.broker_home import BrokerHome
from headrace.app.hosted_partitions import ClusterRuntime, HostedPartitions
from headrace.app.node_dependencies import NodeDependencies
from headrace.app.node_services import NodeServices
from headrace.app.started_parts import StartedParts
from headrace.app.topic_ciphers import TopicCiphers
from headrace.cluster.controller_loop import ControllerLoop
from headrace.cluster.data_keys import DataKeyMaker, KeyUpkeep
from headrace.cluster.endpoints import default_endpoint
from headrace.cluster.membership import Membership
from headrace.cluster.metadata import Metadata
from headrace.config.broker import BrokerSettings
from headrace.kafka.services import Services
from headrace.model.errors import SettingsError, StartupError
from headrace.model.features import LATEST_LEVEL
from headrace.model.image import Endpoint
from headrace.observe.traffic import TrafficTable
from headrace.replication.fetchers import Fetchers
from headrace.replication.isr import InSync
from headrace.replication.partitions import PartitionTable
from headrace.replication.peers import Peers
from headrace.security.encryption.key_source import load_master_keys
from headrace.security.encryption.master_key import MasterKeys
from headrace.storage.cleaner import Cleaner
from headrace.storage.flusher import Flusher
from headrace.storage.manager import LogManager

log = logging.getLogger(__name__)

_HIGH_WATERMARKS_EVERY_S = 5.0


class Node:
    """A broker without sockets of its own: `start` wires and starts its parts, `stop` stops them."""

    def __init__(self, settings: BrokerSettings, home: BrokerHome, dependencies: NodeDependencies) -> None:
        """The caller closes `home`."""
        self.settings = settings
        self._home = home
        self._dependencies = dependencies
        self._started = StartedParts()
        self._services: Services | None = None
        self._membership: Membership | None = None
        self._peers: Peers | None = None
        self._logs: LogManager | None = None
        self.flusher: Flusher | None = None
        self.cleaner: Cleaner | None = None
        self.ciphers: TopicCiphers | None = None
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
        settings, dependencies, started, home = self.settings, self._dependencies, self._started, self._home
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
        started.push_async_callback(metadata.close)
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
        started.push_async_callback(flusher.stop)
        cluster = None if home.is_single_node else self._join(metadata, partitions)
        ciphers = self.ciphers = TopicCiphers(master, settings.encryption_cache_bytes)
        hosting = HostedPartitions(
            metadata, logs, partitions, flusher, dependencies.workers, cluster=cluster, ciphers=ciphers
        )
        began_ms = dependencies.clock.monotonic_ms()
        await hosting.open_all()
        self.recovery_ms = dependencies.clock.monotonic_ms() - began_ms
        started.push_async_callback(hosting.finish)
        metadata.subscribe(hosting.image_changed)
        await self._keep_data_keys(KeyUpkeep(metadata, data_keys), metadata)
        self._start_maintenance(logs, metadata)
        services = self._services = NodeServices(
            settings,
            home.data_dir.path,
            home.store,
            dependencies,
            started,
            metadata,
            partitions,
            self._peers,
            self._membership,
            flusher.between_syncs,
        ).start()
        bound = await bind(services, started)
        advertised = {
            each.name: default_endpoint(each.address, each.advertise, bound[each.name].port)
            for each in settings.kafka_listeners
        }
        own = advertised[own_listener.name]
        metadata.announce(own, advertised)
        if self._membership is not None:
            await self._register(self._membership, metadata, hosting, own, advertised)
            self._started.run_in_background(services.producer_ids.prefetch_blocks(), "producer ids")

    async def stop(self) -> None:
        """Undo what `start` did, in reverse order. Everything acknowledged is on disk when it returns."""
        await self._started.aclose()

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
        self._started.run_in_background(keep(), "data-keys")

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
        self._started.push_async_callback(asyncio.to_thread, logs.stop)
        return logs

    def _join(self, metadata: Metadata, partitions: PartitionTable) -> ClusterRuntime:
        dependencies, started, home = self._dependencies, self._started, self._home
        membership = self._membership = Membership(
            home.store, metadata, self.settings, dependencies.clock, home.data_dir.directory_id
        )
        started.push_async_callback(membership.close)
        peers = self._peers = Peers(
            dependencies.transport, metadata, dependencies.random, self.settings.broker_listener.name
        )
        started.push_async_callback(peers.close)
        fetchers = Fetchers(
            peers, metadata, broker_epoch=lambda: membership.epoch, clock=dependencies.clock, random=dependencies.random
        )
        started.push_async_callback(fetchers.close)
        in_sync = InSync(partitions, metadata, fence=membership.fence, clock=dependencies.clock)
        self._started.run_in_background(in_sync.run(), "in-sync")
        return ClusterRuntime(lambda: membership.epoch, fetchers, in_sync.look_at, dependencies.clock)

    def _start_maintenance(self, logs: LogManager, metadata: Metadata) -> None:
        settings, dependencies = metadata.settings, self._dependencies
        self._started.run_in_background(
            logs.run_periodically(settings.log_flush_offset_checkpoint_interval_ms / 1000), "checkpoints"
        )
        if not self._home.is_single_node:
            self._started.run_in_background(
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
        self._started.start(cleaner)

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
        self._started.start(controlling)
        await membership.wait_until_admitted()
        self._started.push_async_callback(membership.begin_stopping)
