"""Authentication: requests are signed (SigV4) with an access key, in a header or in the URL.

A signature covers the method, path, query, host, all `x-amz-*` headers and the body. Where no signature is required
(`AccessKeys.is_required`), every request is accepted, and a signature only names its sender.
"""

import hmac
from calendar import timegm
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from hashlib import sha256
from time import strptime
from typing import NamedTuple

from headrace.model import sigv4
from headrace.sqs import errors

MECHANISM = "SigV4"
MAX_SKEW_S = 15 * 60
_MAX_EXPIRES_S = 7 * 24 * 3600
_EMPTY = sha256(b"").hexdigest()
_SIGNATURE = ", Signature="
_MOST_CACHED = 1024


class SignedRequest(NamedTuple):
    """The parts of a request that its signature covers."""

    method: str
    path: str
    """As it was sent, with its escapes."""
    query: Sequence[tuple[str, str]]
    headers: Mapping[str, Sequence[str]]
    """By their names in lower case."""


class _Claim(NamedTuple):
    """The signature that a request claims to have."""

    key_id: str
    scope: str
    when: str
    signed: tuple[str, ...]
    signature: str
    query: Sequence[tuple[str, str]]
    expires_s: int | None
    """How long a presigned URL is valid."""


def claimed_key_id(authorization: str, query: Sequence[tuple[str, str]]) -> str:
    """The id of the access key that a request claims, unverified; empty if it claims none."""
    if authorization:
        return authorization.partition("Credential=")[2].partition("/")[0]
    return next((value.partition("/")[0] for name, value in query if name == "X-Amz-Credential"), "")


def verify(request: SignedRequest, body: bytes, secret_of: Callable[[str], str | None], now_s: float) -> str:
    """The id of the key that a request is signed with; `SqsError` if it is unsigned, wrongly signed, or expired."""
    claim = _claim(request)
    if claim is None:
        raise errors.missing_token()
    _check_scope(claim)
    _check_time(claim, now_s)
    _check_headers(claim, request)
    secret = secret_of(claim.key_id)
    payload_hash = _EMPTY if not body else sha256(body).hexdigest()
    canonical = sigv4.canonical_request(
        request.method, request.path, claim.query, request.headers, claim.signed, payload_hash
    )
    # Takes as long for an unknown key, so that timing does not show which keys exist.
    expected = sigv4.signature(secret or "none", claim.when, claim.scope, canonical)
    is_right = hmac.compare_digest(expected.encode(), claim.signature.encode("utf-8", "replace"))
    if secret is None:
        raise errors.unknown_key()
    if not is_right:
        raise errors.wrong_signature(
            "The request signature we calculated does not match the signature you provided. Check your AWS Secret "
            "Access Key and signing method. Consult the service documentation for details."
        )
    return claim.key_id


def _claim(request: SignedRequest) -> _Claim | None:
    authorization = request.headers.get("authorization")
    if authorization:
        return _claim_in_header(authorization[0], request)
    if any(name == "X-Amz-Signature" for name, _ in request.query):
        return _claim_in_url(request)
    return None


def _claim_in_header(text: str, request: SignedRequest) -> _Claim:
    when = (request.headers.get("x-amz-date") or [""])[0]
    # The signature is the last part with all known clients, and the others are the same in many requests.
    others, found, signature = text.rpartition(_SIGNATURE)
    if found and signature.isalnum() and len(others) <= _MOST_CACHED:
        key_id, scope, signed = _credential(others)
        return _Claim(key_id, scope, when, signed, signature, request.query, None)
    parts = _parts(text)
    return _made(parts["Credential"], when, parts["SignedHeaders"], parts["Signature"], request.query, None)


@lru_cache(maxsize=256)
def _credential(others: str) -> tuple[str, str, tuple[str, ...]]:
    """The id of the key, the scope and the names of the signed headers in a header up to its signature."""
    parts = _parts(f"{others}{_SIGNATURE}signature")
    made = _made(parts["Credential"], "", parts["SignedHeaders"], "", (), None)
    return made.key_id, made.scope, made.signed


def _parts(text: str) -> dict[str, str]:
    algorithm, _, rest = text.partition(" ")
    if algorithm != sigv4.ALGORITHM:
        raise errors.incomplete_signature(f"Authorization header requires {sigv4.ALGORITHM}.")
    parts = dict(part.strip().partition("=")[::2] for part in rest.split(","))
    for name in ("Credential", "SignedHeaders", "Signature"):
        if not parts.get(name):
            raise errors.incomplete_signature(f"Authorization header requires '{name}' parameter.")
    return parts


def _claim_in_url(request: SignedRequest) -> _Claim:
    given = dict(request.query)
    for name in ("X-Amz-Algorithm", "X-Amz-Credential", "X-Amz-Date", "X-Amz-Expires", "X-Amz-SignedHeaders"):
        if not given.get(name):
            raise errors.incomplete_signature(f"A signed URL requires {name}.")
    expires = given["X-Amz-Expires"]
    if given["X-Amz-Algorithm"] != sigv4.ALGORITHM:
        raise errors.incomplete_signature(f"A signed URL requires {sigv4.ALGORITHM}.")
    if not expires.isascii() or not expires.isdigit() or not 1 <= int(expires[:9]) <= _MAX_EXPIRES_S:
        raise errors.incomplete_signature("X-Amz-Expires must be from 1 second to a week.")
    others = [(name, value) for name, value in request.query if name != "X-Amz-Signature"]
    return _made(
        given["X-Amz-Credential"],
        given["X-Amz-Date"],
        given["X-Amz-SignedHeaders"],
        given["X-Amz-Signature"],
        others,
        int(expires),
    )


def _made(
    credential: str, when: str, signed: str, signature: str, query: Sequence[tuple[str, str]], expires_s: int | None
) -> _Claim:
    key_id, _, scope = credential.partition("/")
    if not key_id or scope.count("/") != 3:
        raise errors.incomplete_signature("Credential must have 5 parts: key, date, region, service and aws4_request.")
    names = tuple(signed.lower().split(";"))
    return _Claim(key_id, scope, when, names, signature, query, expires_s)


def _check_scope(claim: _Claim) -> None:
    date, _, service, end = claim.scope.split("/")
    if service != sigv4.SERVICE or end != "aws4_request":
        raise errors.wrong_signature(f"Credential should be scoped to correct service: '{sigv4.SERVICE}'.")
    if date != claim.when[:8]:
        raise errors.wrong_signature(f"Date in Credential scope does not match the date of the request: {claim.when}.")


def _check_time(claim: _Claim, now_s: float) -> None:
    try:
        signed_s = _seconds(claim.when)
    except ValueError:
        raise errors.incomplete_signature("The request needs a date, X-Amz-Date, as 20260131T235959Z.") from None
    holds_s = MAX_SKEW_S if claim.expires_s is None else claim.expires_s
    if now_s > signed_s + holds_s:
        raise errors.wrong_signature(f"Signature expired: {claim.when} is now too long ago.")
    if signed_s > now_s + MAX_SKEW_S:
        raise errors.wrong_signature(f"Signature not yet current: {claim.when} is still later than now.")


@lru_cache(maxsize=256)
def _seconds(when: str) -> int:
    """Seconds since the epoch. The requests of a second have the same date, and parsing it is slow."""
    return timegm(strptime(when, "%Y%m%dT%H%M%SZ"))


def _check_headers(claim: _Claim, request: SignedRequest) -> None:
    """Headers that change the meaning of a request have to be signed."""
    signed = claim.signed
    missing = [name for name in request.headers if name not in signed and name.startswith("x-amz-")]
    if "host" not in signed:
        missing.append("host")
    if missing:
        raise errors.wrong_signature(f"These headers have to be signed: {', '.join(sorted(missing))}.")
