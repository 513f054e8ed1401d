"""Every advertised API answers at every advertised version, and asking for another version is not fatal."""

import struct
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from kio.index import load_response_schema

from . import batches, raw_client, subject
from .subject import Subject

Error = raw_client.Error

EXPECTED = {
    raw_client.PRODUCE: (0, 13), raw_client.FETCH: (4, 18), raw_client.LIST_OFFSETS: (1, 11),
    raw_client.METADATA: (0, 13),
    raw_client.FIND_COORDINATOR: (0, 6), raw_client.API_VERSIONS: (0, 4), raw_client.CREATE_TOPICS: (2, 7),
    raw_client.DELETE_TOPICS: (1, 6),
    raw_client.DELETE_RECORDS: (0, 2), raw_client.INIT_PRODUCER_ID: (0, 6), raw_client.OFFSET_FOR_LEADER_EPOCH: (2, 4),
    raw_client.DESCRIBE_CONFIGS: (1, 4), raw_client.ALTER_CONFIGS: (0, 2), raw_client.DESCRIBE_LOG_DIRS: (1, 5),
    raw_client.CREATE_PARTITIONS: (0, 3), raw_client.INCREMENTAL_ALTER_CONFIGS: (0, 1),
    raw_client.DESCRIBE_CLUSTER: (0, 2),
    raw_client.DESCRIBE_TOPIC_PARTITIONS: (0, 0), raw_client.UPDATE_FEATURES: (0, 2),
    raw_client.ELECT_LEADERS: (0, 2), raw_client.LIST_PARTITION_REASSIGNMENTS: (0, 0),
    raw_client.LIST_CONFIG_RESOURCES: (0, 1),
    raw_client.ALTER_PARTITION_REASSIGNMENTS: (0, 1),
    raw_client.OFFSET_COMMIT: (2, 10), raw_client.OFFSET_FETCH: (1, 10), raw_client.OFFSET_DELETE: (0, 0),
    raw_client.JOIN_GROUP: (0, 9), raw_client.HEARTBEAT: (0, 4), raw_client.LEAVE_GROUP: (0, 5),
    raw_client.SYNC_GROUP: (0, 5),
    raw_client.ADD_PARTITIONS_TO_TXN: (0, 5), raw_client.ADD_OFFSETS_TO_TXN: (0, 4), raw_client.END_TXN: (0, 5),
    raw_client.WRITE_TXN_MARKERS: (1, 2), raw_client.TXN_OFFSET_COMMIT: (0, 5),
    raw_client.DESCRIBE_PRODUCERS: (0, 0), raw_client.DESCRIBE_TRANSACTIONS: (0, 0),
    raw_client.LIST_TRANSACTIONS: (0, 2),
    raw_client.DESCRIBE_GROUPS: (0, 6), raw_client.LIST_GROUPS: (0, 5), raw_client.DELETE_GROUPS: (0, 2),
    raw_client.CONSUMER_GROUP_HEARTBEAT: (0, 1), raw_client.CONSUMER_GROUP_DESCRIBE: (0, 1),
    raw_client.SASL_HANDSHAKE: (0, 1), raw_client.SASL_AUTHENTICATE: (0, 2),
    raw_client.DESCRIBE_ACLS: (1, 3), raw_client.CREATE_ACLS: (1, 3), raw_client.DELETE_ACLS: (1, 3),
    raw_client.ALTER_REPLICA_LOG_DIRS: (1, 2), raw_client.UNREGISTER_BROKER: (0, 0),
    raw_client.CREATE_DELEGATION_TOKEN: (1, 3), raw_client.RENEW_DELEGATION_TOKEN: (1, 2),
    raw_client.EXPIRE_DELEGATION_TOKEN: (1, 2), raw_client.DESCRIBE_DELEGATION_TOKEN: (1, 3),
    raw_client.DESCRIBE_CLIENT_QUOTAS: (0, 1), raw_client.ALTER_CLIENT_QUOTAS: (0, 1),
    raw_client.DESCRIBE_USER_SCRAM_CREDENTIALS: (0, 0), raw_client.ALTER_USER_SCRAM_CREDENTIALS: (0, 0),
}  # fmt: skip
"""What a broker of Kafka 4.x advertises for the APIs that Headrace has. Clients guess its age from these.

InitProducerId 6 (two-phase commit, KIP-939) is there in Kafka 4.x, but advertised only where it is asked for.
"""

MEMBERS_ONLY = {
    raw_client.JOIN_GROUP,
    raw_client.HEARTBEAT,
    raw_client.LEAVE_GROUP,
    raw_client.SYNC_GROUP,
    raw_client.CONSUMER_GROUP_HEARTBEAT,
    raw_client.CONSUMER_GROUP_DESCRIBE,
}
"""What only a member may do; `test_wire_groups.py` and `test_wire_consumer_groups.py` have one for each version."""

IN_TRANSACTIONS = {
    raw_client.ADD_PARTITIONS_TO_TXN, raw_client.ADD_OFFSETS_TO_TXN, raw_client.END_TXN,
    raw_client.WRITE_TXN_MARKERS, raw_client.TXN_OFFSET_COMMIT,
    raw_client.DESCRIBE_PRODUCERS, raw_client.DESCRIBE_TRANSACTIONS, raw_client.LIST_TRANSACTIONS,
}  # fmt: skip
"""What a transaction is made of; `test_wire_transactions.py` has one for each version."""

NOT_ALLOWED = {
    raw_client.SASL_HANDSHAKE: Error.illegal_sasl_state,
    raw_client.SASL_AUTHENTICATE: Error.illegal_sasl_state,
    raw_client.DESCRIBE_ACLS: Error.security_disabled,
    raw_client.CREATE_ACLS: Error.security_disabled,
    raw_client.DELETE_ACLS: Error.security_disabled,
    raw_client.UNREGISTER_BROKER: Error.broker_id_not_registered,
    raw_client.CREATE_DELEGATION_TOKEN: Error.delegation_token_request_not_allowed,
    raw_client.RENEW_DELEGATION_TOKEN: Error.delegation_token_request_not_allowed,
    raw_client.EXPIRE_DELEGATION_TOKEN: Error.delegation_token_request_not_allowed,
    raw_client.DESCRIBE_DELEGATION_TOKEN: Error.delegation_token_request_not_allowed,
}
"""What a broker without access control and authentication answers."""

NOT_READ_BY_KIO = {
    raw_client.CREATE_DELEGATION_TOKEN,
    raw_client.RENEW_DELEGATION_TOKEN,
    raw_client.EXPIRE_DELEGATION_TOKEN,
}
"""Apache Kafka answers with times of -1."""

OLDEST_PRODUCE = 3
"""Older versions are advertised for the sake of old librdkafka only, and have no schema any more."""


def test_the_versions_advertised_are_those_of_a_recent_kafka(broker: Subject) -> None:
    found = raw_client.advertised(broker.bootstrap)
    if not subject.IS_HEADRACE:
        assert EXPECTED.keys() <= found.keys()
        return
    assert {key: found.get(key) for key in EXPECTED} == EXPECTED


def bodies(topic: str, topic_id: uuid.UUID, version: int) -> dict[int, dict[str, Any]]:
    """A request that succeeds, for each API."""
    resource = {"resource_type": 2, "resource_name": topic}
    retention = {"name": "retention.ms", "value": "700000000"}
    fresh = {"name": f"versions-{uuid.uuid4().hex[:8]}", "num_partitions": 1, "replication_factor": 1}
    place = {"partition": 0, "partition_index": 0, "timestamp": -1, "offset": 0}
    in_place = {"topics": [{"name": topic, "topic": topic, "partitions": [place]}], "replica_id": -1, "timeout": 10_000}
    committed = {"name": topic, "topic_id": topic_id, "partitions": [{"committed_offset": 1, "committed_metadata": ""}]}
    fetched = {"name": topic, "topic_id": topic_id, "partition_indexes": [0]}
    acl = {"principal": "User:alice", "host": "*", "operation": 3, "permission_type": 3}
    group = {"group_id": f"versions-{uuid.uuid4().hex[:8]}", "member_id": "", "generation_id_or_member_epoch": -1}
    return {
        raw_client.OFFSET_COMMIT: {**group, "retention_time": -1, "topics": [committed]},
        raw_client.OFFSET_FETCH: {
            **group,
            "topics": [fetched],
            "groups": [{**group, "member_epoch": -1, "topics": [fetched]}],
        },
        raw_client.OFFSET_DELETE: {"group_id": "versions", "topics": [{"name": topic, "partitions": [{}]}]},
        raw_client.DESCRIBE_GROUPS: {"groups": ["versions"]},
        raw_client.LIST_GROUPS: {},
        raw_client.DELETE_GROUPS: {"groups_names": ["versions"]},
        raw_client.PRODUCE: raw_client.produce_body(topic, batches.batch([b"v"]), topic_id=topic_id),
        raw_client.FETCH: raw_client.fetch_body(topic if version < 13 else topic_id),
        raw_client.LIST_OFFSETS: in_place,
        raw_client.METADATA: {"topics": [{"name": topic}]},
        raw_client.FIND_COORDINATOR: {"key": "some-group", "key_type": 0, "coordinator_keys": ["some-group"]},
        raw_client.API_VERSIONS: {"client_software_name": "wire", "client_software_version": "1.0"},
        raw_client.CREATE_TOPICS: {"topics": [fresh], "timeout": 10_000},
        raw_client.DELETE_TOPICS: {"topic_names": [fresh["name"]], "topics": [fresh], "timeout": 10_000},
        raw_client.DELETE_RECORDS: in_place,
        raw_client.INIT_PRODUCER_ID: {"transactional_id": None, "producer_id": -1, "producer_epoch": -1},
        raw_client.OFFSET_FOR_LEADER_EPOCH: in_place,
        raw_client.DESCRIBE_CONFIGS: {"resources": [resource], "include_synonyms": True, "include_documentation": True},
        raw_client.ALTER_CONFIGS: {"resources": [{**resource, "configs": [retention]}]},
        raw_client.DESCRIBE_LOG_DIRS: {"topics": [{"topic": topic, "partitions": [0]}]},
        raw_client.CREATE_PARTITIONS: {
            "topics": [{"name": topic, "count": 2}],
            "timeout": 10_000,
            "validate_only": True,
        },
        raw_client.INCREMENTAL_ALTER_CONFIGS: {"resources": [{**resource, "configs": [retention]}]},
        raw_client.DESCRIBE_CLUSTER: {"endpoint_type": 1},
        raw_client.DESCRIBE_TOPIC_PARTITIONS: {"topics": [{"name": topic}], "response_partition_limit": 100},
        raw_client.ELECT_LEADERS: {"topic_partitions": None, "timeout": 10_000},
        raw_client.LIST_PARTITION_REASSIGNMENTS: {"topics": None, "timeout": 10_000},
        raw_client.ALTER_PARTITION_REASSIGNMENTS: {"topics": [], "timeout": 10_000},
        raw_client.LIST_CONFIG_RESOURCES: {},
        raw_client.UPDATE_FEATURES: {"feature_updates": [], "timeout": 10_000},
        raw_client.SASL_HANDSHAKE: {"mechanism": "PLAIN"},
        raw_client.SASL_AUTHENTICATE: {"auth_bytes": b"\0user\0password"},
        raw_client.DESCRIBE_ACLS: {
            "resource_type_filter": 1,
            "pattern_type_filter": 1,
            "operation": 1,
            "permission_type": 1,
        },
        raw_client.CREATE_ACLS: {"creations": [{**acl, "resource_type": 2, "resource_name": topic}]},
        raw_client.DELETE_ACLS: {"filters": [{"resource_type_filter": 1, "operation": 1, "permission_type": 1}]},
        raw_client.ALTER_REPLICA_LOG_DIRS: {"dirs": []},
        raw_client.UNREGISTER_BROKER: {"broker_id": 4711},
        raw_client.CREATE_DELEGATION_TOKEN: {"renewers": [], "max_lifetime": -1},
        raw_client.RENEW_DELEGATION_TOKEN: {"hmac": b"x", "renew_period": -1},
        raw_client.EXPIRE_DELEGATION_TOKEN: {"hmac": b"x", "expiry_time_period": -1},
        raw_client.DESCRIBE_DELEGATION_TOKEN: {"owners": None},
        raw_client.DESCRIBE_CLIENT_QUOTAS: {"components": []},
        raw_client.ALTER_CLIENT_QUOTAS: {"entries": []},
        raw_client.DESCRIBE_USER_SCRAM_CREDENTIALS: {"users": None},
        raw_client.ALTER_USER_SCRAM_CREDENTIALS: {"deletions": [], "upsertions": []},
    }


def commit(connection: raw_client.Connection, group: str, topic: str, topic_id: uuid.UUID) -> None:
    """Make a group without members."""
    connection.call(raw_client.FIND_COORDINATOR, 4, key_type=0, coordinator_keys=[group])
    body = {**bodies(topic, topic_id, 9)[raw_client.OFFSET_COMMIT], "group_id": group}
    assert set(errors_in(connection.call(raw_client.OFFSET_COMMIT, 9, body))) == {Error.none}


def errors_in(entity: Any) -> Iterator[Error]:
    """Every error code anywhere in a response."""
    if isinstance(entity, tuple):
        for item in entity:
            yield from errors_in(item)
    elif hasattr(entity, "__dataclass_fields__"):
        for name in entity.__dataclass_fields__:
            value = getattr(entity, name)
            if isinstance(value, Error):
                yield value
            else:
                yield from errors_in(value)


@pytest.mark.parametrize(
    "key",
    [key for key in EXPECTED if key not in MEMBERS_ONLY | IN_TRANSACTIONS],
    ids=lambda key: load_response_schema(key, EXPECTED[key][1]).__name__,
)
def test_every_version_of_an_api_answers(key: int, broker: Subject, topic: str) -> None:
    if key in NOT_READ_BY_KIO and not subject.IS_HEADRACE:
        pytest.skip("kio does not read times before 1970")
    low, high = raw_client.advertised(broker.bootstrap)[key]
    with raw_client.Connection(broker.bootstrap) as connection:
        topic_id = raw_client.wait_topic(connection, topic, 1)
        commit(connection, "some-group", topic, topic_id)
        for version in range(max(low, OLDEST_PRODUCE) if key == raw_client.PRODUCE else low, high + 1):
            body = bodies(topic, topic_id, version)[key]
            if key == raw_client.DELETE_TOPICS:
                raw_client.create_topic(broker.bootstrap, body["topics"][0]["name"])
            if key in (raw_client.OFFSET_DELETE, raw_client.DESCRIBE_GROUPS, raw_client.DELETE_GROUPS):
                commit(connection, "versions", topic, topic_id)
            answer = connection.call(key, version, body)
            if key != raw_client.FIND_COORDINATOR:
                expected = NOT_ALLOWED.get(key, Error.none)
                assert set(errors_in(answer)) <= {expected}, f"version {version}: {answer}"


def test_every_other_advertised_api_answers_too(broker: Subject) -> None:
    """Also what this file has no proper request for: an empty one gets an answer that can be read, in every version."""
    if not subject.IS_HEADRACE:
        pytest.skip("Apache Kafka advertises APIs between brokers, too")
    for key, (low, high) in raw_client.advertised(broker.bootstrap).items():
        if key not in EXPECTED:
            for version in range(low, high + 1):
                with raw_client.Connection(broker.bootstrap) as connection:
                    connection.call(key, version)


def test_findcoordinator_answers_for_each_key(connection: raw_client.Connection) -> None:
    answer = connection.call(raw_client.FIND_COORDINATOR, 4, key_type=0, coordinator_keys=["a", "b"])
    assert [one.key for one in answer.coordinators] == ["a", "b"]
    assert {one.error_code for one in answer.coordinators} <= {Error.none, Error.coordinator_not_available}


# Versions and APIs that are not there


def request(key: int, version: int, correlation_id: int, body: bytes = b"") -> bytes:
    return struct.pack(">hhih", key, version, correlation_id, 4) + b"wire" + body


@pytest.mark.parametrize("version", [5, 99, 32767, -1])
def test_an_unknown_version_of_api_versions_is_answered_in_version_zero(
    version: int, connection: raw_client.Connection
) -> None:
    connection.send_frame(request(raw_client.API_VERSIONS, version, 4711, b"\x00\x05wire\x021\x00"))
    frame = connection.receive_frame()
    correlation_id, error, count = struct.unpack_from(">ihi", frame)
    assert (correlation_id, error) == (4711, Error.unsupported_version)
    assert len(frame) == 10 + 6 * count
    ranges = {key: (low, high) for key, low, high in struct.iter_unpack(">hhh", frame[10:])}
    assert ranges[raw_client.API_VERSIONS] == (0, 4)
    # The connection goes on: the client asks again with a version that both know.
    assert connection.call(raw_client.API_VERSIONS, 0).error_code == Error.none


@pytest.mark.parametrize(
    ("name", "version"),
    [("", "1"), ("no spaces", "1"), ("-dash-first", "1"), ("ok", "1/2"), ("ok", ""), ("naïve", "1")],
)
def test_a_software_name_that_is_none_is_refused(name: str, version: str, connection: raw_client.Connection) -> None:
    answer = connection.call(raw_client.API_VERSIONS, 3, client_software_name=name, client_software_version=version)
    assert answer.error_code == Error.invalid_request
    assert (
        connection.call(raw_client.API_VERSIONS, 3, client_software_name="ok", client_software_version="1.0").error_code
        == Error.none
    )


@pytest.mark.parametrize(
    ("key", "version"),
    [
        (raw_client.METADATA, 99),
        (raw_client.FETCH, 3),
        (raw_client.FETCH, 99),
        (999, 0),
        (-1, 0),
        (raw_client.PRODUCE, 99),
    ],
)
def test_an_unknown_api_or_version_closes_only_that_connection(
    key: int, version: int, broker: Subject, connection: raw_client.Connection
) -> None:
    with raw_client.Connection(broker.bootstrap) as rude:
        rude.send_frame(request(key, version, 1, bytes(40)))
        assert rude.wait_closed(60)
    assert connection.call(raw_client.METADATA, 9, topics=[]).brokers


# Order


def test_answers_come_in_the_order_of_the_requests(connection: raw_client.Connection, topic: str) -> None:
    waiting = connection.send(raw_client.FETCH, 12, raw_client.fetch_body(topic, max_wait=700, min_bytes=1))
    later = [connection.send(raw_client.METADATA, 9, topics=[{"name": topic}]) for _ in range(3)]
    assert connection.receive(waiting).error_code == Error.none
    for pending in later:
        assert connection.receive(pending).topics[0].name == topic


def test_many_requests_in_flight(connection: raw_client.Connection, topic: str) -> None:
    sent = []
    for number in range(40):
        sent.append(
            connection.send(raw_client.PRODUCE, 9, raw_client.produce_body(topic, batches.batch([b"%d" % number])))
        )
        sent.append(
            connection.send(
                raw_client.LIST_OFFSETS, 5, topics=[{"name": topic, "partitions": [{"timestamp": -2}]}], replica_id=-1
            )
        )
        sent.append(connection.send(raw_client.FETCH, 12, raw_client.fetch_body(topic)))
    answers = [connection.receive(pending) for pending in sent]
    offsets = [answer.responses[0].partition_responses[0].base_offset for answer in answers[::3]]
    assert offsets == list(range(40))
    assert all(answer.topics[0].partitions[0].offset == 0 for answer in answers[1::3])
    # A fetch sent before the produce in front of it was answered may or may not see its record, but never a gap.
    for answer in answers[2::3]:
        seen = batches.values(answer.responses[0].partitions[0].records)
        assert seen == [b"%d" % at for at in range(len(seen))]


def test_requests_may_arrive_byte_by_byte(connection: raw_client.Connection, topic: str) -> None:
    frame = raw_client.encode(raw_client.METADATA, 9, {"topics": [{"name": topic}]}, correlation_id=77)
    for byte in struct.pack(">i", len(frame)) + frame:
        connection.send_bytes(bytes([byte]))
    assert connection.receive(raw_client.Pending(raw_client.METADATA, 9, 77)).topics[0].error_code == Error.none


def test_many_connections_at_once(broker: Subject, topic: str, new_topic: Callable[..., str]) -> None:
    connections = [raw_client.Connection(broker.bootstrap) for _ in range(100)]
    try:
        pending = [
            one.send(raw_client.PRODUCE, 9, raw_client.produce_body(topic, batches.batch([b"v"])))
            for one in connections
        ]
        offsets = [
            one.receive(sent).responses[0].partition_responses[0].base_offset
            for one, sent in zip(connections, pending, strict=True)
        ]
        assert sorted(offsets) == list(range(100))
    finally:
        for one in connections:
            one.close()


def test_bytes_behind_a_request_are_ignored(connection: raw_client.Connection) -> None:
    # What librdkafka 2.16 sends to list all topics: null as four bytes where one belongs.
    connection.send_frame(
        struct.pack(">hhih", raw_client.METADATA, 13, 88, 7) + b"rdkafka\x00" + bytes([0, 0, 0, 0, 1, 0, 0])
    )
    assert connection.receive(raw_client.Pending(raw_client.METADATA, 13, 88)).brokers
