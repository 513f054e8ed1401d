"""Requests to the schema registry through this broker, and lookups of schemas that were not in its cache."""

from collections.abc import Iterable

from headrace.monitor.scrape import Collector
from headrace.observe.families import MetricFamily, counter
from headrace.schemas.service import RegistryService

REGISTRY_REQUESTS = counter(
    "headrace_registry_requests_total",
    "Requests to the schema registry that this broker has answered, by operation and HTTP status.",
    "operation",
    "status",
)
SCHEMA_LOOKUPS = counter(
    "headrace_schema_lookups_total",
    "Calls to the leader of the registry for schemas that were not in the cache of this broker.",
)
METRICS = (REGISTRY_REQUESTS, SCHEMA_LOOKUPS)


def schema_collector(registry: RegistryService) -> Collector:
    async def collect() -> Iterable[MetricFamily]:
        answered = tuple(registry.answered.items())
        return (
            REGISTRY_REQUESTS.family(
                (REGISTRY_REQUESTS.label_text(operation, str(status)), count) for (operation, status), count in answered
            ),
            SCHEMA_LOOKUPS.single(registry.lookup.asked),
        )

    return collect
