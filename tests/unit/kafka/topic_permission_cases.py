"""Requests that need permissions: APIs about topics, records and the cluster."""

from collections.abc import Callable
from uuid import UUID

from headrace.kafka import permissions as p
from headrace.kafka.config_entries import ConfigResourceType as ConfigType
from headrace.model.errors import TopicNotAuthorized
from headrace.model.queue_state import StatePosition
from headrace.replication.calls import encode_call
from headrace.replication.link_calls import AskQueueState
from headrace.replication.peers import BROKER_SOFTWARE

from .permission_case import CLUSTER_DENIED, TOPIC_DENIED, Case, Fields
from .secured import GROUP, NEW_TOPIC, TOPIC, TRANSACTIONAL_ID, Secured

_ASK_STATE = AskQueueState(TOPIC, UUID(int=1), StatePosition())


def _topic(scene: Secured, version: int, ids_from: int) -> Fields:
    return {"topic_id": scene.topic_id} if version >= ids_from else {"name": TOPIC, "topic": TOPIC}


def _produce(scene: Secured, version: int, transactional_id: str | None = None) -> Fields:
    data = {**_topic(scene, version, 13), "partition_data": [{"index": 0, "records": scene.batch()}]}
    return {"acks": 1, "timeout": 1000, "transactional_id": transactional_id, "topic_data": [data]}


def _fetch(scene: Secured, version: int, replica_id: int = -1) -> Fields:
    partition = {"partition": 0, "partition_max_bytes": 1000, "current_leader_epoch": -1, "last_fetched_epoch": -1}
    return {
        "replica_id": replica_id,
        "replica_state": {"replica_id": replica_id, "replica_epoch": -1},
        "max_bytes": 1000,
        "session_epoch": -1,
        "topics": [{**_topic(scene, version, 13), "partitions": [partition]}],
    }


def _metadata(scene: Secured, version: int) -> Fields:
    return {"topics": [{"name": TOPIC}], "allow_auto_topic_creation": False}


def _metadata_by_id(scene: Secured, version: int) -> Fields:
    return {"topics": [{"name": None, "topic_id": scene.topic_id}]}


def _delete_topics(scene: Secured, version: int) -> Fields:
    return {"topics": [{"name": TOPIC}], "topic_names": [TOPIC]}


def _configs(kind: ConfigType, name: str) -> Callable[[Secured, int], Fields]:
    return lambda scene, version: {
        "resources": [{"resource_type": int(kind), "resource_name": name, "configuration_keys": None}]
    }


def _alter(kind: ConfigType, name: str, *settings: tuple[str, str]) -> Callable[[Secured, int], Fields]:
    configs = [{"name": setting, "value": value, "config_operation": 0} for setting, value in settings]
    return lambda scene, version: {
        "resources": [{"resource_type": int(kind), "resource_name": name, "configs": configs}]
    }


_QUEUE = ("queue.type", "standard")


def _alter_cases(key: int) -> list[Case]:
    return [
        Case(
            key,
            _alter(ConfigType.TOPIC, TOPIC, ("retention.ms", "1000")),
            (p.ALTER_TOPIC_CONFIGS,),
            "of a topic",
            changes=True,
        ),
        Case(
            key,
            _alter(ConfigType.TOPIC, TOPIC, _QUEUE, ("queue.attributes", "{}")),
            (p.ALTER_TOPIC_CONFIGS, p.ALTER_TOPIC),
            "of a queue's policy",
            changes=True,
        ),
        Case(
            key,
            _alter(ConfigType.TOPIC, TOPIC, _QUEUE, ("queue.dead.letter", TOPIC)),
            (p.ALTER_TOPIC_CONFIGS, p.WRITE_TOPIC),
            "of a queue's dead letters",
            changes=True,
        ),
        Case(
            key,
            _alter(ConfigType.TOPIC, TOPIC, ("encryption.at.rest", "shredded")),
            (p.ALTER_TOPIC_CONFIGS, p.DELETE_TOPIC),
            "of a topic's keys",
        ),
        Case(
            key,
            _alter(ConfigType.GROUP, GROUP, ("consumer.heartbeat.interval.ms", "6000")),
            (p.ALTER_GROUP_CONFIGS,),
            "of a group",
            changes=True,
        ),
        Case(
            key,
            _alter(ConfigType.BROKER, "", ("auto.leader.rebalance.enable", "false")),
            (p.ALTER_CLUSTER_CONFIGS,),
            "of brokers",
            changes=True,
        ),
        Case(
            key,
            _alter(ConfigType.BROKER, "", ("allow.everyone.if.no.acl.found", "true")),
            (p.ALTER_CLUSTER_CONFIGS, p.ALTER_CLUSTER),
            "of access",
            changes=True,
        ),
    ]


_ACL = {"resource_type": 2, "resource_name": TOPIC, "resource_pattern_type": 3, "principal": "User:bob", "host": "*"}
_ANY = {"resource_type_filter": 1, "pattern_type_filter": 1, "operation": 1, "permission_type": 1}
_ORDERS = {"name": TOPIC, "topic": TOPIC}

TOPIC_AND_CLUSTER_CASES: list[Case] = [
    Case(0, _produce, (p.WRITE_TOPIC,), changes=True),
    Case(
        0,
        lambda scene, version: _produce(scene, version, TRANSACTIONAL_ID),
        (p.WRITE_TOPIC, p.WRITE_TRANSACTIONAL_ID),
        "in a transaction",
        changes=True,
    ),
    Case(1, _fetch, (p.READ_TOPIC,), "by a consumer"),
    Case(
        1,
        lambda scene, version: _fetch(scene, version, replica_id=7),
        (p.CLUSTER_ACTION,),
        "by a replica",
        codes={p.CLUSTER_ACTION: TOPIC_DENIED},
        others=frozenset({CLUSTER_DENIED}),  # There is no broker 7.
    ),
    Case(2, lambda *_: {"topics": [{**_ORDERS, "partitions": [{"timestamp": -1}]}]}, (p.DESCRIBE_TOPIC,)),
    Case(3, _metadata, (p.DESCRIBE_TOPIC,), "of a topic"),
    Case(3, _metadata_by_id, (p.DESCRIBE_TOPIC,), "of a topic id", from_version=12),
    Case(
        3,
        lambda scene, version: {"topics": None if version else []},
        (p.DESCRIBE_TOPIC,),
        "of all topics",
        is_denied=lambda answer, version: not answer.topics,
    ),
    Case(
        3,
        lambda *_: {"topics": [{"name": NEW_TOPIC}], "allow_auto_topic_creation": True},
        (p.DESCRIBE_TOPIC, p.CREATE_TOPIC),
        "that creates",
        or_else=((p.DESCRIBE_TOPIC, p.CREATE_CLUSTER),),
        topic=NEW_TOPIC,
        changes=True,
    ),
    Case(
        19,
        lambda *_: {"topics": [{"name": NEW_TOPIC, "num_partitions": 1, "replication_factor": 1}]},
        (p.CREATE_TOPIC,),
        or_else=((p.CREATE_CLUSTER,),),
        optional=(p.DESCRIBE_TOPIC_CONFIGS,),
        topic=NEW_TOPIC,
        changes=True,
    ),
    Case(
        19,
        lambda *_: {
            "topics": [
                {
                    "name": NEW_TOPIC,
                    "num_partitions": 1,
                    "replication_factor": 1,
                    "configs": [
                        {"name": name, "value": value}
                        for name, value in (_QUEUE, ("queue.attributes", "{}"), ("queue.dead.letter", NEW_TOPIC))
                    ],
                }
            ]
        },
        (p.CREATE_TOPIC, p.ALTER_TOPIC, p.WRITE_TOPIC),
        "a queue with a policy and dead letters",
        optional=(p.DESCRIBE_TOPIC_CONFIGS,),
        topic=NEW_TOPIC,
        changes=True,
    ),
    Case(20, _delete_topics, (p.DELETE_TOPIC,), "by name", optional=(p.DESCRIBE_TOPIC,), changes=True),
    Case(
        20,
        lambda scene, _: {"topics": [{"name": None, "topic_id": scene.topic_id}]},
        (p.DELETE_TOPIC,),
        "by id",
        changes=True,
        from_version=6,
    ),
    Case(
        21,
        lambda *_: {"topics": [{**_ORDERS, "partitions": [{"partition_index": 0, "offset": 1}]}], "timeout": 1000},
        (p.DELETE_TOPIC,),
        changes=True,
    ),
    Case(
        23,
        lambda *_: {"replica_id": -1, "topics": [{**_ORDERS, "partitions": [{"current_leader_epoch": -1}]}]},
        (p.DESCRIBE_TOPIC,),
        or_else=((p.CLUSTER_ACTION,),),
    ),
    Case(
        27,
        lambda *_: {"markers": [{"topics": [{**_ORDERS, "partition_indexes": [9]}]}]},
        (p.CLUSTER_ACTION,),
        or_else=((p.ALTER_CLUSTER,),),
    ),
    Case(29, lambda *_: _ANY, (p.DESCRIBE_CLUSTER,)),
    Case(
        30,
        lambda *_: {"creations": [{**_ACL, "operation": 3, "permission_type": 3}]},
        (p.ALTER_CLUSTER,),
        changes=True,
    ),
    Case(31, lambda *_: {"filters": [_ANY]}, (p.ALTER_CLUSTER,)),
    Case(32, _configs(ConfigType.TOPIC, TOPIC), (p.DESCRIBE_TOPIC_CONFIGS,), "of a topic"),
    Case(32, _configs(ConfigType.GROUP, GROUP), (p.DESCRIBE_GROUP_CONFIGS,), "of a group"),
    Case(32, _configs(ConfigType.BROKER, "0"), (p.DESCRIBE_CLUSTER_CONFIGS,), "of a broker"),
    Case(32, _configs(ConfigType.BROKER_LOGGER, "0"), (p.DESCRIBE_CLUSTER_CONFIGS,), "of loggers"),
    Case(32, _configs(ConfigType.CLIENT_METRICS, "m"), (p.DESCRIBE_CLUSTER_CONFIGS,), "of metrics"),
    *_alter_cases(33),
    Case(
        34,
        lambda *_: {"dirs": [{"path": "/elsewhere", "topics": [{**_ORDERS, "partitions": [0]}]}]},
        (p.ALTER_CLUSTER,),
    ),
    Case(
        35,
        lambda *_: {"topics": None},
        (p.DESCRIBE_CLUSTER,),
        is_denied=lambda answer, version: not answer.results and (version < 3 or answer.error_code is CLUSTER_DENIED),
    ),
    Case(37, lambda *_: {"topics": [{**_ORDERS, "count": 2, "assignments": None}]}, (p.ALTER_TOPIC,), changes=True),
    Case(43, lambda *_: {"topic_partitions": [{**_ORDERS, "partitions": [0]}]}, (p.ALTER_CLUSTER,)),
    *_alter_cases(44),
    Case(
        45,
        lambda *_: {"topics": [{**_ORDERS, "partitions": [{"partition_index": 0, "replicas": None}]}]},
        (p.ALTER_CLUSTER,),
    ),
    Case(46, lambda *_: {"topics": None}, (p.DESCRIBE_CLUSTER,)),
    Case(48, lambda *_: {"components": []}, (p.DESCRIBE_CLUSTER_CONFIGS,)),
    Case(49, lambda *_: {"entries": [{"entity": [{"entity_type": "user"}]}]}, (p.ALTER_CLUSTER_CONFIGS,)),
    Case(50, lambda *_: {"users": None}, (p.DESCRIBE_CLUSTER,)),
    Case(
        51,
        lambda *_: {
            "upsertions": [
                {"name": "bob", "mechanism": 1, "iterations": 4096, "salt": b"salt", "salted_password": b"p" * 32}
            ]
        },
        (p.ALTER_CLUSTER,),
        changes=True,
    ),
    Case(
        57,
        lambda *_: {
            "feature_updates": [
                {"feature": "transaction.version", "max_version_level": 1, "allow_downgrade": True, "upgrade_type": 2}
            ]
        },
        (p.ALTER_CLUSTER,),
        changes=True,
    ),
    Case(58, lambda scene, _: _as_broker(scene), (p.CLUSTER_ACTION,)),
    Case(
        58,
        lambda *_: {"request_data": encode_call(_ASK_STATE), "client_host_address": b""},
        (p.READ_TOPIC,),
        "queue-state",
        is_denied=lambda answer, _: TopicNotAuthorized.__name__.encode() in answer.response_data,
    ),
    Case(
        60,
        lambda *_: {"endpoint_type": 1, "include_cluster_authorized_operations": True},
        (p.DESCRIBE_CLUSTER,),
        is_denied=lambda answer, version: answer.cluster_authorized_operations == 0,
    ),
    Case(61, lambda *_: {"topics": [{**_ORDERS, "partition_indexes": [0]}]}, (p.READ_TOPIC,)),
    Case(64, lambda *_: {"broker_id": 9}, (p.ALTER_CLUSTER,)),
    Case(74, lambda *_: {"resource_types": []}, (p.DESCRIBE_CLUSTER_CONFIGS,)),
    Case(75, lambda *_: {"topics": [{"name": TOPIC}], "cursor": None}, (p.DESCRIBE_TOPIC,), "of a topic"),
    Case(
        75,
        lambda *_: {"topics": [], "cursor": None, "response_partition_limit": 10},
        (p.DESCRIBE_TOPIC,),
        "of all topics",
        is_denied=lambda answer, version: not answer.topics,
    ),
]


def _as_broker(scene: Secured) -> Fields:
    scene.harness.peer.client_software = BROKER_SOFTWARE
    return {"request_data": b"", "client_host_address": b""}
