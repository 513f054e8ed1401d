"""Requests before, during and after a login that fails: nothing is answered, nothing is executed."""

import struct
from collections.abc import Iterator

import pytest

from headrace.kafka import handlers as _handlers  # noqa: F401  registers every API
from headrace.kafka.dispatch import APIS
from headrace.testing import Broker
from tests.interop.raw_client import (
    API_VERSIONS,
    CREATE_TOPICS,
    METADATA,
    SASL_AUTHENTICATE,
    SASL_HANDSHAKE,
    Closed,
    Error,
    encode,
)

from .wire import PASSWORD, Client

SOON_S = 5.0
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
FIRST_MESSAGE = b"n,,n=alice,r=rOprNGfwEbeRWgbNEkqO"
GOOD_PLAIN = b"\0alice\0" + PASSWORD.encode()
BEFORE_LOGIN = (API_VERSIONS, SASL_HANDSHAKE, SASL_AUTHENTICATE)
TOPIC = {"name": "planted", "num_partitions": 1, "replication_factor": 1}
REQUEST_BYTES = 64 * 1024


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    settings = {"connection.failed.authentication.delay.ms": 1}
    with Broker(users={"alice": PASSWORD}, settings=settings) as running:
        yield running


@pytest.fixture
def client(broker: Broker) -> Iterator[Client]:
    with Client(broker.bootstrap) as connected:
        yield connected


@pytest.mark.parametrize("has_shaken_hands", [False, True], ids=["before the handshake", "before the token"])
def test_no_api_is_answered_before_the_login(broker: Broker, has_shaken_hands: bool) -> None:
    unknown = [-1, 5, 93, 1000, 32767]
    for key in [*APIS, *unknown]:
        if key in BEFORE_LOGIN:
            continue
        highest = APIS[key].max_version if key in APIS else 0
        for version in {0, highest}:
            with Client(broker.bootstrap) as client:
                if has_shaken_hands:
                    assert client.handshake("SCRAM-SHA-256").error_code == Error.none
                client.send_frame(struct.pack(">hhih", key, version, 7, -1) + bytes(64))
                with pytest.raises(Closed):
                    client.receive_frame()


def test_versions_that_are_not_served_reveal_nothing(broker: Broker) -> None:
    for key in (SASL_HANDSHAKE, SASL_AUTHENTICATE):
        with Client(broker.bootstrap) as client:
            client.send_frame(struct.pack(">hhih", key, 99, 7, -1) + bytes(64))
            with pytest.raises(Closed):
                client.receive_frame()


def test_a_large_request_is_refused_by_its_length(client: Client) -> None:
    client.send_bytes(struct.pack(">i", REQUEST_BYTES + 1))
    assert client.wait_closed(SOON_S)


def test_large_requests_are_accepted_after_the_login(client: Client) -> None:
    assert client.log_in("SCRAM-SHA-256").error_code == Error.none
    names = [{"name": f"{number:0200}"} for number in range(2 * REQUEST_BYTES // 200)]
    assert client.call(METADATA, 4, topics=names, allow_auto_topic_creation=False).topics


@pytest.mark.parametrize("token", [b"\0alice\0wrong", b"\0mallory\0wrong", b"", b"\xff" * 100])
def test_requests_behind_a_login_that_fails_are_not_executed(broker: Broker, token: bytes) -> None:
    frames = [
        encode(SASL_HANDSHAKE, 1, {"mechanism": "PLAIN"}, correlation_id=1),
        encode(SASL_AUTHENTICATE, 2, {"auth_bytes": token}, correlation_id=2),
        encode(CREATE_TOPICS, 7, {"topics": [TOPIC], "timeout": 5000}, correlation_id=3),
        encode(METADATA, 4, {"topics": None}, correlation_id=4),
    ]
    with Client(broker.bootstrap) as client:
        client.send_bytes(b"".join(struct.pack(">i", len(frame)) + frame for frame in frames))
        assert client.receive_frame()[:4] == struct.pack(">i", 1)
        assert client.receive_frame()[:4] == struct.pack(">i", 2)
        with pytest.raises(Closed):
            client.receive_frame()
    with Client(broker.bootstrap) as client:
        assert client.log_in("PLAIN").error_code == Error.none
        assert "planted" not in [topic.name for topic in client.call(METADATA, 4, topics=None).topics]


def test_the_answer_does_not_say_why_a_login_failed(broker: Broker) -> None:
    answers = set()
    for token in (b"\0alice\0wrong", b"\0mallory\0wrong", b"garbage", b"", b"bob\0alice\0wrong", b"\0\0"):
        with Client(broker.bootstrap) as client:
            client.handshake("PLAIN")
            answer = client.authenticate(token)
            answers.add((answer.error_code, answer.error_message, answer.auth_bytes))
            assert client.wait_closed(SOON_S)
    assert len(answers) == 1
    assert next(iter(answers))[0] == Error.sasl_authentication_failed


@pytest.mark.parametrize("mechanism", ["GSSAPI", "OAUTHBEARER", "plain", "", "SCRAM-SHA-1", "PLAIN\0", "X" * 10_000])
def test_a_mechanism_that_is_not_offered(client: Client, mechanism: str) -> None:
    answer = client.handshake(mechanism)
    assert answer.error_code == Error.unsupported_sasl_mechanism
    assert set(answer.mechanisms) == set(MECHANISMS)
    assert client.wait_closed(SOON_S)


def test_a_token_without_a_handshake(client: Client) -> None:
    assert client.authenticate(GOOD_PLAIN).error_code == Error.illegal_sasl_state
    assert client.wait_closed(SOON_S)


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_a_second_handshake_in_the_middle_of_an_exchange(client: Client, mechanism: str) -> None:
    client.handshake("SCRAM-SHA-256")
    assert client.authenticate(FIRST_MESSAGE).error_code == Error.none
    assert client.handshake(mechanism).error_code == Error.illegal_sasl_state
    assert client.wait_closed(SOON_S)


def test_a_token_after_the_login_without_another_handshake(client: Client) -> None:
    assert client.log_in("PLAIN").error_code == Error.none
    assert client.authenticate(GOOD_PLAIN).error_code == Error.illegal_sasl_state
    assert client.wait_closed(SOON_S)


def test_tokens_without_headers(client: Client) -> None:
    """The protocol of Kafka 0.10: after SaslHandshake v0 frames are tokens."""
    assert client.handshake("PLAIN", version=0).error_code == Error.none
    client.send_frame(GOOD_PLAIN)
    assert client.receive_frame() == b""
    assert client.call(METADATA, 4, topics=[]).brokers


@pytest.mark.parametrize("token", [b"\0alice\0wrong", b"", encode(METADATA, 4, {"topics": None}, correlation_id=3)])
def test_a_wrong_token_without_a_header_is_not_answered(client: Client, token: bytes) -> None:
    assert client.handshake("PLAIN", version=0).error_code == Error.none
    client.send_frame(token)
    client.send(METADATA, 4, topics=None)
    with pytest.raises(Closed):
        client.receive_frame()


def test_a_request_in_place_of_the_proof(client: Client) -> None:
    """After SaslHandshake v1 a request of another API ends the exchange, even if it is one of a known API."""
    client.handshake("SCRAM-SHA-512")
    client.authenticate(FIRST_MESSAGE)
    client.send(METADATA, 4, topics=None)
    with pytest.raises(Closed):
        client.receive_frame()


def test_an_idle_client_that_does_not_authenticate_is_closed() -> None:
    settings = {"request.read.timeout.ms": 1000}
    with (
        Broker(users={"alice": PASSWORD}, settings=settings) as broker,
        Client(broker.bootstrap) as silent,
        Client(broker.bootstrap) as chatty,
        Client(broker.bootstrap) as good,
    ):
        assert good.log_in("SCRAM-SHA-256").error_code == Error.none
        assert chatty.call(API_VERSIONS, 0).error_code == Error.none
        assert silent.wait_closed(SOON_S)
        assert chatty.wait_closed(SOON_S)
        assert good.call(METADATA, 4, topics=[]).brokers
