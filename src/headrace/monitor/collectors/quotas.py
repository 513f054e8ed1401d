"""Client quotas: how many clients are delayed, by what, and how long. Clients are no labels: they are not bounded."""

from collections.abc import Iterable

from headrace.model.quotas import QuotaKind
from headrace.monitor.scrape import Collector
from headrace.observe.families import MetricFamily, counter, gauge
from headrace.quotas.broker_quotas import BrokerQuotas

THROTTLED = counter("headrace_quota_throttled_total", "Requests whose client was delayed, by quota.", "quota")
THROTTLED_SECONDS = counter("headrace_quota_throttle_seconds_total", "The delays of clients, by quota.", "quota")
ACCOUNTS = gauge("headrace_quota_accounts", "Clients whose use is counted now, once for each quota.")
REFUSED = counter(
    "headrace_quota_connections_refused_total", "Connections of addresses beyond their connection_creation_rate."
)
DELAYED = counter(
    "headrace_quota_connections_delayed_total", "Connections that waited because of max.connection.creation.rate."
)
METRICS = (THROTTLED, THROTTLED_SECONDS, ACCOUNTS, REFUSED, DELAYED)
_KINDS = tuple(kind for kind in QuotaKind if kind is not QuotaKind.CONNECTION)


def quota_collector(quotas: BrokerQuotas) -> Collector:
    async def collect() -> Iterable[MetricFamily]:
        counts, delays_ms = quotas.throttled_counts, quotas.throttled_ms
        return (
            THROTTLED.family([(THROTTLED.label_text(kind.value), counts[kind]) for kind in _KINDS]),
            THROTTLED_SECONDS.family(
                [(THROTTLED_SECONDS.label_text(kind.value), delays_ms[kind] / 1000) for kind in _KINDS]
            ),
            ACCOUNTS.single(len(quotas.accounts)),
            REFUSED.single(quotas.connections.refused_count),
            DELAYED.single(quotas.connections.delayed_count),
        )

    return collect
