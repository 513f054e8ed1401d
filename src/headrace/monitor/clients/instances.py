"""The clients that ask for subscriptions or push metrics, each by its instance id, with the values it pushed last.

Kafka's rules: a client asks again after its push interval, or at once after an error that makes it; pushes not more
often than that, but for the first push after asking and for the last one, when it terminates; and pushes only for the
subscription that it has. `ClientInstances` enforces them, as Kafka's `ClientMetricsManager` does.

Bounds: `MAX_CLIENTS` clients, the one that was heard of longest ago is dropped; `MAX_SERIES` values of a client, and
`MAX_ALL_SERIES` of all of them. A client is dropped when it has not been heard of for three intervals, and a minute at
the least; one that terminates after a minute.
"""

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from uuid import UUID

from crc32c import crc32c

from headrace.model.errors import ProtocolError, SettingsError, TelemetryThrottled, UnknownSubscription
from headrace.monitor.clients.otlp import PushedMetrics
from headrace.monitor.clients.subscriptions import (
    NO_METRICS,
    ClientFacts,
    MetricsSubscription,
    WantedMetrics,
    subscription_of,
    wanted_metrics,
)

MAX_CLIENTS = 10_000
MAX_SERIES = 250
MAX_ALL_SERIES = 50_000
_EXPIRE_EVERY_MS = 1_000
_LEAST_EXPIRY_MS = 60_000
_EXPIRY_INTERVALS = 3

SeriesKey = tuple[str, tuple[tuple[str, str], ...]]
"""The name of a metric and its attributes."""


@dataclass(slots=True)
class ClientInstance:
    facts: ClientFacts
    wanted: WantedMetrics = NO_METRICS
    subscription_id: int = 0
    seen_subscriptions: object = None
    """The subscriptions that `wanted` is made from."""
    asked_ms: float = -math.inf
    pushed_ms: float = -math.inf
    heard_ms: float = 0.0
    may_ask_at_once: bool = False
    """Whether its last push was refused such that it has to ask again."""
    is_terminating: bool = False
    pushes: int = 0
    pushed_bytes: int = 0
    dropped: int = 0
    """Values that were beyond a bound."""
    values: dict[SeriesKey, float] = field(default_factory=dict)
    """What it pushed last; deltas are added up."""
    units: dict[str, str] = field(default_factory=dict)

    @property
    def expires_ms(self) -> float:
        intervals_ms = 0 if self.is_terminating else _EXPIRY_INTERVALS * self.wanted.interval_ms
        return self.heard_ms + max(_LEAST_EXPIRY_MS, intervals_ms)


class ClientInstances:
    """Not thread-safe. Times are those of a monotonic clock, in ms."""

    def __init__(self, settings_by_name: Callable[[], Mapping[str, Mapping[str, str]]]) -> None:
        """`settings_by_name` returns the subscriptions of the cluster; the same object until one changes."""
        self._settings_by_name = settings_by_name
        self._compiled_from: object = None
        self._compiled: list[MetricsSubscription] = []
        self._clients: dict[UUID, ClientInstance] = {}
        """In the order in which they were heard of."""
        self._series = 0
        self._expired_ms = -math.inf
        self.pushes_by_result: dict[str, int] = {}
        self.pushed_bytes = 0

    def ask(self, instance_id: UUID, facts: ClientFacts, now_ms: float) -> ClientInstance:
        """A client asks what to push. Raises `TelemetryThrottled` if it is too early."""
        client = self._heard(instance_id, facts, now_ms)
        elapsed_ms = now_ms - max(client.asked_ms, client.pushed_ms)
        if elapsed_ms < client.wanted.interval_ms and not client.may_ask_at_once:
            raise TelemetryThrottled("the client asks for its subscription before its push interval is over")
        if elapsed_ms >= client.wanted.interval_ms:
            client.asked_ms = now_ms
        client.may_ask_at_once = False
        return client

    def check_push(
        self,
        instance_id: UUID,
        facts: ClientFacts,
        now_ms: float,
        subscription_id: int,
        *,
        is_last: bool,
    ) -> ClientInstance:
        """Whether a client may push now. Raises `ProtocolError` after its last push, `TelemetryThrottled` if it is
        too early, `UnknownSubscription` if it has another subscription by now."""
        client = self._heard(instance_id, facts, now_ms)
        if client.is_terminating:
            raise ProtocolError("the client has pushed for the last time already")
        may_push = client.asked_ms > client.pushed_ms or now_ms - client.pushed_ms >= client.wanted.interval_ms
        if may_push:
            client.pushed_ms = now_ms
        elif not is_last:
            raise TelemetryThrottled("the client pushes before its push interval is over")
        if subscription_id != client.subscription_id:
            client.may_ask_at_once = True
            raise UnknownSubscription("the subscription of the client has changed: it asks for the new one")
        return client

    def pushed(self, client: ClientInstance, metrics: PushedMetrics, size_bytes: int, *, is_last: bool) -> None:
        """Store what a client has pushed."""
        client.pushes += 1
        client.pushed_bytes += size_bytes
        self.pushed_bytes += size_bytes
        client.is_terminating = is_last
        client.dropped += metrics.dropped
        values = client.values
        for point in metrics.points:
            key = (point.name, point.attributes)
            if not math.isfinite(point.value):
                continue
            if key not in values:
                if len(values) >= MAX_SERIES or self._series >= MAX_ALL_SERIES:
                    client.dropped += 1
                    continue
                self._series += 1
                client.units[point.name] = point.unit
            values[key] = point.value + (values.get(key, 0.0) if point.is_delta else 0.0)

    def count(self, result: str) -> None:
        """Count a push by its result."""
        self.pushes_by_result[result] = self.pushes_by_result.get(result, 0) + 1

    def clients(self, now_ms: float) -> Iterable[tuple[UUID, ClientInstance]]:
        """The clients that are known, and have not expired."""
        self._expire(now_ms)
        return self._clients.items()

    def _heard(self, instance_id: UUID, facts: ClientFacts, now_ms: float) -> ClientInstance:
        self._expire(now_ms)
        client = self._clients.pop(instance_id, None)
        if client is None:
            while len(self._clients) >= MAX_CLIENTS:
                self._drop(next(iter(self._clients)))
            client = ClientInstance(facts)
        self._clients[instance_id] = client
        client.heard_ms, client.facts = now_ms, facts
        subscriptions = self._subscriptions()
        if client.seen_subscriptions is not subscriptions:
            client.seen_subscriptions = subscriptions
            client.wanted = wanted_metrics(self._compiled, facts)
            client.subscription_id = _subscription_id(instance_id, client.wanted)
        return client

    def _subscriptions(self) -> object:
        found = self._settings_by_name()
        if found is not self._compiled_from:
            self._compiled = [each for texts in found.values() if (each := _valid(texts)) is not None]
            self._compiled_from = found
        return found

    def _expire(self, now_ms: float) -> None:
        """Drop the clients that have expired, once a second at the most."""
        if now_ms - self._expired_ms < _EXPIRE_EVERY_MS:
            return
        self._expired_ms = now_ms
        for instance_id in [each for each, client in self._clients.items() if client.expires_ms <= now_ms]:
            self._drop(instance_id)

    def _drop(self, instance_id: UUID) -> None:
        self._series -= len(self._clients.pop(instance_id).values)


def _valid(texts: Mapping[str, str]) -> MetricsSubscription | None:
    """The subscription; None for one that this version cannot read."""
    try:
        return subscription_of(texts)
    except SettingsError:
        return None


def _subscription_id(instance_id: UUID, wanted: WantedMetrics) -> int:
    """Another number for another subscription; it differs between clients, as Kafka's does.

    0 while nothing is wanted: librdkafka logs a line about its new client instance id for any other.
    """
    if not wanted.prefixes:
        return 0
    crc = crc32c(f"{instance_id}{wanted.prefixes}{wanted.interval_ms}".encode())
    return crc - (1 << 32) if crc >= 1 << 31 else crc
