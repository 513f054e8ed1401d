"""The audit log of a real broker, as consumers and `headrace audit` read it."""

import json
import logging
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import TimeoutError as NotYet
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import boto3
import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from headrace.testing import Broker
from tests.waiting import until

SECRET = "planted-secret-7731"
USERS = {"admin": "admin-password", "bob": "bob-password"}
AUDITED = {"authorization.enable": True, "super.users": "User:admin"}
Event = dict[str, Any]


@contextmanager
def audited_broker(**settings: Any) -> Iterator["AuditedBroker"]:
    given = {**AUDITED, **{name.replace("_", "."): value for name, value in settings.items()}}
    with Broker(settings=given, users=USERS) as broker:
        yield AuditedBroker(broker)


class AuditedBroker:
    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self.admin = self.admin_of("admin")

    def conf(self, user: str = "admin", **more: Any) -> dict[str, Any]:
        return {
            **self.broker.kafka_settings(user, mechanism="SCRAM-SHA-256"),
            "client.id": f"{user}-app",
            "log_level": 0,
            **{name.replace("_", "."): value for name, value in more.items()},
        }

    def admin_of(self, user: str) -> AdminClient:
        return AdminClient(self.conf(user))

    def create(self, *topics: str, **config: str) -> None:
        named = {name.replace("_", "."): value for name, value in config.items()}
        for done in self.admin.create_topics([NewTopic(name, 1, 1, config=named) for name in topics]).values():
            done.result(30)

    def alter(self, kind: ResourceType, name: str, **config: str) -> None:
        entries = [
            ConfigEntry(key.replace("_", "."), value, incremental_operation=AlterConfigOpType.SET)
            for key, value in config.items()
        ]
        for done in self.admin.incremental_alter_configs(
            [ConfigResource(kind, name, incremental_configs=entries)]
        ).values():
            done.result(30)

    def add_acl(self, kind: ResourceType, name: str, operation: AclOperation, permission: AclPermissionType) -> None:
        """For bob."""
        acl = AclBinding(kind, name, ResourcePatternType.LITERAL, "User:bob", "*", operation, permission)
        for done in self.admin.create_acls([acl]).values():
            done.result(30)

    def messages(self) -> list[bytes]:
        consumer = Consumer(self.conf(group_id="auditors", enable_partition_eof=True))
        found: list[bytes] = []
        try:
            consumer.assign([TopicPartition("__audit", 0, 0)])
            while (message := consumer.poll(30)) is not None and message.error() is None:
                found.append(message.value() or b"")
        finally:
            consumer.close()
        return found

    def events(self, **wanted: str) -> list[Event]:
        """The events whose data has these values."""
        found = [json.loads(each) for each in self.messages()]
        return [each for each in found if all(each["data"].get(name) == value for name, value in wanted.items())]

    def wait_for(self, **wanted: str) -> Event:
        return until(lambda: self.events(**wanted), f"an event {wanted}")[0]


@pytest.fixture(scope="module")
def audited() -> Iterator[AuditedBroker]:
    with audited_broker(audit_excluded_principals="User:bob") as running:
        yield running


def test_logins_are_recorded_with_their_outcome(audited: AuditedBroker) -> None:
    audited.create("logins")
    with pytest.raises(KafkaException):
        AdminClient({**audited.conf("bob"), "sasl.password": SECRET}).list_topics(timeout=2)
    failed = audited.wait_for(action="Authenticate", outcome="failure")
    assert failed["type"] == "dev.headrace.authentication"
    data = failed["data"]
    assert (data["principal"], data["host"], data["clientId"]) == ("User:bob", "127.0.0.1", "bob-app")
    assert (data["mechanism"], data["granted"]) == ("SCRAM-SHA-256", False)
    assert data["reason"] == "wrong password"
    succeeded = audited.wait_for(action="Authenticate", outcome="success")["data"]
    assert (succeeded["principal"], succeeded["granted"]) == ("User:admin", True)


def test_excluded_principals_are_not_recorded(audited: AuditedBroker) -> None:
    audited.admin_of("bob").list_topics(timeout=30)
    audited.create("after-bob")
    audited.wait_for(resourceName="after-bob")
    assert audited.events(principal="User:bob", outcome="success") == []


def test_changes_are_recorded_with_names_and_outcomes(audited: AuditedBroker) -> None:
    audited.create("orders", retention_ms="3600000")
    audited.alter(ResourceType.TOPIC, "orders", retention_ms="7200000")
    audited.admin.delete_topics(["orders"])["orders"].result(30)
    with pytest.raises(KafkaException):
        audited.admin.delete_topics(["orders"])["orders"].result(30)
    audited.wait_for(resourceName="orders", outcome="failure")
    found = [each["data"] for each in audited.events(resourceName="orders")]
    assert [(each["action"], each["outcome"], each.get("errorCode")) for each in found] == [
        ("CreateTopics", "success", None),
        ("IncrementalAlterConfigs", "success", None),
        ("DeleteTopics", "success", None),
        ("DeleteTopics", "failure", "UNKNOWN_TOPIC_OR_PARTITION"),
    ]
    assert {(each["principal"], each["clientId"], each["resourceType"]) for each in found} == {
        ("User:admin", "admin-app", "TOPIC")
    }
    assert found[0]["request"]["settings"] == {"retention.ms": "3600000"}
    assert found[1]["request"]["settings"] == {"retention.ms": "7200000"}


def test_a_denial_names_the_rule() -> None:
    with audited_broker() as running:
        running.create("orders")
        producer = Producer(running.conf("bob"))
        assert try_to_write(producer) == "TOPIC_AUTHORIZATION_FAILED"
        denied = running.wait_for(principal="User:bob", outcome="denied")
        assert (denied["type"], denied["subject"]) == ("dev.headrace.authorization", "topic/orders")
        data = denied["data"]
        assert (data["host"], data["clientId"], data["granted"]) == ("127.0.0.1", "bob-app", False)
        assert data["rule"].startswith("no rule allows User:bob from 127.0.0.1 to ")
        running.add_acl(ResourceType.TOPIC, "orders", AclOperation.ALL, AclPermissionType.DENY)
        assert try_to_write(Producer(running.conf("bob"))) == "TOPIC_AUTHORIZATION_FAILED"
        rules = lambda: {each["data"]["rule"] for each in running.events(principal="User:bob", outcome="denied")}  # noqa: E731
        until(lambda: "a rule denies it: deny User:bob all on topic orders" in rules(), "the rule that denies it")
        added = running.wait_for(action="CreateAcls")["data"]
        assert (added["principal"], added["resourceName"], added["outcome"]) == ("User:admin", "orders", "success")
        assert added["request"]["acl"]["permission"] == "DENY"


def try_to_write(producer: Producer) -> str:
    """The error; librdkafka may know it before it sends anything."""
    failed: list[Any] = []
    try:
        producer.produce("orders", b"x", on_delivery=lambda error, _: failed.append(error))
    except KafkaException as error:
        return str(error.args[0].name())
    assert producer.flush(30) == 0
    return str(failed[0].name())


def test_reading_needs_a_permission(audited: AuditedBroker) -> None:
    audited.create("before-reading")
    audited.wait_for(resourceName="before-reading")
    audited.add_acl(ResourceType.GROUP, "bobs", AclOperation.READ, AclPermissionType.ALLOW)
    consumer = Consumer(audited.conf("bob", group_id="bobs"))
    consumer.subscribe(["__audit"])
    message = consumer.poll(30)
    consumer.close()
    assert message is not None
    assert message.error().name() == "TOPIC_AUTHORIZATION_FAILED"


def test_a_topic_that_is_created_by_its_first_use_is_recorded(audited: AuditedBroker) -> None:
    producer = Producer(audited.conf(allow_auto_create_topics=True))
    producer.produce("by-use", b"x")
    assert producer.flush(30) == 0
    assert audited.wait_for(resourceName="by-use")["data"]["request"] == {"automatic": True}


def test_secrets_never_appear(audited: AuditedBroker, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    for config in ({"sqs_access_keys": f"id:{SECRET}"}, {f"x.{1}": SECRET}, {"retention_ms": SECRET}):
        for kind, name in ((ResourceType.BROKER, "0"), (ResourceType.TOPIC, "secretive")):
            with pytest.raises(KafkaException):
                audited.alter(kind, name, **config)
    info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 4096)
    change = UserScramCredentialUpsertion("carol", info, SECRET.encode(), b"salt")
    done = audited.admin.alter_user_scram_credentials([change])["carol"]
    done.exception(30)
    carol = audited.wait_for(resourceName="carol")["data"]
    assert (carol["resourceType"], carol["request"]) == ("USER", {"set": ["SCRAM-SHA-256"]})
    refused = audited.wait_for(resourceName="secretive", outcome="failure")["data"]
    assert list(refused["request"]["settings"].values()) == [None]
    assert SECRET.encode() not in b"".join(audited.messages())
    assert SECRET not in "".join(line for line in caplog.text.splitlines() if "audit" in line)


def test_clients_cannot_write(audited: AuditedBroker) -> None:
    audited.create("writable")
    audited.wait_for(resourceName="writable")
    before = len(audited.messages())
    failed: list[Any] = []
    producer = Producer(audited.conf())
    producer.produce("__audit", b"forged", on_delivery=lambda error, _: failed.append(error))
    assert producer.flush(30) == 0
    assert failed[0].name() == "TOPIC_EXCEPTION"
    assert not any(b"forged" in each for each in audited.messages()[before:])


def test_queues_cannot_write_to_it(audited: AuditedBroker) -> None:
    audited.create("before-queues")
    audited.wait_for(resourceName="before-queues")
    sqs = boto3.client(
        "sqs",
        endpoint_url=audited.broker.http_url,
        region_name="us-east-1",
        aws_access_key_id="any",
        aws_secret_access_key="any",
    )
    with pytest.raises(Exception, match=r"(?i)internal topic|AccessDenied|InvalidClientToken"):
        sqs.create_queue(QueueName="__audit")
    audited.alter(ResourceType.TOPIC, "__audit", queue_type="standard")
    with pytest.raises(Exception, match=r"(?i)NonExistentQueue|does not exist|AccessDenied|InvalidClientToken"):
        sqs.send_message(QueueUrl=f"{audited.broker.http_url}/000000000000/__audit", MessageBody="forged")


def test_without_authorization_clients_cannot_write_either() -> None:
    with Broker(settings={"audit.enable": True}) as broker:
        settings = {"bootstrap.servers": broker.bootstrap}
        admin = AdminClient(settings)
        admin.create_topics([NewTopic("orders", 1, 1)])["orders"].result(30)
        until(lambda: "__audit" in admin.list_topics(timeout=30).topics, "the topic")
        failed: list[Any] = []
        producer = Producer(settings)
        producer.produce("__audit", b"forged", on_delivery=lambda error, _: failed.append(error))
        assert producer.flush(30) == 0
        assert failed[0].name() == "TOPIC_EXCEPTION"


def test_an_unsecured_broker_has_no_audit_log() -> None:
    with Broker() as broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        admin.create_topics([NewTopic("orders", 1, 1)])["orders"].result(30)
        broker.restart()
        assert set(AdminClient({"bootstrap.servers": broker.bootstrap}).list_topics(timeout=30).topics) == {"orders"}


def test_events_survive_a_restart_and_none_is_lost_by_it(tmp_path: Path) -> None:
    file = tmp_path / "audit.log"
    with audited_broker(audit_file=file, audit_file_max_bytes=4096) as running:
        running.create(*[f"topic-{number}" for number in range(30)])
        # Nothing is awaited: what is in the buffer is written when the broker stops.
        running.broker.restart()
        running.create("later")
        running.wait_for(resourceName="later")
        names = [each["data"].get("resourceName") for each in running.events(action="CreateTopics")]
        assert names == [*[f"topic-{number}" for number in range(30)], "later"]
        events = [json.loads(each) for each in running.messages()]
        assert len({each["id"] for each in events}) == len(events)

        def filed() -> list[Event]:
            paths = sorted(tmp_path.iterdir(), key=lambda path: int(path.suffix[1:]) if path != file else 0)
            lines = [line for path in reversed(paths) for line in path.read_text().splitlines()]
            return [json.loads(line) for line in lines]

        until(lambda: len(filed()) >= len(events), "the file")
        assert filed()[: len(events)] == events
        assert (tmp_path / "audit.log.1").exists()


def test_a_full_buffer_drops_events_and_says_so() -> None:
    with audited_broker(audit_buffer_max_events=3, audit_events="admin") as running:
        running.create("first")
        running.wait_for(resourceName="first")
        # No record of it can be committed any more: there is one replica.
        running.alter(ResourceType.TOPIC, "__audit", min_insync_replicas="2")
        running.create(*[f"topic-{number}" for number in range(10)])
        running.alter(ResourceType.TOPIC, "__audit", min_insync_replicas="1")
        gaps = until(lambda: [each for each in running.events() if each["type"] == "dev.headrace.audit.gap"], "a gap")
        kept = len(running.events(action="CreateTopics")) - 1
        altered = len(running.events(action="IncrementalAlterConfigs", resourceName="__audit"))
        assert gaps[0]["data"]["dropped"] == 10 + 2 - kept - altered
        assert "events were dropped from" in gaps[0]["data"]["message"]


def test_the_block_policy_makes_administrative_requests_wait() -> None:
    with audited_broker(audit_buffer_max_events=2, audit_full_policy="block") as running:
        running.create("first")
        running.wait_for(resourceName="first")
        running.alter(ResourceType.TOPIC, "__audit", min_insync_replicas="2")
        running.create("second")
        waiting = running.admin
        third = waiting.create_topics([NewTopic("third", 1, 1)])["third"]
        with pytest.raises(NotYet):
            third.result(0.5)
        other = running.admin_of("admin")
        assert "third" not in other.list_topics(timeout=30).topics, "other requests are served"
        running.admin = other
        running.alter(ResourceType.TOPIC, "__audit", min_insync_replicas="1")
        third.result(30)
        running.wait_for(resourceName="third")
        names = [each["data"]["resourceName"] for each in running.events(action="CreateTopics")]
        assert names == ["first", "second", "third"]


def test_produce_and_consume_are_recorded_by_topic() -> None:
    settings = {"audit_events": "produce,consume", "audit_topics": "pay.*", "num_partitions": 1}
    with audited_broker(**settings) as running:
        producer = Producer(running.conf(allow_auto_create_topics=True))
        for topic in ("pay.in", "orders"):
            producer.produce(topic, b"x")
        assert producer.flush(30) == 0
        written = running.wait_for(action="Produce")
        assert (written["type"], written["subject"]) == ("dev.headrace.produce", "topic/pay.in")
        assert (written["data"]["outcome"], written["data"]["operation"]) == ("allowed", "WRITE")
        consumer = Consumer(running.conf("admin", group_id="g"))
        consumer.assign([TopicPartition("pay.in", 0, 0), TopicPartition("orders", 0, 0)])
        consumer.consume(2, 10)
        consumer.close()
        assert running.wait_for(action="Fetch")["data"]["resourceName"] == "pay.in"
        assert running.events(resourceName="orders") == []


def test_the_classes_are_changed_while_the_broker_runs(audited: AuditedBroker) -> None:
    audited.alter(ResourceType.BROKER, "0", audit_enable="false")
    try:
        audited.create("unseen")
    finally:
        audited.alter(ResourceType.BROKER, "0", audit_enable="auto")
    audited.create("seen")
    audited.wait_for(resourceName="seen")
    assert audited.events(resourceName="unseen") == []
    switched = audited.events(action="IncrementalAlterConfigs", resourceType="BROKER", outcome="success")
    assert [each["data"]["request"]["settings"] for each in switched] == [
        {"audit.enable": "false"},
        {"audit.enable": "auto"},
    ]


# -- the commands, on a broker without users

Run = Callable[..., str]


@pytest.fixture(scope="module")
def run() -> Iterator[Run]:
    with Broker(settings={"audit.enable": True}) as broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap, "client.id": "setup"})
        for name in ("orders", "payments"):
            admin.create_topics([NewTopic(name, 1, 1)])[name].result(30)
        with pytest.raises(KafkaException):
            admin.delete_topics(["missing"])["missing"].result(30)

        def command(*arguments: str) -> str:
            result = subprocess.run(
                [sys.executable, "-m", "headrace", "audit", *arguments],
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=60,
                env={**os.environ, "HEADRACE_BOOTSTRAP": broker.bootstrap},
                check=False,
            )
            assert result.returncode == 0, result
            return result.stdout

        until(lambda: "missing" in command("tail"), "the last event")
        yield command


def test_tail_prints_the_latest(run: Run) -> None:
    lines = run("tail").splitlines()
    assert lines[0].split() == ["TIME", "OUTCOME", "PRINCIPAL", "HOST", "ACTION", "RESOURCE", "TIMES", "DETAILS"]
    assert [line.split()[5] for line in lines[1:]] == ["topic/orders", "topic/payments", "topic/missing"]
    (last,) = run("tail", "--count", "1", "--json").splitlines()
    assert json.loads(last)["data"]["errorCode"] == "UNKNOWN_TOPIC_OR_PARTITION"
    assert run("tail", "--principal", "nobody") == "No events match\n"
    assert run("tail", "--denied") == "No events match\n"


def test_search_finds_by_principal_resource_outcome_and_time(run: Run) -> None:
    def found(*arguments: str) -> list[str]:
        return [json.loads(each)["subject"] for each in run("search", "--json", *arguments).splitlines()]

    assert found("--since", "7d") == ["topic/orders", "topic/payments", "topic/missing"]
    assert found("--principal", "ANONYMOUS", "--outcome", "success") == ["topic/orders", "topic/payments"]
    assert found("--resource", "orders") == found("--resource", "topic/orders") == ["topic/orders"]
    assert found("--action", "deletetopics") == ["topic/missing"]
    assert found("--class", "authentication") == []
    assert found("--until", "1h ago") == []


def test_follow_prints_what_happens(run: Run) -> None:
    """Ended by its reader, as by `head`."""
    with Broker(settings={"audit.enable": True}) as broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        admin.create_topics([NewTopic("first", 1, 1)])["first"].result(30)
        until(lambda: "__audit" in admin.list_topics(timeout=30).topics, "the topic")
        following = subprocess.Popen(
            [sys.executable, "-m", "headrace", "audit", "tail", "--follow", "--json", "--bootstrap", broker.bootstrap],
            stdout=subprocess.PIPE,
            text=True,
        )
        try:
            assert following.stdout is not None
            assert json.loads(following.stdout.readline())["subject"] == "topic/first"
            admin.create_topics([NewTopic("second", 1, 1)])["second"].result(30)
            assert json.loads(following.stdout.readline())["subject"] == "topic/second"
        finally:
            following.terminate()
            following.communicate(timeout=30)
