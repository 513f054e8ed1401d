"""The clients that are connected to the brokers: their connections together, by client id, address and software."""

from collections.abc import Callable, Iterable
from typing import Protocol

import msgspec

from headrace.monitor.loop_slices import sliced
from headrace.security.subject import Subject

MAX_CONNECTED = 10_000
"""Clients of one broker that are listed; the connections of further ones are left out."""
_MAX_CHARS = 256
_AT_ONCE = 500

ClientKey = tuple[str, str, str, str, str]


class ConnectedPeer(Protocol):
    """What is known of the client of one connection."""

    client_id: str | None
    client_software: str
    subject: Subject
    listener: str
    requests: int
    received_bytes: int
    sent_bytes: int


class ConnectedClient(msgspec.Struct, array_like=True, frozen=True):
    """The open connections of a client to one broker, or to all."""

    client_id: str
    address: str
    software: str
    """Name and version, as the client gives them with ApiVersions."""
    principal: str
    listener: str
    connections: int
    requests: int
    received_bytes: int
    """From the client."""
    sent_bytes: int
    brokers: list[int]

    @property
    def key(self) -> ClientKey:
        return self.client_id, self.address, self.software, self.principal, self.listener


class ConnectedClients:
    """The clients of this broker."""

    def __init__(self, broker_id: int) -> None:
        self._broker_id = broker_id
        self.peers: Callable[[], Iterable[ConnectedPeer]] = tuple
        """The clients of all open connections, set once there are listeners."""

    async def rows(self) -> list[ConnectedClient]:
        found: dict[ClientKey, tuple[int, int, int, int]] = {}
        async for peer in sliced(list(self.peers()), _AT_ONCE):
            key = _key(peer)
            if key not in found and len(found) >= MAX_CONNECTED:
                continue
            count, requests, received, sent = found.get(key, (0, 0, 0, 0))
            found[key] = count + 1, requests + peer.requests, received + peer.received_bytes, sent + peer.sent_bytes
        return [ConnectedClient(*key, *sums, [self._broker_id]) for key, sums in found.items()]


async def merged_clients(rows: Iterable[ConnectedClient]) -> list[ConnectedClient]:
    """Each client once, with its connections to all brokers."""
    found: dict[ClientKey, ConnectedClient] = {}
    async for row in sliced(rows, _AT_ONCE):
        before = found.get(row.key)
        found[row.key] = row if before is None else _sum(before, row)
    return [*found.values()]


def _sum(one: ConnectedClient, other: ConnectedClient) -> ConnectedClient:
    return ConnectedClient(
        *one.key,
        one.connections + other.connections,
        one.requests + other.requests,
        one.received_bytes + other.received_bytes,
        one.sent_bytes + other.sent_bytes,
        sorted({*one.brokers, *other.brokers}),
    )


def _key(peer: ConnectedPeer) -> ClientKey:
    subject = peer.subject
    return (
        (peer.client_id or "")[:_MAX_CHARS],
        subject.host,
        peer.client_software[:_MAX_CHARS],
        subject.principal,
        peer.listener,
    )
