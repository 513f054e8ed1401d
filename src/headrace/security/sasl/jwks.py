"""The public keys of a token provider (JSON Web Key Set), fetched by a thread and never by a request.

The thread fetches the set at its start and then every `refresh_ms`; after a failure it retries with backoff, and the
keys that were fetched before stay valid. A token with an unknown key id asks for one more fetch, which a client could
use to hammer the provider, so such fetches have `MISSING_KEY_FETCH_S` between them, and a key id that is known to be
missing asks for none.
"""

import json
import logging
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePublicKey
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey
from jwt import PyJWK
from jwt.exceptions import PyJWTError

from headrace.model.backoff import ExponentialDelay, RetryDelays
from headrace.security.sasl.json_fetch import FetchError

log = logging.getLogger(__name__)

MISSING_KEY_FETCH_S = 10.0
MISSING_KEYS = 16
MISSING_KEY_S = 60.0
MIN_RSA_BITS = 2048
MAX_KEYS = 256

_RSA = frozenset({"RS256", "RS384", "RS512", "PS256", "PS384", "PS512"})
_BY_CURVE = {
    "secp256r1": frozenset({"ES256"}),
    "secp384r1": frozenset({"ES384"}),
    "secp521r1": frozenset({"ES512"}),
}

PublicKey = RSAPublicKey | EllipticCurvePublicKey | Ed25519PublicKey


@dataclass(frozen=True, slots=True)
class SigningKey:
    """A public key, and the algorithms that it may verify: those of its type, or the one that the set names."""

    key: PublicKey
    algorithms: frozenset[str]


class KeySet:
    """An immutable set of keys by their id."""

    def __init__(self, by_id: Mapping[str | None, SigningKey]) -> None:
        self._by_id = by_id

    def __len__(self) -> int:
        return len(self._by_id)

    def find(self, key_id: str | None) -> SigningKey | None:
        """The key of this id. A token without an id fits only a set of one key."""
        if key_id is None and len(self._by_id) == 1:
            return next(iter(self._by_id.values()))
        return self._by_id.get(key_id)


def read_key_set(document: bytes) -> KeySet:
    """The keys in a document that verify signatures; other keys are ignored. Raises FetchError if there is none."""
    try:
        entries = json.loads(document)["keys"]
    except (ValueError, KeyError, TypeError, RecursionError):
        raise FetchError("the answer is no JSON Web Key Set") from None
    found: dict[str | None, SigningKey] = {}
    for entry in entries[:MAX_KEYS] if isinstance(entries, list) else ():
        key = _read_key(entry) if isinstance(entry, dict) else None
        key_id = entry.get("kid") if key is not None else None
        if key is not None and isinstance(key_id, str | None):
            found[key_id] = key
    if not found:
        raise FetchError("the answer has no public key that verifies signatures")
    return KeySet(found)


def _read_key(entry: dict[str, Any]) -> SigningKey | None:
    if entry.get("use", "sig") != "sig" or entry.get("kty") not in ("RSA", "EC", "OKP"):
        return None
    try:
        key = PyJWK({name: value for name, value in entry.items() if name != "alg"}).key
    except (PyJWTError, ValueError, TypeError, KeyError):
        return None
    algorithms = _algorithms_of(key)
    named = entry.get("alg")
    if named is not None:
        algorithms &= {named} if isinstance(named, str) else frozenset()
    return SigningKey(key, algorithms) if algorithms else None


def _algorithms_of(key: object) -> frozenset[str]:
    """Empty for a key that is private, symmetric or too short."""
    if isinstance(key, RSAPublicKey) and key.key_size >= MIN_RSA_BITS:
        return _RSA
    if isinstance(key, EllipticCurvePublicKey):
        return _BY_CURVE.get(key.curve.name, frozenset())
    if isinstance(key, Ed25519PublicKey):
        return frozenset({"EdDSA"})
    return frozenset()


class Jwks:
    """The key set of a provider, refreshed by a thread between `start` and `close`."""

    def __init__(
        self,
        fetch: Callable[[], bytes],
        *,
        refresh_ms: int = 3_600_000,
        retry_backoff_ms: int = 100,
        retry_backoff_max_ms: int = 10_000,
        missing_key_fetch_s: float = MISSING_KEY_FETCH_S,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        """`fetch` returns the document or raises FetchError (`json_fetch.JsonUrl`); `now` counts seconds."""
        self._fetch = fetch
        self._refresh_s = refresh_ms / 1000
        self._retries = RetryDelays(ExponentialDelay(retry_backoff_ms / 1000, retry_backoff_max_ms / 1000))
        self._missing_key_fetch_s = missing_key_fetch_s
        self._now = now
        self._keys = KeySet({})
        self._missing: OrderedDict[str | None, float] = OrderedDict()
        self._condition = threading.Condition()
        self._due = self._now()
        self._fetched_at: float | None = None
        self._is_closed = False
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Start the thread; it fetches at once."""
        self._thread = threading.Thread(target=self._run, name="headrace-jwks", daemon=True)
        self._thread.start()

    def close(self, timeout_s: float = 10.0) -> None:
        """End the thread; waits for a running fetch, so not on the event loop."""
        with self._condition:
            self._is_closed = True
            self._condition.notify_all()
        if self._thread is not None:
            self._thread.join(timeout_s)

    def wait_until_loaded(self, timeout_s: float) -> bool:
        """Block until there are keys. For the start of a broker and for tests; not on the event loop."""
        with self._condition:
            return self._condition.wait_for(lambda: len(self._keys) > 0 or self._is_closed, timeout_s) and bool(
                self._keys
            )

    def find(self, key_id: str | None) -> SigningKey | None:
        """The key of this id, without waiting. None may mean: not fetched yet, try again later."""
        key = self._keys.find(key_id)
        if key is None:
            self._note_missing(key_id)
        return key

    def _note_missing(self, key_id: str | None) -> None:
        with self._condition:
            now = self._now()
            noted = self._missing.get(key_id)
            if noted is not None and now - noted < MISSING_KEY_S:
                return
            self._missing[key_id] = now
            self._missing.move_to_end(key_id)
            if len(self._missing) > MISSING_KEYS:
                self._missing.popitem(last=False)
            if self._retries.failures or self._fetched_at is None:
                return
            due = max(now, self._fetched_at + self._missing_key_fetch_s)
            if due < self._due:
                self._due = due
                self._condition.notify_all()

    def _run(self) -> None:
        while self._wait_until_due():
            try:
                keys = read_key_set(self._fetch())
            except FetchError as error:
                self._note_failure(error)
            except Exception:
                log.exception("fetching the keys of the token provider failed unexpectedly")
                self._note_failure(None)
            else:
                self._note_success(keys)

    def _wait_until_due(self) -> bool:
        with self._condition:
            while not self._is_closed:
                remaining = self._due - self._now()
                if remaining <= 0:
                    return True
                self._condition.wait(remaining)
            return False

    def _note_failure(self, error: FetchError | None) -> None:
        with self._condition:
            delay_s = self._retries.next()
            self._due = self._now() + delay_s
            known = len(self._keys)
        if error is not None:
            log.warning(
                "cannot fetch the keys of the token provider, %d keys stay valid, retry in %.1f s: %s",
                known,
                delay_s,
                error,
            )

    def _note_success(self, keys: KeySet) -> None:
        with self._condition:
            self._keys = keys
            self._retries.reset()
            self._fetched_at = self._now()
            self._due = self._fetched_at + self._refresh_s
            self._condition.notify_all()
