"""Access control as confluent-kafka's clients meet it: a real broker with `authorization.enable`.

Clients do not authenticate here, so all are `User:ANONYMOUS`: a super user of the first broker, which makes the ACLs,
and an ordinary one of the second, on the same data.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
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
)

from headrace.testing import Broker

ANYONE = "User:ANONYMOUS"
EVERYTHING = AclBindingFilter(
    ResourceType.ANY, None, ResourcePatternType.ANY, None, None, AclOperation.ANY, AclPermissionType.ANY
)


def acl(kind: ResourceType, name: str, operation: AclOperation) -> AclBinding:
    return AclBinding(kind, name, ResourcePatternType.LITERAL, ANYONE, "*", operation, AclPermissionType.ALLOW)


READ_ORDERS = acl(ResourceType.TOPIC, "orders", AclOperation.READ)
ACLS = [
    READ_ORDERS,
    acl(ResourceType.TOPIC, "orders", AclOperation.WRITE),
    acl(ResourceType.GROUP, "readers", AclOperation.READ),
    acl(ResourceType.BROKER, "kafka-cluster", AclOperation.ALTER),
]


@pytest.fixture
def guarded(tmp_path: Path) -> Iterator[Broker]:
    """A broker with the topics `orders` and `secret`, whose clients have the permissions above."""
    settings = {"authorization.enable": True}
    with Broker(tmp_path, settings={**settings, "super.users": ANYONE}) as broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        for created in admin.create_topics([NewTopic(name, 1) for name in ("orders", "secret")]).values():
            created.result(60)
        for done in admin.create_acls(ACLS).values():
            done.result(60)
        assert set(admin.describe_acls(EVERYTHING).result(60)) == set(ACLS)
    with Broker(tmp_path, settings=settings) as broker:
        yield broker


def refusal(done: Any) -> int:
    with pytest.raises(KafkaException) as caught:
        done.result(60)
    return int(caught.value.args[0].code())


def test_clients_may_do_what_acls_allow_until_they_are_deleted(guarded: Broker) -> None:
    admin = AdminClient({"bootstrap.servers": guarded.bootstrap})
    assert set(admin.list_topics(timeout=60).topics) == {"orders"}
    (created,) = admin.create_topics([NewTopic("more", 1)]).values()
    assert refusal(created) == KafkaError.TOPIC_AUTHORIZATION_FAILED
    (described,) = admin.describe_configs([ConfigResource(ConfigResource.Type.TOPIC, "orders")]).values()
    assert refusal(described) == KafkaError.TOPIC_AUTHORIZATION_FAILED

    delivered: dict[str, KafkaError | None] = {}
    producer = Producer({"bootstrap.servers": guarded.bootstrap, "message.timeout.ms": 60_000})
    for topic in ("orders", "secret"):
        producer.produce(topic, b"tea", on_delivery=lambda error, message: delivered.update({message.topic(): error}))
    assert producer.flush(60) == 0
    assert delivered["orders"] is None
    refused = delivered["secret"]
    assert refused is not None
    assert refused.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED

    consumer = Consumer({"bootstrap.servers": guarded.bootstrap, "group.id": "readers"})
    try:
        consumer.assign([TopicPartition("orders", 0, 0)])
        message = consumer.poll(60)
        assert message is not None
        assert message.value() == b"tea"
        selected = AclBindingFilter(
            ResourceType.TOPIC,
            "orders",
            ResourcePatternType.MATCH,
            ANYONE,
            None,
            AclOperation.READ,
            AclPermissionType.ANY,
        )
        (deleted,) = admin.delete_acls([selected]).values()
        assert deleted.result(60) == [READ_ORDERS]
        denial = consumer.poll(60)
        assert denial is not None
        error = denial.error()
        assert error is not None
        assert error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED
    finally:
        consumer.close()
