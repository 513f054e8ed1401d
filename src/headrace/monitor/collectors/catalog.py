"""Every metric that a broker serves, by area: what `docs/metrics.md` lists."""

from collections.abc import Mapping

from headrace.monitor import scrape
from headrace.monitor.collectors import health, limits, listeners, pipelines, process, requests, topics
from headrace.observe.families import Metric

AREAS: Mapping[str, tuple[Metric, ...]] = {
    "Requests": requests.METRICS,
    "Topics": topics.METRICS,
    "Connections and memory of requests": listeners.METRICS,
    "The process": process.METRICS,
    "Pipelines": pipelines.METRICS,
    "Health": health.METRICS,
    "Scrapes": (*limits.METRICS, *scrape.METRICS),
}
