"""The listener for Kafka clients: admits connections, closes idle and stalled ones, drains them on shutdown."""

import asyncio
import errno
import logging
import socket
import ssl
from collections import Counter
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import suppress
from typing import Any

from headrace.cluster.endpoints import advertised_endpoint
from headrace.config.listeners import KafkaListener
from headrace.kafka import handlers as _handlers  # registers every API
from headrace.kafka.authentication import Authentication
from headrace.kafka.budget import RequestBudget
from headrace.kafka.bulk_line import BulkLine
from headrace.kafka.connection import Connection
from headrace.kafka.connection_host import Admittance
from headrace.kafka.dispatch import Peer
from headrace.kafka.services import Services
from headrace.kafka.socket_room import SocketRoom
from headrace.model.client_auth import ClientAuth
from headrace.model.errors import StartupError
from headrace.model.image import ClusterImage, Endpoint
from headrace.quotas.connection_rate import Admission
from headrace.replication.peers import BROKER_SOFTWARE
from headrace.runtime.buffers import BufferPool
from headrace.security.authenticator import Login
from headrace.security.pending import PendingConnections
from headrace.security.revocation import Revocation
from headrace.security.subject import Subject
from headrace.security.tls.certificates import details_of_der
from headrace.security.tls.listener import PendingHandshakes, TlsListener
from headrace.security.tls.reload import ReloadingTls

log = logging.getLogger(__name__)

_SCRATCH_BYTES = 256 * 1024
_SWEEP_EVERY_S = 1.0
_BACKLOG = 1024
_CLOSE_TIMEOUT_S = 1.0
_IPV4_MAPPED = "::ffff:"
_TLS = "TLS"
_REFUSED = Admittance()
_REFUSED_LATER_MAX = 1_000

__all__ = ["KafkaServer", "_handlers"]


class KafkaServer:
    def __init__(self, services: Services, tls: ReloadingTls | None = None) -> None:
        """`tls` has the certificates of listeners with TLS."""
        settings = services.settings
        self._tls = tls
        self.services = services
        self.budget = RequestBudget(settings.queued_max_request_bytes)
        self.buffers = BufferPool()
        self.scratch = memoryview(bytearray(_SCRATCH_BYTES))
        self.max_in_flight = settings.max_inflight_requests_per_connection
        self.meter = services.meter
        self.quotas = services.quotas
        self.now_ms = services.clock.monotonic_ms
        self.now_s = services.clock.monotonic_s
        self.line = BulkLine(self.now_ms)
        self.room = SocketRoom()
        self._settings = settings
        self._connections: set[Connection] = set()
        self._addresses: dict[Connection, str] = {}
        self._per_address: Counter[str] = Counter()
        self._certificate_ends_s: dict[Connection, float] = {}
        """When the client certificates of connections expire."""
        self._tasks: set[asyncio.Task[None]] = set()
        self._servers: list[asyncio.Server | TlsListener] = []
        self._failures = services.security.client_failures
        most, most_per_ip = settings.max_pending_connections, settings.max_pending_connections_per_ip
        self._pending: PendingConnections[Connection] = PendingConnections(most, most_per_ip)
        self._handshakes = PendingHandshakes(most, most_per_ip, self._failures)
        self._sweeper: asyncio.Task[None] | None = None
        self._progress = asyncio.Event()
        self.opened_count = 0
        """Connections that were accepted."""
        self.refused_count = 0
        self._refused_later = 0
        """Connections that will be closed after a delay, because their address opens too many."""

    # -- start and stop

    async def start(self) -> dict[str, Endpoint]:
        """Listen and return the bound address of each listener, with the real port if port 0 was requested."""
        bound = {listener.name: await self._listen(listener) for listener in self._settings.kafka_listeners}
        self.services.metadata.subscribe(self._image_changed)
        self._sweeper = asyncio.get_running_loop().create_task(self._sweep())
        return bound

    async def _listen(self, listener: KafkaListener) -> Endpoint:
        address = listener.address
        most_bytes = self._settings.socket_request_max_bytes
        if listener.uses_sasl:
            most_bytes = min(most_bytes, self._settings.sasl_server_max_receive_size)
        host = address.host or None

        def make_connection() -> Connection:
            return Connection(self, most_bytes, listener)

        try:
            if listener.uses_tls:
                context = self._tls_context(listener)
                tls_listener = await TlsListener.bind(
                    host, address.port, _BACKLOG, context, make_connection, self._handshakes
                )
                self._size_buffers(tls_listener.sockets)
                self._servers.append(tls_listener)
                return Endpoint(address.host, tls_listener.port)
            loop = asyncio.get_running_loop()
            server = await loop.create_server(make_connection, host, address.port, backlog=_BACKLOG)
        except OSError as error:
            flag = "listeners" if self._settings.listeners else "--kafka-listen"
            raise StartupError(why_not_listening(address, error, flag)) from error
        self._size_buffers(server.sockets)
        self._servers.append(server)
        return Endpoint(address.host, server.sockets[0].getsockname()[1])

    def _size_buffers(self, listening: Sequence[socket.socket]) -> None:
        """Set the buffer sizes of listening sockets, from which accepted ones inherit them."""
        sizes = {
            socket.SO_SNDBUF: self._settings.socket_send_buffer_bytes,
            socket.SO_RCVBUF: self._settings.socket_receive_buffer_bytes,
        }
        for option, size in sizes.items():
            for each in listening if size >= 0 else ():
                each.setsockopt(socket.SOL_SOCKET, option, size)

    def _tls_context(self, listener: KafkaListener) -> ssl.SSLContext:
        if self._tls is None:
            raise StartupError(f"the listener {listener} has no certificate: set tls.cert.file and tls.key.file")
        return self._tls.server_context(ClientAuth(listener.client_auth))

    async def stop(self, timeout_s: float) -> None:
        """Accept no more requests, answer those in flight (long polls at once), then close all connections."""
        for server in self._servers:
            closing = server.close()
            if closing is not None:
                await closing
        if self._sweeper is not None:
            self._sweeper.cancel()
            with suppress(asyncio.CancelledError):
                await self._sweeper
        for connection in tuple(self._connections):
            connection.drain()
        await self._wait_until(lambda: all(not c.has_unanswered for c in self._connections), timeout_s)
        for connection in tuple(self._connections):
            connection.close("was still open when the broker stopped")
        await self._wait_until(lambda: not self._connections, _CLOSE_TIMEOUT_S)
        for connection in tuple(self._connections):
            connection.abort()
        self.room.close()

    async def _wait_until(self, holds: Callable[[], bool], timeout_s: float) -> None:
        """Wait until `holds()` or the timeout; checked each time a connection has drained or closed."""
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                while not holds():
                    self._progress.clear()
                    await self._progress.wait()

    @property
    def connection_count(self) -> int:
        return len(self._connections)

    def connections_by_listener(self) -> Counter[str]:
        """The number of open connections of each listener."""
        found = Counter({listener.name: 0 for listener in self._settings.kafka_listeners})
        found.update(connection.listener_name for connection in self._connections)
        return found

    def peers(self) -> Iterator[Peer]:
        """The clients of all open connections, without other brokers."""
        for connection in self._connections:
            peer = connection.peer
            if peer is not None and peer.client_software.partition(" ")[0] != BROKER_SOFTWARE:
                yield peer

    @property
    def requests_in_flight(self) -> int:
        return sum(connection.unanswered_count for connection in self._connections)

    # -- ConnectionHost

    def opened(self, connection: Connection, transport: asyncio.Transport, listener: KafkaListener) -> Admittance:
        address, port = _address(transport.get_extra_info("peername"))
        delay_ms = 0
        if self.quotas.connections.is_limited:
            admission = self._admission(address, listener)
            if admission.is_refused:
                return self._refused_after(address, admission.delay_ms)
            delay_ms = admission.delay_ms
        settings = self.services.settings
        if len(self._connections) >= settings.max_connections:
            return self._refused(address, f"max.connections={settings.max_connections} are open")
        if self._per_address[address] >= settings.max_connections_per_ip:
            return self._refused(address, f"max.connections.per.ip={settings.max_connections_per_ip} are open")
        self.opened_count += 1
        self._connections.add(connection)
        self._addresses[connection] = address
        self._per_address[address] += 1
        local_host, local_port = _address(transport.get_extra_info("sockname"))
        local = advertised_endpoint(listener.address, listener.advertise, Endpoint(local_host, local_port))
        subject = Subject(host=address.removeprefix(_IPV4_MAPPED), listener=listener.name)
        if listener.client_auth != ClientAuth.NONE:
            with_certificate = self._with_certificate(connection, subject, transport)
            if with_certificate is None:
                return self._refused(address, "its certificate has expired or names no user")
            subject = with_certificate
        if listener.uses_sasl:
            crowded_out = self._pending.add(connection, address)
            if crowded_out is not None:
                crowded_out.cut_off("was the oldest of too many that have not authenticated")
        peer = Peer(
            f"{address}:{port}",
            local,
            subject=subject,
            listener=listener.name,
            authentication=self._authentication(listener) if listener.uses_sasl else None,
        )
        return Admittance(peer, delay_ms)

    def _admission(self, address: str, listener: KafkaListener) -> Admission:
        """What the rates of connections say. A listener only for brokers is not slowed down by clients of others."""
        is_protected = listener.name == self.services.broker_listener and len(self._settings.kafka_listeners) > 1
        return self.quotas.connections.admit(
            address.removeprefix(_IPV4_MAPPED), listener.name, int(self.now_ms()), is_protected=is_protected
        )

    def _refused_after(self, address: str, delay_ms: int) -> Admittance:
        """Refuse a connection after a delay, so that its client does not try again at once, unless too many wait."""
        if not delay_ms:
            return self._refused(address, "too many wait their turn because of max.connection.creation.rate")
        self._refused(address, "it opens connections faster than its quota connection_creation_rate")
        if self._refused_later >= _REFUSED_LATER_MAX:
            return _REFUSED
        self._refused_later += 1
        asyncio.get_running_loop().call_later(delay_ms / 1000, self._forget_refused)
        return Admittance(None, delay_ms)

    def _forget_refused(self) -> None:
        self._refused_later -= 1

    def _with_certificate(
        self, connection: Connection, subject: Subject, transport: asyncio.Transport
    ) -> Subject | None:
        """The subject that the client's certificate names, or the same one if it has none; None if it is not valid."""
        authenticator = self.services.security.authenticator
        der = transport.get_extra_info("ssl_object").getpeercert(binary_form=True)
        if der is None or authenticator is None:
            return subject
        principal = authenticator.principal_of_certificate(der, self.services.clock.wall_ms() / 1000)
        self.services.security.logged_in(
            Login(principal or "", subject.host, _TLS, subject.listener, has_succeeded=principal is not None)
        )
        if principal is None:
            return None
        self._certificate_ends_s[connection] = details_of_der(der).expires_at_s
        return subject._replace(principal=principal, mechanism=_TLS)

    def _authentication(self, listener: KafkaListener) -> Authentication:
        authenticator = self.services.security.authenticator
        assert authenticator is not None
        return Authentication(
            authenticator.mechanisms,
            listener.mechanisms,
            max_reauth_ms=self._settings.connections_max_reauth_ms,
            wall_ms=self.services.clock.wall_ms,
        )

    def _refused(self, address: str, reason: str) -> Admittance:
        self.refused_count += 1
        self._failures.note(address, f"refused a connection from {address}: {reason}", logging.WARNING)
        return _REFUSED

    def authenticated(self, connection: Connection) -> None:
        self._pending.discard(connection)

    def closing(self, peer: Peer, reason: str) -> None:
        self._failures.note(peer.subject.host, f"closed the connection of {peer.address}: it {reason}")

    def closed(self, connection: Connection) -> None:
        self._connections.discard(connection)
        self._pending.discard(connection)
        self._certificate_ends_s.pop(connection, None)
        address = self._addresses.pop(connection, None)
        if address is not None:
            self._per_address[address] -= 1
            if not self._per_address[address]:
                del self._per_address[address]
        self._progress.set()

    def drained(self) -> None:
        """Note that a draining connection has answered its last request."""
        self._progress.set()

    def spawn(self, coroutine: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _image_changed(self, old: ClusterImage, new: ClusterImage) -> None:
        """Close the connections of clients whose credential was deleted or replaced."""
        revocation = Revocation(old.security.users, new.security.users)
        if not revocation:
            return
        for connection in tuple(self._connections):
            if revocation.revokes(connection.subject):
                connection.cut_off("logged in with a credential that was deleted or replaced")

    def _close_expired(self) -> None:
        """Close the connections whose client certificate has expired since the handshake."""
        now_s = self.services.clock.wall_ms() / 1000
        for connection, ends_s in tuple(self._certificate_ends_s.items()):
            if ends_s < now_s:
                connection.close("has a certificate that has expired")

    async def _sweep(self) -> None:
        """Periodically close connections that have been idle too long, or stalled inside a frame."""
        idle_ms = self._settings.connections_max_idle_ms
        stall_ms = self._settings.request_read_timeout_ms
        while True:
            await asyncio.sleep(_SWEEP_EVERY_S)
            self._failures.flush()
            self.quotas.sweep(int(self.now_ms()))
            self._close_expired()
            for connection in tuple(self._connections):
                connection.look_after(idle_ms=idle_ms, stall_ms=stall_ms)


def _address(name: Any) -> tuple[str, int]:
    """Return host and port of a socket name; a socket that is already closed has none."""
    return (str(name[0]), int(name[1])) if name else ("unknown", 0)


def why_not_listening(listen: Endpoint, error: OSError, flag: str) -> str:
    """Return the error message for the operator; `flag` is the option with the address to listen on."""
    code = error.errno
    if code == errno.EADDRINUSE or "in use" in str(error):
        return f"cannot listen on {listen}: another program uses this port; stop it, or use another {flag}"
    if code == errno.EADDRNOTAVAIL:
        return f"cannot listen on {listen}: this machine has no such address; {flag} 0.0.0.0:PORT takes all"
    if code == errno.EACCES:
        return f"cannot listen on {listen}: ports below 1024 need more rights; use another {flag}"
    return f"cannot listen on {listen}: {error.strerror or error}"
