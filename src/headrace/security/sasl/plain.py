"""PLAIN (RFC 4616), verified against a user's SCRAM credential: no password is stored.

A verification computes PBKDF2, which takes milliseconds, so `is_slow` asks the caller to use a worker thread (hashlib
releases the interpreter lock). It always computes one PBKDF2 for each SCRAM mechanism, whether the user exists or not
and whichever credentials it has, so that the time does not tell users from strangers. A password that was right is
remembered as an HMAC with a key of this process, for clients that reconnect often.
"""

import hashlib
import hmac
import secrets
from collections import OrderedDict
from threading import Lock

from headrace.model.users import ScramCredential, User, principal_of
from headrace.security.sasl.mechanism import (
    SCRAM_SHA_256,
    SCRAM_SHA_512,
    Answer,
    Authenticated,
    Rejected,
)
from headrace.security.sasl.scram import HASHES, CredentialLookup, client_key_of, salted_password

MAX_MESSAGE_BYTES = 4096
CACHED_LOGINS = 1024
_MECHANISMS = (SCRAM_SHA_512, SCRAM_SHA_256)
"""In the order of preference: a password is verified against the first credential that a user has."""


class PasswordVerifier:
    """Verifies passwords against SCRAM credentials. Threads may share one."""

    def __init__(self, lookup: CredentialLookup, *, cached_logins: int = CACHED_LOGINS) -> None:
        self._lookup = lookup
        self._key = secrets.token_bytes(32)
        self._right: OrderedDict[bytes, None] = OrderedDict()
        self._limit = cached_logins
        self._lock = Lock()

    def is_cached(self, name: str, password: str) -> bool:
        user = self._lookup.user(name)
        credential = preferred_credential(user)
        return credential is not None and self._digest(credential, password) in self._right

    def verify(self, name: str, password: str) -> User | None:
        """The user, if it exists and this is its password."""
        user = self._lookup.user(name)
        credential = preferred_credential(user)
        digest = self._digest(credential or self._lookup.made_up(name, _MECHANISMS[0]), password)
        with self._lock:
            if digest in self._right:
                self._right.move_to_end(digest)
                return user
        if not self._is_right(name, user, password):
            return None
        with self._lock:
            self._right[digest] = None
            while len(self._right) > self._limit:
                self._right.popitem(last=False)
        return user

    def _is_right(self, name: str, user: User | None, password: str) -> bool:
        preferred = preferred_credential(user)
        is_right = False
        for mechanism in _MECHANISMS:
            own = user.credentials.get(mechanism) if user is not None else None
            credential = own or self._lookup.made_up(name, mechanism)
            is_match = _matches(credential, password)
            is_right |= is_match and credential is preferred
        return is_right

    def _digest(self, credential: ScramCredential, password: str) -> bytes:
        """Contains the stored key: a login with a password that has been changed is not found."""
        return hmac.digest(self._key, credential.stored_key + password.encode(errors="surrogatepass"), "sha256")


def preferred_credential(user: User | None) -> ScramCredential | None:
    """The credential that verifies a password, if a user has any."""
    if user is None:
        return None
    return next((user.credentials[each] for each in _MECHANISMS if each in user.credentials), None)


def _matches(credential: ScramCredential, password: str) -> bool:
    salted = salted_password(password, credential.mechanism, credential.salt, credential.iterations)
    client_key = client_key_of(salted, credential.mechanism)
    stored_key = hashlib.new(HASHES[credential.mechanism], client_key).digest()
    return hmac.compare_digest(stored_key, credential.stored_key)


class PlainExchange:
    """One message: authorization id, name and password, separated by NUL."""

    def __init__(self, passwords: PasswordVerifier) -> None:
        self._passwords = passwords
        self._is_over = False

    def is_slow(self, token: bytes) -> bool:
        login = None if self._is_over else _read(token)
        return isinstance(login, tuple) and not self._passwords.is_cached(*login)

    def step(self, token: bytes) -> Answer:
        if self._is_over:
            return Rejected("the exchange is over")
        self._is_over = True
        login = _read(token)
        if isinstance(login, str):
            return Rejected(login)
        name, password = login
        user = self._passwords.verify(name, password)
        if user is None:
            return Rejected("no such user, or a wrong password", claimed_user=name)
        return Authenticated(b"", principal_of(user.name))


def _read(token: bytes) -> tuple[str, str] | str:
    """Name and password, or what is wrong with the message."""
    if len(token) > MAX_MESSAGE_BYTES:
        return f"a message of more than {MAX_MESSAGE_BYTES} bytes"
    try:
        parts = token.decode().split("\0")
    except UnicodeDecodeError:
        return "a message that is not UTF-8"
    if len(parts) != 3:
        return "a message that is not an authorization id, a name and a password"
    authorization, name, password = parts
    if not (name and password):
        return "a message without a name or a password"
    if authorization not in ("", name):
        return "the authorization id is not the user's name"
    return name, password
