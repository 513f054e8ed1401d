"""A link mirrors a topic of Apache Kafka into Headrace, with transactions and offsets of groups, until a failover."""

import json
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

from apache import HERE, Java
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)
from mirror import COORDINATOR_STARTS, until_true
from report import Report, expect
from tests.interop import quota_requests, raw_client
from tests.interop.subject import KafkaProcess

from headrace.testing.process import BrokerProcess

_TOPIC, _GROUP = "payments", "billing"
_MESSAGES = 500
_AUTHORIZED = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
}
_RULES = [("allow", "prefixed", "pay"), ("deny", "literal", "payments")]


def check_link(report: Report, java: Java, scratch: Path) -> None:
    kafka = KafkaProcess(f"{HERE}:{java.libs}", scratch / "linked", _AUTHORIZED)
    try:
        kafka.start()
        raw_client.create_topic(kafka.bootstrap, _TOPIC, 2, {"retention.ms": "12345678"})
        with BrokerProcess(scratch / "link", settings={"link.refresh.interval.ms": 200}) as broker:
            link = {"name": "kafka", "bootstrap": [kafka.bootstrap], "topics": [_TOPIC], "sync": ["acls", "quotas"]}
            _call(broker, "/links", link)
            _write(kafka.bootstrap)
            with report.check("a link copies the ACLs and quotas of Kafka"):
                _restrict(kafka.bootstrap)
                until_true(lambda: _quotas(broker.bootstrap) == _quotas(kafka.bootstrap) != {})
                until_true(lambda: _acls(broker) == _RULES)
            with report.check(
                "a link copies a topic of Kafka byte for byte, markers and aborted transactions included"
            ):
                until_true(lambda: _bytes(broker.bootstrap) == _bytes(kafka.bootstrap) != {})
            with report.check("a link copies the committed offsets of Kafka's groups"):
                until_true(lambda: _committed(broker.bootstrap) == _committed(kafka.bootstrap) == [7, 9])
            with report.check("a consumer of the mirror sees committed messages only"):
                seen = _read(broker.bootstrap)
                expect(sorted(seen) == sorted(_read(kafka.bootstrap)), len(seen))
                expect(len(seen) == _MESSAGES + 2, len(seen))
            kafka.close()
            with report.check("a failover makes the mirror writable"):
                answer = _call(broker, f"/mirrors/{_TOPIC}/failover", {})
                expect(answer["missing_messages"] == 0, answer)
                _send(broker.bootstrap, [b"here"])
                expect(len(_read(broker.bootstrap)) == _MESSAGES + 3, "a message is missing")
    finally:
        kafka.close()


def _write(bootstrap: str) -> None:
    """Plain compressed messages, a committed and an aborted transaction, and offsets of a group."""
    _send(bootstrap, [b"%d" % number for number in range(_MESSAGES)])
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": "t"})
    producer.init_transactions(60)
    for is_committed in (True, False, True):
        producer.begin_transaction()
        producer.produce(_TOPIC, b"in a transaction", partition=0, headers={"a": b"1"})
        producer.flush(60)
        (producer.commit_transaction if is_committed else producer.abort_transaction)(60)
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": _GROUP})
    until_true(lambda: _has_committed(consumer))
    consumer.close()


def _restrict(bootstrap: str) -> None:
    """An ALLOW and a DENY rule, and a quota."""
    rules = [
        AclBinding(
            ResourceType.TOPIC,
            name,
            ResourcePatternType[pattern.upper()],
            "User:alice",
            "*",
            AclOperation.READ,
            AclPermissionType[permission.upper()],
        )
        for permission, pattern, name in _RULES
    ]
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for made in admin.create_acls(rules).values():
        made.result(60)
    with raw_client.Connection(bootstrap) as connection:
        answer = quota_requests.alter(connection, {"user": "alice"}, {"producer_byte_rate": 1000.0})
        expect(not answer.error_code.value, answer)


def _quotas(bootstrap: str) -> dict[Any, Any]:
    with raw_client.Connection(bootstrap) as connection:
        return quota_requests.described(connection)


def _acls(broker: BrokerProcess) -> list[tuple[str, str, str]]:
    """The rules here, by the HTTP API: permission and pattern."""
    with urlopen(f"{broker.http_url}/api/v1/acls", timeout=60) as answer:
        rules = json.loads(answer.read())["items"]
    return sorted((each["permission"], each["pattern_type"], each["resource_name"]) for each in rules)


def _has_committed(consumer: Consumer) -> bool:
    try:
        consumer.commit(offsets=[TopicPartition(_TOPIC, 0, 7), TopicPartition(_TOPIC, 1, 9)], asynchronous=False)
    except KafkaException as error:
        expect(error.args[0].retriable() or error.args[0].code() in COORDINATOR_STARTS, error)
        return False
    return True


def _send(bootstrap: str, values: list[bytes]) -> None:
    failed: list[Any] = []
    producer = Producer({"bootstrap.servers": bootstrap, "compression.type": "zstd", "linger.ms": 5})
    for number, value in enumerate(values):
        producer.produce(_TOPIC, value, key=b"k", partition=number % 2, on_delivery=lambda e, _: e and failed.append(e))
    expect(producer.flush(60) == 0 and not failed, failed)


def _bytes(bootstrap: str) -> dict[int, bytes]:
    """What Fetch answers for each partition."""
    with raw_client.Connection(bootstrap) as connection:
        found = {index: raw_client.fetch(connection, _TOPIC, partition=index).records or b"" for index in range(2)}
    return {index: bytes(records) for index, records in found.items() if records}


def _committed(bootstrap: str) -> list[int]:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": _GROUP})
    try:
        return [each.offset for each in consumer.committed([TopicPartition(_TOPIC, 0), TopicPartition(_TOPIC, 1)], 30)]
    finally:
        consumer.close()


def _read(bootstrap: str) -> list[bytes]:
    settings = {"bootstrap.servers": bootstrap, "group.id": "reader", "enable.partition.eof": True}
    consumer = Consumer({**settings, "isolation.level": "read_committed"})
    values, ended = [], 0
    try:
        consumer.assign([TopicPartition(_TOPIC, index, 0) for index in range(2)])
        while ended < 2:
            message = consumer.poll(30)
            expect(message is not None, "no message within 30 s")
            if message.error() is None:
                values.append(message.value() or b"")
            else:
                ended += 1
    finally:
        consumer.close()
    return values


def _call(broker: BrokerProcess, path: str, value: object) -> Any:
    headers = {"Content-Type": "application/json"}
    with urlopen(Request(f"{broker.http_url}/api/v1{path}", json.dumps(value).encode(), headers), timeout=60) as answer:
        return json.loads(answer.read())
