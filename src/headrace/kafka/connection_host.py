"""The interface of the server that a connection uses."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from headrace.config.listeners import KafkaListener
from headrace.kafka.budget import RequestBudget
from headrace.kafka.bulk_line import BulkLine
from headrace.kafka.dispatch import Peer
from headrace.kafka.request_meter import KafkaRequestMeter
from headrace.kafka.services import Services
from headrace.kafka.socket_room import SocketRoom
from headrace.quotas.broker_quotas import BrokerQuotas
from headrace.runtime.buffers import BufferPool

if TYPE_CHECKING:
    from headrace.kafka.connection import Connection


class Admittance(NamedTuple):
    """What becomes of a new connection: it is served, or closed if it has no peer. Both at once, or after a delay."""

    peer: Peer | None = None
    delay_ms: float = 0.0


class ConnectionHost(Protocol):
    """The server of a connection: limits, shared memory, the clock."""

    services: Services
    budget: RequestBudget
    line: BulkLine
    room: SocketRoom
    scratch: memoryview
    buffers: BufferPool
    max_in_flight: int
    meter: KafkaRequestMeter | None
    """Counts and times requests; None if they are not."""
    quotas: BrokerQuotas
    now_ms: Callable[[], float]
    """A monotonic clock. An attribute, since it is called several times for each request."""
    now_s: Callable[[], float]
    """The same clock in seconds."""

    def opened(self, connection: "Connection", transport: asyncio.Transport, listener: KafkaListener) -> Admittance:
        """Admit the connection, or refuse it."""

    def authenticated(self, connection: "Connection") -> None:
        """Note that the client has authenticated by SASL for the first time."""

    def closing(self, peer: Peer, reason: str) -> None:
        """Log that the connection of a client is being closed; `reason` is the end of a sentence about it."""

    def closed(self, connection: "Connection") -> None: ...
    def drained(self) -> None: ...
    def spawn(self, coroutine: Coroutine[Any, Any, None]) -> None: ...
