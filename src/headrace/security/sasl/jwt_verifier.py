"""Verifies JSON Web Tokens with the keys of a provider.

Only asymmetric algorithms are accepted, and of these only the ones that fit the key: `none` and an HMAC made with a
public key are refused by name. `exp`, `iat` and the subject are required; issuer and audience must be the
configured ones.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import jwt
from jwt.exceptions import PyJWTError

from headrace.model.users import ANONYMOUS, principal_of
from headrace.security.sasl.jwks import SigningKey
from headrace.security.sasl.oauthbearer import MAX_TOKEN_BYTES, InvalidTokenError, VerifiedToken

ALGORITHMS = frozenset({"RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA"})
MAX_SUBJECT_CHARACTERS = 255
_MAX_INT64 = (1 << 63) - 1
_MAX_REASON_CHARACTERS = 200


class SigningKeys(Protocol):
    def find(self, key_id: str | None) -> SigningKey | None: ...


@dataclass(frozen=True, slots=True)
class TokenRules:
    """What a token must say, by Kafka's settings `sasl.oauthbearer.*`."""

    issuer: str | None = None
    audiences: Sequence[str] = ()
    """One of these must be among the token's; empty for any."""
    clock_skew_s: int = 30
    subject_claim: str = "sub"
    scope_claim: str = "scope"


class JwtVerifier:
    """A TokenVerifier for JSON Web Tokens."""

    def __init__(self, keys: SigningKeys, rules: TokenRules) -> None:
        self._keys = keys
        self._rules = rules

    def verify(self, token: str) -> VerifiedToken:
        if len(token) > MAX_TOKEN_BYTES:
            raise InvalidTokenError(f"a token of more than {MAX_TOKEN_BYTES} bytes")
        try:
            claims = self._claims(token)
        except (PyJWTError, ValueError, TypeError, RecursionError) as error:
            raise InvalidTokenError(_reason(error)) from None
        return VerifiedToken(self._subject(claims), _expiry_ms(claims), self._scopes(claims))

    def _claims(self, token: str) -> dict[str, Any]:
        header = jwt.get_unverified_header(token)
        if "crit" in header or "b64" in header:
            raise InvalidTokenError("the token has a critical header")
        if header.get("alg") not in ALGORITHMS:
            raise InvalidTokenError("the algorithm is not one of the allowed asymmetric ones")
        key = self._keys.find(header.get("kid"))
        if key is None:
            raise InvalidTokenError("no key of the provider has the token's key id")
        rules = self._rules
        return jwt.decode(
            token,
            key.key,
            algorithms=sorted(key.algorithms & ALGORITHMS),
            issuer=rules.issuer,
            audience=rules.audiences or None,
            leeway=rules.clock_skew_s,
            options={
                "require": ["exp", "iat", rules.subject_claim],
                "verify_aud": bool(rules.audiences),
                "enforce_minimum_key_length": True,
            },
        )

    def _subject(self, claims: dict[str, Any]) -> str:
        subject = claims[self._rules.subject_claim]
        if not isinstance(subject, str) or not 0 < len(subject) <= MAX_SUBJECT_CHARACTERS:
            raise InvalidTokenError("the subject is no text, empty or too long")
        if not subject.isprintable() or subject == "*" or principal_of(subject) == ANONYMOUS:
            raise InvalidTokenError("the subject is no name of a user")
        return subject

    def _scopes(self, claims: dict[str, Any]) -> frozenset[str]:
        scopes = claims.get(self._rules.scope_claim, [])
        if isinstance(scopes, str):
            scopes = scopes.split()
        if not isinstance(scopes, list) or not all(isinstance(each, str) for each in scopes):
            raise InvalidTokenError("the scope is neither text nor a list of texts")
        return frozenset(scopes)


def _expiry_ms(claims: dict[str, Any]) -> int:
    times = [claims[each] for each in ("exp", "iat")]
    if not all(isinstance(each, int | float) and not isinstance(each, bool) for each in times):
        raise InvalidTokenError("exp or iat is no number")
    return int(min(times[0], _MAX_INT64 // 1000) * 1000)


def _reason(error: Exception) -> str:
    """PyJWT's message quotes the token's header in places: cut, and left out where it would break the log's lines."""
    text = str(error)[:_MAX_REASON_CHARACTERS]
    return f"{type(error).__name__}: {text}" if text.isprintable() else type(error).__name__
