"""Odd requests about settings, users, permissions and quotas."""

from collections.abc import Iterator
from typing import Any

from odd_case import BROKER_ID, TOPIC, Case
from tests.interop import raw_client

TOPICS, BROKERS, LOGGERS, METRICS, GROUPS, NO_TYPE = 2, 4, 8, 16, 32, 99
SET, DELETE, APPEND, SUBTRACT, NO_OPERATION = 0, 1, 2, 3, 9


def configs() -> Iterator[Case]:
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


def alter_configs() -> Iterator[Case]:
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


def security() -> Iterator[Case]:
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
        ("an empty password", [], [{**made, "salted_password": b""}]),
        ("an empty salt", [], [{**made, "name": "bob", "salt": b"", "salted_password": b"p" * 32}]),
        ("a user twice whose password is not acceptable", [], [{**made, "iterations": 1}, made]),
    ):
        body = {"deletions": deletions, "upsertions": upsertions}
        yield Case(f"AlterUserScramCredentials: {what}", raw_client.ALTER_USER_SCRAM_CREDENTIALS, 0, body)
    yield Case("DescribeDelegationToken: all", raw_client.DESCRIBE_DELEGATION_TOKEN, 3, {"owners": None})
    yield Case("SaslHandshake: PLAIN", raw_client.SASL_HANDSHAKE, 1, {"mechanism": "PLAIN"})
    yield Case("SaslAuthenticate: a password", raw_client.SASL_AUTHENTICATE, 2, {"auth_bytes": b"\0alice\0secret"})
    yield Case("UnregisterBroker: a broker there is not", raw_client.UNREGISTER_BROKER, 0, {"broker_id": 7})


def quotas() -> Iterator[Case]:
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
