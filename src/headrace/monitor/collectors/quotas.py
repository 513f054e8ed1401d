"""Client quotas: how many clients are delayed, by what, and how long. Clients are no labels: they are not bounded."""

from collections import Counter
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
DISK_SLOWS = gauge(
    "headrace_disk_slows_producers", "Whether producers are slowed down because the disk is nearly full, or refused."
)
DISK_REFUSES = gauge(
    "headrace_disk_refuses_producers", "Whether producers are refused because the disk is nearly full."
)
DISK_SECONDS = counter(
    "headrace_disk_throttle_seconds_total", "The delays of producers because the disk was nearly full."
)
STORED = gauge(
    "headrace_quota_stored_bytes",
    "Bytes in the logs that this broker leads, by a prefix of topics with a quota: the limit is for all brokers.",
    "prefix",
)
STORED_LIMIT = gauge(
    "headrace_quota_stored_limit_bytes", "What topics with a prefix may store on all brokers together.", "prefix"
)
METRICS = (
    THROTTLED,
    THROTTLED_SECONDS,
    ACCOUNTS,
    REFUSED,
    DELAYED,
    DISK_SLOWS,
    DISK_REFUSES,
    DISK_SECONDS,
    STORED,
    STORED_LIMIT,
)
_KINDS = tuple(kind for kind in QuotaKind if kind is not QuotaKind.CONNECTION)


def quota_collector(quotas: BrokerQuotas) -> Collector:
    async def collect() -> Iterable[MetricFamily]:
        stored = quotas.stored.accounts
        counts = quotas.throttled_counts + Counter({QuotaKind.STORED: sum(each.throttled_count for each in stored)})
        delays_ms = quotas.throttled_ms + Counter({QuotaKind.STORED: sum(each.throttled_ms for each in stored)})
        return (
            THROTTLED.family([(THROTTLED.label_text(kind.value), counts[kind]) for kind in _KINDS]),
            THROTTLED_SECONDS.family(
                [(THROTTLED_SECONDS.label_text(kind.value), delays_ms[kind] / 1000) for kind in _KINDS]
            ),
            ACCOUNTS.single(len(quotas.accounts)),
            REFUSED.single(quotas.connections.refused_count),
            DELAYED.single(quotas.connections.delayed_count),
            DISK_SLOWS.single(int(quotas.disk.is_slowing)),
            DISK_REFUSES.single(int(quotas.disk.is_refusing)),
            DISK_SECONDS.single(quotas.disk.throttled_ms / 1000),
            STORED.family([(STORED.label_text(each.prefix), each.own_bytes) for each in stored]),
            STORED_LIMIT.family([(STORED_LIMIT.label_text(each.prefix), each.limit) for each in stored]),
        )

    return collect
