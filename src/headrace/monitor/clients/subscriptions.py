"""Subscriptions to metrics of clients, and which of them match a client. Pure.

A subscription is a config resource of type CLIENT_METRICS: `metrics` are prefixes of names (`*` is all of them),
`interval.ms` is how often a client pushes, and `match` has patterns in RE2's syntax, all of which must match:

    client_id=shop-.*,client_software_name=librdkafka

A client gets the metrics of all subscriptions that match it, at the shortest of their intervals.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple
from uuid import UUID

from headrace.config.client_metrics import CLIENT_METRICS_SETTINGS, DEFAULT_INTERVAL_MS
from headrace.config.settings import parse_all
from headrace.model.errors import InvalidRegularExpression, SettingsError
from headrace.model.patterns import TopicPattern

EVERY_METRIC = "*"
_EVERY_ON_THE_WIRE = ""
"""Java's clients and librdkafka take a single empty prefix for all metrics."""


class ClientFacts(NamedTuple):
    """What is known of a client; the names are those of the patterns."""

    client_instance_id: str
    client_id: str
    client_software_name: str
    client_software_version: str
    client_source_address: str
    client_source_port: str
    principal: str = ""
    """The user; patterns cannot name it."""


class WantedMetrics(NamedTuple):
    """What a client is asked to push."""

    prefixes: tuple[str, ...] = ()
    """In order; none for no metrics, one empty one for all of them."""
    interval_ms: int = DEFAULT_INTERVAL_MS


NO_METRICS = WantedMetrics()


@dataclass(frozen=True, slots=True)
class MetricsSubscription:
    metrics: frozenset[str]
    interval_ms: int
    patterns: tuple[tuple[str, TopicPattern], ...]

    def matches(self, client: ClientFacts) -> bool:
        return all(pattern.matches(getattr(client, name)) for name, pattern in self.patterns)


def subscription_of(texts: Mapping[str, str]) -> MetricsSubscription:
    """The subscription with these settings; raises `SettingsError`."""
    defaults = {row.attribute: row.default for row in CLIENT_METRICS_SETTINGS.values()}
    values = defaults | parse_all(CLIENT_METRICS_SETTINGS, texts)
    interval_ms, metrics, match = values["interval_ms"], values["metrics"], values["match"]
    assert isinstance(interval_ms, int)
    assert isinstance(metrics, tuple)
    assert isinstance(match, tuple)
    return MetricsSubscription(frozenset(metrics), interval_ms, tuple(map(_pattern, match)))


def _pattern(text: str) -> tuple[str, TopicPattern]:
    name, _, pattern = text.partition("=")
    try:
        return name, TopicPattern(pattern)
    except InvalidRegularExpression as error:
        raise SettingsError(f"match={text} is not allowed: {str(error).replace('topic ', '', 1)}") from None


def wanted_metrics(subscriptions: Iterable[MetricsSubscription], client: ClientFacts) -> WantedMetrics:
    """What a client is asked to push."""
    matching = [each for each in subscriptions if each.metrics and each.matches(client)]
    if not matching:
        return NO_METRICS
    prefixes = frozenset[str]().union(*(each.metrics for each in matching))
    shown = (_EVERY_ON_THE_WIRE,) if EVERY_METRIC in prefixes else tuple(sorted(prefixes))
    return WantedMetrics(shown, min(each.interval_ms for each in matching))


def is_known(instance_id: UUID | None) -> bool:
    """Whether a client has an instance id already."""
    return instance_id is not None and instance_id.int != 0
