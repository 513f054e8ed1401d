"""The content of a broker or cluster in words of its clients, as plain JSON.

`take` is run twice: by the version that wrote a data set, on a copy of it a day later (`write/`), and by the
version under test. Both must find the same. So it uses only calls that every version since 0.1 has. Bytes are text in
which each character is one byte (Latin-1); null stays null.
"""

import json
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import boto3
from confluent_kafka import Consumer, KafkaError, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType

from headrace import Client
from headrace.wire import Cluster
from tests.interop import batches, raw_client
from tests.waiting import until

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
PATIENCE_S = 60.0
_EARLIEST = -2
_READ_COMMITTED = 1
_OPEN = ("Ongoing", "PrepareCommit", "PrepareAbort", "PrepareEpochFence")
_CONTROL = 0x20
_NOT_SET_BY_ANYBODY = (4, 5)
"""Where a setting comes from: the broker's own configuration, or its default."""


def take(bootstrap: str, http_url: str) -> dict[str, Any]:
    """Everything there is, once nothing is in flight and no transaction open."""
    with Cluster(bootstrap) as cluster, Client(bootstrap, http=http_url) as client:
        admin = AdminClient({"bootstrap.servers": bootstrap})
        queues = sorted(each.name for each in client.queues())
        await_settled(cluster, client)
        names = sorted(name for name, topic in cluster.metadata().items() if not topic.is_internal)
        return {
            "cluster id": cluster.describe().cluster_id,
            "settings": broker_settings(admin, cluster),
            "topics": topics(admin, bootstrap, cluster, [name for name in names if name not in queues]),
            "groups": groups(admin, bootstrap),
            "share groups": {name: share_group(cluster, name) for name in sorted(cluster.share_groups())},
            "transactions": {name: transaction(cluster, name) for name in sorted(cluster.list_transactions())},
            "queues": {name: queue(client, name) for name in queues},
            "sqs": sqs_queues(http_url),
        }


def text(data: bytes | None) -> str | None:
    return None if data is None else data.decode("latin-1")


def await_settled(cluster: Cluster, client: Client) -> None:
    """Wait until what time ends has ended: open transactions, leases, and moves of messages."""
    until(lambda: not cluster.list_transactions(_OPEN), lambda: f"open: {cluster.list_transactions(_OPEN)}")
    for each in client.queues():
        one = client.queue(each.name)
        until(lambda one=one: all(move.look().is_over for move in one.redrives()), f"moves of {each.name}")  # type: ignore[misc]
        until(
            lambda one=one: all(m.found.state in ("available", "delayed") for m in one.peek(1000)),  # type: ignore[misc]
            f"messages of {each.name} are in flight",
        )


# -- topics


def topics(admin: AdminClient, bootstrap: str, cluster: Cluster, names: list[str]) -> dict[str, Any]:
    described = cluster.metadata(names)
    partitions = [(name, number) for name in names for number in range(len(described[name].partitions))]
    starts = cluster.list_offsets(dict.fromkeys(partitions, _EARLIEST))
    ends = cluster.list_offsets(partitions)
    committed = committed_offsets(bootstrap, partitions)
    found: dict[str, Any] = {
        name: {
            "id": str(described[name].topic_id),
            "settings": _settings(admin, ConfigResource(ResourceType.TOPIC, name)),
            "replicas": [sorted(part.replicas) for part in described[name].partitions],
            "partitions": [],
        }
        for name in names
    }
    for at in partitions:
        start, end = starts[at].offset, ends[at].offset
        stored = list(stored_batches(cluster, *at, start, end))
        found[at[0]]["partitions"].append({"start": start, "end": end, "batches": stored, "committed": committed[at]})
    return found


def stored_batches(cluster: Cluster, name: str, number: int, start: int, end: int) -> Iterator[dict[str, Any]]:
    """Every batch as it is stored, but markers: some are written when a data set is opened, at that time."""
    offset = start
    while offset < end:
        found = batches.parse(bytes(cluster.fetch(name, number, offset).records))
        if not found:
            return
        for batch in found:
            offset = batch.base_offset + batch.last_offset_delta + 1
            if not batch.attributes & _CONTROL:
                yield {
                    "codec": CODECS[batch.codec],
                    "producer": [batch.producer_id, batch.producer_epoch, batch.base_sequence],
                    "records": [_record(record) for record in batch.records if record.offset >= start],
                }


def _record(record: batches.Record) -> list[Any]:
    headers = [[name, text(value)] for name, value in record.headers]
    return [record.offset, record.timestamp_ms, text(record.key), text(record.value), headers]


def committed_offsets(bootstrap: str, partitions: list[tuple[str, int]]) -> dict[tuple[str, int], list[int]]:
    """The offsets that a consumer with `read_committed` gets from each partition."""
    settings = {
        "bootstrap.servers": bootstrap,
        "group.id": "unused",
        "enable.auto.commit": False,
        "isolation.level": "read_committed",
        "enable.partition.eof": True,
        "auto.offset.reset": "earliest",
        "fetch.wait.max.ms": 10,
    }
    found: dict[tuple[str, int], list[int]] = {at: [] for at in partitions}
    ended: set[tuple[str, int]] = set()
    with closing(Consumer(settings)) as consumer:
        consumer.assign([TopicPartition(*at, _EARLIEST) for at in partitions])
        while len(ended) < len(partitions):
            message = consumer.poll(PATIENCE_S)
            assert message is not None, f"only {ended} have ended"
            at, error = (str(message.topic()), int(message.partition() or 0)), message.error()
            if error is not None:
                assert error.code() == KafkaError._PARTITION_EOF, error
                ended.add(at)
            else:
                found[at].append(int(message.offset() or 0))
    return found


# -- settings, groups, transactions


def broker_settings(admin: AdminClient, cluster: Cluster) -> dict[str, dict[str, str]]:
    """What was changed on running brokers."""
    brokers = sorted(str(each) for each in cluster.describe().brokers)
    return {each: _settings(admin, ConfigResource(ResourceType.BROKER, each)) for each in brokers}


def _settings(admin: AdminClient, resource: ConfigResource) -> dict[str, str]:
    (done,) = admin.describe_configs([resource]).values()
    entries = done.result(PATIENCE_S).values()
    return {each.name: each.value for each in entries if int(each.source) not in _NOT_SET_BY_ANYBODY}


def groups(admin: AdminClient, bootstrap: str) -> dict[str, Any]:
    """Classic groups and consumer groups, but those that have nothing: no member and no offset. They go in time."""
    listed = admin.list_consumer_groups().result(PATIENCE_S).valid
    names = sorted(each.group_id for each in listed if each.type.name in ("CLASSIC", "CONSUMER"))
    found = {name: group(admin, bootstrap, name) for name in names}
    return {name: each for name, each in found.items() if each["members"] or each["offsets"]}


def group(admin: AdminClient, bootstrap: str, name: str) -> dict[str, Any]:
    found = admin.describe_consumer_groups([name])[name].result(PATIENCE_S)
    return {
        "type": found.type.name,
        "state": found.state.name,
        "settings": _settings(admin, ConfigResource(ResourceType.GROUP, name)),
        "members": [
            {
                "id": member.member_id,
                "instance": member.group_instance_id,
                "client": member.client_id,
                "partitions": sorted([each.topic, each.partition] for each in member.assignment.topic_partitions),
            }
            for member in sorted(found.members, key=lambda each: each.member_id)
        ],
        "offsets": until(lambda: _positions(bootstrap, name), f"the coordinator of {name}")[0],
    }


def _positions(bootstrap: str, name: str) -> tuple[list[list[Any]], ...]:
    """The committed offsets of a group, as its coordinator tells them; empty if that is not to be found now.

    Asked for without confluent-kafka, which reads metadata past its end.
    """
    for address in bootstrap.split(","):
        with raw_client.Connection(address) as connection:
            answer = connection.call(raw_client.OFFSET_FETCH, 7, group_id=name, topics=None)
        if answer.error_code is raw_client.Error.none:
            found = [[topic.name, *_position(each)] for topic in answer.topics for each in topic.partitions]
            return (sorted(found, key=lambda each: each[:2]),)
    return ()


def _position(found: Any) -> list[Any]:
    """As confluent-kafka shows it, which ends metadata with a null byte when it commits."""
    epoch, metadata = found.committed_leader_epoch, found.metadata.removesuffix("\0")
    return [found.partition_index, found.committed_offset, None if epoch < 0 else epoch, metadata or None]


def share_group(cluster: Cluster, name: str) -> dict[str, Any]:
    found = cluster.describe_share_group(name)
    assert found is not None
    return {"state": found.state, "members": sorted(member.member_id for member in found.members)}


def transaction(cluster: Cluster, name: str) -> dict[str, Any]:
    found = cluster.describe_transaction(name)
    assert found is not None
    return {"state": found.state, "producer id": found.producer.producer_id, "timeout": found.timeout_ms}


# -- queues


def queue(client: Client, name: str) -> dict[str, Any]:
    """Its settings, and its messages in the order of sending."""
    one = client.queue(name)
    return {"settings": one.describe().settings, "messages": [_message(each.found) for each in one.peek(1000)]}


FAILURE = {
    "headrace-reason",
    "headrace-exception-type",
    "headrace-exception-message",
    "headrace-exception-file",
    "headrace-exception-line",
    "headrace-attempts",
}
"""Headers that dead letters have since 0.2: a message of 0.1 gets them if it becomes one after the upgrade."""


def _message(found: Any) -> dict[str, Any]:
    """Without what depends on when the data set was opened: a message may have become a dead letter by that."""
    origin = json.loads(found.origin) if found.origin else None
    if origin is not None:
        origin = {name: origin.get(name) for name in ("queue", "offset", "reason", "attempts")}
    return {
        "id": found.id,
        "offset": found.offset,
        "body": text(found.body),
        "state": found.state,
        "attempt": found.attempt,
        "priority": found.priority,
        "group": found.group,
        "due": found.until_at_ms,
        "headers": [[name, text(value)] for name, value in found.headers if origin is None or name not in FAILURE],
        "origin": origin,
    }


def sqs_client(http_url: str) -> Any:
    return boto3.client(
        "sqs", endpoint_url=http_url, region_name="us-east-1", aws_access_key_id="any", aws_secret_access_key="any"
    )


def sqs_queues(http_url: str) -> dict[str, Any]:
    """What the SQS API says of each queue."""
    sqs = sqs_client(http_url)
    found = {}
    for url in sqs.list_queues().get("QueueUrls", ()):
        attributes = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["All"])["Attributes"]
        tags = sqs.list_queue_tags(QueueUrl=url).get("Tags", {})
        kept = {name: value for name, value in attributes.items() if not name.startswith("Approximate")}
        found[url.rpartition("/")[2]] = {"attributes": kept, "tags": tags}
    return found


# -- comparing


def differences(expected: Any, found: Any, at: str = "") -> list[str]:
    """What was expected and is not there. A later version may say more of a thing than the one that wrote it."""
    if isinstance(expected, dict) and isinstance(found, dict):
        lost = [f"{at}/{name} is missing" for name in expected if name not in found]
        both = (differences(value, found[name], f"{at}/{name}") for name, value in expected.items() if name in found)
        return [*lost, *(each for some in both for each in some)]
    if isinstance(expected, list) and isinstance(found, list) and len(expected) == len(found):
        pairs = enumerate(zip(expected, found, strict=True))
        return [each for number, (one, other) in pairs for each in differences(one, other, f"{at}/{number}")]
    return [] if expected == found else [f"{at} was {expected!r} and is {found!r}"]
