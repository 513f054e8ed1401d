"""What Kafka's tools and programs around it ask of a broker beside messages: settings that they set on any broker,
access control, users. They get answers that they can show."""

import uuid
from collections.abc import Callable
from contextlib import closing
from datetime import timedelta
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ConfigResource,
    NewTopic,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialDeletion,
    UserScramCredentialUpsertion,
)
from kafka.admin import ACLFilter, ACLOperation, ACLPermissionType, ResourcePattern
from kafka.admin import ResourceType as PythonResourceType
from kafka.errors import SecurityDisabledError

from kafka import KafkaAdminClient
from tests.waiting import until

from . import batches, raw_client, subject
from .subject import Subject

Error = raw_client.Error
TOPIC, BROKER, LOGGER, METRICS, GROUP = 2, 4, 8, 16, 32
SET, DELETE = 0, 1

KAFKA_3_9_TOPIC = {
    "cleanup.policy": "delete", "compression.gzip.level": "-1", "compression.lz4.level": "9",
    "compression.type": "producer", "compression.zstd.level": "3", "delete.retention.ms": "86400000",
    "file.delete.delay.ms": "60000", "flush.messages": "9223372036854775807", "flush.ms": "9223372036854775807",
    "follower.replication.throttled.replicas": "", "index.interval.bytes": "4096",
    "leader.replication.throttled.replicas": "", "local.retention.bytes": "-2", "local.retention.ms": "-2",
    "max.compaction.lag.ms": "9223372036854775807", "max.message.bytes": "1048588",
    "message.downconversion.enable": "true", "message.format.version": "3.0-IV1",
    "message.timestamp.after.max.ms": "9223372036854775807", "message.timestamp.before.max.ms": "9223372036854775807",
    "message.timestamp.difference.max.ms": "9223372036854775807", "message.timestamp.type": "CreateTime",
    "min.cleanable.dirty.ratio": "0.5", "min.compaction.lag.ms": "0", "min.insync.replicas": "1",
    "preallocate": "false", "remote.log.copy.disable": "false", "remote.log.delete.on.disable": "false",
    "remote.storage.enable": "false", "retention.bytes": "-1", "retention.ms": "604800000",
    "segment.bytes": "1073741824", "segment.index.bytes": "10485760", "segment.jitter.ms": "0",
    "segment.ms": "604800000", "unclean.leader.election.enable": "false",
}  # fmt: skip
"""What Apache Kafka 3.9 tells of a topic that sets nothing."""


def alter(connection: raw_client.Connection, kind: int, name: str, *changes: tuple[str, int, str | None]) -> Any:
    configs = [{"name": key, "config_operation": operation, "value": value} for key, operation, value in changes]
    resource = {"resource_type": kind, "resource_name": name, "configs": configs}
    (answer,) = connection.call(raw_client.INCREMENTAL_ALTER_CONFIGS, 1, resources=[resource]).responses
    return answer


def told(connection: raw_client.Connection, kind: int, name: str) -> dict[str, Any]:
    resource = {"resource_type": kind, "resource_name": name, "configuration_keys": None}
    answer = connection.call(raw_client.DESCRIBE_CONFIGS, 4, resources=[resource], include_documentation=True)
    (result,) = answer.results
    assert result.error_code == Error.none, result.error_message
    return {config.name: config for config in result.configs}


def broker_id(connection: raw_client.Connection) -> str:
    return str(connection.call(raw_client.METADATA, 12, topics=[]).brokers[0].node_id)


# Settings


def test_mirrormaker_carries_settings_over(connection: raw_client.Connection, topic: str) -> None:
    """It sets what is not a default at the source, and deletes all that is."""
    own = {"retention.ms": "1234567", "preallocate": "true"}
    if subject.IS_HEADRACE:
        own["message.downconversion.enable"] = "false"
    changes = [(name, SET, own[name]) if name in own else (name, DELETE, None) for name in KAFKA_3_9_TOPIC]
    for _ in range(2):
        answer = alter(connection, TOPIC, topic, *changes)
        assert (answer.error_code, answer.error_message) == (Error.none, None)
    found = told(connection, TOPIC, topic)
    assert {name: found[name].value for name in own} == own
    assert {found[name].config_source for name in own} == {1}


def test_every_setting_of_an_older_kafka_can_be_set_to_its_default(
    connection: raw_client.Connection, topic: str
) -> None:
    if not subject.IS_HEADRACE:
        pytest.skip("Apache Kafka 4 does not know those of Kafka 3")
    answer = alter(connection, TOPIC, topic, *((name, SET, text) for name, text in KAFKA_3_9_TOPIC.items()))
    assert (answer.error_code, answer.error_message) == (Error.none, None)
    found = told(connection, TOPIC, topic)
    assert {name: found[name].value for name in KAFKA_3_9_TOPIC} == KAFKA_3_9_TOPIC


def test_a_topic_with_kafkas_settings_is_created_as_asked_for(
    broker: Subject, connection: raw_client.Connection
) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    name = f"tools-{uuid.uuid4().hex[:8]}"
    config = {"preallocate": "true", "local.retention.ms": "1000", "remote.storage.enable": "false"}
    (created,) = admin.create_topics([NewTopic(name, num_partitions=3, config=config)]).values()
    created.result(60)
    raw_client.wait_topic(connection, name, 3)
    (described,) = admin.describe_configs([ConfigResource(ResourceType.TOPIC, name)]).values()
    found = described.result(60)
    assert {key: found[key].value for key in config} == config


def test_a_reassignment_with_a_throttle_and_its_end(connection: raw_client.Connection, topic: str) -> None:
    """The settings that kafka-reassign-partitions sets with --throttle, and deletes with --verify."""
    on_broker = ("leader", "follower")
    own = broker_id(connection)
    replicas = [(f"{role}.replication.throttled.replicas", SET, f"0:{own}") for role in on_broker]
    rates = [(f"{role}.replication.throttled.rate", SET, "1000000") for role in on_broker]
    rates.append(("replica.alter.log.dirs.io.max.bytes.per.second", SET, "1000000"))
    for kind, name, changes in ((TOPIC, topic, replicas), (BROKER, own, rates)):
        answer = alter(connection, kind, name, *changes)
        assert (answer.error_code, answer.error_message) == (Error.none, None)
    found = told(connection, TOPIC, topic)
    assert {found[name].value for name, _, _ in replicas} == {f"0:{own}"}
    for kind, name, changes in ((TOPIC, topic, replicas), (BROKER, own, rates)):
        for _ in range(2):
            answer = alter(connection, kind, name, *((key, DELETE, None) for key, _, _ in changes))
            assert (answer.error_code, answer.error_message) == (Error.none, None)
    assert {told(connection, TOPIC, topic)[name].value for name, _, _ in replicas} == {""}


def test_deleting_what_nobody_knows_succeeds_and_setting_it_does_not(
    connection: raw_client.Connection, topic: str
) -> None:
    for kind, name in ((TOPIC, topic), (BROKER, broker_id(connection)), (BROKER, ""), (GROUP, "tools")):
        assert alter(connection, kind, name, ("no.such.name", DELETE, None)).error_code == Error.none
    assert alter(connection, TOPIC, topic, ("no.such.name", SET, "1")).error_code == Error.invalid_config
    unsafe = alter(connection, TOPIC, topic, ("remote.storage.enable", SET, "true"))
    assert unsafe.error_code == Error.invalid_config
    assert unsafe.error_message
    assert alter(connection, TOPIC, topic, ("remote.storage.enable", SET, "false")).error_code == Error.none


def test_a_topic_without_a_policy_keeps_everything(
    connection: raw_client.Connection, new_topic: Callable[..., str]
) -> None:
    topic = new_topic(cleanup_policy="")
    assert raw_client.produce(connection, topic, batches.batch([b"no key"])).error_code == Error.none
    assert told(connection, TOPIC, topic)["cleanup.policy"].value == ""
    wanted = [{"name": topic, "partitions": [{"partition_index": 0, "offset": 1}]}]
    answer = connection.call(raw_client.DELETE_RECORDS, 2, topics=wanted, timeout=10_000)
    assert answer.topics[0].partitions[0].error_code == Error.policy_violation


def test_the_broker_shows_the_names_that_tools_look_for(connection: raw_client.Connection) -> None:
    own = broker_id(connection)
    found = told(connection, BROKER, own)
    assert found["node.id"].value == own
    assert found["listeners"].value.startswith("PLAINTEXT://")
    assert found["log.dirs"].value
    assert found["log.retention.hours"].value == "168"
    assert not found["num.io.threads"].read_only
    assert found["node.id"].read_only
    if subject.IS_HEADRACE:
        assert "No effect in Headrace" in found["num.io.threads"].documentation


def test_what_has_no_effect_is_kept_over_a_restart_and_logged(own_broker: Callable[..., Subject]) -> None:
    if not subject.IS_HEADRACE:
        pytest.skip("these settings have an effect in Apache Kafka")
    broker = own_broker(num_network_threads="5")
    assert "num.network.threads was set on this broker. No effect in Headrace" in broker.stderr
    raw_client.create_topic(broker.bootstrap, "kept", 1, {"preallocate": "true"})
    with raw_client.Connection(broker.bootstrap) as connection:
        own = broker_id(connection)
        assert alter(connection, BROKER, own, ("num.io.threads", SET, "32")).error_code == Error.none
        assert alter(connection, GROUP, "g", ("streams.assignment.interval.ms", SET, "1")).error_code == Error.none
    until(lambda: "streams.assignment.interval.ms was set on the group g" in broker.stderr)
    assert broker.stderr.count("preallocate was set on the topic kept") == 1
    assert broker.terminate() == 0
    broker.start()
    with raw_client.Connection(broker.bootstrap) as connection:
        assert told(connection, TOPIC, "kept")["preallocate"].value == "true"
        assert told(connection, BROKER, own)["num.io.threads"].value == "32"
        assert told(connection, BROKER, own)["num.network.threads"].value == "5"
        assert told(connection, GROUP, "g")["streams.assignment.interval.ms"].value == "1"


def test_a_logger_of_the_broker_can_be_turned_up(own_broker: Callable[..., Subject]) -> None:
    broker = own_broker()
    with raw_client.Connection(broker.bootstrap) as connection:
        own = broker_id(connection)
        assert told(connection, LOGGER, own)["root"].value in ("INFO", "WARN")
        assert alter(connection, LOGGER, own, ("root", SET, "DEBUG")).error_code == Error.none
        assert told(connection, LOGGER, own)["root"].value == "DEBUG"
        assert alter(connection, LOGGER, own, ("root", DELETE, None)).error_code == Error.invalid_request
        assert alter(connection, LOGGER, own, ("no.such.logger", SET, "INFO")).error_code == Error.invalid_config


def test_a_subscription_to_metrics_of_clients_has_defaults(connection: raw_client.Connection) -> None:
    found = told(connection, METRICS, "none")
    assert {name: config.value for name, config in found.items()} == {
        "interval.ms": "300000", "match": "", "metrics": "",
    }  # fmt: skip
    assert alter(connection, METRICS, "none", ("metrics", DELETE, None)).error_code == Error.none


@pytest.mark.parametrize("version", [2, 3, 4])
def test_an_old_client_commits_for_ever(version: int, connection: raw_client.Connection, topic: str) -> None:
    """Before version 5 a commit says how long it is to be kept, and the largest number means for ever."""
    group = f"for-ever-{uuid.uuid4().hex[:8]}"
    connection.call(raw_client.FIND_COORDINATOR, 4, key_type=0, coordinator_keys=[group])
    partitions = [{"partition_index": 0, "committed_offset": 7, "committed_metadata": ""}]
    body = {
        "group_id": group,
        "generation_id_or_member_epoch": -1,
        "topics": [{"name": topic, "partitions": partitions}],
    }
    mark_ms = 0x0102030405
    body["retention_time"] = timedelta(milliseconds=mark_ms)
    frame = raw_client.encode(raw_client.OFFSET_COMMIT, version, body, correlation_id=11)
    connection.send_frame(frame.replace(mark_ms.to_bytes(8, "big"), (2**63 - 1).to_bytes(8, "big")))
    answer = connection.receive(raw_client.Pending(raw_client.OFFSET_COMMIT, version, 11))
    assert answer.topics[0].partitions[0].error_code == Error.none


# Access control and users


def refusal(done: Any) -> KafkaError:
    with pytest.raises(KafkaException) as caught:
        done.result(60)
    error = caught.value.args[0]
    assert isinstance(error, KafkaError)
    return error


def test_confluent_kafka_is_told_that_there_is_no_access_control(broker: Subject) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    who = ("User:alice", "*", AclOperation.READ, AclPermissionType.ALLOW)
    binding = AclBinding(ResourceType.TOPIC, "orders", ResourcePatternType.LITERAL, *who)
    everything = AclBindingFilter(
        ResourceType.ANY, None, ResourcePatternType.ANY, None, None, AclOperation.ANY, AclPermissionType.ANY
    )
    for done in (*admin.create_acls([binding]).values(), *admin.delete_acls([everything]).values()):
        error = refusal(done)
        assert error.code() == KafkaError.SECURITY_DISABLED
        assert error.str()
    # confluent-kafka does not tell the error of this answer, whichever broker it is from.
    assert admin.describe_acls(everything).result(60) == []


def test_confluent_kafka_gives_users_passwords(broker: Subject) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    (named,) = admin.describe_user_scram_credentials(["nobody"]).values()
    assert refusal(named).code() == KafkaError.RESOURCE_NOT_FOUND
    info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 4096)
    (made,) = admin.alter_user_scram_credentials([UserScramCredentialUpsertion("alice", info, b"password")]).values()
    made.result(60)
    (alice,) = admin.describe_user_scram_credentials(["alice"]).values()
    assert [(one.mechanism, one.iterations) for one in alice.result(60).scram_credential_infos] == [
        (ScramMechanism.SCRAM_SHA_256, 4096)
    ]
    (deleted,) = admin.alter_user_scram_credentials(
        [UserScramCredentialDeletion("alice", ScramMechanism.SCRAM_SHA_256)]
    ).values()
    deleted.result(60)
    (gone,) = admin.describe_user_scram_credentials(["alice"]).values()
    assert refusal(gone).code() == KafkaError.RESOURCE_NOT_FOUND


def test_kafka_python_is_told_that_there_is_no_access_control(broker: Subject) -> None:
    with closing(KafkaAdminClient(bootstrap_servers=broker.bootstrap)) as admin:
        pattern = ResourcePattern(PythonResourceType.TOPIC, "orders")
        acl = ACLFilter("User:alice", "*", ACLOperation.ANY, ACLPermissionType.ANY, pattern)
        with pytest.raises(SecurityDisabledError):
            admin.describe_acls(acl)


def test_a_client_that_wants_to_authenticate_is_told_why_it_cannot(broker: Subject) -> None:
    errors: list[KafkaError] = []
    admin = AdminClient(
        {
            "bootstrap.servers": broker.bootstrap,
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "PLAIN",
            "sasl.username": "alice",
            "sasl.password": "secret",
            "error_cb": errors.append,
        }
    )
    until(lambda: admin.poll(0.1) or any("SASL" in error.str().upper() for error in errors))


def test_the_directory_of_a_replica(broker: Subject, connection: raw_client.Connection, topic: str) -> None:
    """As kafka-reassign-partitions moves a replica to a directory of its broker."""
    (described,) = connection.call(raw_client.DESCRIBE_LOG_DIRS, 4, topics=None).results

    def moved(path: str) -> Error:
        topics = [{"name": topic, "partitions": [0]}]
        answer = connection.call(raw_client.ALTER_REPLICA_LOG_DIRS, 2, dirs=[{"path": path, "topics": topics}])
        code = answer.results[0].partitions[0].error_code
        assert isinstance(code, Error)
        return code

    assert moved(described.log_dir) == Error.none
    assert moved("/no/such/directory") == Error.log_dir_not_found
