"""SCRAM over the wire with messages that an attacker changes, recorded or made without the password."""

from base64 import b64decode, b64encode
from collections.abc import Callable, Iterator

import pytest

from headrace.security.sasl.client import client_exchange
from headrace.testing import Broker
from tests.interop.raw_client import METADATA, Closed, Error

from .wire import PASSWORD, Client

MECHANISM = "SCRAM-SHA-256"
USERS = {"alice": PASSWORD, "bob": "another password"}


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker(users=USERS, settings={"connection.failed.authentication.delay.ms": 1}) as running:
        yield running


def _replaced(message: bytes, key: bytes, edit: Callable[[bytes], bytes]) -> bytes:
    """The message with another value of one attribute."""
    before, _, rest = message.rpartition(b"," + key + b"=")
    value, comma, after = rest.partition(b",")
    return before + b"," + key + b"=" + edit(value) + comma + after


def _flipped(proof: bytes) -> bytes:
    content = bytearray(b64decode(proof))
    content[0] ^= 1
    return b64encode(content)


TAMPERED: dict[str, Callable[[bytes], bytes]] = {
    "another nonce": lambda final: _replaced(final, b"r", lambda nonce: nonce[:-1] + b"?"),
    "a longer nonce": lambda final: _replaced(final, b"r", lambda nonce: nonce + b"x"),
    "the client's nonce alone": lambda final: _replaced(final, b"r", lambda nonce: nonce[:32]),
    "no nonce": lambda final: _replaced(final, b"r", lambda nonce: b""),
    "another proof": lambda final: _replaced(final, b"p", _flipped),
    "a proof of zeros": lambda final: _replaced(final, b"p", lambda _: b64encode(bytes(32))),
    "an empty proof": lambda final: _replaced(final, b"p", lambda _: b""),
    "a short proof": lambda final: _replaced(final, b"p", lambda proof: b64encode(b64decode(proof)[:31])),
    "no proof": lambda final: final.rpartition(b",p=")[0],
    "another binding": lambda final: final.replace(b"c=biws", b"c=eSws", 1),
    "a binding to a channel": lambda final: final.replace(b"c=biws", b"c=cD10bHMtdW5pcXVlLCw=", 1),
    "an extension": lambda final: final.replace(b",p=", b",x=y,p=", 1),
    "a mandatory extension": lambda final: final.replace(b",p=", b",m=y,p=", 1),
}


@pytest.mark.parametrize("tamper", TAMPERED.values(), ids=TAMPERED.keys())
def test_a_changed_final_message_is_rejected(broker: Broker, tamper: Callable[[bytes], bytes]) -> None:
    exchange = client_exchange(MECHANISM, user="alice", password=PASSWORD)
    with Client(broker.bootstrap) as client:
        client.handshake(MECHANISM)
        final = exchange.next(client.authenticate(exchange.first()).auth_bytes)
        assert final is not None
        changed = tamper(final)
        assert changed != final
        _assert_rejected(client, changed)


def test_a_recorded_exchange_cannot_be_replayed(broker: Broker) -> None:
    exchange = client_exchange(MECHANISM, user="alice", password=PASSWORD)
    first = exchange.first()
    with Client(broker.bootstrap) as client:
        client.handshake(MECHANISM)
        final = exchange.next(client.authenticate(first).auth_bytes)
        assert final is not None
        assert client.authenticate(final).error_code == Error.none
    with Client(broker.bootstrap) as client:
        client.handshake(MECHANISM)
        client.authenticate(first)
        _assert_rejected(client, final)
    # Without the first message, and on the connection of another exchange.
    with Client(broker.bootstrap) as client:
        client.handshake(MECHANISM)
        _assert_rejected(client, final)


def test_two_exchanges_of_the_same_nonce_get_different_challenges(broker: Broker) -> None:
    challenges = set()
    for _ in range(10):
        with Client(broker.bootstrap) as client:
            client.handshake(MECHANISM)
            challenges.add(client.authenticate(b"n,,n=alice,r=always-the-same").auth_bytes)
    assert len(challenges) == 10


@pytest.mark.parametrize(
    "first",
    [
        b"n,a=alice,n=bob,r=rOprNGfwEbeRWgbNEkqO",
        b"p=tls-unique,,n=alice,r=rOprNGfwEbeRWgbNEkqO",
        b"n,,n=alice,r=rOprNGfwEbeRWgbNEkqO,tokenauth=true",
        b"n,,m=x,n=alice,r=rOprNGfwEbeRWgbNEkqO",
        b"n,,n=,r=rOprNGfwEbeRWgbNEkqO",
        b"n,,n=alice,r=",
        b"n,,n=al=ice,r=rOprNGfwEbeRWgbNEkqO",
        b"",
        b"\0",
        b"\xff\xfe",
        b"n,,n=alice,r=" + b"x" * 5000,
    ],
)
def test_a_malformed_first_message_is_rejected(broker: Broker, first: bytes) -> None:
    with Client(broker.bootstrap) as client:
        client.handshake(MECHANISM)
        _assert_rejected(client, first)


def test_a_user_cannot_log_in_as_another_one(broker: Broker) -> None:
    """The password of bob, with the exchange of alice."""
    exchange = client_exchange(MECHANISM, user="alice", password=USERS["bob"])
    with Client(broker.bootstrap) as client:
        assert client.exchange(MECHANISM, exchange).error_code == Error.sasl_authentication_failed


def _assert_rejected(client: Client, token: bytes) -> None:
    assert client.authenticate(token).error_code == Error.sasl_authentication_failed
    with pytest.raises(Closed):
        client.call(METADATA, 4, topics=None)
