"""Every metric that a broker serves, by area: what `docs/metrics.md` lists."""

from collections.abc import Mapping

from headrace.monitor import scrape
from headrace.monitor.collectors import (
    canary,
    clients,
    cluster,
    groups,
    health,
    limits,
    links,
    listeners,
    partitions,
    pipelines,
    process,
    queues,
    quotas,
    requests,
    schemas,
    security,
    storage,
    topics,
    transactions,
)
from headrace.observe.families import Metric

AREAS: Mapping[str, tuple[Metric, ...]] = {
    "Requests": requests.METRICS,
    "Topics": topics.METRICS,
    "Groups": groups.METRICS,
    "Queues and share groups": queues.METRICS,
    "Transactions": transactions.METRICS,
    "Schemas": schemas.METRICS,
    "Partitions and replication": partitions.METRICS,
    "The cluster": cluster.METRICS,
    "Logs on disk": storage.METRICS,
    "Connections and memory of requests": listeners.METRICS,
    "Client quotas": quotas.METRICS,
    "Links to other clusters": links.METRICS,
    "Metrics that clients push": clients.METRICS,
    "Security": security.METRICS,
    "The process": process.METRICS,
    "Pipelines": pipelines.METRICS,
    "The canary": canary.METRICS,
    "Health": health.METRICS,
    "Scrapes": (*limits.METRICS, *scrape.METRICS),
    "kafka_exporter's names": (
        *cluster.KAFKA_EXPORTER_METRICS,
        *partitions.KAFKA_EXPORTER_METRICS,
        *groups.KAFKA_EXPORTER_METRICS,
    ),
    "Names of Kafka's JMX exporter": (*partitions.JMX_METRICS, *cluster.JMX_METRICS),
}
