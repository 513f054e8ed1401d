"""Neither the answers nor their time tell users from names that do not exist."""

import re
import time
from collections.abc import Callable, Iterator
from statistics import median

import pytest

from headrace.model.users import User
from headrace.security.sasl.mechanism import SCRAM_SHA_256, Challenge
from headrace.security.sasl.mechanisms import Mechanisms
from headrace.security.sasl.scram import credential_from_salted, new_credential, salted_password
from headrace.security.sasl.shapes import CredentialShapes
from headrace.testing import Broker
from tests.interop.raw_client import Error

from .wire import PASSWORD, Client

MECHANISM = "SCRAM-SHA-256"
MARGIN = 1.5
"""Leaving out a hash doubles the time of PLAIN. Names take turns, and medians are compared."""
CHALLENGE = re.compile(rb"r=([!-~]+),s=([A-Za-z0-9+/=]+),i=(\d+)")
PROOF = b"A" * 43 + b"="


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    users = dict.fromkeys(("alice", "bob"), PASSWORD)
    with Broker(users=users, settings={"connection.failed.authentication.delay.ms": 0}) as running:
        yield running


def _challenge(client: Client, name: str) -> tuple[bytes, bytes, bytes]:
    client.handshake(MECHANISM)
    answer = client.authenticate(f"n,,n={name},r=rOprNGfwEbeRWgbNEkqO".encode())
    assert answer.error_code == Error.none
    found = CHALLENGE.fullmatch(answer.auth_bytes)
    assert found is not None
    return found[1], found[2], found[3]


def test_strangers_get_a_challenge_like_a_users(broker: Broker) -> None:
    seen = {}
    for name in ("alice", "bob", "mallory", "eve"):
        with Client(broker.bootstrap) as one, Client(broker.bootstrap) as two:
            (nonce, salt, iterations), again = _challenge(one, name), _challenge(two, name)
            assert (salt, iterations) == again[1:]
            seen[name] = (len(nonce), len(salt), iterations)
    assert len(set(seen.values())) == 1, seen


def test_the_salt_of_a_stranger_survives_a_restart() -> None:
    with Broker(users={"alice": PASSWORD}) as broker:
        with Client(broker.bootstrap) as client:
            before = _challenge(client, "mallory")[1:]
        broker.restart()
        with Client(broker.bootstrap) as client:
            assert _challenge(client, "mallory")[1:] == before


def test_strangers_look_like_users_whose_password_other_tools_set() -> None:
    """Kafka's tools choose 4096 iterations and another salt than ours."""
    salt = b"26 bytes like Kafka's tool"
    theirs = credential_from_salted(SCRAM_SHA_256, salt, salted_password(PASSWORD, SCRAM_SHA_256, salt, 4096), 4096)
    users = {
        "alice": User("alice", {SCRAM_SHA_256: new_credential(PASSWORD, SCRAM_SHA_256)}),
        "bob": User("bob", {SCRAM_SHA_256: theirs}),
    }
    mechanisms = Mechanisms(users.get, b"secret", shapes=CredentialShapes(lambda: users))

    def shape(name: str) -> tuple[int, bytes]:
        exchange = mechanisms.begin(SCRAM_SHA_256)
        assert exchange is not None
        answer = exchange.step(f"n,,n={name},r=rOprNGfwEbeRWgbNEkqO".encode())
        assert isinstance(answer, Challenge)
        found = CHALLENGE.fullmatch(answer.token)
        assert found is not None
        return len(found[2]), found[3]

    of_users = {shape("alice"), shape("bob")}
    assert len(of_users) == 2
    assert {shape(f"stranger-{number}") for number in range(100)} == of_users
    assert shape("stranger-1") == shape("stranger-1")


def test_the_time_of_scram_is_the_same(broker: Broker) -> None:
    def attempt(client: Client, name: str) -> None:
        nonce, _, _ = _challenge(client, name)
        answer = client.authenticate(b"c=biws,r=" + nonce + b",p=" + PROOF)
        assert answer.error_code == Error.sasl_authentication_failed

    _assert_same_time(broker, attempt, samples=150)


def test_the_time_of_plain_is_the_same(broker: Broker) -> None:
    def attempt(client: Client, name: str) -> None:
        client.handshake("PLAIN")
        assert client.authenticate(f"\0{name}\0wrong".encode()).error_code == Error.sasl_authentication_failed

    _assert_same_time(broker, attempt, samples=40)


def _assert_same_time(broker: Broker, attempt: Callable[[Client, str], None], samples: int) -> None:
    times: dict[str, list[float]] = {"alice": [], "mallory": []}
    for _ in range(samples):
        for name, taken in times.items():
            with Client(broker.bootstrap) as client:
                began = time.perf_counter()
                attempt(client, name)
                taken.append(time.perf_counter() - began)
    user, stranger = (median(taken) for taken in times.values())
    assert 1 / MARGIN < user / stranger < MARGIN, (user, stranger)
