"""Kafka and SQS clients against a broker with TLS and users."""

from collections.abc import Iterator

import boto3
import pytest
from confluent_kafka import Consumer, KafkaException, Producer
from confluent_kafka.admin import AdminClient

from headrace.testing import Broker

PASSWORD = "correct horse"


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker(tls=True, users={"alice": PASSWORD}) as running:
        yield running


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_a_user_produces_and_consumes(broker: Broker, mechanism: str) -> None:
    settings = broker.kafka_settings("alice", mechanism=mechanism)
    topic = f"orders-{mechanism.lower()}"
    producer = Producer(settings)
    for number in range(100):
        producer.produce(topic, str(number).encode())
    assert producer.flush(30) == 0
    consumer = Consumer({**settings, "group.id": topic, "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    seen: list[bytes | None] = []
    while len(seen) < 100:
        seen += [message.value() for message in consumer.consume(100, 30)]
    consumer.close()
    assert sorted(int(value or b"-1") for value in seen) == list(range(100))


@pytest.mark.parametrize(
    "wrong",
    [
        {"sasl.password": "wrong"},
        {"sasl.username": "mallory"},
        {"security.protocol": "SSL"},
        {"security.protocol": "PLAINTEXT"},
        {"sasl.mechanism": "PLAIN", "sasl.password": "wrong"},
    ],
    ids=lambda wrong: ",".join(wrong.values()),
)
def test_clients_that_do_not_authenticate_get_nothing(broker: Broker, wrong: dict[str, str]) -> None:
    settings = {**broker.kafka_settings("alice"), **wrong, "log_level": 0, "socket.timeout.ms": 2000}
    with pytest.raises(KafkaException):
        AdminClient(settings).list_topics(timeout=2)


def test_data_and_users_survive_a_restart() -> None:
    with Broker(tls=True, users={"alice": PASSWORD}) as broker:
        producer = Producer(broker.kafka_settings("alice"))
        producer.produce("orders", b"tea")
        assert producer.flush(30) == 0
        broker.restart()
        metadata = AdminClient(broker.kafka_settings("alice")).list_topics(timeout=30)
        assert "orders" in metadata.topics


def test_queues_over_https(broker: Broker) -> None:
    sqs = boto3.client(
        "sqs",
        endpoint_url=broker.http_url,
        region_name="us-east-1",
        aws_access_key_id="any",
        aws_secret_access_key="any",
        verify=str(broker.ca_file),
    )
    url = sqs.create_queue(QueueName="emails")["QueueUrl"]
    assert url.startswith("https://")
    sqs.send_message(QueueUrl=url, MessageBody="hello")
    assert sqs.receive_message(QueueUrl=url)["Messages"][0]["Body"] == "hello"
