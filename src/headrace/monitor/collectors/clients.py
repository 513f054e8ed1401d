"""Metrics that clients have pushed, summed up over all clients: the series do not grow with the number of clients."""

from collections.abc import Iterable

from headrace.monitor.clients.instances import ClientInstances
from headrace.monitor.scrape import Collector
from headrace.observe.families import MetricFamily, counter, gauge
from headrace.runtime.clock import Clock

MAX_NAMES = 100
_MAX_SOFTWARE = 50
_OTHER = "other"

CLIENTS = gauge(
    "headrace_clients_with_telemetry",
    "Clients that ask this broker which of their metrics to push, by software; beyond 50 kinds, other.",
    "software",
)
PUSHES = counter("headrace_client_pushes_total", "Pushes of metrics of clients, by result.", "result")
BYTES = counter("headrace_client_pushed_bytes_total", "Bytes of metrics that clients have pushed.")
REPORTING = gauge("headrace_client_metric_clients", "Clients that have pushed this metric.", "metric")
SUM = gauge("headrace_client_metric_sum", "The sum of a metric over all clients and their labels.", "metric")
MAX = gauge("headrace_client_metric_max", "The largest value of a metric of any client.", "metric")
METRICS = (CLIENTS, PUSHES, BYTES, REPORTING, SUM, MAX)


def client_collector(instances: ClientInstances, clock: Clock) -> Collector:
    async def collect() -> Iterable[MetricFamily]:
        software: dict[str, int] = {}
        clients: dict[str, int] = {}
        sums: dict[str, float] = {}
        largest: dict[str, float] = {}
        for _, client in instances.clients(clock.monotonic_ms()):
            kind = client.facts.client_software_name
            kind = kind if kind in software or len(software) < _MAX_SOFTWARE else _OTHER
            software[kind] = software.get(kind, 0) + 1
            for name in client.units:
                clients[name] = clients.get(name, 0) + 1
            for (name, _), value in client.values.items():
                sums[name] = sums.get(name, 0.0) + value
                largest[name] = max(value, largest.get(name, value))
        names = sorted(clients)[:MAX_NAMES]
        return (
            CLIENTS.family([(CLIENTS.label_text(kind), count) for kind, count in software.items()]),
            PUSHES.family([(PUSHES.label_text(result), n) for result, n in instances.pushes_by_result.items()]),
            BYTES.single(instances.pushed_bytes),
            REPORTING.family([(REPORTING.label_text(name), clients[name]) for name in names]),
            SUM.family([(SUM.label_text(name), sums[name]) for name in names]),
            MAX.family([(MAX.label_text(name), largest[name]) for name in names]),
        )

    return collect
