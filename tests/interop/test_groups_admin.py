"""What operators do with groups through confluent-kafka's admin client, and what survives a restart of all of it."""

from collections.abc import Callable
from contextlib import closing

import pytest
from confluent_kafka import ConsumerGroupState, ConsumerGroupTopicPartitions, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient

from .group_clients import QUICK, TIMEOUT_S, consumer, produce, read
from .subject import Subject


def test_list_describe_alter_and_delete(own_broker: Callable[..., Subject]) -> None:
    broker = own_broker(**QUICK)
    produce(broker.bootstrap, "t", range(40))
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    with closing(consumer(broker.bootstrap, "g", client_id="me")) as one:
        one.subscribe(["t"])
        assert len(read(one, 40)) == 40
        one.commit(asynchronous=False)
        listed = admin.list_consumer_groups(request_timeout=TIMEOUT_S).result()
        assert [(found.group_id, found.state) for found in listed.valid] == [("g", ConsumerGroupState.STABLE)]
        described = admin.describe_consumer_groups(["g"], request_timeout=TIMEOUT_S)["g"].result()
        (member,) = described.members
        assert (member.client_id, member.host) == ("me", "/127.0.0.1")
        assert {part.partition for part in member.assignment.topic_partitions} == {0, 1, 2, 3}
        assert described.coordinator.port == int(broker.bootstrap.rpartition(":")[2])
        with pytest.raises(KafkaException, match="NON_EMPTY_GROUP"):
            admin.delete_consumer_groups(["g"], request_timeout=TIMEOUT_S)["g"].result()
    wanted = [ConsumerGroupTopicPartitions("g", [TopicPartition("t", 0, 3), TopicPartition("t", 1, 4)])]
    admin.alter_consumer_group_offsets(wanted, request_timeout=TIMEOUT_S)["g"].result()
    broker.kill()
    broker.start()
    # A new client: librdkafka 2.16's admin client waits in vain after a restart, with Apache Kafka, too.
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    asked = [ConsumerGroupTopicPartitions("g")]
    offsets = admin.list_consumer_group_offsets(asked, request_timeout=TIMEOUT_S)["g"].result()
    assert {part.partition: part.offset for part in offsets.topic_partitions} == {0: 3, 1: 4, 2: 10, 3: 10}
    admin.delete_consumer_groups(["g"], request_timeout=TIMEOUT_S)["g"].result()
    broker.kill()
    broker.start()
    # A new client: librdkafka 2.16's admin client waits in vain after a restart, with Apache Kafka, too.
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    assert admin.list_consumer_groups(request_timeout=TIMEOUT_S).result().valid == []
