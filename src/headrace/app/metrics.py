"""The metrics of a broker: which parts of it the collectors ask."""

import time
from contextlib import AsyncExitStack

from headrace.app.http.server import HttpServer
from headrace.kafka.server import KafkaServer
from headrace.kafka.services import Services
from headrace.monitor.collectors.health import health_collector
from headrace.monitor.collectors.limits import OmittedSeries, omitted_collector
from headrace.monitor.collectors.listeners import ListenerCounts, listener_collector
from headrace.monitor.collectors.pipelines import pipeline_collector
from headrace.monitor.collectors.process import process_collector
from headrace.monitor.collectors.requests import action_collector, kafka_request_collector
from headrace.monitor.collectors.topics import traffic_collector
from headrace.monitor.health.service import HealthService
from headrace.monitor.scrape import Collector, Scraper
from headrace.observe.loop_lag import LoopLag
from headrace.observe.request_metrics import ActionMetrics
from headrace.sqs.bodies import BodyBudget

_HTTP = "http"


class BrokerMetrics:
    """Answers `GET /metrics`, once started. The listeners are set when they are made."""

    def __init__(self) -> None:
        self.kafka_server: KafkaServer | None = None
        self.http_server: HttpServer | None = None
        self.bodies: BodyBudget | None = None
        self.actions = ActionMetrics()
        """The requests of SQS clients."""

    def start(self, services: Services, health: HealthService, cluster_id: str, undo: AsyncExitStack) -> Scraper:
        """Return the scraper; what is measured all the time ends with `undo`."""
        settings = services.settings
        lag = LoopLag(time.monotonic)
        lag.start()
        undo.callback(lag.stop)
        health.source.loop_lag_s = lag.worst_s
        services.monitor.set_loop_lag(lag.worst_s)
        services.monitor.set_connection_count(lambda: sum(self._listeners().connections.values()))
        omitted = OmittedSeries()
        collectors: dict[str, Collector] = {}
        if services.meter is not None:
            collectors["requests"] = kafka_request_collector(services.meter.requests)
            collectors["queues over HTTP"] = action_collector(self.actions)
        if services.partitions.traffic is not None:
            collectors["topics"] = traffic_collector(
                services.partitions.traffic, lambda: services.settings.metrics_topic_max, omitted
            )
        collectors["listeners"] = listener_collector(self._listeners)
        collectors["the process"] = process_collector(
            lag, services.workers, settings.broker_id, settings.broker_rack, cluster_id
        )
        collectors["pipelines"] = pipeline_collector(services.pipelines)
        collectors["health"] = health_collector(health)
        collectors["limits"] = omitted_collector(omitted)
        scraper = Scraper(time.monotonic)
        scraper.add(collectors)
        return scraper

    def _listeners(self) -> ListenerCounts:
        kafka, http, bodies = self.kafka_server, self.http_server, self.bodies
        connections = dict(kafka.connections_by_listener()) if kafka is not None else {}
        memory = {}
        if http is not None:
            connections[_HTTP] = http.connection_count
        if kafka is not None:
            memory["kafka"] = (kafka.budget.used_bytes, kafka.budget.limit_bytes)
        if bodies is not None:
            memory[_HTTP] = (bodies.used_bytes, bodies.limit_bytes)
        return ListenerCounts(
            connections,
            opened=0 if kafka is None else kafka.opened_count,
            refused=0 if kafka is None else kafka.refused_count,
            requests_in_flight=0 if kafka is None else kafka.requests_in_flight,
            memory=memory,
            waiting_for_memory=0 if kafka is None else kafka.budget.waiting_count,
        )
