"""The metrics of a broker: which parts of it the collectors ask."""

import time
from contextlib import AsyncExitStack

from headrace.kafka.services import Services
from headrace.monitor.collectors.health import health_collector
from headrace.monitor.collectors.process import process_collector
from headrace.monitor.health.service import HealthService
from headrace.monitor.scrape import Scraper
from headrace.observe.loop_lag import LoopLag


def start_metrics(services: Services, health: HealthService, cluster_id: str, undo: AsyncExitStack) -> Scraper:
    """Return what `GET /metrics` asks; what it measures by itself ends with `undo`."""
    settings = services.settings
    lag = LoopLag(time.monotonic)
    lag.start()
    undo.callback(lag.stop)
    health.source.loop_lag_s = lag.worst_s
    scraper = Scraper(time.monotonic)
    scraper.add(
        {
            "the process": process_collector(
                lag, services.workers, settings.broker_id, settings.broker_rack, cluster_id
            ),
            "health": health_collector(health),
        }
    )
    return scraper
