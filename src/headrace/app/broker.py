"""A broker: the only place where its parts are wired together.

Start: take the data directory, open the metadata, open the logs (recovering what a crash left), then listen.
Stop: take no more requests, answer those under way, flush and close the logs, and only then mark the stop as clean.
"""

import asyncio
import logging
import random
import signal
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack
from typing import Any

from headrace.app.hosting import Hosting
from headrace.app.place import take_place
from headrace.cluster.endpoints import default_endpoint
from headrace.cluster.metadata import Metadata
from headrace.cluster.producer_ids import ProducerIds
from headrace.config.broker import BrokerSettings
from headrace.groups.service import GroupService
from headrace.kafka.fetch_sessions import FetchSessions
from headrace.kafka.preload import Preload
from headrace.kafka.recoding import Recoder
from headrace.kafka.server import KafkaServer
from headrace.kafka.services import Services
from headrace.model.image import Endpoint
from headrace.replication.partitions import PartitionTable
from headrace.runtime.clock import Clock, SystemClock
from headrace.runtime.disk import Disk, OsDisk
from headrace.runtime.expiries import Expiries
from headrace.runtime.process import tune_process
from headrace.storage.cleaner import Cleaner
from headrace.storage.datadir import DataDir
from headrace.storage.flusher import Flusher
from headrace.storage.manager import LogManager
from headrace.transactions.markers import MarkerWriter
from headrace.transactions.service import TransactionService

log = logging.getLogger(__name__)

_SWEEP_EVERY_S = 0.1
_SESSION_ID_MAX = 2**31 - 1


class BrokerApp:
    def __init__(self, settings: BrokerSettings, *, clock: Clock | None = None, disk: Disk | None = None) -> None:
        self.settings = settings
        self._clock = clock or SystemClock()
        self._disk = disk or OsDisk()
        self._undo = AsyncExitStack()
        self._endpoint: Endpoint | None = None
        self._data_dir: DataDir | None = None

    @property
    def kafka_endpoint(self) -> Endpoint:
        """The address that is bound, once started."""
        if self._endpoint is None:
            raise RuntimeError("the broker has not been started")
        return self._endpoint

    @property
    def cluster_id(self) -> str:
        if self._data_dir is None:
            raise RuntimeError("the broker has not been started")
        return self._data_dir.cluster_id

    async def start(self) -> None:
        """Ready for clients on return. `StartupError` or `SettingsError` says in one sentence why not."""
        try:
            await self._start()
        except BaseException:
            await self.stop()
            raise

    async def stop(self) -> None:
        """Undo what `start` did, in reverse order. Everything acknowledged is on disk when it returns."""
        await self._undo.aclose()

    async def _start(self) -> None:
        undo, settings = self._undo, self.settings
        place = await take_place(settings, self._disk, self._clock)
        undo.push_async_callback(place.leave)
        data_dir, store = place.data_dir, place.store
        self._data_dir = data_dir
        workers = ThreadPoolExecutor(settings.background_threads, thread_name_prefix="worker")
        undo.callback(workers.shutdown)
        endpoint = default_endpoint(settings.listen, settings.advertise, settings.listen.port)
        metadata = Metadata(store, settings, endpoint, is_alone=place.is_alone)
        await metadata.open(data_dir.cluster_id)
        undo.push_async_callback(metadata.close)
        partitions = PartitionTable()
        hosting = await self._open_logs(data_dir, metadata, partitions, workers)
        metadata.subscribe(hosting.image_changed)
        groups = GroupService(settings, metadata=metadata, partitions=partitions, clock=self._clock, workers=workers)
        groups.start()
        undo.push_async_callback(groups.stop)
        producer_ids = ProducerIds(store)
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
            clock=self._clock,
            workers=workers,
        )
        transactions.start()
        undo.push_async_callback(transactions.stop)
        services = Services(
            clock=self._clock,
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
            coordinators={0: groups.coordinator, 1: transactions.coordinator},
        )
        self._keep(self._sweep(services.expiries))
        server = KafkaServer(services)
        bound = await server.start()
        undo.push_async_callback(server.stop, settings.shutdown_timeout_ms / 1000)
        self._endpoint = bound
        metadata.announce(default_endpoint(settings.listen, settings.advertise, bound.port))

    async def _open_logs(
        self, data_dir: DataDir, metadata: Metadata, partitions: PartitionTable, workers: ThreadPoolExecutor
    ) -> Hosting:
        settings, loop = self.settings, asyncio.get_running_loop()
        logs = LogManager(
            data_dir,
            disk=self._disk,
            clock=self._clock,
            producer_expiry_ms=settings.producer_id_expiration_ms,
            on_failed=partitions.failed,
        )
        await loop.run_in_executor(workers, logs.start)
        self._undo.push_async_callback(asyncio.to_thread, logs.stop)
        flusher = Flusher(threads=settings.background_threads, on_failed=lambda _, error: logs.fail(error))
        self._undo.push_async_callback(flusher.stop)
        hosting = Hosting(metadata, logs, partitions, flusher, workers)
        await hosting.open_all()
        self._undo.push_async_callback(hosting.finish)
        self._keep(logs.run_periodically(settings.log_flush_offset_checkpoint_interval_ms / 1000))
        cleaner = Cleaner(
            logs.logs.values,
            clock=self._clock,
            retention_check_interval_ms=settings.log_retention_check_interval_ms,
            backoff_ms=settings.log_cleaner_backoff_ms,
            threads=settings.log_cleaner_threads,
            dedupe_buffer_bytes=settings.log_cleaner_dedupe_buffer_size,
            io_max_bytes_per_s=settings.log_cleaner_io_max_bytes_per_second,
        )
        cleaner.start()
        self._undo.push_async_callback(cleaner.stop)
        return hosting

    def _keep(self, coroutine: Coroutine[Any, Any, None]) -> None:
        """Run a background task until the broker stops."""
        task = asyncio.get_running_loop().create_task(coroutine)
        task.add_done_callback(_say_why_it_ended)

        async def end() -> None:
            task.cancel()
            await asyncio.wait((task,))

        self._undo.push_async_callback(end)

    async def _sweep(self, expiries: Expiries) -> None:
        while True:
            await asyncio.sleep(_SWEEP_EVERY_S)
            expiries.sweep(self._clock.monotonic_ms())


def _say_why_it_ended(task: asyncio.Task[None]) -> None:
    if not task.cancelled() and (error := task.exception()) is not None:
        log.critical("work in the background has ended, restart the broker: %s", error, exc_info=error)


async def serve(settings: BrokerSettings, ready: Callable[[BrokerApp], None]) -> None:
    """Run a broker until SIGTERM or SIGINT; `ready` is called when clients can connect."""
    tune_process()
    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopping.set)
    app = BrokerApp(settings)
    await app.start()
    preload = Preload()
    try:
        ready(app)
        preload.start()
        await stopping.wait()
        preload.stop()
        log.info("stopping")
    finally:
        await app.stop()
