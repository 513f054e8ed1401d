"""What `headrace topic describe` knows of a topic, and how it shows it."""

from typing import Any

from confluent_kafka.admin import ConfigResource, ConfigSource, OffsetSpec, ResourceType

from headrace.cli.client import REQUEST_TIMEOUT_S, Broker
from headrace.cli.output import human_bytes, table
from headrace.cli.wire import Connection
from headrace.model.errors import ProtocolError

_DESCRIBE_LOG_DIRS = 35

_SOURCES = {
    ConfigSource.DYNAMIC_TOPIC_CONFIG: "topic",
    ConfigSource.DYNAMIC_BROKER_CONFIG: "broker",
    ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG: "broker",
    ConfigSource.STATIC_BROKER_CONFIG: "broker",
    ConfigSource.DEFAULT_CONFIG: "default",
}


def describe_topic(bootstrap: str, topic: str) -> dict[str, Any]:
    """Everything about a topic, ready for JSON."""
    broker = Broker(bootstrap)
    indexes = broker.partitions(topic)
    cluster = broker.cluster()
    metadata = cluster.topics[topic].partitions
    first = broker.offsets(topic, indexes, OffsetSpec.earliest())
    end = broker.offsets(topic, indexes, OffsetSpec.latest())
    sizes = _sizes(topic, cluster.brokers)
    return {
        "topic": topic,
        "partitions": [
            {
                "partition": index,
                "leader": metadata[index].leader,
                "replicas": list(metadata[index].replicas),
                "in_sync": list(metadata[index].isrs),
                "first_offset": first[index],
                "end_offset": end[index],
                "size_bytes": sizes.get((metadata[index].leader, index)),
            }
            for index in indexes
        ],
        "settings": _settings(broker, topic),
    }


def _settings(broker: Broker, topic: str) -> list[dict[str, Any]]:
    resource = ConfigResource(ResourceType.TOPIC, topic)
    futures = broker.call(broker.admin.describe_configs, [resource], request_timeout=REQUEST_TIMEOUT_S)
    entries = broker.wait(next(iter(futures.values()))).values()
    return [
        {"name": entry.name, "value": entry.value, "source": _SOURCES.get(ConfigSource(entry.source), "unknown")}
        for entry in sorted(entries, key=lambda entry: str(entry.name))
    ]


def _sizes(topic: str, brokers: dict[int, Any]) -> dict[tuple[int, int], int]:
    """Bytes on disk by broker and partition, from every broker that can be asked; librdkafka has no call for it."""
    sizes: dict[tuple[int, int], int] = {}
    for broker_id, broker in brokers.items():
        try:
            with Connection(broker.host, broker.port, timeout_s=5.0) as connection:
                version = connection.version(_DESCRIBE_LOG_DIRS, highest=4)
                if version is None:
                    continue
                request = connection.schema(_DESCRIBE_LOG_DIRS, version).DescribeLogDirsRequest(topics=None)
                for directory in connection.send(request).results:
                    for held in directory.topics:
                        if held.name == topic:
                            sizes |= {
                                (broker_id, int(p.partition_index)): int(p.partition_size) for p in held.partitions
                            }
        except (OSError, ProtocolError):
            continue
    return sizes


def print_description(description: dict[str, Any], *, all_settings: bool) -> None:
    partitions = description["partitions"]
    messages = sum(each["end_offset"] - each["first_offset"] for each in partitions)
    known = [each["size_bytes"] for each in partitions if each["size_bytes"] is not None]
    size = f", {human_bytes(sum(known))}" if known else ""
    print(f"{description['topic']}: {len(partitions)} partitions, up to {messages:,} messages{size}\n")
    columns = [("PARTITION", "right"), ("LEADER", "right"), ("REPLICAS", "left"), ("IN SYNC", "left")]
    columns += [("FIRST", "right"), ("END", "right"), ("SIZE", "right")]
    table(None, columns, [_partition_row(each) for each in partitions])
    chosen = [each for each in description["settings"] if all_settings or each["source"] != "default"]
    if chosen:
        print()
        rows = [(each["name"], each["value"], each["source"]) for each in chosen]
        table(None, [("SETTING", "left"), ("VALUE", "left"), ("FROM", "left")], rows)
    if not all_settings:
        print(f"\n{len(description['settings']) - len(chosen)} settings have their default; --all shows them")


def _partition_row(each: dict[str, Any]) -> tuple[Any, ...]:
    size = "?" if each["size_bytes"] is None else human_bytes(each["size_bytes"])
    replicas, in_sync = (",".join(map(str, each[name])) for name in ("replicas", "in_sync"))
    return each["partition"], each["leader"], replicas, in_sync, each["first_offset"], each["end_offset"], size
