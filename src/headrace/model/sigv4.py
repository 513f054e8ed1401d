"""AWS Signature Version 4: signs HTTP requests with a shared secret. Pure.

The broker verifies signatures with it (`sqs/auth.py`), and our clients sign with `sign`.
"""

import hmac
from collections.abc import Collection, Mapping, Sequence
from functools import lru_cache
from hashlib import sha256
from urllib.parse import quote, unquote_plus

ALGORITHM = "AWS4-HMAC-SHA256"
SERVICE = "sqs"
_END = "aws4_request"


def scope_of(date: str, region: str, service: str = SERVICE) -> str:
    """The credential scope. `date` is YYYYMMDD."""
    return f"{date}/{region}/{service}/{_END}"


def canonical_request(
    method: str,
    path: str,
    query: Collection[tuple[str, str]],
    headers: Mapping[str, Sequence[str]],
    signed: Sequence[str],
    payload_hash: str,
) -> str:
    """The canonical request. `path` is as sent, header names are lower-case, `signed` names the signed headers."""
    pairs = sorted((quote(name, safe="-_.~"), quote(value, safe="-_.~")) for name, value in query) if query else ()
    lines = [
        method,
        "/" if path in ("/", "") else quote(path, safe="/~"),
        "&".join([f"{name}={value}" for name, value in pairs]),
        # Without the spaces at the ends, and one for several.
        *[f"{name}:{','.join([' '.join(value.split()) for value in headers.get(name, ())])}" for name in signed],
        "",
        ";".join(signed),
        payload_hash,
    ]
    return "\n".join(lines)


def query_pairs(query_string: str) -> list[tuple[str, str]]:
    """The decoded query parameters of a URL, in order."""
    pairs = (pair.partition("=") for pair in query_string.split("&") if pair)
    return [(unquote_plus(name), unquote_plus(value)) for name, _, value in pairs]


def signature(secret: str, when: str, scope: str, canonical: str) -> str:
    """The signature of a canonical request. `when` is YYYYMMDD'T'HHMMSS'Z'."""
    date, region, service, _ = scope.split("/")
    text = "\n".join((ALGORITHM, when, scope, sha256(canonical.encode()).hexdigest()))
    return hmac.digest(_key(secret, date, region, service), text.encode(), "sha256").hex()


@lru_cache(maxsize=256)
def _key(secret: str, date: str, region: str, service: str) -> bytes:
    key = f"AWS4{secret}".encode()
    for part in (date, region, service, _END):
        key = hmac.new(key, part.encode(), sha256).digest()
    return key


def sign(
    method: str,
    path: str,
    headers: Mapping[str, str],
    body: bytes,
    *,
    key_id: str,
    secret: str,
    region: str,
    when: str,
) -> dict[str, str]:
    """The headers to add to a request without query parameters. All of `headers` are signed; `Host` is required."""
    lower = {name.lower(): [value] for name, value in headers.items()}
    lower["x-amz-date"] = [when]
    signed = sorted(lower)
    scope = scope_of(when[:8], region)
    canonical = canonical_request(method, path, (), lower, signed, sha256(body).hexdigest())
    found = signature(secret, when, scope, canonical)
    return {
        "X-Amz-Date": when,
        "Authorization": (
            f"{ALGORITHM} Credential={key_id}/{scope}, SignedHeaders={';'.join(signed)}, Signature={found}"
        ),
    }
