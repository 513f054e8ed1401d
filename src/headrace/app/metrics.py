"""The metrics of a broker: which parts of it the collectors ask."""

import asyncio
import time
from collections.abc import Iterator
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path

from headrace.app.broker_home import BrokerHome
from headrace.app.http.server import HttpServer
from headrace.app.node import Node
from headrace.cluster.metadata import Metadata
from headrace.cluster.timed_store import TimedStore
from headrace.kafka.server import KafkaServer
from headrace.kafka.services import Services
from headrace.monitor.collectors.canary import canary_collector
from headrace.monitor.collectors.clients import client_collector
from headrace.monitor.collectors.cluster import cluster_collector
from headrace.monitor.collectors.groups import group_collector
from headrace.monitor.collectors.health import health_collector
from headrace.monitor.collectors.limits import OmittedSeries, omitted_collector
from headrace.monitor.collectors.links import link_collector
from headrace.monitor.collectors.listeners import ListenerCounts, listener_collector
from headrace.monitor.collectors.partitions import partition_collector
from headrace.monitor.collectors.pipelines import pipeline_collector
from headrace.monitor.collectors.process import process_collector
from headrace.monitor.collectors.queues import queue_collector
from headrace.monitor.collectors.quotas import quota_collector
from headrace.monitor.collectors.requests import action_collector, kafka_request_collector
from headrace.monitor.collectors.schemas import schema_collector
from headrace.monitor.collectors.security import SecurityCounts, security_collector
from headrace.monitor.collectors.storage import StorageParts, storage_collector
from headrace.monitor.collectors.topics import traffic_collector
from headrace.monitor.collectors.transactions import transaction_collector
from headrace.monitor.health.service import HealthService
from headrace.monitor.image_changes import ImageChanges
from headrace.monitor.scrape import Collector, Scraper
from headrace.observe.loop_lag import LoopLag
from headrace.observe.loop_stalls import StallFinder
from headrace.observe.request_metrics import ActionMetrics
from headrace.security.tls.reload import ReloadingTls
from headrace.sqs.bodies import BodyBudget

_HTTP = "http"


class BrokerMetrics:
    """Answers `GET /metrics`, once started. The listeners are set when they are made."""

    def __init__(self) -> None:
        self.kafka_server: KafkaServer | None = None
        self.http_server: HttpServer | None = None
        self.bodies: BodyBudget | None = None
        self.store: TimedStore | None = None
        self.actions = ActionMetrics()
        """The requests of SQS clients."""
        self._stalls = StallFinder()

    def timed(self, home: BrokerHome) -> BrokerHome:
        """The same home, with the calls to its metadata store timed."""
        self.store = TimedStore(home.store, time.monotonic)
        return replace(home, store=self.store)

    def find_stalls(self, metadata: Metadata, undo: AsyncExitStack) -> None:
        """Look for what holds up this event loop, while the settings ask for it."""
        loop = asyncio.get_running_loop()

        def adopt() -> None:
            self._stalls.set_threshold(metadata.settings.event_loop_stall_ms, loop)

        adopt()
        metadata.subscribe(lambda *_: adopt())
        undo.callback(self._stalls.close)

    def start(
        self,
        services: Services,
        node: Node,
        health: HealthService,
        tls: ReloadingTls | None,
        undo: AsyncExitStack,
    ) -> Scraper:
        """Return the scraper; what is measured all the time ends with `undo`."""
        lag = LoopLag(time.monotonic)
        lag.start()
        undo.callback(lag.stop)
        health.source.loop_lag_s = lag.worst_s
        if self.store is not None:
            health.source.store_calls = self.store.answered
        services.monitor.set_loop_lag(lag.worst_s)
        services.monitor.set_connection_count(lambda: sum(self._listeners().connections.values()))
        scraper, omitted = Scraper(time.monotonic), OmittedSeries()
        scraper.add(self._traffic(services, omitted))
        scraper.add(self._cluster(services, omitted))
        scraper.add(self._work(services, omitted))
        settings, cluster_id = services.settings, services.metadata.image.cluster_id
        scraper.add(
            {
                "storage": self._storage(services, node),
                "security": security_collector(
                    services.security,
                    SecurityCounts(services.security),
                    lambda: None if tls is None else tls.expires_in_days,
                ),
                "listeners": listener_collector(self._listeners),
                "the process": process_collector(
                    lag, self._stalls, services.workers, settings.broker_id, settings.broker_rack, cluster_id
                ),
                "pipelines": pipeline_collector(services.pipelines),
                "the canary": canary_collector(services.canary),
                "health": health_collector(health),
                "limits": omitted_collector(omitted),
            }
        )
        return scraper

    def _traffic(self, services: Services, omitted: OmittedSeries) -> Iterator[tuple[str, Collector]]:
        if services.meter is not None:
            yield "requests", kafka_request_collector(services.meter.requests)
            yield "queues over HTTP", action_collector(self.actions)
        if (traffic := services.partitions.traffic) is not None:
            yield "topics", traffic_collector(traffic, lambda: services.settings.metrics_topic_max, omitted)

    def _cluster(self, services: Services, omitted: OmittedSeries) -> Iterator[tuple[str, Collector]]:
        metadata = services.metadata
        changes = ImageChanges(metadata.broker_id)
        metadata.subscribe(changes.image_changed)
        yield (
            "partitions",
            partition_collector(
                metadata, services.partitions, changes, lambda: metadata.settings.metrics_partition_max, omitted
            ),
        )
        yield "the cluster", cluster_collector(metadata, changes, self.store)

    def _work(self, services: Services, omitted: OmittedSeries) -> Iterator[tuple[str, Collector]]:
        monitor, metadata = services.monitor, services.metadata
        yield "clients", client_collector(services.clients, services.clock)
        yield "groups", group_collector(monitor, lambda: metadata.settings, omitted)
        yield "queues", queue_collector(monitor, services.queues, lambda: metadata.settings.metrics_queue_max, omitted)
        yield "quotas", quota_collector(services.quotas)
        yield "links", link_collector(services.links, metadata, services.clock)
        yield "transactions", transaction_collector(services.transactions, services.clock)
        yield "schemas", schema_collector(services.registry)

    def _storage(self, services: Services, node: Node) -> Collector:
        assert node.flusher is not None, "listeners are opened after the logs"
        assert node.cleaner is not None
        parts = StorageParts(
            Path(services.metadata.boot_settings.data_dir),
            node.flusher,
            node.cleaner,
            has_failed=lambda: node.failure is not None,
            recovery_s=node.recovery_ms / 1000,
            was_clean=node.was_clean,
        )
        return storage_collector(parts, services.workers)

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
            in_line=0 if kafka is None else kafka.line.waiting_count,
            line_waits=0 if kafka is None else kafka.line.waits,
        )
