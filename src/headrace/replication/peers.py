"""Connections to the other brokers: one for each broker and lane, opened on first use and again when lost.

A broker responds in the order of the requests on a connection, so long waits must not share one with urgent requests:
each kind of request has its lane. Within a lane requests are pipelined.
"""

import asyncio
import logging
from contextlib import suppress
from math import inf
from random import Random
from typing import Any, NamedTuple, Protocol

from kio.schema.errors import ErrorCode

from headrace.model.backoff import ExponentialDelay
from headrace.model.errors import ApiNotServed, PeerUnavailable, ProtocolError
from headrace.model.ids import BrokerId
from headrace.model.image import ClusterImage, Endpoint
from headrace.protocol.codec import API_VERSIONS_KEY, api_name
from headrace.protocol.exchange import (
    Correlator,
    ResponseFrame,
    ServedApis,
    WriteFrame,
    api_versions_request,
    read_served_apis,
)
from headrace.replication.transport import MAX_ANSWER_BYTES, Channel, Transport

log = logging.getLogger(__name__)

CONNECT_TIMEOUT_S = 5.0
CALL_TIMEOUT_S = 30.0
_IN_FLIGHT_MAX = 32
_READ_AT_ONCE_BYTES = 256 * 1024
"""A longer response is decoded in a thread."""
_RECONNECT_DELAY_S = ExponentialDelay(0.04, 0.25)
"""Short, because a restarted broker may be the leader that clients wait for."""
_API_VERSIONS_VERSION = 3
BROKER_SOFTWARE = "headrace-broker"
"""The client software name that brokers send to each other."""
CLIENT_SOFTWARE = "headrace-link"
"""The client software name that brokers send to those of another cluster."""
_CLIENT_ID_PREFIX = "broker-"
_UPGRADE = "upgrade all brokers"
_UPGRADE_SOURCE = "a link needs Headrace, or Apache Kafka 3.1 or newer"


class Images(Protocol):
    """The part of `Metadata` that this module uses."""

    @property
    def image(self) -> ClusterImage: ...

    @property
    def broker_id(self) -> BrokerId: ...


class _Opened(NamedTuple):
    endpoint: Endpoint
    channel: Channel
    served: ServedApis
    ends_at_s: float
    """When it must be replaced, since its login ends."""


class PeerLink:
    """One lane to one broker."""

    def __init__(
        self,
        broker_id: BrokerId,
        transport: Transport,
        images: Images,
        random: Random,
        listener: str = "",
        client_id: str = "",
    ) -> None:
        """With a `client_id` the other broker is asked as a client like any other, not as a broker of its cluster."""
        self.broker_id = broker_id
        self.name = _name(broker_id, client_id)
        """For messages."""
        self._advice = _UPGRADE_SOURCE if client_id else _UPGRADE
        self._software = CLIENT_SOFTWARE if client_id else BROKER_SOFTWARE
        self._listener = listener
        self._transport = transport
        self._images = images
        self._random = random
        self._correlator = Correlator(client_id or f"{_CLIENT_ID_PREFIX}{images.broker_id}")
        self._room = asyncio.Semaphore(_IN_FLIGHT_MAX)
        self._opened: _Opened | None = None
        self._connecting: asyncio.Task[_Opened | PeerUnavailable] | None = None
        self._failures = 0
        self._failed_at_s = 0.0
        self._is_closed = False

    async def call(
        self, request: Any, timeout_s: float = CALL_TIMEOUT_S, max_answer_bytes: int = MAX_ANSWER_BYTES
    ) -> Any:
        """Send a request entity and return the response entity, or raise `PeerUnavailable`."""
        key, version = request.__api_key__, request.__version__
        response = await self.exchange(key, version, self._correlator.writer(request), timeout_s)
        try:
            if len(response.frame) > max_answer_bytes:
                raise PeerUnavailable(
                    f"the answer of {self.name} to {api_name(key)} has {len(response.frame):,} bytes, more than the "
                    f"{max_answer_bytes:,} that are read"
                )
            if len(response.frame) <= _READ_AT_ONCE_BYTES:
                return response.read()
            # In a thread: the event loop, which renews this broker's lease, would stand still for seconds.
            return await asyncio.to_thread(response.read)
        finally:
            self.release(response.frame)

    async def exchange(
        self, key: int, version: int, write: WriteFrame, timeout_s: float = CALL_TIMEOUT_S
    ) -> ResponseFrame:
        """Send the request that `write` encodes and return the undecoded response; `PeerUnavailable` if there is none.

        The other broker may have executed the request even then. Return the frame with `release` when it has been read.
        """
        async with self._room:
            opened = self._opened
            if opened is None or not self._is_usable(opened):
                opened = await self._connected_within(timeout_s)
            if not opened.served.serves(key, version):
                raise ApiNotServed(f"{self.name} does not serve {api_name(key)} v{version}: {self._advice}")
            try:
                return await self._ask(opened.channel, key, version, write, timeout_s)
            except PeerUnavailable as error:
                error.may_have_arrived = True
                self._drop(opened, error)
                raise

    def release(self, frame: memoryview) -> None:
        """Release the frame of a response: no part of it is used any more."""
        if self._opened is not None:
            self._opened.channel.release(frame)

    async def close(self) -> None:
        self._is_closed = True
        if self._connecting is not None:
            self._connecting.cancel()
            with suppress(asyncio.CancelledError):
                await self._connecting
        if self._opened is not None:
            self._opened.channel.close()
            self._opened = None

    # -- connecting

    async def _connected_within(self, timeout_s: float) -> _Opened:
        try:
            async with asyncio.timeout(timeout_s):
                return await self._connected()
        except TimeoutError:
            raise PeerUnavailable(f"{self.name} cannot be reached within {timeout_s:g} s") from None

    async def _connected(self) -> _Opened:
        opened = self._opened
        if opened is not None:
            if self._is_usable(opened):
                return opened
            self._drop(opened, PeerUnavailable(f"{self.name} has moved, or the login ends"))
        if self._is_closed:
            raise PeerUnavailable("this broker is stopping")
        if self._connecting is None:
            self._connecting = asyncio.get_running_loop().create_task(self._connect())
        # A caller that times out does not cancel the connection for the others.
        connecting = self._connecting
        await asyncio.wait((connecting,))
        if connecting.cancelled():
            raise PeerUnavailable("this broker is stopping")
        result = connecting.result()
        if isinstance(result, PeerUnavailable):
            raise PeerUnavailable(str(result))
        return result

    async def _connect(self) -> _Opened | PeerUnavailable:
        """Connect, after the backoff if the last attempt failed. A failure is returned, since many may wait for it."""
        try:
            await self._back_off()
            opened = await self._try_to_connect()
        except PeerUnavailable as error:
            if not self._failures:
                log.warning("%s cannot be reached: %s", self.name, error)
            self._failures += 1
            self._failed_at_s = asyncio.get_running_loop().time()
            return error
        finally:
            self._connecting = None
        if self._failures:
            log.info("%s is reached again", self.name)
        self._failures = 0
        self._opened = opened
        return opened

    async def _back_off(self) -> None:
        if self._failures:
            limit_s = _RECONNECT_DELAY_S.after(self._failures)
            due_at_s = self._failed_at_s + limit_s * (0.5 + 0.5 * self._random.random())
            await asyncio.sleep(max(0.0, due_at_s - asyncio.get_running_loop().time()))

    async def _try_to_connect(self) -> _Opened:
        endpoint = self._endpoint()
        try:
            async with asyncio.timeout(CONNECT_TIMEOUT_S):
                channel = await self._transport.connect(endpoint)
                try:
                    served = await self._negotiate(channel)
                    lifetime_s = inf if channel.lifetime_s is None else channel.lifetime_s
                    return _Opened(endpoint, channel, served, asyncio.get_running_loop().time() + lifetime_s)
                except BaseException:
                    channel.close()
                    raise
        except TimeoutError:
            raise PeerUnavailable(f"no connection to {endpoint} within {CONNECT_TIMEOUT_S:g} s") from None

    async def _negotiate(self, channel: Channel) -> ServedApis:
        request = api_versions_request(_API_VERSIONS_VERSION, self._software)
        write = self._correlator.writer(request)
        answer = await self._ask(channel, API_VERSIONS_KEY, _API_VERSIONS_VERSION, write, CONNECT_TIMEOUT_S)
        if len(answer.frame) > _READ_AT_ONCE_BYTES:
            raise PeerUnavailable(f"the answer of {self.name} to ApiVersions has {len(answer.frame):,} bytes")
        try:
            served = read_served_apis(_API_VERSIONS_VERSION, answer.frame, answer.body_at)
        except ProtocolError as error:
            raise PeerUnavailable(f"the server at the address of {self.name} is no broker: {error}") from None
        if served.error_code is not ErrorCode.none:
            raise PeerUnavailable(f"{self.name} refused ApiVersions: {served.error_code.name}")
        return served

    def _endpoint(self) -> Endpoint:
        broker = self._images.image.brokers.get(self.broker_id)
        if broker is None:
            raise PeerUnavailable(f"{self.name} does not belong to the cluster")
        return broker.listeners.get(self._listener, broker.endpoint)

    def _is_usable(self, opened: _Opened) -> bool:
        if opened.endpoint != self._endpoint():
            return False
        return opened.ends_at_s == inf or asyncio.get_running_loop().time() < opened.ends_at_s

    def _drop(self, opened: _Opened, error: PeerUnavailable) -> None:
        if self._opened is opened:
            self._opened = None
            log.debug("the connection to %s is given up: %s", self.name, error)
        opened.channel.close()

    # -- requests

    async def _ask(
        self, channel: Channel, key: int, version: int, write: WriteFrame, timeout_s: float
    ) -> ResponseFrame:
        request, body = self._correlator.begin(key, version, write)
        return await channel.exchange(request, body, timeout_s)


def _name(broker_id: BrokerId, client_id: str) -> str:
    """How messages call a broker: one of another cluster is not to be confused with ours of the same id."""
    if not client_id:
        return f"broker {broker_id}"
    # The addresses of a link have negative ids.
    return f"broker {broker_id} of the source of {client_id}" if broker_id >= 0 else f"an address of {client_id}"


class Peers:
    """The links to all other brokers. `random` spreads the reconnects of many brokers to one that restarted."""

    def __init__(
        self, transport: Transport, images: Images, random: Random, listener: str = "", client_id: str = ""
    ) -> None:
        """`listener` is the name of the listener to use at each broker; one without it is reached at its endpoint.

        `client_id` is for brokers of another cluster.
        """
        self._client_id = client_id
        self._listener = listener
        self._transport = transport
        self._images = images
        self._random = random
        self._links: dict[tuple[BrokerId, str], PeerLink] = {}

    @property
    def feature_level(self) -> int:
        """The feature level of the cluster."""
        return self._images.image.feature_level

    def link(self, broker_id: BrokerId, lane: str) -> PeerLink:
        """The connection for a lane, shared by all its users."""
        link = self._links.get((broker_id, lane))
        if link is None:
            link = self._links[broker_id, lane] = PeerLink(
                broker_id, self._transport, self._images, self._random, self._listener, self._client_id
            )
        return link

    async def call(
        self,
        broker_id: BrokerId,
        request: Any,
        *,
        lane: str = "calls",
        timeout_s: float = CALL_TIMEOUT_S,
        max_answer_bytes: int = MAX_ANSWER_BYTES,
    ) -> Any:
        """Send a kio request entity to a broker and return the response, or raise `PeerUnavailable`. No retries.

        A response of more than `max_answer_bytes` is not decoded.
        """
        return await self.link(broker_id, lane).call(request, timeout_s, max_answer_bytes)

    async def forget(self, broker_id: BrokerId, lane: str) -> None:
        """Close a connection that is not needed any more."""
        link = self._links.pop((broker_id, lane), None)
        if link is not None:
            await link.close()

    async def close(self) -> None:
        links, self._links = tuple(self._links.values()), {}
        for link in links:
            await link.close()
