"""Every metric that a broker serves, by area: what `docs/metrics.md` lists."""

from collections.abc import Mapping

from headrace.monitor import scrape
from headrace.monitor.collectors import health, process
from headrace.observe.families import Metric

AREAS: Mapping[str, tuple[Metric, ...]] = {
    "The process": process.METRICS,
    "Health": health.METRICS,
    "Scrapes": scrape.METRICS,
}
