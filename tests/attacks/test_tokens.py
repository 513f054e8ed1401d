"""OAUTHBEARER with tokens that must not be accepted, and with ones that expire while a client is connected."""

import hmac
import json
import time
from base64 import urlsafe_b64encode
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from headrace.testing import Broker
from tests.interop.raw_client import METADATA, Closed, Error
from tests.unit.security.sasl.provider import (
    AUDIENCE,
    EC_KEY,
    ISSUER,
    OTHER_KEY,
    RSA_KEY,
    Provider,
    claims,
    running_provider,
    token,
)

from .wire import PASSWORD, Client

MECHANISM = "OAUTHBEARER"
INVALID = b'{"status":"invalid_token"}'


@contextmanager
def oauth_broker(provider: Provider, **settings: Any) -> Iterator[Broker]:
    """A broker that trusts the provider; PLAIN is there for attempts to change the mechanism."""
    named = {
        "sasl.enabled.mechanisms": f"{MECHANISM},PLAIN",
        "sasl.oauthbearer.jwks.endpoint.url": provider.url,
        "sasl.oauthbearer.expected.issuer": ISSUER,
        "sasl.oauthbearer.expected.audience": AUDIENCE,
        "sasl.oauthbearer.clock.skew.seconds": 0,
        "connection.failed.authentication.delay.ms": 1,
        **settings,
    }
    with Broker(users={"alice": PASSWORD}, settings=named) as broker:
        provider.wait_for_requests(1)
        _wait_for_keys(broker)
        yield broker


def _wait_for_keys(broker: Broker) -> None:
    end = time.monotonic() + 20
    while True:
        with Client(broker.bootstrap) as client:
            if _send_token(client, token()).auth_bytes == b"":
                return
        assert time.monotonic() < end, "the broker does not know the provider's keys"


@pytest.fixture(scope="module")
def provider() -> Iterator[Provider]:
    with running_provider() as running:
        yield running


@pytest.fixture(scope="module")
def broker(provider: Provider) -> Iterator[Broker]:
    with oauth_broker(provider) as running:
        yield running


@pytest.fixture
def client(broker: Broker) -> Iterator[Client]:
    with Client(broker.bootstrap) as connected:
        yield connected


def _message(bearer: str) -> bytes:
    return f"n,,\x01auth=Bearer {bearer}\x01\x01".encode()


def _send_token(client: Client, bearer: str) -> Any:
    """The answer to a token on a connection: an empty token if it is valid."""
    handshake = client.handshake(MECHANISM)
    assert handshake.error_code == Error.none, handshake
    return client.authenticate(_message(bearer))


def _part(content: object) -> str:
    return _base64(json.dumps(content).encode())


def _base64(content: bytes) -> str:
    return urlsafe_b64encode(content).rstrip(b"=").decode()


def _without_signature(header: dict[str, Any]) -> str:
    return f"{_part(header)}.{_part(claims())}."


def _hmac_with_public_key(key: Any, key_id: str) -> str:
    """Signed with HS256 and the provider's public key as the secret, for verifiers that confuse algorithms."""
    secret = key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    signed = f"{_part({'alg': 'HS256', 'kid': key_id})}.{_part(claims())}"
    return f"{signed}.{_base64(hmac.digest(secret, signed.encode(), 'sha256'))}"


def _now() -> int:
    return int(time.time())


BAD_TOKENS: dict[str, Callable[[], str]] = {
    "alg none": lambda: _without_signature({"alg": "none", "kid": "ec"}),
    "alg None": lambda: _without_signature({"alg": "None", "kid": "ec"}),
    "no signature": lambda: token().rpartition(".")[0] + ".",
    "another token's signature": lambda: token().rpartition(".")[0] + "." + token(claims(sub="bob")).rpartition(".")[2],
    "hmac with the ec key": lambda: _hmac_with_public_key(EC_KEY, "ec"),
    "hmac with the rsa key": lambda: _hmac_with_public_key(RSA_KEY, "rsa"),
    "a key of its own": lambda: token(key=OTHER_KEY),
    "another key's id": lambda: token(headers={"kid": "rsa"}),
    "no such key": lambda: token(key=OTHER_KEY, headers={"kid": "mine"}),
    "a key in the header": lambda: token(
        key=OTHER_KEY, headers={"kid": "mine", "jwk": {"kty": "EC"}, "jku": "https://evil/"}
    ),
    "expired": lambda: token(claims(iat=_now() - 600, exp=_now() - 1)),
    "not valid yet": lambda: token(claims(nbf=_now() + 600)),
    "issued in the future": lambda: token(claims(iat=_now() + 600, exp=_now() + 1200)),
    "no expiry": lambda: token(claims(exp=None)),
    "another audience": lambda: token(claims(aud="someone else")),
    "no audience": lambda: token(claims(aud=None)),
    "another issuer": lambda: token(claims(iss="https://evil.example")),
    "no issuer": lambda: token(claims(iss=None)),
    "no subject": lambda: token(claims(sub=None)),
    "an anonymous subject": lambda: token(claims(sub="ANONYMOUS")),
    "a wildcard as subject": lambda: token(claims(sub="*")),
    "a number as subject": lambda: token(claims(sub=7)),
    "a critical header": lambda: token(headers={"kid": "ec", "crit": ["exp"], "exp": 1}),
    "no token": lambda: "x",
}


@pytest.mark.parametrize("name", BAD_TOKENS)
def test_a_token_that_proves_nothing(client: Client, name: str) -> None:
    # Made here: one that was made when the tests were collected may have expired, and would be refused for that.
    answer = _send_token(client, BAD_TOKENS[name]())
    assert (answer.error_code, answer.auth_bytes) == (Error.none, INVALID)
    assert client.authenticate(b"\x01").error_code == Error.sasl_authentication_failed
    with pytest.raises(Closed):
        client.call(METADATA, 4, topics=None)


def test_after_an_invalid_token_a_valid_one_does_not_help(client: Client) -> None:
    assert _send_token(client, BAD_TOKENS["expired"]()).auth_bytes == INVALID
    assert client.authenticate(_message(token())).error_code == Error.sasl_authentication_failed


def test_requests_after_an_invalid_token_are_not_answered(client: Client) -> None:
    assert _send_token(client, BAD_TOKENS["expired"]()).auth_bytes == INVALID
    with pytest.raises(Closed):
        client.call(METADATA, 4, topics=None)


def test_unknown_keys_do_not_hammer_the_provider(broker: Broker, provider: Provider) -> None:
    before = len(provider.paths)
    for number in range(200):
        with Client(broker.bootstrap) as client:
            assert _send_token(client, token(key=OTHER_KEY, headers={"kid": f"made-up-{number}"})).auth_bytes == INVALID
    assert len(provider.paths) - before <= 1
    with Client(broker.bootstrap) as client:
        assert _send_token(client, token()).auth_bytes == b""


def test_a_session_ends_with_its_token(client: Client) -> None:
    expires_s = int(time.time()) + 2
    answer = _send_token(client, token(claims(exp=expires_s)))
    assert 0 < answer.session_lifetime.total_seconds() <= 2
    assert client.call(METADATA, 4, topics=[]).brokers
    _wait_until(expires_s)
    with pytest.raises(Closed):
        client.call(METADATA, 4, topics=[])


def test_a_client_authenticates_again_before_its_token_expires(client: Client) -> None:
    expires_s = int(time.time()) + 2
    assert _send_token(client, token(claims(exp=expires_s))).auth_bytes == b""
    again = _send_token(client, token(claims(exp=expires_s + 600)))
    assert again.auth_bytes == b""
    assert again.session_lifetime.total_seconds() > 500
    _wait_until(expires_s)
    assert client.call(METADATA, 4, topics=[]).brokers


def test_a_client_authenticates_again_after_its_token_expired(client: Client) -> None:
    expires_s = int(time.time()) + 1
    assert _send_token(client, token(claims(exp=expires_s))).auth_bytes == b""
    _wait_until(expires_s)
    assert _send_token(client, token()).auth_bytes == b""
    assert client.call(METADATA, 4, topics=[]).brokers


def test_a_connection_cannot_pass_to_another_user(client: Client) -> None:
    assert _send_token(client, token()).auth_bytes == b""
    assert _send_token(client, token(claims(sub="bob"))).error_code == Error.sasl_authentication_failed
    with pytest.raises(Closed):
        client.call(METADATA, 4, topics=[])


def test_a_connection_cannot_pass_to_another_mechanism(client: Client) -> None:
    assert _send_token(client, token()).auth_bytes == b""
    assert client.handshake("PLAIN").error_code == Error.illegal_sasl_state
    with pytest.raises(Closed):
        client.call(METADATA, 4, topics=[])


def test_an_invalid_token_ends_a_session_that_was_valid(client: Client) -> None:
    assert _send_token(client, token()).auth_bytes == b""
    assert _send_token(client, BAD_TOKENS["expired"]()).auth_bytes == INVALID
    assert client.authenticate(b"\x01").error_code == Error.sasl_authentication_failed
    with pytest.raises(Closed):
        client.call(METADATA, 4, topics=[])


def test_a_session_has_a_longest_time() -> None:
    settings = {"connections.max.reauth.ms": 1000, "connection.failed.authentication.delay.ms": 1}
    with Broker(users={"alice": PASSWORD, "bob": "other"}, settings=settings) as broker:
        with Client(broker.bootstrap) as client:
            answer = client.log_in("PLAIN")
            assert answer.session_lifetime.total_seconds() == 1
            ends_s = time.time() + 1
            assert client.call(METADATA, 4, topics=[]).brokers
            _wait_until(ends_s)
            assert client.log_in("PLAIN").error_code == Error.none
            assert client.call(METADATA, 4, topics=[]).brokers
            ends_s = time.time() + 1
            _wait_until(ends_s)
            with pytest.raises(Closed):
                client.call(METADATA, 4, topics=[])
        with Client(broker.bootstrap) as client:
            assert client.log_in("PLAIN").error_code == Error.none
            assert client.log_in("PLAIN", "bob", "other").error_code == Error.sasl_authentication_failed


def _wait_until(time_s: float) -> None:
    """Wait for a time that a token names: nothing announces it."""
    time.sleep(max(0.0, time_s - time.time()) + 0.05)
