"""Users who are deleted or whose password changes lose their connections at once."""

from collections.abc import Iterator

import pytest

from headrace.security.sasl.client import client_exchange
from headrace.testing import Broker
from tests.interop.raw_client import FETCH, METADATA, Closed, Error, fetch_body

from .wire import PASSWORD, Client

MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
WITHIN_S = 1.0


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker(users={"alice": PASSWORD, "bob": PASSWORD}) as running:
        yield running


def _logged_in(broker: Broker, mechanism: str, user: str = "alice") -> Client:
    client = Client(broker.bootstrap)
    assert client.log_in(mechanism, user).error_code == Error.none
    return client


def test_connections_of_a_deleted_user_are_closed(broker: Broker) -> None:
    clients = [_logged_in(broker, mechanism) for mechanism in MECHANISMS]
    bob = _logged_in(broker, "SCRAM-SHA-256", "bob")
    stranger = Client(broker.bootstrap)
    broker.delete_user("alice")
    assert all(client.wait_closed(WITHIN_S) for client in clients)
    assert bob.call(METADATA, 4, topics=[]).brokers
    assert stranger.log_in("SCRAM-SHA-256").error_code == Error.sasl_authentication_failed
    for client in (*clients, bob, stranger):
        client.close()


def test_a_new_password_closes_connections_that_used_the_old_one(broker: Broker) -> None:
    clients = [_logged_in(broker, mechanism) for mechanism in MECHANISMS]
    broker.set_password("alice", "another password")
    assert all(client.wait_closed(WITHIN_S) for client in clients)
    for mechanism in MECHANISMS:
        with Client(broker.bootstrap) as client:
            assert client.log_in(mechanism).error_code == Error.sasl_authentication_failed
        with Client(broker.bootstrap) as client:
            assert client.log_in(mechanism, password="another password").error_code == Error.none
    for client in clients:
        client.close()


def test_a_fetch_that_waits_is_not_answered_after_the_deletion(broker: Broker) -> None:
    with _logged_in(broker, "SCRAM-SHA-512") as client:
        client.call(METADATA, 4, topics=[{"name": "orders"}], allow_auto_topic_creation=True)
        client.send(FETCH, 12, fetch_body("orders", max_wait=30_000, min_bytes=1))
        broker.delete_user("alice")
        with pytest.raises(Closed):
            client.receive_frame()


def test_a_login_that_has_begun_does_not_outlive_its_user(broker: Broker) -> None:
    exchange = client_exchange("SCRAM-SHA-256", user="alice", password=PASSWORD)
    with Client(broker.bootstrap) as client:
        client.handshake("SCRAM-SHA-256")
        final = exchange.next(client.authenticate(exchange.first()).auth_bytes)
        assert final is not None
        broker.delete_user("alice")
        assert client.authenticate(final).error_code == Error.sasl_authentication_failed


def test_a_password_that_was_right_is_not_remembered(broker: Broker) -> None:
    """PLAIN remembers right passwords, to save their hash: not those of a user that is gone, or came back."""
    _logged_in(broker, "PLAIN").close()
    broker.delete_user("alice")
    with Client(broker.bootstrap) as client:
        assert client.log_in("PLAIN").error_code == Error.sasl_authentication_failed
    broker.set_password("alice", "another password")
    with Client(broker.bootstrap) as client:
        assert client.log_in("PLAIN").error_code == Error.sasl_authentication_failed
