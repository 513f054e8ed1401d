"""The transport between brokers: TCP here, a modelled network in the simulation. All such connections use it.

`protocol/response_stream.py` matches responses with requests; this module drives it from the event loop.
"""

import asyncio
import socket
import ssl
from dataclasses import dataclass, field
from typing import Any, Protocol, cast

from headrace.model.errors import LoginFailed, PeerUnavailable, ProtocolError
from headrace.model.image import Endpoint
from headrace.protocol.exchange import Correlator, ResponseFrame, SentRequest
from headrace.protocol.response_stream import ResponseStream
from headrace.protocol.sasl_login import (
    authenticate_request,
    check_authenticate,
    check_handshake,
    handshake_request,
    session_lifetime_s,
)
from headrace.runtime.buffers import BufferPool
from headrace.security.sasl.client import SaslClientError, client_exchange

MAX_ANSWER_BYTES = 256 * 1024 * 1024
"""A larger response is refused: a leader bounds its responses by the request's limit, plus one batch."""
_SCRATCH_BYTES = 256 * 1024
_TLS_HANDSHAKE_TIMEOUT_S = 5.0
_LOGIN_TIMEOUT_S = 5.0
_LOGIN_ANSWER_MAX_BYTES = 64 * 1024
_LOGIN_CLIENT_ID = "broker"
_LIFETIME_USED = 0.9
"""The share of a login's lifetime after which a connection is replaced."""

_Future = asyncio.Future[ResponseFrame]


class Channel(Protocol):
    """An open connection. After `exchange` has raised `PeerUnavailable` it is unusable."""

    lifetime_s: float | None
    """After this long it must be replaced by another, since its login ends; None if it does not."""

    async def exchange(self, request: SentRequest, body: bytes, timeout_s: float) -> ResponseFrame:
        """Send a request, whose header and body are `body`, and return its response.

        Requests may be pipelined; responses come in their order. `PeerUnavailable` if there is none.
        """
        ...

    def release(self, frame: memoryview) -> None:
        """Release the frame of a response: no part of it is used any more, and its memory may be reused."""
        ...

    def close(self) -> None:
        """Close the connection. Pending requests get `PeerUnavailable`."""
        ...


class Transport(Protocol):
    async def connect(self, endpoint: Endpoint) -> Channel:
        """Open a connection, or raise `PeerUnavailable`."""
        ...


@dataclass(frozen=True, slots=True)
class InterBrokerLogin:
    """How this broker authenticates itself to the others."""

    mechanism: str
    user: str
    password: str = field(repr=False)


class TcpTransport:
    def __init__(
        self,
        max_answer_bytes: int = MAX_ANSWER_BYTES,
        *,
        tls: ssl.SSLContext | None = None,
        login: InterBrokerLogin | None = None,
    ) -> None:
        """`tls` and `login` are for the listener that brokers use among themselves."""
        self._max_answer_bytes = max_answer_bytes
        self._tls = tls
        self._login = login
        self._buffers = BufferPool()
        self._scratch = memoryview(bytearray(_SCRATCH_BYTES))
        """Shared by all channels: received bytes are consumed in the same event loop iteration."""

    async def connect(self, endpoint: Endpoint) -> Channel:
        """Open a connection and prepare it for requests: the only place that connects to another broker."""
        channel = await self._opened(endpoint)
        if self._login is not None:
            try:
                await _log_in(channel, self._login)
            except BaseException as error:
                channel.close()
                if isinstance(error, LoginFailed | SaslClientError):
                    raise PeerUnavailable(f"the broker at {endpoint} refused the login of this one: {error}") from None
                raise
        return channel

    async def _opened(self, endpoint: Endpoint) -> "TcpChannel":
        loop = asyncio.get_running_loop()
        try:
            _, channel = await loop.create_connection(
                lambda: TcpChannel(endpoint, ResponseStream(self._max_answer_bytes, self._buffers, self._scratch)),
                endpoint.host,
                endpoint.port,
                ssl=self._tls,
                server_hostname=endpoint.host if self._tls is not None else None,
                ssl_handshake_timeout=_TLS_HANDSHAKE_TIMEOUT_S if self._tls is not None else None,
            )
        except ssl.SSLCertVerificationError as error:
            raise PeerUnavailable(
                f"the certificate of the broker at {endpoint} is not trusted: {error.verify_message}"
            ) from None
        except ssl.SSLError as error:
            raise PeerUnavailable(f"the server at {endpoint} does not speak TLS as this broker does: {error}") from None
        except (OSError, UnicodeError, OverflowError) as error:
            is_cut = self._tls is not None and isinstance(error, ConnectionError) and not str(error)
            why = "it ended the TLS handshake: is this a port without TLS?" if is_cut else error
            raise PeerUnavailable(f"no broker answers at {endpoint}: {why}") from None
        return channel


async def _log_in(channel: "TcpChannel", login: InterBrokerLogin) -> None:
    exchange = client_exchange(login.mechanism, user=login.user, password=login.password)
    correlator = Correlator(_LOGIN_CLIENT_ID)

    async def ask(request: Any) -> Any:
        sent, body = correlator.begin(request.__api_key__, request.__version__, correlator.writer(request))
        response = await channel.exchange(sent, body, _LOGIN_TIMEOUT_S)
        if len(response.frame) > _LOGIN_ANSWER_MAX_BYTES:
            raise LoginFailed(f"the answer to the login has {len(response.frame):,} bytes")
        try:
            return response.read()
        finally:
            channel.release(response.frame)

    check_handshake(login.mechanism, await ask(handshake_request(login.mechanism)))
    token: bytes | None = exchange.first()
    while token is not None:
        answer = await ask(authenticate_request(token))
        challenge = check_authenticate(answer)
        is_slow = exchange.is_slow(challenge)
        token = await asyncio.to_thread(exchange.next, challenge) if is_slow else exchange.next(challenge)
    lifetime_s = session_lifetime_s(answer)
    if lifetime_s is not None:
        channel.lifetime_s = lifetime_s * _LIFETIME_USED


class TcpChannel(asyncio.BufferedProtocol):
    def __init__(self, endpoint: Endpoint, stream: ResponseStream[_Future]) -> None:
        self._endpoint = endpoint
        self._stream = stream
        self._transport: asyncio.Transport | None = None
        self._reason = f"the connection to {endpoint} is closed"
        self._has_answered = False
        self.lifetime_s: float | None = None

    # -- the user's side

    async def exchange(self, request: SentRequest, body: bytes, timeout_s: float) -> ResponseFrame:
        if self._transport is None or self._transport.is_closing():
            raise PeerUnavailable(self._reason)
        answer: _Future = asyncio.get_running_loop().create_future()
        self._transport.write(self._stream.begin(request, body, answer))
        try:
            async with asyncio.timeout(timeout_s):
                return await answer
        except TimeoutError:
            self._give_up(f"the broker at {self._endpoint} did not answer within {timeout_s:g} s")
            raise PeerUnavailable(self._reason) from None

    def release(self, frame: memoryview) -> None:
        self._stream.release(frame)

    def close(self) -> None:
        self._give_up(f"the connection to {self._endpoint} was closed")

    # -- the transport's side

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        connection = transport.get_extra_info("socket")
        if connection is not None and connection.family in (socket.AF_INET, socket.AF_INET6):
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._stream.window()

    def buffer_updated(self, nbytes: int) -> None:
        try:
            responses = self._stream.received(nbytes)
        except ProtocolError as error:
            if self._has_answered:
                self._give_up(f"the broker at {self._endpoint} sent an invalid response: {error}")
            else:
                self._give_up(
                    f"the server at {self._endpoint} is no Kafka broker, or this port needs TLS: its first answer is "
                    "none of the Kafka protocol"
                )
            return
        self._has_answered = self._has_answered or bool(responses)
        for answer, response in responses:
            if answer.done():
                # The caller has stopped waiting.
                self._stream.release(response.frame)
            else:
                answer.set_result(response)

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        why = f": {exc}" if exc is not None else ""
        self._fail(f"the broker at {self._endpoint} closed the connection{why}")

    # -- inside

    def _give_up(self, reason: str) -> None:
        if self._transport is not None:
            transport, self._transport = self._transport, None
            transport.abort()
            self._fail(reason)

    def _fail(self, reason: str) -> None:
        self._reason = reason
        for answer in self._stream.abandon():
            if not answer.done():
                answer.set_exception(PeerUnavailable(reason))
