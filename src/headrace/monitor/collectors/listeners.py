"""Connections of clients, and the memory of requests that are being received."""

from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from headrace.monitor.scrape import Collector
from headrace.observe.families import MetricFamily, counter, gauge

CONNECTIONS = gauge(
    "headrace_connections", "Open connections of clients; the HTTP port is the listener http.", "listener"
)
OPENED = counter("headrace_connections_opened_total", "Connections of Kafka clients that were accepted.")
REFUSED = counter(
    "headrace_connections_refused_total", "Connections of Kafka clients that were refused: too many, or no certificate."
)
IN_FLIGHT = gauge(
    "headrace_kafka_requests_in_flight", "Requests of Kafka clients without an answer, fetches that wait included."
)
BUDGET_USED = gauge(
    "headrace_request_memory_bytes",
    "Memory of requests that are being received, by protocol: kafka or http.",
    "protocol",
)
BUDGET_LIMIT = gauge(
    "headrace_request_memory_limit_bytes",
    "Its limit (queued.max.request.bytes), beyond which connections are read only when another has finished.",
    "protocol",
)
BUDGET_WAITING = gauge(
    "headrace_request_memory_waiting_connections",
    "Connections of Kafka clients that wait for memory to read a request.",
)
IN_LINE = gauge(
    "headrace_bulk_line_connections",
    "Connections whose Produce or Fetch waits in line: the broker is busy, and serves urgent requests first.",
)
LINE_WAITS = counter("headrace_bulk_line_waits_total", "How many times a connection has waited in that line.")
METRICS = (
    CONNECTIONS, OPENED, REFUSED, IN_FLIGHT, BUDGET_USED, BUDGET_LIMIT, BUDGET_WAITING, IN_LINE, LINE_WAITS,
)  # fmt: skip


class ListenerCounts(NamedTuple):
    connections: Mapping[str, int]
    """Open connections by the name of their listener."""
    opened: int
    refused: int
    requests_in_flight: int
    memory: Mapping[str, tuple[int, int]]
    """Bytes used and their limit, by protocol."""
    waiting_for_memory: int
    in_line: int
    line_waits: int


def listener_collector(counts: Callable[[], ListenerCounts]) -> Collector:
    async def collect() -> Iterable[MetricFamily]:
        now = counts()
        return (
            CONNECTIONS.family((CONNECTIONS.label_text(name), count) for name, count in now.connections.items()),
            OPENED.single(now.opened),
            REFUSED.single(now.refused),
            IN_FLIGHT.single(now.requests_in_flight),
            BUDGET_USED.family((BUDGET_USED.label_text(name), used) for name, (used, _) in now.memory.items()),
            BUDGET_LIMIT.family((BUDGET_LIMIT.label_text(name), limit) for name, (_, limit) in now.memory.items()),
            BUDGET_WAITING.single(now.waiting_for_memory),
            IN_LINE.single(now.in_line),
            LINE_WAITS.single(now.line_waits),
        )

    return collect
