"""The clients that push metrics to this broker, as other brokers and the HTTP API show them."""

from uuid import UUID

import msgspec

from headrace.monitor.clients.instances import ClientInstance, ClientInstances
from headrace.monitor.loop_slices import sliced
from headrace.runtime.clock import Clock

_AT_ONCE = 500


class ClientStat(msgspec.Struct, array_like=True, frozen=True):
    """A client that asks for subscriptions or pushes metrics."""

    client_instance_id: str
    client_id: str
    software: str
    address: str
    principal: str
    broker_id: int
    """The broker that it pushes to."""
    requested: list[str]
    """Prefixes of the metrics that it is asked for; one empty one for all."""
    interval_ms: int
    pushes: int
    pushed_bytes: int
    values: int
    """How many values it has."""
    dropped: int
    """How many were beyond a bound."""
    heard_ms_ago: int


class ClientValue(msgspec.Struct, array_like=True, frozen=True):
    name: str
    attributes: dict[str, str]
    value: float
    unit: str


class ClientDetail(msgspec.Struct, array_like=True, frozen=True):
    stat: ClientStat
    values: list[ClientValue]
    """By name."""


class LocalClients:
    def __init__(self, instances: ClientInstances, clock: Clock, broker_id: int) -> None:
        self._instances = instances
        self._clock = clock
        self._broker_id = broker_id

    async def stats(self) -> list[ClientStat]:
        known = list(self._instances.clients(self._clock.monotonic_ms()))
        return [self._stat(instance_id, client) async for instance_id, client in sliced(known, _AT_ONCE)]

    def detail(self, instance_id: str) -> ClientDetail | None:
        """One of them; None if it does not push to this broker."""
        for found, client in self._instances.clients(self._clock.monotonic_ms()):
            if str(found) == instance_id:
                values = [
                    ClientValue(name, dict(attributes), value, client.units.get(name, ""))
                    for (name, attributes), value in sorted(client.values.items())
                ]
                return ClientDetail(self._stat(found, client), values)
        return None

    def _stat(self, instance_id: UUID, client: ClientInstance) -> ClientStat:
        facts = client.facts
        return ClientStat(
            client_instance_id=str(instance_id),
            client_id=facts.client_id,
            software=f"{facts.client_software_name} {facts.client_software_version}".rstrip(),
            address=facts.client_source_address,
            principal=facts.principal,
            broker_id=self._broker_id,
            requested=list(client.wanted.prefixes),
            interval_ms=client.wanted.interval_ms,
            pushes=client.pushes,
            pushed_bytes=client.pushed_bytes,
            values=len(client.values),
            dropped=client.dropped,
            heard_ms_ago=round(self._clock.monotonic_ms() - client.heard_ms),
        )
