"""The broker process: a `Node` with a real data directory, threads, sockets, and etcd in a cluster.

The node's parts, and the order in which they start and stop, are in `node.py`.
"""

import asyncio
import logging
import os
import signal
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from random import Random

from headrace.admin.door import admin_door
from headrace.admin.metrics_door import PATH as METRICS_PATH
from headrace.admin.metrics_door import MetricsDoor
from headrace.admin.routes import PREFIX
from headrace.admin.schema_decoder import SchemaDecoders
from headrace.admin.services import AdminServices
from headrace.admin.sessions import SessionStore
from headrace.app.broker_health import start_health
from headrace.app.broker_home import open_home
from headrace.app.broker_security import (
    ensure_authenticator,
    put_password,
    start_authentication,
    tls_files,
)
from headrace.app.disk_watch import watch_disk
from headrace.app.http.doors import HttpDoors
from headrace.app.http.exchange import AsgiApp
from headrace.app.http.probes import HEALTH_PATH, READY_PATH, Probes
from headrace.app.http.server import HttpServer
from headrace.app.metrics import BrokerMetrics
from headrace.app.node import Node
from headrace.app.node_dependencies import NodeDependencies, started_thread_pool, thread_pool
from headrace.app.queue_permissions import SqsPermissions
from headrace.app.readiness import Readiness
from headrace.app.secured_home import RunningBroker, forget_running, write_running
from headrace.config.address import EVERY_ADDRESS, is_loopback
from headrace.config.broker import BrokerSettings
from headrace.config.broker_checks import access_keys
from headrace.config.broker_rows import LOOPBACK
from headrace.dashboard.door import UI_PREFIX, DashboardDoor, to_dashboard
from headrace.kafka.forwarded_calls import ForwardedCalls
from headrace.kafka.preload import Preload
from headrace.kafka.server import KafkaServer
from headrace.kafka.services import Services
from headrace.model.errors import StartupError
from headrace.model.image import Endpoint
from headrace.monitor.health.service import HealthService
from headrace.registry.door import REGISTRY_PREFIX, RegistryDoor
from headrace.replication.transport import InterBrokerLogin, TcpTransport
from headrace.runtime.clock import Clock, SystemClock
from headrace.runtime.disk import Disk, OsDisk
from headrace.runtime.heap import HeapTrimmer
from headrace.runtime.process import tune_process
from headrace.security.basic_login import BasicLogin
from headrace.security.tls.context import ALPN_HTTP
from headrace.security.tls.reload import ReloadingTls
from headrace.sqs.access import QueueAccess
from headrace.sqs.access_keys import AccessKeys
from headrace.sqs.audit import SqsAudit
from headrace.sqs.bodies import BodyBudget
from headrace.sqs.calls import Realm
from headrace.sqs.deletions import RecentDeletions
from headrace.sqs.endpoint import SqsEndpoint
from headrace.storage.datadir import DataDir
from headrace.storage.flusher import Flusher

log = logging.getLogger(__name__)

_TO_THREAD_THREADS = min(32, (os.cpu_count() or 1) + 4)
"""For `asyncio.to_thread`: as many as it has by default."""


class BrokerApp:
    """Starts and stops a broker with its Kafka and HTTP listeners."""

    def __init__(self, settings: BrokerSettings, *, clock: Clock | None = None, disk: Disk | None = None) -> None:
        self.settings = settings
        self._clock = clock or SystemClock()
        self._disk = disk or OsDisk()
        self._undo = AsyncExitStack()
        self._bound: Mapping[str, Endpoint] = {}
        self._http_endpoint: Endpoint | None = None
        self._registry_port = 0
        self._registry_error = ""
        self._data_dir: DataDir | None = None
        self._tls: ReloadingTls | None = None
        self._services: Services | None = None
        self._metrics = BrokerMetrics()
        self._readiness: Readiness | None = None
        self._node: Node | None = None

    @property
    def kafka_endpoint(self) -> Endpoint:
        """The bound address of the first listener, once started."""
        return self.kafka_endpoints[self.settings.kafka_listeners[0].name]

    @property
    def kafka_endpoints(self) -> Mapping[str, Endpoint]:
        """The bound address of each listener by its name, once started."""
        if not self._bound:
            raise RuntimeError("the broker has not been started")
        return self._bound

    @property
    def http_url(self) -> str:
        """The URL of the SQS listener, once started; empty if it is disabled."""
        bound = self._http_endpoint
        if bound is None:
            return ""
        return f"{self._http_scheme}://{Endpoint(LOOPBACK, bound.port) if bound.host in EVERY_ADDRESS else bound}"

    @property
    def _http_scheme(self) -> str:
        return "https" if self.settings.http_uses_tls else "http"

    @property
    def cluster_id(self) -> str:
        if self._data_dir is None:
            raise RuntimeError("the broker has not been started")
        return self._data_dir.cluster_id

    async def start(self) -> None:
        """Start; ready for clients on return. Raises `StartupError`, `SettingsError` or `MissingExtra`."""
        try:
            await self._start()
        except BaseException:
            # In a cluster the directory may be registered by now, and a broker must restart with the same one.
            # Once it has listened, clients may have had writes acknowledged.
            has_listened = bool(self._bound)
            if self._data_dir is not None and not self.settings.etcd_endpoints and not has_listened:
                self._data_dir.leave_unused()
            await self.stop()
            raise

    async def put_password(self, user: str, password: str) -> None:
        """Create a user, or give one another password, for every SCRAM mechanism."""
        if self._services is None:
            raise RuntimeError("the broker has not been started")
        await put_password(self._services.access, user, password)

    async def delete_user(self, user: str) -> None:
        """Delete a user, and close its connections. Raises `UnknownUser`."""
        if self._services is None:
            raise RuntimeError("the broker has not been started")
        await self._services.access.delete_user(user)

    async def stop(self) -> None:
        """Undo what `start` did, in reverse order. Everything acknowledged is on disk when it returns."""
        if self._readiness is not None:
            self._readiness.stop()
        await self._undo.aclose()

    async def _start(self) -> None:
        undo, settings = self._undo, self.settings
        self._tls = tls_files(settings)
        if self._tls is not None:
            watching = asyncio.get_running_loop().create_task(self._tls.watch(), name="tls-files")
            undo.callback(watching.cancel)
        home = await open_home(settings, self._disk, self._clock)
        undo.push_async_callback(home.close)
        self._data_dir = home.data_dir
        workers = started_thread_pool(settings.background_threads, "worker")
        undo.callback(workers.shutdown)
        dependencies = NodeDependencies(
            clock=self._clock,
            disk=self._disk,
            workers=workers,
            make_pool=thread_pool,
            make_flusher=lambda failed: Flusher(threads=settings.background_threads, on_failed=failed),
            transport=self._peer_transport(),
            random=Random(),
        )
        node = self._node = Node(settings, self._metrics.timed(home), dependencies)
        undo.push_async_callback(node.stop)
        self._readiness = Readiness(
            home.data_dir.path, workers, membership=lambda: node.membership, failure=lambda: node.failure
        )
        await node.start(self._listen)

    def _peer_transport(self) -> TcpTransport:
        """Connects to other brokers on their inter-broker listener, as that one requires."""
        settings, listener = self.settings, self.settings.broker_listener
        login = None
        if listener.uses_sasl:
            login = InterBrokerLogin(
                settings.inter_broker_sasl_mechanism, settings.inter_broker_user, settings.inter_broker_password
            )
        tls = self._tls.client_context() if self._tls is not None and listener.uses_tls else None
        return TcpTransport(tls=tls, login=login)

    async def _listen(self, services: Services, undo: AsyncExitStack) -> Mapping[str, Endpoint]:
        """Bind the listeners, HTTP first: Kafka clients can ask for the HTTP address. It is closed first, too."""
        self._services = services
        self._metrics.find_stalls(services.metadata, undo)
        await start_authentication(self.settings, services, undo)
        health = start_health(services, self._node, self._tls, undo)
        http = AsyncExitStack()
        undo.push_async_callback(http.aclose)
        await self._listen_http(services, health, http)
        server = self._metrics.kafka_server = KafkaServer(services, self._tls)
        health.source.is_budget_used_up = lambda: server.budget.waiting_count > 0
        services.monitor.set_connected(server.peers)
        health.source.disk_pressure = services.quotas.disk
        watching = asyncio.get_running_loop().create_task(
            watch_disk(Path(self.settings.data_dir), services.quotas, services.metadata, services.workers), name="disk"
        )
        undo.callback(watching.cancel)
        bound = self._bound = await server.start()
        undo.push_async_callback(server.stop, self.settings.shutdown_timeout_ms / 1000)
        undo.push_async_callback(http.aclose)
        self._report_taken_ports()
        self._write_running(undo)
        return bound

    def _write_running(self, undo: AsyncExitStack) -> None:
        """Tell commands on this machine how to reach this broker."""
        settings, data_dir = self.settings, Path(self.settings.data_dir)
        protocols = {each.name: each.protocol for each in settings.kafka_listeners}
        listeners = {name: f"{protocols[name]}://{endpoint}" for name, endpoint in self._bound.items()}
        write_running(
            data_dir,
            RunningBroker(
                os.getpid(),
                settings.broker_id,
                listeners,
                self.http_url,
                bool(settings.etcd_endpoints),
                self._registry_port,
            ),
        )
        undo.callback(forget_running, data_dir)

    async def _listen_http(self, services: Services, health: HealthService, undo: AsyncExitStack) -> None:
        address = self.settings.http_address
        if address is None:
            return
        endpoint = self._sqs_endpoint(services)
        assert self._readiness is not None
        assert self._node is not None
        probes = Probes(self._readiness)
        admin = self._admin_services(services, health)
        by_prefix: dict[str, AsgiApp] = {
            PREFIX: admin_door(admin),
            UI_PREFIX: DashboardDoor(),
            METRICS_PATH: MetricsDoor(admin, self._metrics.start(services, self._node, health, self._tls, undo)),
            HEALTH_PATH: probes,
            READY_PATH: probes,
            REGISTRY_PREFIX: self._registry_door(services, REGISTRY_PREFIX),
        }
        doors = HttpDoors(by_prefix, endpoint, browsers=to_dashboard())
        context = self._tls.server_context(alpn=ALPN_HTTP) if self._tls and self.settings.http_uses_tls else None
        server = HttpServer(self.settings, doors, context)
        self._metrics.http_server, self._metrics.bodies = server, endpoint.bodies
        self._http_endpoint = await server.start(address, may_move=not self.settings.http_listen)
        undo.push_async_callback(server.stop, self.settings.shutdown_timeout_ms / 1000)
        undo.push_async_callback(endpoint.stop)
        undo.callback(admin.streams.closing.set)
        services.http_listeners = f"{self._http_scheme}://{self._http_endpoint}"
        await self._listen_registry(services, undo)

    async def _listen_registry(self, services: Services, undo: AsyncExitStack) -> None:
        """Serve the registry at a port of its own as well: at Confluent's, unless that is in use."""
        settings, address = self.settings, self.settings.registry_address
        if address is None:
            return
        context = self._tls.server_context(alpn=ALPN_HTTP) if self._tls and settings.registry_uses_tls else None
        server = HttpServer(settings, self._registry_door(services, ""), context)
        try:
            self._registry_port = (await server.start(address, may_move=False)).port
        except StartupError as error:
            if settings.registry_listen:
                raise
            self._registry_error = str(error)
            return
        undo.push_async_callback(server.stop, settings.shutdown_timeout_ms / 1000)

    def _registry_door(self, services: Services, prefix: str) -> RegistryDoor:
        return RegistryDoor(
            services.registry,
            services.security,
            self._basic_login(services),
            prefix=prefix,
            is_insecure=lambda: self.settings.insecure,
        )

    def _basic_login(self, services: Services) -> BasicLogin:
        metadata = services.metadata
        return BasicLogin(
            services.security,
            lambda: ensure_authenticator(self.settings, services),
            lambda: metadata.settings.connection_failed_authentication_delay_ms,
        )

    def _report_taken_ports(self) -> None:
        """Called after the Kafka listener is bound: a second broker on the same port reports that conflict only."""
        asked, bound = self.settings.http_address, self._http_endpoint
        if asked is not None and bound is not None and asked.port not in (0, bound.port):
            log.warning("%s is in use: queues are served on %s; choose an address with --http-listen", asked, bound)
        if self._registry_error:
            log.info(
                "the schema registry has no port of its own, and is under %s: %s", REGISTRY_PREFIX, self._registry_error
            )

    def _admin_services(self, services: Services, health: HealthService) -> AdminServices:
        metadata = services.metadata
        return AdminServices(
            metadata,
            services.security,
            services.access,
            services.clock,
            partial(ensure_authenticator, self.settings, services),
            services.monitor,
            health,
            ForwardedCalls(services, services.peers),
            services.queues,
            SqsPermissions(self._queue_access(services), services.queues),
            services.pipelines,
            services.registry,
            services.links,
            SessionStore(
                services.clock.monotonic_ms,
                services.security.user,
                lambda: metadata.settings.dashboard_session_idle_ms,
                lambda: metadata.settings.dashboard_session_max_ms,
            ),
            SchemaDecoders(services.registry, services.security, metadata, services.clock, services.workers),
        )

    def _queue_access(self, services: Services) -> QueueAccess:
        settings = self.settings
        return QueueAccess(services.security, settings.sqs_account_id, settings.sqs_region, services.clock.wall_ms)

    def _sqs_endpoint(self, services: Services) -> SqsEndpoint:
        settings, metadata = self.settings, services.metadata
        deletions = RecentDeletions(services.clock.monotonic_ms, lambda: metadata.settings.sqs_recreate_wait_ms)
        metadata.subscribe(deletions.image_changed)
        account, region, wall_ms = settings.sqs_account_id, settings.sqs_region, services.clock.wall_ms
        access = self._queue_access(services)
        realm = Realm(services.queues, account, region, deletions, wall_ms, access, SqsAudit(services.security.audit))
        address = settings.http_address
        is_local = address is not None and address.host not in EVERY_ADDRESS and is_loopback(address.host)
        keys = AccessKeys(
            access_keys(settings.sqs_access_keys), services.security, is_open=is_local or settings.insecure
        )
        login = self._basic_login(services)
        meter = self._metrics.actions if settings.metrics_enable else None
        bodies, rates = BodyBudget(settings.queued_max_request_bytes), services.quotas.queues
        endpoint = SqsEndpoint(realm, keys, bodies, login, meter=meter, rates=rates)
        # After `services.security`, which has subscribed before.
        metadata.subscribe(lambda _, __: endpoint.recheck())
        return endpoint


async def serve(settings: BrokerSettings, ready: Callable[[BrokerApp], None]) -> bool:
    """Run a broker until SIGTERM or SIGINT; `ready` is called when clients can connect.

    True if it was SIGHUP: the caller is to start it again, with the settings as they are then.
    """
    tune_process()
    stopping, restarting = asyncio.Event(), asyncio.Event()
    loop = asyncio.get_running_loop()
    loop.set_default_executor(started_thread_pool(_TO_THREAD_THREADS, "to-thread"))
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopping.set)

    def restart() -> None:
        restarting.set()
        stopping.set()

    loop.add_signal_handler(signal.SIGHUP, restart)
    app = BrokerApp(settings)
    if not await _started(app, stopping):
        return restarting.is_set()
    preload, trimmer = Preload(), HeapTrimmer()
    try:
        ready(app)
        if settings.preload_enable:
            preload.start()
        trimmer.start()
        await stopping.wait()
        preload.stop()
        log.info("restarting" if restarting.is_set() else "stopping")
    finally:
        trimmer.stop()
        await app.stop()
    return restarting.is_set()


async def _started(app: BrokerApp, stopping: asyncio.Event) -> bool:
    """Start the broker; False if a signal came first: in a cluster, admission may take long."""
    starting = asyncio.ensure_future(app.start())
    stop_requested = asyncio.ensure_future(stopping.wait())
    try:
        await asyncio.wait((starting, stop_requested), return_when=asyncio.FIRST_COMPLETED)
        if starting.done():
            await starting
            return True
        log.info("stopping before it has started")
        starting.cancel()
        await asyncio.wait((starting,))
        return False
    finally:
        stop_requested.cancel()
