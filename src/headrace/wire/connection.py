"""One blocking connection to one broker: requests go out in order, answers come back in the same order.

`opened` is the one place where a socket is made. TLS and SASL belong there: wrap the socket, authenticate, and the rest
of the package does not notice.
"""

import itertools
import socket
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from struct import Struct
from types import ModuleType
from typing import Any, NamedTuple, TypeVar

from kio.schema.errors import ErrorCode

from headrace.model.errors import ProtocolError
from headrace.model.image import Endpoint
from headrace.protocol.asking import read_response, read_response_header, request_schema, write_request
from headrace.protocol.codec import API_VERSIONS_KEY, api_name, make
from headrace.protocol.framing import Frame
from headrace.wire.errors import BrokerUnreachable, NotKafka, TimedOut, Unsupported

MAX_ANSWER_BYTES = 512 * 1024 * 1024
"""An answer larger than this is not read."""
_USUAL_ANSWER_BYTES = 16 * 1024 * 1024
"""Room for so much is made at once; for more it grows with the bytes that have come, not with what is announced."""

_LENGTH = Struct(">i")
_CODE = Struct(">h")
_FEATURES_FROM = 3
_NEWEST_API_VERSIONS = 4

Build = Callable[[ModuleType], Any]
"""Makes a request from the module of its version's classes."""


@dataclass(frozen=True, slots=True)
class Timeouts:
    connect_s: float = 5.0
    request_s: float = 30.0
    """How long an answer may take, beyond the time that the request itself asks the broker to wait."""
    patience_s: float = 60.0
    """How long an operation is tried again while brokers are away or not ready."""


class WireResponse(NamedTuple):
    """A response as it came."""

    key: int
    version: int
    frame: Frame
    body_at: int

    def read(self) -> Any:
        return read_response(self.key, self.version, self.frame, self.body_at)


_K = TypeVar("_K")
Ranges = dict[_K, tuple[int, int]]
"""The lowest and the highest version of each."""


class _Sent(NamedTuple):
    key: int
    version: int
    correlation_id: int
    deadline_s: float


def opened(address: Endpoint, timeout_s: float) -> socket.socket:
    """A socket that is connected and ready for Kafka's frames."""
    connection = socket.create_connection((address.host, address.port), timeout_s)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connection


class WireConnection:
    """Once an error other than a refusal was raised the connection is of no use: close it."""

    def __init__(self, address: Endpoint, *, client_id: str, timeouts: Timeouts) -> None:
        self.address = address
        self.client_id = client_id
        self._timeouts = timeouts
        self._correlation_ids = itertools.count(1)
        self._sent: deque[_Sent] = deque()
        self._length = bytearray(_LENGTH.size)
        self._spare = bytearray()
        try:
            self._socket = opened(address, timeouts.connect_s)
        except TimeoutError:
            raise BrokerUnreachable(
                f"no broker answers at {address}: no connection in {timeouts.connect_s:g} s"
            ) from None
        except (OSError, UnicodeError) as error:
            raise BrokerUnreachable(f"no broker answers at {address}: {_reason(error)}") from None
        try:
            self.versions, self.features, self.supported = self._negotiate()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        self._socket.close()

    @property
    def peer(self) -> str:
        """The address that the name of the broker stands for."""
        return str(self._socket.getpeername()[0])

    def version(self, key: int, highest: int, lowest: int = 0) -> int:
        """The highest version up to `highest` that the broker has too; `Unsupported` if there is none."""
        broker_lowest, broker_highest = self.versions.get(key, (0, -1))
        best = min(broker_highest, highest)
        if best < max(broker_lowest, lowest):
            raise Unsupported(
                f"the broker at {self.address} is too old or too new: it has no {api_name(key)} v{highest}"
            )
        return best

    def call(self, key: int, highest: int, build: Build, *, lowest: int = 0, wait_s: float = 0.0) -> Any:
        """Send a request and read its answer as kio's entity."""
        return self.exchange(key, highest, build, lowest=lowest, wait_s=wait_s).read()

    def exchange(self, key: int, highest: int, build: Build, *, lowest: int = 0, wait_s: float = 0.0) -> WireResponse:
        """Send a request and wait for its answer. `wait_s` is how long the request asks the broker to wait."""
        self.ask(key, highest, build, lowest=lowest, wait_s=wait_s)
        return self.receive()

    def ask(self, key: int, highest: int, build: Build, *, lowest: int = 0, wait_s: float = 0.0) -> None:
        """Send a request without waiting for its answer."""
        request = build(request_schema(key, self.version(key, highest, lowest)))
        self.send(key, request.__version__, lambda number: write_request(request, number, self.client_id), wait_s)

    def send(self, key: int, version: int, write: Callable[[int], bytes], wait_s: float = 0.0) -> None:
        """Send what `write` makes, given a correlation id. Each needs a `receive`, in the same order."""
        number = next(self._correlation_ids) & 0x7FFF_FFFF
        body = write(number)
        deadline_s = time.monotonic() + self._timeouts.request_s + wait_s
        try:
            self._socket.settimeout(self._timeouts.request_s)
            self._socket.sendall(_LENGTH.pack(len(body)) + body)
        except TimeoutError:
            raise self._too_slow(key) from None
        except OSError as error:
            raise BrokerUnreachable(f"the connection to {self.address} broke: {_reason(error)}") from None
        self._sent.append(_Sent(key, version, number, deadline_s))

    @property
    def in_flight(self) -> int:
        """Requests that are not answered yet."""
        return len(self._sent)

    def receive(self) -> WireResponse:
        """The answer to the oldest request that has none."""
        sent = self._sent[0]
        frame = self._next_frame(sent)
        self._sent.popleft()
        try:
            correlation_id, body_at = read_response_header(sent.key, sent.version, frame)
        except ProtocolError:
            raise self._no_kafka(bytes(frame[:64])) from None
        if correlation_id != sent.correlation_id:
            raise self._no_kafka(bytes(frame[:64]))
        return WireResponse(sent.key, sent.version, frame, body_at)

    def take_back(self, records: memoryview) -> None:
        """Nobody looks at the answer that this is a part of any more: its room may serve the next one."""
        if isinstance(records.obj, bytearray) and len(records.obj) > len(self._spare):
            self._spare = records.obj

    def _next_frame(self, sent: _Sent) -> Frame:
        try:
            self._fill(memoryview(self._length), sent)
            (size,) = _LENGTH.unpack(self._length)
            if not 0 <= size <= MAX_ANSWER_BYTES:
                raise self._no_kafka(bytes(self._length))
            room, self._spare = self._spare, bytearray()
            if len(room) < size:
                room = bytearray(min(size, _USUAL_ANSWER_BYTES))
            got = 0
            while got < size:
                if got == len(room):
                    room += bytes(min(size - got, len(room)))
                until = min(size, len(room))
                with memoryview(room) as view:
                    self._fill(view[got:until], sent)
                got = until
        except TimeoutError:
            raise self._too_slow(sent.key) from None
        except OSError as error:
            raise BrokerUnreachable(f"the connection to {self.address} broke: {_reason(error)}") from None
        return memoryview(room)[:size].toreadonly()

    def _fill(self, room: memoryview, sent: _Sent) -> None:
        while room:
            left_s = sent.deadline_s - time.monotonic()
            if left_s <= 0:
                raise TimeoutError
            self._socket.settimeout(left_s)
            count = self._socket.recv_into(room)
            if not count:
                raise BrokerUnreachable(f"the broker at {self.address} closed the connection")
            room = room[count:]

    def _negotiate(self) -> tuple[Ranges[int], dict[str, int], Ranges[str]]:
        """The APIs that the broker serves, the features in force, and those that it supports."""
        version = _NEWEST_API_VERSIONS
        while True:
            answer = self._ask_versions(version)
            if _CODE.unpack_from(answer.frame, answer.body_at)[0] != ErrorCode.unsupported_version.value:
                break
            if version == 0:
                raise self._no_kafka()
            # A version that the broker does not know is answered in the layout of version 0.
            version = _FEATURES_FROM if version > _FEATURES_FROM else 0
        found = answer.read()
        return (
            {api.api_key: (api.min_version, api.max_version) for api in found.api_keys},
            {feature.name: feature.max_version_level for feature in getattr(found, "finalized_features", ())},
            {
                feature.name: (feature.min_version, feature.max_version)
                for feature in getattr(found, "supported_features", ())
            },
        )

    def _ask_versions(self, version: int) -> WireResponse:
        schema = request_schema(API_VERSIONS_KEY, version)
        request = make(schema.ApiVersionsRequest, client_software_name="headrace", client_software_version="1")
        self.send(API_VERSIONS_KEY, version, lambda number: write_request(request, number, self.client_id))
        answer = self.receive()
        if len(answer.frame) < answer.body_at + _CODE.size:
            raise self._no_kafka()
        return answer

    def _too_slow(self, key: int) -> TimedOut:
        limit_s = self._timeouts.request_s
        return TimedOut(f"the broker at {self.address} did not answer {api_name(key)} within {limit_s:g} s")

    def _no_kafka(self, sample: bytes = b"") -> NotKafka:
        what = f"what answers at {self.address} does not speak the plain Kafka protocol: is it TLS, or HTTP?"
        return NotKafka(what, sample)


def _reason(error: OSError | UnicodeError) -> str:
    if isinstance(error, socket.gaierror):
        return "the name is not known"
    if isinstance(error, ConnectionRefusedError):
        return "connection refused"
    if isinstance(error, UnicodeError):
        return "the name is not valid"
    return (error.strerror or str(error) or type(error).__name__).lower()
