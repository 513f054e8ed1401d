"""The SASL mechanisms on the client's side: for brokers among themselves and for `headrace.wire`.

A `ClientExchange` gives the first token, then answers each challenge until it returns None: only then does the client
know the server. With SCRAM that is when the server has shown that it knows the credential, too.
"""

import hashlib
import hmac
import secrets
from base64 import b64encode
from collections.abc import Callable, Mapping
from typing import Protocol

from headrace.security.sasl.mechanism import MECHANISMS, OAUTHBEARER, PLAIN
from headrace.security.sasl.oauthbearer import SEPARATOR
from headrace.security.sasl.scram import (
    HASHES,
    MAX_MESSAGE_BYTES,
    MAX_SALT_BYTES,
    MIN_ITERATIONS,
    ScramMessageError,
    client_key_of,
    decoded_base64,
    escaped,
    is_nonce,
    salted_password,
    server_key_of,
)

MAX_SERVER_ITERATIONS = 1 << 17
"""More would let a server keep its clients busy."""
_NONCE_BYTES = 24
_KVSEP_ANSWER = b"\x01"


class SaslClientError(Exception):
    """The server's answer is wrong: not the server that knows our credential, or not this protocol."""


class ClientExchange(Protocol):
    """One authentication of one connection, as its client."""

    def is_slow(self, challenge: bytes) -> bool:
        """Whether `next` takes milliseconds of computing: then call it in a worker thread."""
        ...

    def first(self) -> bytes:
        """The first token to send."""
        ...

    def next(self, challenge: bytes) -> bytes | None:
        """The answer to a challenge, or None if the exchange has ended well. Raises SaslClientError."""
        ...


def client_exchange(
    mechanism: str,
    *,
    user: str = "",
    password: str = "",
    token: Callable[[], str] | None = None,
    extensions: Mapping[str, str] | None = None,
) -> ClientExchange:
    """A new exchange. Raises ValueError if the mechanism does not exist or its credential is missing."""
    if mechanism == OAUTHBEARER:
        if token is None:
            raise ValueError(f"{mechanism} needs a token")
        return OAuthBearerClient(token, extensions or {})
    if mechanism not in MECHANISMS:
        raise ValueError(f"{mechanism!r} is no SASL mechanism: {', '.join(MECHANISMS)}")
    if not (user and password) or "\0" in user + password:
        raise ValueError(f"{mechanism} needs a user and a password without NUL characters")
    if mechanism == PLAIN:
        return PlainClient(user, password)
    return ScramClient(mechanism, user, password)


class PlainClient:
    """PLAIN: name and password in one message, for connections with TLS."""

    def __init__(self, user: str, password: str) -> None:
        self._token = f"\0{user}\0{password}".encode()

    def is_slow(self, challenge: bytes) -> bool:
        return False

    def first(self) -> bytes:
        return self._token

    def next(self, challenge: bytes) -> None:
        if challenge:
            raise SaslClientError("the server answers PLAIN with a challenge")


class OAuthBearerClient:
    """OAUTHBEARER: a token in one message. A challenge after it means that the server refuses the token."""

    def __init__(self, token: Callable[[], str], extensions: Mapping[str, str]) -> None:
        self._token = token
        self._extensions = extensions
        self._is_refused = False

    def is_slow(self, challenge: bytes) -> bool:
        return False

    def first(self) -> bytes:
        pairs = {"auth": f"Bearer {self._token()}"} | {
            key: value for key, value in self._extensions.items() if key != "auth"
        }
        body = "".join(f"{key}={value}{SEPARATOR}" for key, value in pairs.items())
        return f"n,,{SEPARATOR}{body}{SEPARATOR}".encode()

    def next(self, challenge: bytes) -> bytes | None:
        if self._is_refused:
            raise SaslClientError("the server refuses the token and goes on")
        if not challenge:
            return None
        self._is_refused = True
        return _KVSEP_ANSWER


class ScramClient:
    """SCRAM: proves the password without sending it, and verifies the server's signature."""

    def __init__(self, mechanism: str, user: str, password: str, *, nonce: str | None = None) -> None:
        """`nonce` is for the test vectors of the RFCs; otherwise it is random."""
        self._mechanism = mechanism
        self._password = password
        self._nonce = nonce or secrets.token_urlsafe(_NONCE_BYTES)
        self._bare = f"n={escaped(user)},r={self._nonce}"
        self._signature: bytes | None = None
        self._is_over = False

    def is_slow(self, challenge: bytes) -> bool:
        return self._signature is None

    def first(self) -> bytes:
        return f"n,,{self._bare}".encode()

    def next(self, challenge: bytes) -> bytes | None:
        if self._is_over:
            raise SaslClientError("the server goes on after the exchange is over")
        try:
            if self._signature is None:
                return self._prove(_text(challenge))
            self._is_over = True
            self._verify(_text(challenge), self._signature)
        except ScramMessageError as error:
            self._is_over = True
            raise SaslClientError(f"the server's message is wrong: {error}") from None
        return None

    def _prove(self, challenge: str) -> bytes:
        nonce, salt, iterations = self._read_challenge(challenge)
        digest = HASHES[self._mechanism]
        salted = salted_password(self._password, self._mechanism, salt, iterations)
        client_key = client_key_of(salted, self._mechanism)
        without_proof = f"c=biws,r={nonce}"
        signed = f"{self._bare},{challenge},{without_proof}".encode()
        signature = hmac.digest(hashlib.new(digest, client_key).digest(), signed, digest)
        proof = bytes(a ^ b for a, b in zip(client_key, signature, strict=True))
        self._signature = hmac.digest(server_key_of(salted, self._mechanism), signed, digest)
        return f"{without_proof},p={b64encode(proof).decode()}".encode()

    def _read_challenge(self, challenge: str) -> tuple[str, bytes, int]:
        attributes = challenge.split(",")
        if [each[:2] for each in attributes[:3]] != ["r=", "s=", "i="]:
            raise ScramMessageError("no nonce, salt and iterations")
        nonce, salt, iterations = attributes[0][2:], decoded_base64(attributes[1][2:]), attributes[2][2:]
        if not (nonce.startswith(self._nonce) and len(nonce) > len(self._nonce) and is_nonce(nonce)):
            raise ScramMessageError("the nonce does not continue ours")
        if not 0 < len(salt) <= MAX_SALT_BYTES:
            raise ScramMessageError("a salt that is empty or too long")
        if not (iterations.isascii() and iterations.isdigit() and len(iterations) < 10):
            raise ScramMessageError("iterations that are no number")
        if not MIN_ITERATIONS <= int(iterations) <= MAX_SERVER_ITERATIONS:
            raise ScramMessageError(f"{iterations} iterations")
        return nonce, salt, int(iterations)

    def _verify(self, final: str, expected: bytes) -> None:
        verifier = final.split(",")[0]
        if verifier.startswith("e="):
            raise ScramMessageError("it refuses the proof")
        if not verifier.startswith("v=") or not hmac.compare_digest(decoded_base64(verifier[2:]), expected):
            raise ScramMessageError("its signature is not the one of a server that knows the credential")


def _text(message: bytes) -> str:
    if len(message) > MAX_MESSAGE_BYTES:
        raise ScramMessageError(f"more than {MAX_MESSAGE_BYTES} bytes")
    try:
        return message.decode()
    except UnicodeDecodeError:
        raise ScramMessageError("not UTF-8") from None
