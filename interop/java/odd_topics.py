"""Odd requests about topics: making, describing and deleting them and their records."""

from collections.abc import Iterator
from typing import Any
from uuid import UUID

from odd_case import BROKER_ID, COMPACTED, NOWHERE, TOPIC, Case, deletion
from tests.interop import raw_client


def _new_topic(name: str, partitions: int = 1, replicas: int = 1, **fields: Any) -> dict[str, Any]:
    configs = [{"name": key, "value": value} for key, value in fields.pop("configs", ())]
    assignments = [{"partition_index": at, "broker_ids": ids} for at, ids in fields.pop("assignments", ())]
    return {
        "name": name,
        "num_partitions": partitions,
        "replication_factor": replicas,
        "configs": configs,
        "assignments": assignments,
    }


def create_topics() -> Iterator[Case]:
    def one(what: str, *topics: dict[str, Any], **fields: Any) -> Case:
        body = {"topics": topics, "timeout": 10_000, **fields}
        return Case(f"CreateTopics: {what}", raw_client.CREATE_TOPICS, 7, body)

    for name in ("", ".", "..", "a b", "a/b", "\u00fc", "x" * 250, "a\x00b"):
        yield one(f"the name {name[:10]!r}", _new_topic(name))
    yield one("a name of 249 characters", _new_topic("x" * 249), validate_only=True)
    yield one("a name that differs in . and _ only", _new_topic("a.b_c"))
    yield one("the name of Kafka's metadata log", _new_topic("__cluster_metadata"), validate_only=True)
    yield one("the name of the log of groups", _new_topic("__consumer_offsets"), validate_only=True)
    yield one("a topic that exists", _new_topic(TOPIC))
    yield one("a topic that exists, and a bad setting", _new_topic(TOPIC, configs=[("nonsense", "1")]))
    yield one("a topic that exists, with 0 partitions", _new_topic(TOPIC, 0))
    yield one("a topic twice", _new_topic("odd-twice"), _new_topic("odd-twice"), _new_topic("odd-once"))
    yield one("a topic that exists, twice", _new_topic(TOPIC), _new_topic(TOPIC))
    yield one("no topics")
    for partitions in (0, -2):
        yield one(f"{partitions} partitions", _new_topic("odd-new", partitions))
    for replicas in (0, -2, 2, 32767):
        yield one(f"{replicas} replicas", _new_topic("odd-new", 1, replicas))
    yield one("0 partitions and 2 replicas", _new_topic("odd-new", 0, 2))
    yield one("the defaults", _new_topic("odd-defaults", -1, -1))
    for what, configs in {
        "an unknown setting": [("nonsense", "1")],
        "a setting that is no number": [("retention.ms", "soon")],
        "a setting that is out of bounds": [("retention.ms", "-2")],
        "a setting without a value": [("retention.ms", None)],
        "a setting without a value, an unknown one": [("nonsense", None)],
        "a setting twice": [("retention.ms", "1000"), ("retention.ms", "2000")],
        "an empty cleanup.policy": [("cleanup.policy", "")],
        "a cleanup.policy there is not": [("cleanup.policy", "burn")],
        "a number with spaces around it": [("retention.ms", " 1000 ")],
        "a boolean in capitals": [("unclean.leader.election.enable", "FALSE")],
        "a boolean that is none": [("unclean.leader.election.enable", "no")],
        "a number too large for its type": [("segment.bytes", "2147483648")],
        "min.compaction.lag.ms past max": [("min.compaction.lag.ms", "10"), ("max.compaction.lag.ms", "5")],
    }.items():
        yield one(what, _new_topic("odd-configured", configs=configs), validate_only=True)
    for what, assignments in {
        "to a broker there is not": [(0, [9])],
        "to a broker twice": [(0, [BROKER_ID, BROKER_ID])],
        "to no broker": [(0, [])],
        "with a gap": [(0, [BROKER_ID]), (2, [BROKER_ID])],
        "not from 0 on": [(1, [BROKER_ID])],
        "of a negative partition": [(-1, [BROKER_ID])],
        "of a partition twice": [(0, [BROKER_ID]), (0, [BROKER_ID])],
        "that is fine": [(0, [BROKER_ID]), (1, [BROKER_ID])],
    }.items():
        wanted = _new_topic("odd-assigned", -1, -1, assignments=assignments)
        yield one(f"an assignment {what}", wanted, validate_only=True)
    assigned = [(0, [BROKER_ID])]
    yield one("an assignment and a number of partitions", _new_topic("odd-assigned", 1, -1, assignments=assigned))
    yield one("an assignment and a replication factor", _new_topic("odd-assigned", -1, 1, assignments=assigned))


def create_partitions() -> Iterator[Case]:
    def one(what: str, *topics: tuple[str, int, Any]) -> Case:
        wanted = [
            {"name": name, "count": count, "assignments": lists and [{"broker_ids": ids} for ids in lists]}
            for name, count, lists in topics
        ]
        body = {"topics": wanted, "timeout": 10_000, "validate_only": True}
        return Case(f"CreatePartitions: {what}", raw_client.CREATE_PARTITIONS, 3, body)

    yield one("a topic there is not", ("nowhere", 3, None))
    yield one("a name that cannot be", ("a b", 3, None))
    yield one("an empty name", ("", 3, None))
    for count in (-1, 0, 1, 2):
        yield one(f"{count} in place of 2", (TOPIC, count, None))
    yield one("a topic twice", (TOPIC, 3, None), (TOPIC, 4, None))
    yield one("an assignment too short", (TOPIC, 4, [[BROKER_ID]]))
    yield one("an assignment too long", (TOPIC, 3, [[BROKER_ID], [BROKER_ID]]))
    yield one("an assignment to a broker there is not", (TOPIC, 3, [[9]]))
    yield one("an assignment to a broker twice", (TOPIC, 3, [[BROKER_ID, BROKER_ID]]))
    yield one("an assignment to no broker", (TOPIC, 3, [[]]))


def delete_records() -> Iterator[Case]:
    def one(what: str, topic: str, partition: int, offset: int) -> Case:
        return Case(f"DeleteRecords: {what}", raw_client.DELETE_RECORDS, 2, deletion(topic, partition, offset))

    yield one("past the end", TOPIC, 0, 8)
    yield one("before the start", TOPIC, 0, 1)
    yield one("at the start", TOPIC, 0, 2)
    yield one("a negative offset", TOPIC, 0, -2)
    yield one("a partition there is not", TOPIC, 7, 0)
    yield one("a negative partition", TOPIC, -1, 0)
    yield one("a topic there is not", "nowhere", 0, 0)
    yield one("a compacted topic", COMPACTED, 0, 0)
    yield one("an empty partition", TOPIC, 1, 0)
    yield one("past the end of an empty partition", TOPIC, 1, 1)


def log_dirs() -> Iterator[Case]:
    topics = [{"name": TOPIC, "partitions": [0, 7]}, {"name": "nowhere", "partitions": [0]}]
    for what, dirs in {
        "nothing": [],
        "to a directory there is not": [{"path": "/nowhere", "topics": topics}],
        "to no directory": [{"path": "", "topics": topics}],
    }.items():
        yield Case(f"AlterReplicaLogDirs: {what}", raw_client.ALTER_REPLICA_LOG_DIRS, 2, {"dirs": dirs})


def metadata(topic_id: UUID) -> Iterator[Case]:
    def one(what: str, version: int, *topics: dict[str, Any], create: bool = False) -> Case:
        body = {"topics": topics, "allow_auto_topic_creation": create}
        return Case(f"Metadata v{version}: {what}", raw_client.METADATA, version, body)

    for name in ("nowhere", "a b", "", "x" * 250):
        yield one(f"the name {name[:10]!r}", 12, {"name": name})
    for name in ("a b", "", "x" * 250):
        yield one(f"create {name[:10]!r}", 12, {"name": name}, create=True)
    yield one("a topic twice", 12, {"name": TOPIC}, {"name": TOPIC})
    yield one("neither name nor id", 12, {"name": None})
    yield one("an id there is not", 12, {"name": None, "topic_id": NOWHERE})
    yield one("a name and an id", 12, {"name": TOPIC, "topic_id": topic_id})
    yield one("an id, before there were ids", 11, {"name": None, "topic_id": topic_id})
    yield one("no name, before there were ids", 10, {"name": None})

    def pages(what: str, *names: str, **fields: Any) -> Case:
        topics = [{"name": name} for name in names]
        body = {"topics": topics, "response_partition_limit": 100, **fields}
        return Case(f"DescribeTopicPartitions: {what}", raw_client.DESCRIBE_TOPIC_PARTITIONS, 0, body)

    for name in ("nowhere", "a b", ""):
        yield pages(f"the name {name!r}", name)
    yield pages("a topic twice", TOPIC, TOPIC)
    yield pages("a limit of 0", TOPIC, response_partition_limit=0)
    yield pages("a negative limit", TOPIC, response_partition_limit=-1)
    yield pages("a cursor at a negative partition", TOPIC, cursor={"topic_name": TOPIC, "partition_index": -1})
    yield pages("a cursor past the topics", TOPIC, cursor={"topic_name": "zzz", "partition_index": 0})
    yield pages("a cursor past the partitions", TOPIC, cursor={"topic_name": TOPIC, "partition_index": 9})
    for kind in (0, 2, 9):
        yield Case(f"DescribeCluster: endpoint type {kind}", raw_client.DESCRIBE_CLUSTER, 1, {"endpoint_type": kind})
    for topic, at in (("nowhere", 0), (TOPIC, 9)):
        body = {"topics": [{"topic": topic, "partitions": [at]}]}
        yield Case(f"DescribeLogDirs: {topic}-{at}", raw_client.DESCRIBE_LOG_DIRS, 4, body)


def delete_topics(topic_id: UUID) -> Iterator[Case]:
    def one(what: str, *topics: dict[str, Any]) -> Case:
        wanted = [{"name": None, "topic_id": None, **topic} for topic in topics]
        return Case(f"DeleteTopics: {what}", raw_client.DELETE_TOPICS, 6, {"topics": wanted, "timeout": 10_000})

    for name in ("nowhere", "a b", ""):
        yield one(f"the name {name!r}", {"name": name})
    yield one("an id there is not", {"topic_id": NOWHERE})
    yield one("neither name nor id", {})
    yield one("a name and an id", {"name": TOPIC, "topic_id": topic_id})
    yield one("a topic twice by name", {"name": TOPIC}, {"name": TOPIC})
    yield one("a topic by name and by id", {"name": TOPIC}, {"topic_id": topic_id})
    yield one("a topic twice by id", {"topic_id": topic_id}, {"topic_id": topic_id})
    yield one("a name twice that is not there", {"name": "nowhere"}, {"name": "nowhere"})
    yield Case(
        "DeleteTopics v5: a topic twice",
        raw_client.DELETE_TOPICS,
        5,
        {"topic_names": [TOPIC, TOPIC], "timeout": 10_000},
    )
