"""Kafka and SQS clients against a broker with TLS and users, by every way to authenticate."""

import json
import uuid
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import boto3
import pytest
from awscli.clidriver import create_clidriver
from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import AdminClient

from headrace.security.tls.dev_certificates import make_dev_certificates
from headrace.testing import Broker
from headrace.testing.etcd import free_port

from .oidc import OidcProvider, running_oidc_provider
from .secure_clients import LIBRARIES, Credentials

PASSWORD = "correct horse"
SECRET = "battery staple"
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")
VALUES = [str(number).encode() for number in range(50)]


class Secured:
    """A broker and what its clients need."""

    def __init__(self, broker: Broker, provider: OidcProvider, mutual_port: int) -> None:
        self.broker = broker
        self.provider = provider
        self._mutual_port = mutual_port

    def credentials(self, mechanism: str) -> Credentials:
        """Alice's; `TLS` means a certificate."""
        ca_file = self.broker.ca_file
        if mechanism == "TLS":
            (client,) = make_dev_certificates(ca_file.parent, clients=["alice"]).clients
            address = f"127.0.0.1:{self._mutual_port}"
            return Credentials(address, ca_file, client.cert_file, client.key_file)
        if mechanism == "OAUTHBEARER":
            token = lambda: self.provider.token("alice")  # noqa: E731
            return Credentials(self.broker.bootstrap, ca_file, mechanism=mechanism, token=token)
        return Credentials(self.broker.bootstrap, ca_file, mechanism=mechanism, user="alice", password=PASSWORD)


@pytest.fixture(scope="module")
def secured() -> Iterator[Secured]:
    mutual_port = free_port()
    listeners = f"sasl_tls://127.0.0.1:0,tls://127.0.0.1:{mutual_port}?name=mutual&client.auth=required"
    with running_oidc_provider({"alice": SECRET}) as provider:
        settings = {"listeners": listeners, "sasl.enabled.mechanisms": ",".join(MECHANISMS), **provider.broker_settings}
        with Broker(tls=True, users={"alice": PASSWORD}, settings=settings) as running:
            yield Secured(running, provider, mutual_port)


@pytest.fixture(scope="module")
def broker(secured: Secured) -> Broker:
    return secured.broker


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("mechanism", [*MECHANISMS, "TLS"])
def test_a_user_produces_and_consumes(secured: Secured, library: str, mechanism: str) -> None:
    topic = f"orders-{uuid.uuid4().hex[:8]}"
    found = LIBRARIES[library](secured.credentials(mechanism), topic, VALUES)
    assert sorted(found) == sorted(VALUES)


def test_librdkafka_fetches_a_token_by_itself(secured: Secured) -> None:
    issued = len(secured.provider.issued)
    credentials = replace(secured.credentials("OAUTHBEARER"), token=None)
    settings = credentials.confluent() | {
        "sasl.oauthbearer.method": "oidc",
        "sasl.oauthbearer.client.id": "alice",
        "sasl.oauthbearer.client.secret": SECRET,
        "sasl.oauthbearer.token.endpoint.url": secured.provider.token_url,
    }
    producer = Producer(settings)
    producer.produce("by-oidc", b"tea")
    assert producer.flush(30) == 0
    assert secured.provider.issued[issued:] == ["alice"]


@pytest.mark.parametrize(
    "changes", [{"iss": "https://another.example"}, {"aud": "another"}, {"exp": 1}], ids=lambda each: next(iter(each))
)
def test_a_token_for_something_else_gets_nothing(secured: Secured, changes: dict[str, Any]) -> None:
    token = secured.provider.token("alice", **changes)
    credentials = replace(secured.credentials("OAUTHBEARER"), token=lambda: token)
    with pytest.raises(KafkaException):
        AdminClient({**credentials.confluent(), "log_level": 0}).list_topics(timeout=1)


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
    settings = {**broker.kafka_settings("alice"), **wrong, "log_level": 0, "socket.timeout.ms": 1000}
    with pytest.raises(KafkaException):
        AdminClient(settings).list_topics(timeout=1)


def test_a_client_without_a_certificate_gets_nothing(secured: Secured) -> None:
    without = replace(secured.credentials("TLS"), cert_file=None)
    with pytest.raises(KafkaException):
        AdminClient({**without.confluent(), "log_level": 0}).list_topics(timeout=1)


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


def test_the_aws_command_line_over_https(
    broker: Broker, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """It trusts the CA that AWS_CA_BUNDLE names, and no broker without it."""
    access = {"AWS_ACCESS_KEY_ID": "any", "AWS_SECRET_ACCESS_KEY": "any", "AWS_DEFAULT_REGION": "us-east-1"}
    for name, value in {**access, "AWS_DEFAULT_OUTPUT": "json", "AWS_MAX_ATTEMPTS": "1"}.items():
        monkeypatch.setenv(name, value)
    command = ["--endpoint-url", broker.http_url, "sqs", "create-queue", "--queue-name", "by-program"]
    with monkeypatch.context() as trusting:
        trusting.setenv("AWS_CA_BUNDLE", str(broker.ca_file))
        assert create_clidriver().main(command) == 0
    assert json.loads(capfd.readouterr().out)["QueueUrl"].startswith("https://")
    assert create_clidriver().main(command) != 0
    assert "CERTIFICATE_VERIFY_FAILED" in capfd.readouterr().err
