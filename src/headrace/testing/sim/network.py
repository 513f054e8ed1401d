"""The simulated network: TCP-like connections over links that delay, break and are cut.

Within a connection frames arrive in order and once. A frame may be lost together with its connection: each end detects
that independently, some time later. Frames of an abandoned connection may still arrive, long after the sender has
resent them on another one: that is how requests are duplicated and reordered in a real network. A cut link holds back
all frames, in one direction or both, until it is restored; then a connection continues, or turns out to be broken.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from headrace.model.errors import PeerUnavailable, ProtocolError
from headrace.model.image import Endpoint
from headrace.protocol.exchange import ResponseFrame, SentRequest
from headrace.testing.sim.world import Process, World

_CONNECT_LIMIT_S = 5.0
_NOTICE_MAX_S = 2.0
"""How long an end of a broken connection may take to detect it."""
_LATE_MAX_S = 4.0
"""How late a frame of a broken connection may still arrive."""


@dataclass(slots=True)
class SimLink:
    """One direction between two processes."""

    delay_min_s: float = 0.000_1
    delay_max_s: float = 0.002
    slow_share: float = 0.01
    slow_s: float = 0.2
    """The share `slow_share` of the frames takes up to this long."""
    loss: float = 0.0
    """The share of frames that break their connection."""
    is_cut: bool = False


class SimSession(Protocol):
    """The server's side of one connection."""

    def received(self, frame: bytes) -> None: ...

    def closed(self) -> None: ...


Accept = Callable[["ServerEnd"], SimSession]


class Network:
    """The links, listeners and connections between processes."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.usual = SimLink()
        """The properties of links without their own."""
        self._links: dict[tuple[str, str], SimLink] = {}
        self._listeners: dict[Endpoint, tuple[Process, Accept]] = {}
        self._connections: dict[_SimConnection, None] = {}

    # Faults

    def cut(self, source: str, target: str) -> None:
        """Cut the link in one direction. Call it twice for both."""
        self._own_link(source, target).is_cut = True

    def mend(self) -> None:
        """Restore all links. Connections with held-back frames continue, or turn out to be broken."""
        self._links.clear()
        for connection in tuple(self._connections):
            connection.restored()

    def is_cut(self, source: str, target: str) -> bool:
        return self.link(source, target).is_cut

    def _own_link(self, source: str, target: str) -> SimLink:
        own = self._links.get((source, target))
        if own is None:
            usual = self.usual
            own = self._links[source, target] = SimLink(
                usual.delay_min_s, usual.delay_max_s, usual.slow_share, usual.slow_s, usual.loss
            )
        return own

    def link(self, source: str, target: str) -> SimLink:
        return self._links.get((source, target), self.usual)

    def delay_s(self, source: str, target: str) -> float:
        link, random = self.link(source, target), self.world.random
        if random.random() < link.slow_share:
            return random.uniform(link.delay_min_s, link.slow_s)
        return random.uniform(link.delay_min_s, link.delay_max_s)

    def is_lost(self, source: str, target: str) -> bool:
        link = self.link(source, target)
        return link.loss > 0 and self.world.random.random() < link.loss

    # Connections

    def listen(self, process: Process, endpoint: Endpoint, accept: Accept) -> None:
        """Accept connections until the process dies, or `unlisten`."""
        self._listeners[endpoint] = (process, accept)
        process.on_death.append(lambda: self._stop_listening(endpoint, process))

    def unlisten(self, process: Process, endpoint: Endpoint) -> None:
        """Accept no more connections, and close the existing ones."""
        self._stop_listening(endpoint, process)
        for connection in tuple(self._connections):
            if connection.server is process:
                connection.close_from(is_server=True)

    def _stop_listening(self, endpoint: Endpoint, process: Process) -> None:
        if self._listeners.get(endpoint, (None,))[0] is process:
            del self._listeners[endpoint]

    async def connect(self, process: Process, endpoint: Endpoint) -> "SimChannel":
        """Connect to an endpoint; `OSError` if there is no listener or it cannot be reached."""
        found = self._listeners.get(endpoint)
        if found is None:
            await asyncio.sleep(self.delay_s(process.name, str(endpoint)))
            raise ConnectionRefusedError(f"no listener at {endpoint}")
        server, accept = found
        here, there = process.name, server.name
        limit_s = self.world.now_s + _CONNECT_LIMIT_S
        while self.is_cut(here, there) or self.is_cut(there, here) or server.is_paused:
            if self.world.now_s >= limit_s:
                raise TimeoutError(f"{endpoint} does not answer")
            await asyncio.sleep(0.05)
        await asyncio.sleep(self.delay_s(here, there) + self.delay_s(there, here))
        if server.is_dead or self._listeners.get(endpoint) != found:
            raise ConnectionRefusedError(f"no listener at {endpoint}")
        connection = _SimConnection(self, process, server)
        self._connections[connection] = None
        server_end = ServerEnd(connection)
        connection.session = server.enter(lambda: accept(server_end))
        connection.channel = SimChannel(connection)
        process.on_death.append(connection.client_died)
        server.on_death.append(connection.server_died)
        return connection.channel

    def forget(self, connection: "_SimConnection") -> None:
        self._connections.pop(connection, None)


class _SimConnection:
    """Two directions of frames between two processes."""

    def __init__(self, network: Network, client: Process, server: Process) -> None:
        self.network = network
        self.client = client
        self.server = server
        self.session: SimSession | None = None
        self.channel: SimChannel | None = None
        self.is_broken = False
        self._last_at_s = {True: 0.0, False: 0.0}
        """The arrival time of the last frame in each direction: later frames arrive after it."""
        self._held: list[tuple[bool, bytes]] = []

    def send(self, frame: bytes, *, to_server: bool) -> None:
        if self.is_broken:
            return
        network, world = self.network, self.network.world
        source, target = self._ends(to_server)
        if network.link(source.name, target.name).is_cut:
            self._held.append((to_server, frame))
            return
        delay_s = network.delay_s(source.name, target.name)
        if network.is_lost(source.name, target.name):
            world.trace.note("network", "a connection of %s with %s breaks", source.name, target.name)
            if world.random.random() < 0.5:
                late_s = world.random.uniform(delay_s, _LATE_MAX_S)
                self._deliver_at(max(world.now_s + late_s, self._last_at_s[to_server]), frame, to_server)
            self.break_up()
            return
        at_s = self._last_at_s[to_server] = max(world.now_s + delay_s, self._last_at_s[to_server])
        self._deliver_at(at_s, frame, to_server)

    def close_from(self, *, is_server: bool) -> None:
        """Close from one end: its earlier frames arrive, then the other end sees the close."""
        if self.is_broken:
            return
        self._end()
        source, target = self._ends(not is_server)
        delay_s = self.network.delay_s(source.name, target.name)
        at_s = max(self.network.world.now_s + delay_s, self._last_at_s[not is_server])
        self._tell_end(at_s, is_server=not is_server)
        if is_server and self.session is not None:
            self.server.call_soon(self.session.closed)

    def break_up(self) -> None:
        """Break the connection; each end detects it some time later."""
        self._end()
        world = self.network.world
        for is_server in (True, False):
            late_s = world.random.uniform(0, _NOTICE_MAX_S)
            self._tell_end(max(world.now_s + late_s, self._last_at_s[is_server]), is_server=is_server)

    def client_died(self) -> None:
        self.close_from(is_server=False)

    def server_died(self) -> None:
        self.close_from(is_server=True)

    def restored(self) -> None:
        held, self._held = self._held, []
        if not held or self.is_broken:
            return
        if self.network.world.random.random() < 0.5:
            for to_server, frame in held:
                self.send(frame, to_server=to_server)
        else:
            self.break_up()

    def _ends(self, to_server: bool) -> tuple[Process, Process]:
        return (self.client, self.server) if to_server else (self.server, self.client)

    def _end(self) -> None:
        self.is_broken = True
        self._held.clear()
        self.network.forget(self)
        for process, died in ((self.client, self.client_died), (self.server, self.server_died)):
            if not process.is_dead and died in process.on_death:
                process.on_death.remove(died)

    def _deliver_at(self, at_s: float, frame: bytes, to_server: bool) -> None:
        _, target = self._ends(to_server)
        self.network.world.post_at(target, at_s, self._arrived, frame, to_server)

    def _arrived(self, frame: bytes, to_server: bool) -> None:
        if to_server:
            if self.session is not None:
                self.session.received(frame)
        elif self.channel is not None:
            self.channel.received(frame)

    def _tell_end(self, at_s: float, *, is_server: bool) -> None:
        process = self.server if is_server else self.client
        self.network.world.post_at(process, at_s, self._ended, is_server)

    def _ended(self, is_server: bool) -> None:
        if is_server:
            if self.session is not None:
                self.session.closed()
        elif self.channel is not None:
            self.channel.ended()


class ServerEnd:
    """The server's handle for sending responses."""

    def __init__(self, connection: _SimConnection) -> None:
        self._connection = connection

    @property
    def client_name(self) -> str:
        return self._connection.client.name

    def send(self, frame: bytes) -> None:
        self._connection.send(frame, to_server=False)

    def close(self) -> None:
        self._connection.close_from(is_server=True)


class SimChannel:
    """The client's side of a connection: responses arrive in the order of the requests."""

    def __init__(self, connection: _SimConnection) -> None:
        self._connection = connection
        self._is_ended = False
        self._waiting: deque[asyncio.Future[memoryview]] = deque()

    async def exchange(self, frame: bytes, timeout_s: float) -> memoryview:
        """Send a request and return the response, both without length prefix; `OSError` if there is none."""
        answer = self.send(frame)
        try:
            async with asyncio.timeout(timeout_s):
                return await answer
        except TimeoutError:
            self.close()
            raise TimeoutError(f"no answer within {timeout_s:g} s") from None

    def send(self, frame: bytes) -> asyncio.Future[memoryview]:
        """Send a request; the future is its response. Requests are sent in the order of the calls."""
        answer: asyncio.Future[memoryview] = asyncio.get_running_loop().create_future()
        if self._is_ended:
            answer.set_exception(ConnectionResetError("the connection is closed"))
            return answer
        self._waiting.append(answer)
        self._connection.send(bytes(frame), to_server=True)
        return answer

    def close(self) -> None:
        if not self._is_ended:
            self._connection.close_from(is_server=False)
            self.ended()

    @property
    def is_closed(self) -> bool:
        return self._is_ended

    def received(self, frame: bytes) -> None:
        if self._is_ended or not self._waiting:
            return
        answer = self._waiting.popleft()
        if not answer.done():
            answer.set_result(memoryview(frame))

    def ended(self) -> None:
        self._is_ended = True
        waiting, self._waiting = self._waiting, deque()
        for answer in waiting:
            if not answer.done():
                answer.set_exception(ConnectionResetError("the connection was closed"))
                # Retrieved here, because the caller may not be waiting any more.
                answer.exception()


class SimTransport:
    """A client's connections to brokers."""

    def __init__(self, network: Network, process: Process) -> None:
        self._network = network
        self._process = process

    async def connect(self, endpoint: Endpoint) -> SimChannel:
        return await self._network.connect(self._process, endpoint)


class PeerTransport:
    """A broker's connections to other brokers: the `Transport` of `replication/transport.py`."""

    def __init__(self, network: Network, process: Process) -> None:
        self._network = network
        self._process = process

    async def connect(self, endpoint: Endpoint) -> "PeerChannel":
        try:
            return PeerChannel(await self._network.connect(self._process, endpoint))
        except OSError as error:
            raise PeerUnavailable(f"{endpoint} cannot be reached: {error}") from None


class PeerChannel:
    """The `Channel` of `replication/transport.py`."""

    def __init__(self, channel: SimChannel) -> None:
        self._channel = channel
        self.lifetime_s: float | None = None

    async def exchange(self, request: SentRequest, body: bytes, timeout_s: float) -> ResponseFrame:
        try:
            return request.answered_by(await self._channel.exchange(body, timeout_s))
        except OSError as error:
            raise PeerUnavailable(f"a broker does not answer: {error}") from None
        except ProtocolError as error:
            raise PeerUnavailable(f"a broker sent an invalid response: {error}") from None

    def release(self, frame: memoryview) -> None: ...

    def close(self) -> None:
        self._channel.close()
