"""One blocking connection to one broker: requests go out in order, answers come back in the same order.

`protocol/response_stream.py` matches responses with requests; this module drives it by blocking reads.
"""

import socket
import ssl
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from headrace.model.errors import ProtocolError
from headrace.model.image import Endpoint
from headrace.protocol.client_codec import request_schema
from headrace.protocol.codec import API_VERSIONS_KEY, api_name
from headrace.protocol.exchange import (
    NEWEST_API_VERSIONS,
    Correlator,
    ResponseFrame,
    ServedApis,
    WriteFrame,
    api_versions_request,
    is_unknown_version,
    lower_api_versions,
    read_served_apis,
)
from headrace.protocol.response_stream import ResponseStream
from headrace.security.tls.probe import speaks_tls
from headrace.wire.errors import (
    AuthenticationFailed,
    BrokerUnreachable,
    ErrorCode,
    NotKafka,
    TimedOut,
    TlsFailed,
    Unsupported,
    WireError,
)
from headrace.wire.security import NO_LIMIT_S, WireSecurity, handshake

MAX_ANSWER_BYTES = 512 * 1024 * 1024
"""A larger response is refused."""
_FIRST_ROOM_BYTES = 16 * 1024 * 1024
"""The size allocated at once. Past it the buffer grows with the bytes received, not with the announced length."""
_SCRATCH_BYTES = 16 * 1024
_SAMPLE_BYTES = 64

_SOFTWARE = "headrace"

Build = Callable[[ModuleType], Any]
"""Builds a request from the kio module of its version."""


@dataclass(frozen=True, slots=True)
class Timeouts:
    connect_s: float = 5.0
    request_s: float = 30.0
    """How long a response may take, beyond the wait that the request itself asks for."""
    patience_s: float = 60.0
    """How long an operation is retried while brokers are down or not ready."""


class _SpareBuffer:
    """Reuses the largest buffer that was released, of any size: a connection reads one large response at a time."""

    def __init__(self) -> None:
        self._spare = bytearray()

    def take(self, size: int) -> bytearray:
        spare, self._spare = self._spare, bytearray()
        return spare if len(spare) >= size else bytearray(size)

    def release(self, buffer: bytearray) -> None:
        if len(buffer) > len(self._spare):
            self._spare = buffer


def opened(address: Endpoint, timeout_s: float, security: WireSecurity) -> socket.socket:
    """Open a socket, connected and ready for Kafka's frames, with TLS if wanted: the only place that makes one."""
    connection = socket.create_connection((address.host, address.port), timeout_s)
    try:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return security.wrap(connection, address, timeout_s)
    except BaseException:
        connection.close()
        raise


class WireConnection:
    """A blocking connection to one broker. After any error other than `Refused` it is unusable: close it."""

    def __init__(
        self,
        address: Endpoint,
        *,
        client_id: str,
        timeouts: Timeouts,
        security: WireSecurity | None = None,
        authenticates: bool = True,
    ) -> None:
        """Without `security`, the credentials are those of the environment. `authenticates=False` leaves out SASL."""
        self.address = address
        self.client_id = client_id
        self._security = security or WireSecurity()
        self._session_ends_s = NO_LIMIT_S
        self._is_in_use = not authenticates
        """True once a request was answered after the connection was prepared."""
        self._timeouts = timeouts
        self._correlator = Correlator(client_id)
        self._buffers = _SpareBuffer()
        self._stream: ResponseStream[float] = ResponseStream(
            MAX_ANSWER_BYTES,
            self._buffers,
            memoryview(bytearray(_SCRATCH_BYTES)),
            first_room_bytes=_FIRST_ROOM_BYTES,
        )
        """Each request in flight with its deadline."""
        self._responses: deque[ResponseFrame] = deque()
        """Responses that were received together with an earlier one."""
        try:
            self._socket = opened(address, timeouts.connect_s, self._security)
        except TimeoutError:
            raise BrokerUnreachable(
                f"no broker answers at {address}: no connection in {timeouts.connect_s:g} s"
            ) from None
        except (OSError, UnicodeError) as error:
            raise BrokerUnreachable(f"no broker answers at {address}: {_reason(error)}") from None
        try:
            self.served = self._negotiate()
            if authenticates and self._security.credentials.uses_sasl:
                self._session_ends_s = self._security.authenticate(self)
                self._is_in_use = True
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        self._socket.close()

    @property
    def has_expired(self) -> bool:
        """True if the broker is about to end the session: open another connection before the next request."""
        return self._session_ends_s != NO_LIMIT_S and time.monotonic() >= self._session_ends_s

    @property
    def peer(self) -> str:
        """The IP address of the broker."""
        return str(self._socket.getpeername()[0])

    def version(self, key: int, highest: int, lowest: int = 0) -> int:
        """The highest version up to `highest` that the broker serves; `Unsupported` if there is none."""
        best = self.served.best_version(key, highest, lowest)
        if best is None:
            raise Unsupported(
                f"the broker at {self.address} is too old or too new: it has no {api_name(key)} v{highest}"
            )
        return best

    def call(self, key: int, highest: int, build: Build, *, lowest: int = 0, wait_s: float = 0.0) -> Any:
        """Send a request and decode its response to a kio entity."""
        return self.exchange(key, highest, build, lowest=lowest, wait_s=wait_s).read()

    def exchange(self, key: int, highest: int, build: Build, *, lowest: int = 0, wait_s: float = 0.0) -> ResponseFrame:
        """Send a request and wait for its response. `wait_s` is how long the request asks the broker to wait."""
        self.ask(key, highest, build, lowest=lowest, wait_s=wait_s)
        return self.receive()

    def ask(self, key: int, highest: int, build: Build, *, lowest: int = 0, wait_s: float = 0.0) -> None:
        """Send a request without waiting for its response."""
        request = build(request_schema(key, self.version(key, highest, lowest)))
        self.send(key, request.__version__, self._correlator.writer(request), wait_s)

    def send(self, key: int, version: int, write: WriteFrame, wait_s: float = 0.0) -> None:
        """Send the request that `write` encodes. Each needs a `receive`, in the same order."""
        request, body = self._correlator.begin(key, version, write)
        deadline_s = time.monotonic() + self._timeouts.request_s + wait_s
        try:
            self._socket.settimeout(self._timeouts.request_s)
            self._socket.sendall(self._stream.begin(request, body, deadline_s))
        except TimeoutError:
            raise self._too_slow(key) from None
        except OSError as error:
            raise BrokerUnreachable(f"the connection to {self.address} broke: {_reason(error)}") from None

    @property
    def in_flight(self) -> int:
        """The number of requests whose response was not returned yet."""
        return len(self._stream) + len(self._responses)

    def receive(self) -> ResponseFrame:
        """Wait for the response to the oldest request in flight."""
        while not self._responses:
            window = self._stream.window()
            count = self._receive_into(window)
            try:
                self._responses.extend(response for _, response in self._stream.received(count))
            except ProtocolError:
                raise self._no_kafka(bytes(window[: min(count, _SAMPLE_BYTES)])) from None
        return self._responses.popleft()

    def take_back(self, records: memoryview) -> None:
        """Reuse the buffer that holds these records for a later response: the caller does not need them any more."""
        if isinstance(records.obj, bytearray):
            self._buffers.release(records.obj)

    def _receive_into(self, window: memoryview) -> int:
        request, deadline_s = self._stream.oldest
        try:
            left_s = deadline_s - time.monotonic()
            if left_s <= 0:
                raise TimeoutError
            self._socket.settimeout(left_s)
            count = self._socket.recv_into(window)
        except TimeoutError:
            raise self._too_slow(request.key) from None
        except ssl.SSLError as error:
            # With TLS 1.3 a client sees here that its certificate is refused.
            if not self._is_in_use and "ALERT" in (error.reason or ""):
                raise TlsFailed(f"the broker at {self.address} refuses our certificate: {_reason(error)}") from None
            raise BrokerUnreachable(f"the connection to {self.address} broke: {_reason(error)}") from None
        except ConnectionResetError:
            raise self._closed(request.key) from None
        except OSError as error:
            raise BrokerUnreachable(f"the connection to {self.address} broke: {_reason(error)}") from None
        if not count:
            raise self._closed(request.key)
        if request.key != API_VERSIONS_KEY:
            self._is_in_use = True
        return count

    def _closed(self, key: int) -> WireError:
        """The error for a connection that the broker has closed. If it never answered, it may expect TLS or SASL."""
        if not self._is_in_use:
            credentials = self._security.credentials
            if key == API_VERSIONS_KEY and not credentials.uses_tls and self._expects_tls():
                return TlsFailed(f"the broker at {self.address} expects TLS: turn it on, or use another port")
            if key != API_VERSIONS_KEY and (offered := self._offered_mechanisms()):
                return AuthenticationFailed(
                    f"the broker at {self.address} expects a user and a password, or a token ({', '.join(offered)})"
                )
        return BrokerUnreachable(f"the broker at {self.address} closed the connection")

    def _expects_tls(self) -> bool:
        return speaks_tls(self.address.host, self.address.port, self._probe_s)

    @property
    def _probe_s(self) -> float:
        return min(self._timeouts.connect_s, self._timeouts.request_s)

    def _offered_mechanisms(self) -> list[str]:
        """The SASL mechanisms of the broker; none if it has no authentication, or does not answer."""
        limits = Timeouts(self._probe_s, self._probe_s, 0.0)
        try:
            connection = WireConnection(
                self.address, client_id=self.client_id, timeouts=limits, security=self._security, authenticates=False
            )
            try:
                answer = handshake(connection, "")
            finally:
                connection.close()
        except WireError:
            return []
        is_offered = answer.error_code in (ErrorCode.unsupported_sasl_mechanism, ErrorCode.none)
        return [str(each) for each in answer.mechanisms] if is_offered else []

    def _negotiate(self) -> ServedApis:
        version: int | None = NEWEST_API_VERSIONS
        while version is not None:
            request = api_versions_request(version, _SOFTWARE)
            self.send(API_VERSIONS_KEY, version, self._correlator.writer(request))
            answer = self.receive()
            try:
                is_unknown = is_unknown_version(answer.frame, answer.body_at)
            except ProtocolError:
                raise self._no_kafka() from None
            if not is_unknown:
                return read_served_apis(version, answer.frame, answer.body_at)
            version = lower_api_versions(version)
        raise self._no_kafka()

    def _too_slow(self, key: int) -> TimedOut:
        limit_s = self._timeouts.request_s
        return TimedOut(f"the broker at {self.address} did not answer {api_name(key)} within {limit_s:g} s")

    def _no_kafka(self, sample: bytes = b"") -> NotKafka:
        what = f"the server at {self.address} does not speak the plain Kafka protocol: is it TLS, or HTTP?"
        return NotKafka(what, sample)


def _reason(error: OSError | UnicodeError) -> str:
    if isinstance(error, socket.gaierror):
        return "the name is not known"
    if isinstance(error, ConnectionRefusedError):
        return "connection refused"
    if isinstance(error, UnicodeError):
        return "the name is not valid"
    if isinstance(error, ssl.SSLError):
        return (error.reason or "TLS failed").replace("_", " ").lower()
    return (error.strerror or str(error) or type(error).__name__).lower()
