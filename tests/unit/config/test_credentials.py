"""Credentials of clients: what fits together, what librdkafka gets, and that secrets are not shown."""

import base64
import json
import time
from typing import Any

import pytest

from headrace.config.credentials import NO_CREDENTIALS, Credentials, token_expiry_s
from headrace.model.errors import SettingsError


def jwt(claims: dict[str, Any]) -> str:
    payload = base64.urlsafe_b64encode(json.dumps(claims).encode()).rstrip(b"=").decode()
    return f"e30.{payload}.signature"


def test_a_user_logs_in_with_scram() -> None:
    found = Credentials(user="alice", password="pw", ca_file="ca.pem")
    assert found.librdkafka() == {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.username": "alice",
        "sasl.password": "pw",
        "ssl.ca.location": "ca.pem",
        "ssl.endpoint.identification.algorithm": "https",
    }


def test_a_certificate_is_an_identity_of_its_own() -> None:
    found = Credentials(cert_file="alice.pem", key_password="k", verify_hostname=False)
    assert found.security_protocol == "SSL"
    assert found.librdkafka() == {
        "security.protocol": "SSL",
        "ssl.certificate.location": "alice.pem",
        "ssl.key.location": "alice.pem",
        "ssl.key.password": "k",
        "ssl.endpoint.identification.algorithm": "none",
    }


def test_without_credentials_nothing_is_set() -> None:
    assert NO_CREDENTIALS.is_plain
    assert NO_CREDENTIALS.librdkafka() == {}


def test_a_token_comes_with_its_expiry() -> None:
    token = jwt({"exp": 2_000_000_000})
    settings = Credentials(token=lambda: token, tls=True).librdkafka()
    assert settings["sasl.mechanism"] == "OAUTHBEARER"
    assert settings["oauth_cb"]("") == (token, 2_000_000_000.0)


@pytest.mark.parametrize("token", ["opaque", "a.b.c", jwt({}), jwt({"exp": "soon"})])
def test_a_token_without_a_readable_expiry_is_fetched_again_soon(token: str) -> None:
    assert time.time() < token_expiry_s(token) < time.time() + 3_600


def test_secrets_are_not_shown() -> None:
    found = Credentials(user="alice", password="hunter2", cert_file="c.pem", key_password="hunter3")
    assert "hunter" not in repr(found)
    assert "hunter" not in str(found)
    assert "alice" in repr(found)


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({"user": "alice"}, "the user alice has no password"),
        ({"password": "pw"}, "a password is given without one"),
        ({"user": "a", "password": "b", "mechanism": "SCRAM"}, "there is no mechanism SCRAM: use one of"),
        ({"mechanism": "OAUTHBEARER", "tls": True}, "OAUTHBEARER needs a token"),
        ({"token": str, "password": "pw", "tls": True}, "a password and a token are given"),
        ({"token": str, "user": "a", "mechanism": "PLAIN"}, "a token is for OAUTHBEARER"),
        ({"key_file": "k.pem"}, "without its certificate"),
        ({"ca_file": "ca.pem", "tls": False}, "TLS is off"),
        ({"user": "a", "password": "b", "mechanism": "plain"}, "PLAIN sends the password itself"),
        ({"token": str}, "OAUTHBEARER sends the token itself"),
    ],
)
def test_what_makes_no_sense_is_refused_in_words(given: dict[str, Any], reason: str) -> None:
    with pytest.raises(SettingsError, match=reason):
        Credentials(**given)


def test_a_password_may_be_sent_unencrypted_if_that_is_said() -> None:
    assert Credentials(user="a", password="b", mechanism="PLAIN", tls=False).security_protocol == "SASL_PLAINTEXT"
