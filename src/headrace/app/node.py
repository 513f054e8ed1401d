"""A broker without its surroundings: the same parts in production and in the simulation, wired together once.

Alone: open the metadata, open the logs (recovering what a crash left), serve. In a cluster the same, and then take a
place in it: register, be admitted by the controller, lead and follow. The clock, the disk, the network, threads and the
store come from outside.

Stop, in reverse: hand over what is led and tell those who ask who leads now, take no more requests, answer those under
way, give the place up, flush and close the logs.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from concurrent.futures import Executor
from contextlib import AsyncExitStack
from dataclasses import dataclass
from random import Random
from typing import Any
from uuid import UUID, uuid4

from headrace.app.broker_home import BrokerHome
from headrace.app.hosted_partitions import ClusterRuntime, HostedPartitions
from headrace.cluster.controller_loop import ControllerLoop
from headrace.cluster.endpoints import default_endpoint
from headrace.cluster.membership import Membership
from headrace.cluster.metadata import Metadata
from headrace.cluster.producer_ids import ProducerIds
from headrace.config.broker import BrokerSettings
from headrace.groups.service import GroupService
from headrace.kafka.departures import Departures
from headrace.kafka.fetch_sessions import FetchSessions
from headrace.kafka.recoding import Recoder
from headrace.kafka.services import Services
from headrace.kafka.share_sessions import ShareSessions
from headrace.model.features import LATEST_LEVEL
from headrace.model.image import Endpoint
from headrace.queues.service import QueueService
from headrace.queues.share.service import ShareLocator
from headrace.replication.fetchers import Fetchers
from headrace.replication.isr import InSync
from headrace.replication.partitions import PartitionTable
from headrace.replication.peers import Peers
from headrace.replication.throttle import Throttle
from headrace.replication.transport import Transport
from headrace.runtime.clock import Clock
from headrace.runtime.disk import Disk
from headrace.runtime.expiries import Expiries
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
    """What a broker needs of the world outside."""

    clock: Clock
    disk: Disk
    workers: Executor
    """For what may block: opening logs, cold reads, checkpoints."""
    make_pool: Callable[[int, str], Executor]
    """An executor with so many threads of a name, shut down by whoever asked for it."""
    make_flusher: Callable[[Callable[[Log, BaseException], None]], Flusher]
    """Given whom to tell that a log's disk has failed."""
    transport: Transport
    random: Random
    new_uuid: Callable[[], UUID] = uuid4


class Node:
    def __init__(self, settings: BrokerSettings, place: BrokerHome, outside: NodeDependencies) -> None:
        """The place is left to its owner."""
        self.settings = settings
        self._place = place
        self._outside = outside
        self._undo = AsyncExitStack()
        self._services: Services | None = None
        self._membership: Membership | None = None
        self._peers: Peers | None = None

    @property
    def services(self) -> Services:
        """What handlers use, once started."""
        if self._services is None:
            raise RuntimeError("the broker has not been started")
        return self._services

    @property
    def membership(self) -> Membership | None:
        """This broker's place in its cluster, once started; None where it is alone."""
        return self._membership

    async def start(self, bind: Callable[[Services, AsyncExitStack], Awaitable[Endpoint]]) -> None:
        """Ready for clients on return; in a cluster, when the controller has admitted this broker.

        `bind` opens the door: it gives the address that is bound, and leaves with the stack what closes the door again.
        If this raises, `stop` undoes what was done.
        """
        settings, outside, undo, place = self.settings, self._outside, self._undo, self._place
        endpoint = default_endpoint(settings.listen, settings.advertise, settings.listen.port)
        metadata = Metadata(
            place.store, settings, endpoint, is_single_node=place.is_single_node, new_uuid=outside.new_uuid
        )
        await metadata.open(place.data_dir.cluster_id)
        undo.push_async_callback(metadata.close)
        # Before anything else hears of a higher level, and could write what older versions do not know.
        metadata.subscribe(lambda _, image: self._mark_level(image.feature_level))
        self._mark_level(metadata.image.feature_level)
        if metadata.image.feature_level < LATEST_LEVEL:
            log.info(
                "the feature level is %d, as before the upgrade: headrace cluster upgrade raises it to %d once every "
                "broker runs this version, and then there is no way back to the version before",
                metadata.image.feature_level,
                LATEST_LEVEL,
            )
        partitions = PartitionTable(lambda: metadata.image)
        logs = await self._open_log_manager(partitions)
        flusher = outside.make_flusher(lambda _, error: logs.fail(error))
        undo.push_async_callback(flusher.stop)
        cluster = None if place.is_single_node else self._join(metadata, partitions)
        hosting = HostedPartitions(metadata, logs, partitions, flusher, outside.workers, cluster=cluster)
        await hosting.open_all()
        undo.push_async_callback(hosting.finish)
        metadata.subscribe(hosting.image_changed)
        self._look_after(logs, metadata)
        services = self._services = self._serve(metadata, partitions)
        bound = await bind(services, undo)
        own = default_endpoint(settings.listen, settings.advertise, bound.port)
        metadata.announce(own)
        if self._membership is not None:
            await self._take_place(self._membership, metadata, hosting, own)
            self._keep(services.producer_ids.prefetch_blocks(), "producer ids")

    async def stop(self) -> None:
        """Undo what `start` did, in reverse order. Everything acknowledged is on disk when it returns."""
        await self._undo.aclose()

    # The parts

    def _mark_level(self, level: int) -> None:
        """Let versions that do not know the cluster's feature level refuse this data directory by name.

        If it cannot be written, the metadata store refuses them all the same, and the next start tries again.
        """
        try:
            self._place.data_dir.raise_level(level, self._outside.disk)
        except OSError as error:
            log.warning("the data directory could not be marked for feature level %d: %s", level, error)

    async def _open_log_manager(self, partitions: PartitionTable) -> LogManager:
        outside = self._outside

        def failed(error: BaseException) -> None:
            partitions.failed(error)
            if self._membership is not None:
                self._membership.resign(f"its data directory failed: {error}")

        logs = LogManager(
            self._place.data_dir,
            disk=outside.disk,
            clock=outside.clock,
            producer_expiry_ms=self.settings.producer_id_expiration_ms,
            on_failed=failed,
            make_pool=outside.make_pool,
            is_replicated=not self._place.is_single_node,
        )
        loop = asyncio.get_running_loop()
        await loop.run_in_executor(outside.workers, logs.start)
        self._undo.push_async_callback(asyncio.to_thread, logs.stop)
        return logs

    def _join(self, metadata: Metadata, partitions: PartitionTable) -> ClusterRuntime:
        outside, undo, place = self._outside, self._undo, self._place
        membership = self._membership = Membership(
            place.store, metadata, self.settings, outside.clock, place.data_dir.directory_id
        )
        undo.push_async_callback(membership.close)
        peers = self._peers = Peers(outside.transport, metadata, outside.random)
        undo.push_async_callback(peers.close)
        fetchers = Fetchers(
            peers, metadata, broker_epoch=lambda: membership.epoch, clock=outside.clock, random=outside.random
        )
        undo.push_async_callback(fetchers.close)
        in_sync = InSync(partitions, metadata, fence=membership.fence, clock=outside.clock)
        self._keep(in_sync.run(), "in-sync")
        return ClusterRuntime(lambda: membership.epoch, fetchers, in_sync.look_at, outside.clock)

    def _look_after(self, logs: LogManager, metadata: Metadata) -> None:
        settings, outside = metadata.settings, self._outside
        self._keep(logs.run_periodically(settings.log_flush_offset_checkpoint_interval_ms / 1000), "checkpoints")
        if not self._place.is_single_node:
            self._keep(logs.keep_high_watermarks(_HIGH_WATERMARKS_EVERY_S, outside.workers), "high-watermarks")
        cleaner = Cleaner(
            logs.logs.values,
            clock=outside.clock,
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

    def _serve(self, metadata: Metadata, partitions: PartitionTable) -> Services:
        settings, outside, undo = self.settings, self._outside, self._undo
        clock, workers = outside.clock, outside.workers
        groups = GroupService(settings, metadata=metadata, partitions=partitions, clock=clock, workers=workers)
        groups.start()
        undo.push_async_callback(groups.stop)
        producer_ids = ProducerIds(self._place.store)
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
            random=outside.random,
            peers=self._peers,
        )
        queues.start()
        undo.push_async_callback(queues.stop)
        departures = Departures(clock)
        metadata.subscribe(departures.image_changed)
        random, membership = outside.random, self._membership
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
            recoder=Recoder(metadata, partitions, workers),
            groups=groups,
            transactions=transactions,
            queues=queues,
            share_sessions=ShareSessions(lambda: metadata.settings.group_share_max_share_sessions),
            departures=departures,
            coordinators={
                0: groups.coordinator,
                1: transactions.coordinator,
                2: ShareLocator(queues.state.coordinator),
            },
            leader_throttle=Throttle(lambda: metadata.settings.leader_replication_throttled_rate, clock.monotonic_ms()),
            # Under a new lease, what this broker thinks it leads may be of before it lost the old one.
            is_certain=lambda: membership is None or (membership.is_admitted and membership.is_lease_live()),
        )
        self._keep(self._sweep(services.expiries), "expiries")
        return services

    async def _take_place(
        self, membership: Membership, metadata: Metadata, hosting: HostedPartitions, endpoint: Endpoint
    ) -> None:
        membership.on_admitted.append(hosting.look_again)
        controlling = ControllerLoop(metadata, membership, self._outside.clock)
        await hosting.withdraw()
        await membership.register(endpoint)
        controlling.start()
        self._undo.push_async_callback(controlling.stop)
        await membership.wait_until_admitted()
        self._undo.push_async_callback(membership.begin_stopping)

    # In the background

    def _keep(self, coroutine: Coroutine[Any, Any, None], name: str) -> None:
        """Run a background task until the broker stops."""
        task = asyncio.get_running_loop().create_task(coroutine, name=name)
        task.add_done_callback(_say_why_it_ended)

        async def end() -> None:
            task.cancel()
            await asyncio.wait((task,))

        self._undo.push_async_callback(end)

    async def _sweep(self, expiries: Expiries) -> None:
        while True:
            await asyncio.sleep(_SWEEP_EVERY_S)
            expiries.sweep(self._outside.clock.monotonic_ms())


def _say_why_it_ended(task: asyncio.Task[None]) -> None:
    if not task.cancelled() and (error := task.exception()) is not None:
        log.critical("work in the background has ended, restart the broker: %s", error, exc_info=error)
