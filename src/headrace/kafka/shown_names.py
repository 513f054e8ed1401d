"""Read-only settings that DescribeConfigs shows under Kafka's names, for tools that look for them.

None can be set: each doc says which setting to use. The SDK looks for `http.listeners`.
"""

from collections.abc import Iterator

from headrace.cluster.metadata import Metadata
from headrace.config.settings import Kind, Setting

_HOUR_MS = 3_600_000
_MINUTE_MS = 60_000


def shown_names(metadata: Metadata, http_listeners: str) -> Iterator[tuple[Setting, str]]:
    """Yield each setting with its value on this broker."""
    boot, topics = metadata.boot_settings, metadata.settings.topic_defaults
    broker, listeners = metadata.image.brokers[metadata.broker_id], boot.kafka_listeners
    advertised = ((each.kafka_name, broker.listeners.get(each.name, broker.endpoint)) for each in listeners)
    for name, kind, value, doc in (
        ("advertised.listeners", Kind.LIST, ",".join(f"{name}://{endpoint}" for name, endpoint in advertised),
         "Where clients connect: see listeners and advertise."),
        ("http.listeners", Kind.LIST, http_listeners, "Where the broker serves queues over HTTP: see http.listen."),
        ("inter.broker.listener.name", Kind.STRING, boot.broker_listener.kafka_name, "See inter.broker.listener."),
        ("listener.security.protocol.map", Kind.STRING,
         ",".join(f"{each.kafka_name}:{each.kafka_protocol}" for each in listeners), "See listeners."),
        ("listeners", Kind.LIST, ",".join(f"{each.kafka_name}://{each.address}" for each in listeners),
         "Where the broker listens, as Kafka writes it: see listeners and kafka.listen."),
        ("log.dir", Kind.STRING, boot.data_dir, "Where the broker stores its data: see data.dir."),
        ("log.dirs", Kind.STRING, boot.data_dir, "Where the broker stores its data: see data.dir."),
        ("log.retention.hours", Kind.INT, _whole(topics.retention_ms, _HOUR_MS), "See log.retention.ms."),
        ("log.retention.minutes", Kind.INT, _whole(topics.retention_ms, _MINUTE_MS), "See log.retention.ms."),
        ("log.roll.hours", Kind.INT, _whole(topics.segment_ms, _HOUR_MS), "See log.roll.ms."),
        ("log.roll.jitter.hours", Kind.INT, _whole(topics.segment_jitter_ms, _HOUR_MS), "See log.roll.jitter.ms."),
        ("node.id", Kind.INT, str(metadata.broker_id), "The number of this broker: see broker.id."),
        ("process.roles", Kind.LIST, "broker", "Any broker may become the controller."),
        ("replica.selector.class", Kind.STRING, "org.apache.kafka.common.replica.RackAwareReplicaSelector",
         "Readers are sent to a replica of their rack."),
    ):  # fmt: skip
        yield Setting(name, kind, "", doc, dynamic=False), value


def _whole(time_ms: int, unit_ms: int) -> str:
    """Convert a time to a larger unit, as a whole number like Kafka's; -1 stays -1."""
    return str(time_ms if time_ms < 0 else min(time_ms // unit_ms, 2**31 - 1))
