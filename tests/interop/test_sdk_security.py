"""The SDK over TLS and SASL: topics, groups, queues; and clear errors within seconds."""

import asyncio
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import headrace.aio
from headrace import Client, ClientError, NotAuthenticated, Unreachable
from headrace.security.tls.dev_certificates import make_dev_certificates
from headrace.testing import Broker
from tests.unit.security.sasl.provider import AUDIENCE, ISSUER, running_provider, token

PASSWORD = "correct horse"
KEY = "AKIDEXAMPLE:a-secret-of-the-key"


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker(tls=True, users={"alice": PASSWORD}, settings={"sqs.access.keys": KEY}) as running:
        yield running


@pytest.fixture(scope="module")
def plain() -> Iterator[Broker]:
    with Broker() as running:
        yield running


@pytest.fixture(scope="module")
def other_ca(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_dev_certificates(tmp_path_factory.mktemp("certificates")).ca.cert_file


def client(broker: Broker, **changes: Any) -> Client:
    given = {"user": "alice", "password": PASSWORD, "tls": broker.ca_file, "access_key": KEY, **changes}
    return Client(broker.bootstrap, **given)


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", None])
def test_publish_and_consume(broker: Broker, mechanism: str | None) -> None:
    topic = f"orders-{mechanism}"
    with client(broker, mechanism=mechanism) as alice:
        alice.topics.create(topic, partitions=1)
        alice.publish(topic, "tea")
        with alice.consume(topic, group=topic) as orders:
            assert next(iter(orders)).text == "tea"
        with alice.consume(topic, topic + "-copy", "exactly-once") as orders:
            orders.publish(topic + "-copy", next(iter(orders)).payload)
        assert [each.text for each in alice.replay(topic + "-copy")] == ["tea"]
        assert alice.health().last_error is None


def test_queues_over_https_with_an_access_key(broker: Broker) -> None:
    with client(broker) as alice:
        emails = alice.queue("emails")
        emails.create()
        emails.send("hello")
        (received,) = emails.receive(wait=10)
        assert received.text == "hello"
        received.ack()
        assert [each.name for each in alice.queues()] == ["emails"]
    with client(broker, access_key="AKIDEXAMPLE:another") as wrong, pytest.raises(ClientError, match="signature"):
        wrong.queue("emails").receive(wait=0)


def test_queues_with_the_password_of_the_user(broker: Broker) -> None:
    with client(broker, access_key="") as alice:
        letters = alice.queue("letters")
        letters.create()
        letters.send("to bob")
        (received,) = letters.receive(wait=10)
        assert received.text == "to bob"
        received.ack()
        letters.delete()
    wrong = client(broker, access_key="", http=broker.http_url, password="wrong")
    with wrong as mallory, pytest.raises(ClientError, match="password is wrong"):
        mallory.queue("letters").receive(wait=0)


def test_asyncio(broker: Broker) -> None:
    async def use() -> list[str]:
        given: dict[str, Any] = {"user": "alice", "password": PASSWORD, "tls": str(broker.ca_file), "access_key": KEY}
        async with headrace.aio.Client(broker.bootstrap, **given) as alice:
            await alice.publish("async", "tea")
            queue = alice.queue("async-emails")
            await queue.create()
            await queue.send("hello")
            return [each async for each in _texts(alice)]

    async def _texts(alice: headrace.aio.Client) -> Any:
        async for each in alice.replay("async"):
            yield each.text

    assert asyncio.run(use()) == ["tea"]


FIRST_CALLS: list[Callable[[Client], object]] = [
    lambda alice: alice.publish("orders", "tea"),
    lambda alice: alice.topics.list(),
    lambda alice: alice.consume("orders", group="g"),
    lambda alice: alice.consume("orders", "g", "exactly-once"),
    lambda alice: alice.queue("emails").receive(),
]


@pytest.mark.parametrize("call", FIRST_CALLS)
def test_a_wrong_password_is_said_at_once(broker: Broker, call: Callable[[Client], object]) -> None:
    check(lambda: client(broker, password="wrong"), call, NotAuthenticated, "invalid credentials")


def check(make: Callable[[], Client], call: Callable[[Client], object], kind: type[ClientError], reason: str) -> None:
    started_s = time.monotonic()
    with pytest.raises(kind, match=reason) as caught, make() as alice:
        call(alice)
    assert time.monotonic() - started_s < 6
    assert PASSWORD not in str(caught.value)


def test_what_does_not_fit_is_said_at_once(broker: Broker, plain: Broker, other_ca: Path) -> None:
    publish = FIRST_CALLS[0]
    check(lambda: client(broker, tls=other_ca), publish, NotAuthenticated, "not from a trusted authority")
    check(lambda: client(broker, tls=True), publish, NotAuthenticated, "not from a trusted authority")
    check(lambda: client(broker, tls="/no/ca.pem"), publish, ClientError, "/no/ca.pem does not exist")
    check(lambda: client(broker, token=lambda: "t", password=""), publish, NotAuthenticated, "mechanism")
    check(lambda: Client(broker.bootstrap), publish, Unreachable, "it expects TLS")
    wait: dict[str, Any] = {"connect_timeout": 1}
    reason = "over SSL; does the port expect that"
    check(lambda: Client(broker.bootstrap, tls=broker.ca_file, **wait), publish, Unreachable, reason)
    check(lambda: Client(plain.bootstrap, tls=True, **wait), publish, Unreachable, reason)
    login: dict[str, Any] = {"user": "alice", "password": PASSWORD}
    check(lambda: Client(plain.bootstrap, **login), publish, NotAuthenticated, "no authentication on this port")
    check(lambda: Client(user="alice"), publish, ClientError, "the user alice has no password")


def test_queues_of_an_untrusted_server(broker: Broker, plain: Broker) -> None:
    check(
        lambda: Client(plain.bootstrap, http=broker.http_url, access_key=KEY),
        lambda alice: alice.queue("emails").receive(),
        NotAuthenticated,
        "is not trusted",
    )


def test_a_user_on_a_port_without_tls() -> None:
    with Broker(users={"alice": PASSWORD}) as broker:
        with Client(broker.bootstrap, user="alice", password=PASSWORD) as alice:
            alice.publish("orders", "tea")
        wrong = lambda: Client(broker.bootstrap, connect_timeout=0.5)  # noqa: E731
        check(wrong, FIRST_CALLS[0], Unreachable, "does it expect a user")


def test_a_client_certificate(tmp_path: Path) -> None:
    made = make_dev_certificates(tmp_path, clients=["alice"])
    settings = {
        "listeners": "tls://127.0.0.1:0?client.auth=required",
        "tls.cert.file": made.broker.cert_file,
        "tls.key.file": made.broker.key_file,
        "tls.ca.file": made.ca.cert_file,
    }
    (own,) = made.clients
    with Broker(settings=settings) as broker:
        with Client(broker.bootstrap, tls=made.ca.cert_file, cert=own.cert_file, key=own.key_file) as alice:
            alice.publish("orders", "tea")
        check(lambda: Client(broker.bootstrap, tls=made.ca.cert_file), FIRST_CALLS[0], ClientError, "certificate")


def test_a_token_is_asked_for_when_one_is_needed() -> None:
    asked: list[str] = []

    def fresh() -> str:
        asked.append(token())
        return asked[-1]

    with running_provider() as keys:
        settings = {
            "listeners": "sasl_plain://127.0.0.1:0?sasl=OAUTHBEARER",
            "sasl.oauthbearer.jwks.endpoint.url": keys.url,
            "sasl.oauthbearer.expected.issuer": ISSUER,
            "sasl.oauthbearer.expected.audience": AUDIENCE,
        }
        with Broker(settings=settings) as broker:
            with Client(broker.bootstrap, token=fresh, tls=False) as alice:
                alice.publish("orders", "tea")
                assert alice.topics.list() == ["orders"]
                assert [each.text for each in alice.replay("orders")] == ["tea"]
            assert asked
            wrong = lambda: Client(broker.bootstrap, token="no.jwt.here", tls=False)  # noqa: E731
            check(wrong, FIRST_CALLS[0], NotAuthenticated, "OAUTHBEARER|token")


def test_a_profile(broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "headrace" / "config.toml"
    file.parent.mkdir()
    file.write_text(
        f'[profiles.prod]\nbootstrap = "{broker.bootstrap}"\nuser = "alice"\npassword = "${{PROD_PASSWORD}}"\n'
        f'ca_file = "{broker.ca_file}"\naccess_key = "{KEY}"\n'
    )
    file.chmod(0o600)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.setenv("PROD_PASSWORD", PASSWORD)
    with Client(profile="prod") as alice:
        assert alice.bootstrap == broker.bootstrap
        alice.publish("profiles", "tea")
        alice.queue("profiles-queue").create()
    monkeypatch.setenv("HEADRACE_PROFILE", "prod")
    with Client() as alice:
        alice.publish("profiles", "cake")
    with pytest.raises(ClientError, match=r"has no profile prd; did you mean prod\?"):
        Client(profile="prd")
