"""The cluster as this broker takes part in it: brokers, the controller, the metadata store.

What there is once in a cluster is exported by one broker, so that a sum over all of them counts it once.
"""

from collections.abc import Iterable

from headrace.cluster.metadata import Metadata
from headrace.cluster.timed_store import TimedStore
from headrace.monitor.image_changes import ImageChanges
from headrace.monitor.scrape import Collector
from headrace.observe.families import MetricFamily, counter, gauge, histogram, info

BROKERS = gauge("kafka_brokers", "Brokers that are alive, exported by the controller.")
BROKER_INFO = info("kafka_broker_info", "This broker, and where clients reach it.", "id", "address")
ACTIVE = gauge("headrace_active_controller", "Whether this broker is the controller: one broker of a cluster is.")
JMX_ACTIVE = gauge("kafka_controller_kafkacontroller_activecontrollercount", "headrace_active_controller.")
ELECTIONS = counter("headrace_controller_elections_total", "How often this broker became the controller.")
FEATURE_LEVEL = gauge("headrace_feature_level", "The feature level of the cluster.")
STORE_UP = gauge("headrace_metadata_store_up", "Whether changes of the metadata store (SQLite or etcd) arrive.")
STORE_SECONDS = histogram(
    "headrace_metadata_store_seconds",
    "Time of a call to the metadata store: snapshot, commit, grant_lease or keep_alive.",
    "operation",
)
STORE_ERRORS = counter("headrace_metadata_store_errors_total", "Calls to the metadata store that failed.", "operation")
METRICS = (ACTIVE, ELECTIONS, FEATURE_LEVEL, STORE_UP, STORE_SECONDS, STORE_ERRORS)
KAFKA_EXPORTER_METRICS = (BROKERS, BROKER_INFO)
JMX_METRICS = (JMX_ACTIVE,)


def cluster_collector(metadata: Metadata, changes: ImageChanges, store: TimedStore | None) -> Collector:
    async def collect() -> Iterable[MetricFamily]:
        image = metadata.image
        is_controller = int(metadata.is_single_node or image.controller_id == metadata.broker_id)
        own = image.brokers.get(metadata.broker_id)
        families = [
            BROKERS.family([("", len(image.alive_brokers()))] if is_controller else ()),
            BROKER_INFO.family([] if own is None else [(BROKER_INFO.label_text(own.broker_id, own.endpoint), 1)]),
            ACTIVE.single(is_controller),
            JMX_ACTIVE.single(is_controller),
            ELECTIONS.single(changes.controller_elections),
            FEATURE_LEVEL.single(image.feature_level),
            STORE_UP.single(int(metadata.is_watching)),
        ]
        if store is not None:
            families.append(STORE_SECONDS.family([(STORE_SECONDS.label_text(k), v) for k, v in store.times.items()]))
            families.append(STORE_ERRORS.family([(STORE_ERRORS.label_text(k), v) for k, v in store.failures.items()]))
        return families

    return collect
