"""The wire client over TLS and SASL, and what it says within seconds if something does not fit."""

import pickle
import time
from collections.abc import Iterator
from typing import Any

import pytest

from headrace.config.client_connection import VARIABLES
from headrace.security.tls.dev_certificates import make_dev_certificates
from headrace.testing import Broker
from headrace.wire import AuthenticationFailed, Cluster, Credentials, TlsFailed, WireError
from tests.interop.batches import Record, batch

PASSWORD = "correct horse"


@pytest.fixture(scope="module")
def secure() -> Iterator[Broker]:
    with Broker(tls=True, users={"alice": PASSWORD}) as running:
        yield running


@pytest.fixture(scope="module")
def plain() -> Iterator[Broker]:
    with Broker() as running:
        yield running


@pytest.fixture(scope="module")
def with_users() -> Iterator[Broker]:
    with Broker(users={"alice": PASSWORD}) as running:
        yield running


@pytest.fixture(scope="module")
def other_ca(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(make_dev_certificates(tmp_path_factory.mktemp("certificates")).ca.cert_file)


def alice(broker: Broker, **changes: Any) -> Credentials:
    return Credentials(**{"user": "alice", "password": PASSWORD, "ca_file": str(broker.ca_file), **changes})


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_a_user_produces_and_fetches(secure: Broker, mechanism: str) -> None:
    topic = f"orders-{mechanism.lower()}"
    with Cluster(secure.bootstrap, credentials=alice(secure, mechanism=mechanism)) as cluster:
        cluster.create_topic(topic, partitions=1)
        cluster.produce({(topic, 0): batch([Record(b"x" * 300_000), Record(b"y")])})
        assert cluster.fetch(topic, 0, offset=0).high_watermark == 2


def failure(bootstrap: str, credentials: Credentials | None = None) -> WireError:
    started_s = time.monotonic()
    with Cluster(bootstrap, credentials=credentials) as cluster, pytest.raises(WireError) as caught:
        cluster.metadata(())
    assert time.monotonic() - started_s < 5
    assert PASSWORD not in str(caught.value)
    return caught.value


def test_a_wrong_password(secure: Broker) -> None:
    error = failure(secure.bootstrap, alice(secure, password="wrong"))
    assert isinstance(error, AuthenticationFailed)
    assert "does not let in the user alice (SCRAM-SHA-512)" in str(error)


def test_a_mechanism_that_is_not_offered(secure: Broker) -> None:
    error = failure(secure.bootstrap, Credentials(token=lambda: "t", ca_file=str(secure.ca_file)))
    assert "OAUTHBEARER is not enabled there; enabled: PLAIN, SCRAM-SHA-256, SCRAM-SHA-512" in str(error)


def test_a_certificate_of_another_authority(secure: Broker, other_ca: str) -> None:
    error = failure(secure.bootstrap, alice(secure, ca_file=other_ca))
    assert isinstance(error, TlsFailed)
    assert "is not trusted" in str(error)


def test_a_certificate_for_another_host(secure: Broker) -> None:
    where = secure.bootstrap.replace("127.0.0.1", "127.1")
    assert "is not trusted: Hostname mismatch" in str(failure(where, alice(secure)))
    with Cluster(where, credentials=alice(secure, verify_hostname=False)) as cluster:
        cluster.metadata(())


def test_a_ca_file_that_does_not_exist(secure: Broker) -> None:
    assert "/no/ca.pem does not exist" in str(failure(secure.bootstrap, alice(secure, ca_file="/no/ca.pem")))


def test_no_tls_to_a_port_with_tls(secure: Broker) -> None:
    error = failure(secure.bootstrap)
    assert isinstance(error, TlsFailed)
    assert "expects TLS" in str(error)


def test_tls_to_a_port_without(plain: Broker) -> None:
    error = failure(plain.bootstrap, Credentials(tls=True))
    assert isinstance(error, TlsFailed)
    assert "expects no TLS on this port" in str(error)
    assert "TLS handshake" in str(failure(plain.http_url.removeprefix("http://"), Credentials(tls=True)))


def test_no_user_where_one_is_expected(secure: Broker, with_users: Broker) -> None:
    expected = r"expects a user and a password, or a token (PLAIN, SCRAM-SHA-256, SCRAM-SHA-512)"
    assert expected in str(failure(with_users.bootstrap))
    assert expected in str(failure(secure.bootstrap, Credentials(ca_file=str(secure.ca_file))))


def test_a_user_where_none_is_expected(plain: Broker) -> None:
    assert "does not use SASL" in str(failure(plain.bootstrap, Credentials(user="alice", password=PASSWORD)))


def test_credentials_come_from_the_environment(with_users: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLES["user"], "alice")
    monkeypatch.setenv(VARIABLES["password"], PASSWORD)
    with Cluster(with_users.bootstrap) as cluster:
        cluster.metadata(())
        copy = pickle.dumps(cluster)
    assert PASSWORD.encode() not in copy
    with pickle.loads(copy) as cluster:
        cluster.metadata(())


def test_a_session_that_ends_is_replaced() -> None:
    with (
        Broker(users={"alice": PASSWORD}, settings={"connections.max.reauth.ms": 200}) as broker,
        Cluster(broker.bootstrap, credentials=Credentials(user="alice", password=PASSWORD)) as cluster,
    ):
        began_s = time.monotonic()
        while time.monotonic() - began_s < 0.6:
            cluster.metadata(())


def test_a_client_certificate(tmp_path: Any) -> None:
    made = make_dev_certificates(tmp_path, clients=["alice"])
    settings = {
        "listeners": "tls://127.0.0.1:0?client.auth=required",
        "tls.cert.file": made.broker.cert_file,
        "tls.key.file": made.broker.key_file,
        "tls.ca.file": made.ca.cert_file,
    }
    trust: dict[str, Any] = {"ca_file": str(made.ca.cert_file)}
    own: dict[str, Any] = {"cert_file": str(made.clients[0].cert_file), "key_file": str(made.clients[0].key_file)}
    with Broker(settings=settings) as broker:
        with Cluster(broker.bootstrap, credentials=Credentials(**trust, **own)) as cluster:
            cluster.metadata(())
        assert "certificate" in str(failure(broker.bootstrap, Credentials(**trust)))
