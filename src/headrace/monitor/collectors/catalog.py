"""Every metric that a broker serves, by area: what `docs/metrics.md` lists."""

from collections.abc import Mapping

from headrace.monitor import scrape
from headrace.monitor.collectors import process
from headrace.observe.families import Metric

AREAS: Mapping[str, tuple[Metric, ...]] = {
    "The process": process.METRICS,
    "Scrapes": scrape.METRICS,
}
