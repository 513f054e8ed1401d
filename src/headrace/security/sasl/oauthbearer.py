"""OAUTHBEARER on the server's side (RFC 7628, as Kafka uses it): a bearer token in one message.

A malformed message is rejected at once. A token that is not valid is answered with a challenge that says so in JSON;
the client answers it with a byte 0x01, and only then is rejected. Extensions (KIP-342) are read and ignored.
"""

import re
from dataclasses import dataclass
from typing import Protocol

from headrace.model.users import principal_of
from headrace.security.sasl.mechanism import Answer, Authenticated, Challenge, Rejected
from headrace.security.sasl.scram import ScramMessageError, unescaped

INVALID_TOKEN = b'{"status":"invalid_token"}'
SEPARATOR = "\x01"
MAX_TOKEN_BYTES = 16384
MAX_MESSAGE_BYTES = 32768
_AUTHORIZATION = re.compile(r"[Bb][Ee][Aa][Rr][Ee][Rr] +([A-Za-z0-9._-]+)")
_KEY = re.compile(r"[A-Za-z]+")
_VALUE = re.compile(r"[\x21-\x7e \t\r\n]*")


class InvalidTokenError(Exception):
    """A token that does not show who the client is; the message is for the log and contains no token."""


@dataclass(frozen=True, slots=True)
class VerifiedToken:
    """What a valid token says."""

    subject: str
    expires_at_ms: int
    scopes: frozenset[str] = frozenset()


class TokenVerifier(Protocol):
    """Verifies bearer tokens; `jwt_verifier.py` has the one for JSON Web Tokens."""

    def verify(self, token: str) -> VerifiedToken:
        """Raises InvalidTokenError. Waits for nothing."""
        ...


@dataclass(frozen=True, slots=True)
class _Message:
    token: str
    authorization: str


class OAuthBearerExchange:
    """One exchange: the client's token, and after an invalid one the client's 0x01."""

    def __init__(self, tokens: TokenVerifier) -> None:
        self._tokens = tokens
        self._failure: Rejected | None = None
        self._is_over = False

    def is_slow(self, token: bytes) -> bool:
        return False

    def step(self, token: bytes) -> Answer:
        if self._is_over:
            return Rejected("the exchange is over")
        answer = self._failure or self._verify(token)
        self._is_over = not isinstance(answer, Challenge)
        return answer

    def _verify(self, token: bytes) -> Answer:
        message = _read(token)
        if isinstance(message, str):
            return Rejected(message)
        try:
            verified = self._tokens.verify(message.token)
        except InvalidTokenError as error:
            self._failure = Rejected(str(error))
            return Challenge(INVALID_TOKEN)
        if message.authorization not in ("", verified.subject):
            reason = "the authorization id is not the token's subject"
            self._failure = Rejected(reason, claimed_user=verified.subject)
            return Challenge(INVALID_TOKEN)
        return Authenticated(b"", principal_of(verified.subject), verified.expires_at_ms)


def _read(message: bytes) -> _Message | str:
    """`n,[a=NAME],` and then KEY=VALUE, each followed by 0x01, with `auth=Bearer TOKEN`; or what is wrong with it."""
    if len(message) > MAX_MESSAGE_BYTES:
        return f"a message of more than {MAX_MESSAGE_BYTES} bytes"
    try:
        header, *pairs = message.decode().split(SEPARATOR)
        authorization = _authorization_of(header)
    except UnicodeDecodeError:
        return "a message that is not UTF-8"
    except ScramMessageError as error:
        return str(error)
    if len(pairs) < 3 or pairs[-2:] != ["", ""]:
        return "a message that does not end with two bytes 0x01"
    values: dict[str, str] = {}
    for each in pairs[:-2]:
        key, equals, value = each.partition("=")
        if key in values or not (equals and _KEY.fullmatch(key) and _VALUE.fullmatch(value)):
            return "a malformed or repeated key"
        values[key] = value
    bearer = _AUTHORIZATION.fullmatch(values.get("auth", ""))
    if bearer is None:
        return "a message without a bearer token"
    if len(bearer[1]) > MAX_TOKEN_BYTES:
        return f"a token of more than {MAX_TOKEN_BYTES} bytes"
    return _Message(bearer[1], authorization)


def _authorization_of(gs2_header: str) -> str:
    parts = gs2_header.split(",")
    if len(parts) != 3 or parts[0] not in ("n", "y") or parts[2]:
        raise ScramMessageError("a malformed GS2 header")
    if parts[1] and not parts[1].startswith("a="):
        raise ScramMessageError("a malformed authorization id")
    return unescaped(parts[1].removeprefix("a="))
