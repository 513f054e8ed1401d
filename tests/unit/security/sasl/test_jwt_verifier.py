import base64
import hashlib
import hmac
import json
import time
from typing import Any

import pytest
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from jwt.algorithms import ECAlgorithm

from headrace.security.sasl.jwks import read_key_set
from headrace.security.sasl.jwt_verifier import JwtVerifier, TokenRules
from headrace.security.sasl.oauthbearer import InvalidTokenError, VerifiedToken

from .provider import AUDIENCE, ED_KEY, ISSUER, KEYS, OTHER_KEY, PUBLIC_KEYS, RSA_KEY, claims, token

RULES = TokenRules(issuer=ISSUER, audiences=(AUDIENCE, "other"))


def verify(text: str, rules: TokenRules = RULES) -> VerifiedToken:
    return JwtVerifier(KEYS, rules).verify(text)


def segment(value: Any) -> str:
    return base64.urlsafe_b64encode(json.dumps(value).encode()).rstrip(b"=").decode()


@pytest.mark.parametrize(
    ("key", "algorithm", "key_id"),
    [
        (RSA_KEY, "RS256", "rsa"),
        (RSA_KEY, "RS512", "rsa"),
        (RSA_KEY, "PS256", "rsa"),
        (ED_KEY, "EdDSA", "ed"),
    ],
)
def test_each_kind_of_key_verifies_its_algorithms(key: Any, algorithm: str, key_id: str) -> None:
    assert verify(token(key=key, algorithm=algorithm, headers={"kid": key_id})).subject == "alice"


def test_a_good_token_says_who_and_until_when() -> None:
    payload = claims(exp=int(time.time()) + 60)
    assert verify(token(payload)) == VerifiedToken("alice", payload["exp"] * 1000, frozenset({"read", "write"}))


def test_names_of_claims_are_settings() -> None:
    rules = TokenRules(issuer=ISSUER, audiences=(AUDIENCE,), subject_claim="client_id", scope_claim="scp")
    verified = verify(token(claims(sub=None, client_id="service", scp=["a", "b"])), rules)
    assert (verified.subject, verified.scopes) == ("service", frozenset({"a", "b"}))
    with pytest.raises(InvalidTokenError):
        verify(token(), rules)


def test_without_an_issuer_and_audiences_any_are_good() -> None:
    assert verify(token(claims(iss="anyone", aud=["anything"])), TokenRules()).subject == "alice"


NOW = int(time.time())
_YEAR_S = 31_536_000
"""The tests may run long after they were collected."""
PAYLOADS: dict[str, dict[str, Any]] = {
    "expired": {"exp": NOW - 60, "iat": NOW - 600},
    "not valid yet": {"nbf": NOW + _YEAR_S},
    "issued in the future": {"iat": NOW + _YEAR_S},
    "another issuer": {"iss": "https://evil.example"},
    "an issuer that only starts alike": {"iss": ISSUER + ".evil.example"},
    "a list of issuers": {"iss": [ISSUER]},
    "no issuer": {"iss": None},
    "another audience": {"aud": "billing"},
    "no audience": {"aud": None},
    "an audience that is no text": {"aud": {"headrace": True}},
    "no expiry": {"exp": None},
    "no time of issue": {"iat": None},
    "no subject": {"sub": None},
    "an empty subject": {"sub": ""},
    "a subject that is no text": {"sub": 7},
    "everyone as the subject": {"sub": "*"},
    "nobody as the subject": {"sub": "ANONYMOUS"},
    "a subject with a line break": {"sub": "a\nb"},
    "a long subject": {"sub": "a" * 256},
    "an expiry that is a text": {"exp": str(NOW + _YEAR_S)},
    "an expiry that is true": {"exp": True},
    "a scope that is a number": {"scope": 7},
}


@pytest.mark.parametrize("changes", PAYLOADS.values(), ids=PAYLOADS.keys())
def test_a_token_with_wrong_claims_is_invalid(changes: dict[str, Any]) -> None:
    with pytest.raises(InvalidTokenError):
        verify(token(claims(**changes)))


def test_the_clock_skew_is_a_setting() -> None:
    text = token(claims(exp=int(time.time()) - 20))
    assert verify(text).subject == "alice"
    with pytest.raises(InvalidTokenError, match="expired"):
        verify(text, TokenRules(issuer=ISSUER, audiences=(AUDIENCE,), clock_skew_s=0))


def test_an_expiry_beyond_all_time_fits_the_protocol() -> None:
    for expiry in (10**300, 1e308):
        assert 0 < verify(token(claims(exp=expiry))).expires_at_ms < 1 << 63


def test_a_token_without_a_signature_is_invalid() -> None:
    for algorithm in ("none", "None", "NONE", "", None, ["ES256"]):
        for signature in ("", token().rpartition(".")[2]):
            header = {"alg": algorithm, "kid": "ec"}
            with pytest.raises(InvalidTokenError):
                verify(f"{segment(header)}.{segment(claims())}.{signature}")


def test_a_token_signed_with_the_public_key_as_a_secret_is_invalid() -> None:
    """Key confusion: the header says HS256, and the secret is what everyone can fetch."""
    public = RSA_KEY.public_key()
    forms = [
        public.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo),
        public.public_bytes(Encoding.PEM, PublicFormat.PKCS1),
        public.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo),
    ]
    for secret in forms:
        signed = f"{segment({'alg': 'HS256', 'kid': 'rsa'})}.{segment(claims())}"
        signature = base64.urlsafe_b64encode(hmac.digest(secret, signed.encode(), hashlib.sha256))
        with pytest.raises(InvalidTokenError, match="algorithm"):
            verify(f"{signed}.{signature.rstrip(b'=').decode()}")


def test_an_algorithm_of_another_key_type_is_invalid() -> None:
    with pytest.raises(InvalidTokenError):
        verify(token(key=RSA_KEY, algorithm="RS256", headers={"kid": "ec"}))
    with pytest.raises(InvalidTokenError):
        verify(token(headers={"kid": "rsa"}))


def test_an_algorithm_that_the_provider_did_not_name_is_invalid() -> None:
    """The key is RSA, and the provider says that it signs with RS256 alone."""
    keys = read_key_set(json.dumps({"keys": [PUBLIC_KEYS[0] | {"alg": "RS256"}]}).encode())
    verifier = JwtVerifier(keys, RULES)
    assert verifier.verify(token(key=RSA_KEY, algorithm="RS256", headers={"kid": "rsa"})).subject == "alice"
    with pytest.raises(InvalidTokenError):
        verifier.verify(token(key=RSA_KEY, algorithm="PS256", headers={"kid": "rsa"}))


def test_a_signature_of_another_key_is_invalid() -> None:
    with pytest.raises(InvalidTokenError, match="InvalidSignatureError"):
        verify(token(key=OTHER_KEY))


def test_a_changed_payload_is_invalid() -> None:
    header, _, signature = token().split(".")
    with pytest.raises(InvalidTokenError, match="InvalidSignatureError"):
        verify(f"{header}.{segment(claims(sub='admin'))}.{signature}")


@pytest.mark.parametrize("headers", [{"kid": "unknown"}, {}])
def test_a_token_without_a_known_key_is_invalid(headers: dict[str, Any]) -> None:
    with pytest.raises(InvalidTokenError, match="key id"):
        verify(token(headers=headers))


def test_a_key_in_the_token_is_not_used() -> None:
    own = ECAlgorithm.to_jwk(OTHER_KEY.public_key(), as_dict=True)
    with pytest.raises(InvalidTokenError):
        verify(token(key=OTHER_KEY, headers={"kid": "ec", "jwk": own}))


@pytest.mark.parametrize("extension", ["exp", "b64", "x\ny"])
def test_critical_headers_are_refused(extension: str) -> None:
    header = {"alg": "ES256", "kid": "ec", "crit": [extension], extension: True}
    with pytest.raises(InvalidTokenError) as refused:
        verify(f"{segment(header)}.{segment(claims())}.{token().rpartition('.')[2]}")
    assert str(refused.value).isprintable()


@pytest.mark.parametrize(
    "text", ["", "a", "a.b", "a.b.c", "....", segment({}) + "..", segment([]) + ".e30.", "a" * 20000, "é.é.é"]
)
def test_text_that_is_no_token_is_invalid(text: str) -> None:
    with pytest.raises(InvalidTokenError) as refused:
        verify(text)
    assert len(str(refused.value)) < 300
