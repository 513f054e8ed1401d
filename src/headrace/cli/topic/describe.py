"""The work of `headrace topic describe`."""

from typing import Any

from confluent_kafka.admin import ConfigResource, ConfigSource, OffsetSpec, ResourceType

from headrace.cli.admin import REQUEST_TIMEOUT_S, Admin
from headrace.cli.cluster.view import connected, stored
from headrace.cli.output import count, human_bytes, setting_text, table
from headrace.wire import Cluster, Replica

_PLAIN_COLUMNS = 7
"""Of the table of partitions, where nothing is replicated."""
_SOURCES = {
    ConfigSource.DYNAMIC_TOPIC_CONFIG: "topic",
    ConfigSource.DYNAMIC_BROKER_CONFIG: "broker",
    ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG: "broker",
    ConfigSource.STATIC_BROKER_CONFIG: "broker",
    ConfigSource.DEFAULT_CONFIG: "default",
}


def describe_topic(bootstrap: str, topic: str) -> dict[str, Any]:
    """Everything about a topic, ready for JSON."""
    broker = Admin(bootstrap)
    indexes = broker.partitions(topic)
    with connected(bootstrap) as cluster:
        found = cluster.metadata([topic]).get(topic)
        parts = {part.partition: part for part in found.partitions} if found is not None else {}
        logs = _logs(cluster, topic)
    led = [index for index in indexes if index in parts and parts[index].leader >= 0]
    first = broker.offsets(topic, led, OffsetSpec.earliest())
    end = broker.offsets(topic, led, OffsetSpec.latest())
    return {
        "topic": topic,
        "partitions": [
            {
                "partition": index,
                "leader": part.leader,
                "leader_epoch": part.leader_epoch,
                "replicas": list(part.replicas),
                "in_sync": list(part.isr),
                "offline": list(part.offline),
                "lag": {
                    str(replica): log.lag
                    for replica in part.replicas
                    if (log := logs.get((replica, index))) is not None
                },
                "first_offset": first.get(index),
                "end_offset": end.get(index),
                "size_bytes": leading.size_bytes if (leading := logs.get((part.leader, index))) else None,
            }
            for index, part in sorted(parts.items())
        ],
        "settings": _settings(broker, topic),
    }


def _logs(cluster: Cluster, topic: str) -> dict[tuple[int, int], Replica]:
    """What each broker that can be asked has of a topic, by broker and partition."""
    return {
        (broker_id, index): replica
        for broker_id, dirs in stored(cluster, cluster.describe()).items()
        for each in dirs or ()
        for (name, index), replica in each.replicas.items()
        if name == topic
    }


def _settings(broker: Admin, topic: str) -> list[dict[str, Any]]:
    resource = ConfigResource(ResourceType.TOPIC, topic)
    futures = broker.call(broker.admin.describe_configs, [resource], request_timeout=REQUEST_TIMEOUT_S)
    entries = broker.wait(next(iter(futures.values()))).values()
    return [
        {"name": entry.name, "value": entry.value, "source": _SOURCES.get(ConfigSource(entry.source), "unknown")}
        for entry in sorted(entries, key=lambda entry: str(entry.name))
    ]


def print_description(description: dict[str, Any], *, all_settings: bool) -> None:
    partitions = description["partitions"]
    messages = sum((each["end_offset"] or 0) - (each["first_offset"] or 0) for each in partitions)
    known = [each["size_bytes"] for each in partitions if each["size_bytes"] is not None]
    size = f", {human_bytes(sum(known))}" if known else ""
    print(f"{description['topic']}: {count(len(partitions), 'partition')}, up to {count(messages, 'message')}{size}\n")
    columns = [("PARTITION", "right"), ("LEADER", "right"), ("REPLICAS", "left"), ("IN SYNC", "left")]
    if any(len(each["replicas"]) > 1 for each in partitions):
        columns += [("BEHIND", "left")]
    columns += [("FIRST", "right"), ("END", "right"), ("SIZE", "right")]
    table(None, columns, [_partition_row(each, len(columns)) for each in partitions])
    chosen = [each for each in description["settings"] if all_settings or each["source"] != "default"]
    if chosen:
        print()
        rows = [(each["name"], setting_text(each["name"], each["value"]), each["source"]) for each in chosen]
        table(None, [("SETTING", "left"), ("VALUE", "left"), ("FROM", "left")], rows)
    if not all_settings:
        print(f"\n{len(description['settings']) - len(chosen)} settings have their default; --all shows them")


def _partition_row(each: dict[str, Any], columns: int) -> tuple[Any, ...]:
    size = "?" if each["size_bytes"] is None else human_bytes(each["size_bytes"])
    replicas = ",".join(f"{id_} (offline)" if id_ in each["offline"] else str(id_) for id_ in each["replicas"])
    leader = "none" if each["leader"] < 0 else each["leader"]
    offsets = ("?" if each[name] is None else each[name] for name in ("first_offset", "end_offset"))
    behind = (_behind(each),) if columns > _PLAIN_COLUMNS else ()
    return each["partition"], leader, replicas, ",".join(map(str, each["in_sync"])), *behind, *offsets, size


def _behind(each: dict[str, Any]) -> str:
    """Which replicas lack how many messages; a broker that cannot be asked is not counted as level."""
    lags = {id_: each["lag"].get(str(id_)) for id_ in each["replicas"]}
    parts = [f"{id_}: {'?' if lag is None else f'{lag:,}'}" for id_, lag in lags.items() if lag != 0]
    return ", ".join(parts) or "-"
