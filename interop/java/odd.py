"""Requests that no well-behaved client sends, and that a broker must answer all the same.

Each case is one request to a broker that holds what `prepare` makes. Names and ids that must not exist are the same on
every broker, so the answers of two brokers can be compared as they are.
"""

import time
from collections.abc import Iterator
from typing import Any, NamedTuple
from uuid import UUID

from kio.static.primitive import i64
from tests.interop import batches, raw_client

TOPIC, COMPACTED = "odd", "odd-compacted"
NOWHERE = UUID("00112233-4455-6677-8899-aabbccddeeff")
BROKER_ID = 1
TOPICS, BROKERS, LOGGERS, METRICS, GROUPS, NO_TYPE = 2, 4, 8, 16, 32, 99
SET, DELETE, APPEND, SUBTRACT, NO_OPERATION = 0, 1, 2, 3, 9
_NOBODY = {"transactional_id": None, "producer_id": -1, "producer_epoch": -1, "transaction_timeout": 1000}


class Case(NamedTuple):
    name: str
    key: int
    version: int
    body: dict[str, Any]


def prepare(bootstrap: str) -> UUID:
    """Three topics, one with seven records of which two are deleted; the id of that one."""
    topic_id = raw_client.create_topic(bootstrap, TOPIC, 2)
    raw_client.create_topic(bootstrap, COMPACTED, 1, {"cleanup.policy": "compact"})
    raw_client.create_topic(bootstrap, "a_b.c", 1)
    with raw_client.Connection(bootstrap) as connection:
        raw_client.produce(connection, TOPIC, batches.batch([b"%d" % n for n in range(7)]))
        connection.call(raw_client.DELETE_RECORDS, 2, _delete(TOPIC, 0, 2))
        # Kafka hands out producer ids a moment after it has started.
        while (
            connection.call(raw_client.INIT_PRODUCER_ID, 4, _NOBODY).error_code
            == raw_client.Error.coordinator_load_in_progress
        ):
            time.sleep(0.05)
    return topic_id


def cases(topic_id: UUID) -> Iterator[Case]:
    yield from _create_topics()
    yield from _create_partitions()
    yield from _delete_records()
    yield from _configs()
    yield from _alter_configs()
    yield from _security()
    yield from _quotas()
    yield from _log_dirs()
    yield from _metadata(topic_id)
    yield from _offsets()
    yield from _produce()
    yield from _fetch(topic_id)
    yield from _producer_ids()
    yield from _delete_topics(topic_id)


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


def _create_topics() -> Iterator[Case]:
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


def _create_partitions() -> Iterator[Case]:
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


def _delete(topic: str, partition: int, offset: int) -> dict[str, Any]:
    wanted = [{"partition_index": partition, "offset": offset}]
    return {"topics": [{"name": topic, "partitions": wanted}], "timeout": 10_000}


def _delete_records() -> Iterator[Case]:
    def one(what: str, topic: str, partition: int, offset: int) -> Case:
        return Case(f"DeleteRecords: {what}", raw_client.DELETE_RECORDS, 2, _delete(topic, partition, offset))

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


def _configs() -> Iterator[Case]:
    def one(what: str, *resources: tuple[int, str], keys: Any = ("retention.ms", "nonsense")) -> Case:
        wanted = [
            {"resource_type": kind, "resource_name": name, "configuration_keys": keys} for kind, name in resources
        ]
        return Case(f"DescribeConfigs: {what}", raw_client.DESCRIBE_CONFIGS, 4, {"resources": wanted})

    yield one("known and unknown settings", (TOPICS, TOPIC))
    yield one("no settings", (TOPICS, TOPIC), keys=())
    yield one("a topic there is not", (TOPICS, "nowhere"))
    yield one("a name that cannot be", (TOPICS, "a b"))
    yield one("an empty name", (TOPICS, ""))
    yield one("a topic twice", (TOPICS, TOPIC), (TOPICS, TOPIC))
    yield one("another broker", (BROKERS, "7"))
    yield one("a broker that is no number", (BROKERS, "one"))
    yield one("all brokers", (BROKERS, ""))
    yield one("a type there is not", (NO_TYPE, "x"))
    yield one("type 0", (0, "x"))
    yield one("loggers of another broker", (LOGGERS, "7"))
    yield one("the root logger", (LOGGERS, str(BROKER_ID)), keys=("root",))
    yield one("metrics", (METRICS, "m"))
    yield one("metrics without a name", (METRICS, ""))
    yield one("an empty group", (GROUPS, ""))


def _alter_configs() -> Iterator[Case]:
    def some(what: str, kind: int, name: str, *changes: tuple[str, int, str | None], twice: bool = False) -> Case:
        configs = [{"name": key, "config_operation": operation, "value": value} for key, operation, value in changes]
        resource = {"resource_type": kind, "resource_name": name, "configs": configs}
        body = {"resources": [resource] * (1 + twice), "validate_only": True}
        return Case(f"IncrementalAlterConfigs: {what}", raw_client.INCREMENTAL_ALTER_CONFIGS, 1, body)

    def all_of(what: str, kind: int, name: str, *pairs: tuple[str, str | None], twice: bool = False) -> Case:
        configs = [{"name": key, "value": value} for key, value in pairs]
        resource = {"resource_type": kind, "resource_name": name, "configs": configs}
        body = {"resources": [resource] * (1 + twice), "validate_only": True}
        return Case(f"AlterConfigs: {what}", raw_client.ALTER_CONFIGS, 2, body)

    good = ("retention.ms", SET, "1000")
    yield some("nothing to change", TOPICS, TOPIC)
    yield some("a topic there is not", TOPICS, "nowhere", good)
    yield some("a name that cannot be", TOPICS, "a b", good)
    yield some("an empty name", TOPICS, "", good)
    yield some("a topic twice", TOPICS, TOPIC, good, twice=True)
    yield some("a setting twice", TOPICS, TOPIC, good, good)
    yield some("an unknown setting", TOPICS, TOPIC, ("nonsense", SET, "1"))
    yield some("an invalid value", TOPICS, TOPIC, ("retention.ms", SET, "soon"))
    yield some("no value to set", TOPICS, TOPIC, ("retention.ms", SET, None))
    yield some("no value to append", TOPICS, TOPIC, ("cleanup.policy", APPEND, None))
    yield some("an operation there is not", TOPICS, TOPIC, ("retention.ms", NO_OPERATION, "1"))
    yield some("delete what is not set", TOPICS, TOPIC, ("retention.ms", DELETE, None))
    yield some("delete an unknown setting", TOPICS, TOPIC, ("nonsense", DELETE, None))
    yield some("delete with a value", TOPICS, TOPIC, ("retention.ms", DELETE, "1"))
    yield some("append to what is no list", TOPICS, TOPIC, ("retention.ms", APPEND, "1"))
    yield some("append what is no policy", TOPICS, TOPIC, ("cleanup.policy", APPEND, "burn"))
    yield some("append what is there", TOPICS, TOPIC, ("cleanup.policy", APPEND, "delete"))
    yield some("subtract what is not there", TOPICS, TOPIC, ("cleanup.policy", SUBTRACT, "compact"))
    yield some("subtract all", TOPICS, TOPIC, ("cleanup.policy", SUBTRACT, "delete"))
    yield some("another broker", BROKERS, "7", ("log.retention.ms", SET, "1000"))
    yield some("a broker that is no number", BROKERS, "one", ("log.retention.ms", SET, "1000"))
    yield some("a setting of a broker that needs a restart", BROKERS, str(BROKER_ID), ("broker.id", SET, "3"))
    yield some("an unknown setting of a broker", BROKERS, str(BROKER_ID), ("nonsense", SET, "3"))
    yield some("an invalid setting of a broker", BROKERS, str(BROKER_ID), ("log.retention.ms", SET, "soon"))
    yield some("a type there is not", NO_TYPE, "x", good)
    yield some("an empty group", GROUPS, "", good)
    for name, text in {
        "preallocate": "true",
        "local.retention.ms": "1000",
        "local.retention.bytes": "-3",
        "leader.replication.throttled.replicas": "0:1,1:1",
        "follower.replication.throttled.replicas": "all",
        "remote.log.copy.disable": "true",
        "remote.storage.enable": "true",
        "message.format.version": "3.0",
    }.items():
        yield some(f"{name}={text}", TOPICS, TOPIC, (name, SET, text))
    for name, text in {
        "num.io.threads": "9",
        "log.cleaner.threads": "2",
        "replica.alter.log.dirs.io.max.bytes.per.second": "1000",
    }.items():
        yield some(f"{name}={text}", BROKERS, str(BROKER_ID), (name, SET, text))
    yield some("delete an unknown setting of a broker", BROKERS, str(BROKER_ID), ("nonsense", DELETE, None))
    yield some("delete an unknown setting of a group", GROUPS, "g", ("nonsense", DELETE, None))
    yield some("an unknown setting of a group", GROUPS, "g", ("nonsense", SET, "1"))
    yield some("a logger there is not", LOGGERS, str(BROKER_ID), ("nonsense", SET, "INFO"))
    yield some("the level of a logger", LOGGERS, str(BROKER_ID), ("root", SET, "INFO"))
    yield some("a level there is not", LOGGERS, str(BROKER_ID), ("root", SET, "LOUD"))
    yield some("delete the level of the root logger", LOGGERS, str(BROKER_ID), ("root", DELETE, None))
    yield some("append to a level", LOGGERS, str(BROKER_ID), ("root", APPEND, "INFO"))
    yield some("loggers of another broker", LOGGERS, "7", ("root", SET, "INFO"))
    yield some("metrics of clients", METRICS, "m", ("interval.ms", SET, "1000"))
    yield some("delete of metrics of clients", METRICS, "m", ("interval.ms", DELETE, None))
    yield all_of("the level of a logger", LOGGERS, str(BROKER_ID), ("root", "INFO"))
    yield all_of("a topic there is not", TOPICS, "nowhere", ("retention.ms", "1000"))
    yield all_of("a topic twice", TOPICS, TOPIC, ("retention.ms", "1000"), twice=True)
    yield all_of("a setting twice", TOPICS, TOPIC, ("retention.ms", "1000"), ("retention.ms", "2000"))
    yield all_of("an unknown setting", TOPICS, TOPIC, ("nonsense", "1"))
    yield all_of("an invalid value", TOPICS, TOPIC, ("retention.ms", "soon"))
    yield all_of("no value", TOPICS, TOPIC, ("retention.ms", None))
    yield all_of("another broker", BROKERS, "7", ("log.retention.ms", "1000"))
    yield all_of("a type there is not", NO_TYPE, "x", ("retention.ms", "1000"))


def _security() -> Iterator[Case]:
    """On a broker without access control and users."""
    anything = {"resource_type_filter": 1, "pattern_type_filter": 1, "operation": 1, "permission_type": 1}
    who = {"principal": "User:alice", "host": "*", "operation": 3, "permission_type": 3}
    acl = {**who, "resource_type": 2, "resource_name": TOPIC, "resource_pattern_type": 3}
    yield Case("DescribeAcls: all", raw_client.DESCRIBE_ACLS, 3, anything)
    yield Case("CreateAcls: two", raw_client.CREATE_ACLS, 3, {"creations": [acl, acl]})
    yield Case("CreateAcls: none", raw_client.CREATE_ACLS, 3, {"creations": []})
    yield Case("DeleteAcls: all", raw_client.DELETE_ACLS, 3, {"filters": [anything]})
    yield Case("DeleteAcls: none", raw_client.DELETE_ACLS, 3, {"filters": []})
    for what, names in {"all": None, "no": (), "unknown": ("alice",), "the same": ("alice", "alice")}.items():
        users = None if names is None else [{"name": name} for name in names]
        body = {"users": users}
        yield Case(f"DescribeUserScramCredentials: {what} users", raw_client.DESCRIBE_USER_SCRAM_CREDENTIALS, 0, body)
    gone = {"name": "alice", "mechanism": 1}
    made = {**gone, "iterations": 4096, "salt": b"salt", "salted_password": b"password"}
    for what, deletions, upsertions in (
        ("nothing", [], []),
        ("delete what is not there", [gone], []),
        ("a mechanism there is not", [{**gone, "mechanism": 9}], []),
        ("a user twice", [gone], [made]),
        ("a password", [], [made]),
    ):
        body = {"deletions": deletions, "upsertions": upsertions}
        yield Case(f"AlterUserScramCredentials: {what}", raw_client.ALTER_USER_SCRAM_CREDENTIALS, 0, body)
    yield Case("DescribeDelegationToken: all", raw_client.DESCRIBE_DELEGATION_TOKEN, 3, {"owners": None})
    yield Case("SaslHandshake: PLAIN", raw_client.SASL_HANDSHAKE, 1, {"mechanism": "PLAIN"})
    yield Case("SaslAuthenticate: a password", raw_client.SASL_AUTHENTICATE, 2, {"auth_bytes": b"\0alice\0secret"})
    yield Case("UnregisterBroker: a broker there is not", raw_client.UNREGISTER_BROKER, 0, {"broker_id": 7})


def _quotas() -> Iterator[Case]:
    alice = {"entity_type": "user", "match_type": 0, "match": "alice"}
    app = {"entity_type": "client-id", "match_type": 2, "match": None}
    for what, components in {
        "all": [],
        "of a user": [alice],
        "of what has none": [{**alice, "entity_type": "dog"}],
        "of a type without a name": [{**alice, "entity_type": ""}],
        "a match there is not": [{**alice, "match_type": 7}],
        "an exact match of no name": [{**alice, "match": None}],
        "the default with a name": [{**alice, "match_type": 1}],
        "any name with a name": [{**alice, "match_type": 2}],
        "a type twice": [alice, alice],
        "an address and a user": [alice, {**app, "entity_type": "ip"}],
        "a user and any client": [alice, app],
    }.items():
        yield Case(f"DescribeClientQuotas: {what}", raw_client.DESCRIBE_CLIENT_QUOTAS, 1, {"components": components})
    user, client, address = ("user", "alice"), ("client-id", "app"), ("ip", "127.0.0.1")
    rate, connections = "producer_byte_rate", "connection_creation_rate"
    for what, pairs, key, value in (
        ("remove what is not there", [user], rate, None),
        ("remove a key there is not", [user], "nonsense", None),
        ("a key there is not", [user], "nonsense", 1.0),
        ("a rate", [user], rate, 1.0),
        ("a rate of a user's client", [user, client], rate, 1.0),
        ("a rate of defaults", [("user", None), ("client-id", None)], "request_percentage", 0.5),
        ("no rate", [user], rate, 0.0),
        ("a negative rate", [user], rate, -1.0),
        ("part of a byte", [user], rate, 1.5),
        ("part of a change", [user], "controller_mutation_rate", 0.5),
        ("a rate that is too large", [user], rate, 1e30),
        ("connections of a user", [user], connections, 1.0),
        ("connections of an address", [address], connections, 1.0),
        ("part of a connection", [address], connections, 1.5),
        ("bytes of an address", [address], rate, 1.0),
        ("an address and a user", [address, user], connections, 1.0),
        ("no entity", [], rate, 1.0),
        ("an empty name", [("user", "")], rate, 1.0),
        ("a type there is not", [("dog", "rex")], rate, 1.0),
    ):
        entity = [{"entity_type": kind, "entity_name": name} for kind, name in pairs]
        op = {"key": key, "value": value or 0.0, "remove": value is None}
        body = {"entries": [{"entity": entity, "ops": [op]}], "validate_only": True}
        yield Case(f"AlterClientQuotas: {what}", raw_client.ALTER_CLIENT_QUOTAS, 1, body)
        twice = {"entries": [{"entity": entity, "ops": [op, op]}], "validate_only": True}
        if what == "a rate":
            yield Case("AlterClientQuotas: a key twice", raw_client.ALTER_CLIENT_QUOTAS, 1, twice)


def _log_dirs() -> Iterator[Case]:
    topics = [{"name": TOPIC, "partitions": [0, 7]}, {"name": "nowhere", "partitions": [0]}]
    for what, dirs in {
        "nothing": [],
        "to a directory there is not": [{"path": "/nowhere", "topics": topics}],
        "to no directory": [{"path": "", "topics": topics}],
    }.items():
        yield Case(f"AlterReplicaLogDirs: {what}", raw_client.ALTER_REPLICA_LOG_DIRS, 2, {"dirs": dirs})


def _metadata(topic_id: UUID) -> Iterator[Case]:
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


def _offsets() -> Iterator[Case]:
    def one(what: str, topic: str, *partitions: tuple[int, int], version: int = 10, **fields: Any) -> Case:
        wanted = [
            {"partition_index": at, "timestamp": i64(when), "current_leader_epoch": fields.get("epoch", -1)}
            for at, when in partitions
        ]
        body = {"replica_id": fields.get("replica_id", -1), "topics": [{"name": topic, "partitions": wanted}]}
        return Case(f"ListOffsets: {what}", raw_client.LIST_OFFSETS, version, body)

    yield one("a topic there is not", "nowhere", (0, -1))
    yield one("a partition there is not", TOPIC, (9, -1))
    yield one("a negative partition", TOPIC, (-1, -1))
    yield one("a partition twice", TOPIC, (0, -1), (0, -2))
    yield one("a special time there is not", TOPIC, (0, -9))
    yield one("as a replica", TOPIC, (0, -1), replica_id=5)
    yield one("as the debugging consumer", TOPIC, (0, -1), replica_id=-2)
    yield one("an epoch that is ahead", TOPIC, (0, -1), epoch=5)
    for special in (-1, -2, -3, 0):
        yield one(f"time {special} of an empty partition", TOPIC, (1, special))
    for version, special in ((6, -3), (7, -4), (8, -5)):
        yield one(f"special time {special} in version {version}", TOPIC, (0, special), version=version)

    def epochs(what: str, topic: str, at: int, epoch: int, current: int = -1) -> Case:
        wanted = [{"partition": at, "leader_epoch": epoch, "current_leader_epoch": current}]
        body = {"replica_id": -1, "topics": [{"topic": topic, "partitions": wanted}]}
        return Case(f"OffsetForLeaderEpoch: {what}", raw_client.OFFSET_FOR_LEADER_EPOCH, 4, body)

    yield epochs("a topic there is not", "nowhere", 0, 0)
    yield epochs("a partition there is not", TOPIC, 9, 0)
    yield epochs("a later epoch", TOPIC, 0, 5)
    yield epochs("epoch -1", TOPIC, 0, -1)
    yield epochs("a current epoch that is ahead", TOPIC, 0, 0, 5)
    yield epochs("an epoch of an empty log", TOPIC, 1, 0)


def _produce() -> Iterator[Case]:
    good = batches.batch([b"x"])

    def one(what: str, records: bytes | None = good, topic: str = TOPIC, at: int = 1, **fields: Any) -> Case:
        body = raw_client.produce_body(topic, records, partition=at, acks=fields.pop("acks", -1)) | fields
        return Case(f"Produce: {what}", raw_client.PRODUCE, 9, body)

    for acks in (2, -2, 32767):
        yield one(f"acks={acks}", acks=acks)
    yield one("a topic there is not", topic="nowhere")
    yield one("a name that cannot be", topic="a b")
    yield one("a partition there is not", at=9)
    yield one("a negative partition", at=-1)
    yield one("no records", None)
    yield one("empty records", b"")
    yield one("a batch without records", batches.batch([]))
    yield one("a wrong checksum", batches.batch([b"x"], crc=1))
    yield one("an unknown codec", batches.batch([b"x"], attributes=7))
    yield one("log-append time", batches.batch([b"x"], attributes=batches.LOG_APPEND_TIME))
    yield one("a control batch", batches.batch([b"x"], attributes=0x20))
    yield one("a batch cut short", good[:-1])
    yield one("a wrong count", batches.batch([b"x"], count=2))
    yield one("a wrong last offset", batches.batch([b"x"], last_offset_delta=5))
    yield one("two batches", good + good)
    yield one("too large", batches.batch([b"x" * 1_100_000]))
    yield one("no key on a compacted topic", topic=COMPACTED, at=0)
    yield one("an idempotent batch without an epoch", batches.batch([b"x"], producer_id=5, base_sequence=0))
    yield one("an idempotent batch without a sequence", batches.batch([b"x"], producer_id=5, producer_epoch=0))
    yield one("a timestamp in two hours", batches.batch([b"x"], timestamp_ms=batches.now_ms() + 7_200_000))
    body = raw_client.produce_body(TOPIC, good, partition=1)
    body["topic_data"][0]["partition_data"] *= 2
    yield Case("Produce: a partition twice", raw_client.PRODUCE, 9, body)
    body = raw_client.produce_body("", good, topic_id=NOWHERE)
    yield Case("Produce v13: an id there is not", raw_client.PRODUCE, 13, body)


def _fetch(topic_id: UUID) -> Iterator[Case]:
    def one(what: str, topic: str | UUID = TOPIC, offset: int = 2, **fields: Any) -> Case:
        body = raw_client.fetch_body(topic, offset, **fields)
        return Case(f"Fetch: {what}", raw_client.FETCH, 12 if isinstance(topic, str) else 13, body)

    for offset in (-1, 1, 7, 8):
        yield one(f"offset {offset} of 2 to 7", offset=offset)
    yield one("a topic there is not", "nowhere")
    yield one("an id there is not", NOWHERE)
    yield one("a partition there is not", topic_id, partition=9)
    yield one("a negative partition", partition=-1)
    yield one("as a replica there is not", replica_id=5)
    yield one("max_bytes of 0", max_bytes=0)
    yield one("a negative max_bytes", max_bytes=-1)
    yield one("a negative partition_max_bytes", partition_max_bytes=-1)
    yield one("an isolation level there is not", isolation_level=9)
    for what, epoch in (("an epoch that is ahead", 5), ("an epoch of -2", -2)):
        body = raw_client.fetch_body(TOPIC, 2)
        body["topics"][0]["partitions"][0]["current_leader_epoch"] = epoch
        yield Case(f"Fetch: {what}", raw_client.FETCH, 12, body)
    for what, session_id, session_epoch in (("a session there is not", 77, 3), ("a session to open with an id", 77, 0)):
        body = raw_client.fetch_body(TOPIC, 2, session_id=session_id, session_epoch=session_epoch)
        yield Case(f"Fetch: {what}", raw_client.FETCH, 12, body)


def _producer_ids() -> Iterator[Case]:
    def one(what: str, **fields: Any) -> Case:
        return Case(f"InitProducerId: {what}", raw_client.INIT_PRODUCER_ID, 4, _NOBODY | fields)

    yield one("an empty transactional id", transactional_id="")
    yield one("an id without an epoch", producer_id=5)
    yield one("an epoch without an id", producer_epoch=5)
    yield one("a negative id", producer_id=-2, producer_epoch=0)
    yield one("an id that nobody has", producer_id=123456, producer_epoch=0)
    yield one("a timeout of 0", transaction_timeout=0)
    yield one("a negative timeout", transaction_timeout=-1)
    yield Case("FindCoordinator: a key type there is not", 10, 4, {"key_type": 9, "coordinator_keys": ["g"]})
    yield Case("FindCoordinator: no keys", 10, 4, {"key_type": 0, "coordinator_keys": []})
    yield Case("ApiVersions: an empty name of the client", 18, 3, {"client_software_name": ""})


def _delete_topics(topic_id: UUID) -> Iterator[Case]:
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
