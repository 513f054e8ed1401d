"""Users, their SCRAM credentials and their access keys, as the metadata store has them. Pure.

No password is stored: a SCRAM credential verifies one, and cannot be turned back into it. The secret of an access key
is stored, because the broker needs it to compute the signature of a request (SigV4).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

ANONYMOUS = "User:ANONYMOUS"
"""The principal of a client that has not authenticated."""
USER_TYPE = "User"


def principal_of(user: str) -> str:
    """The principal of a user: `User:alice`."""
    return f"{USER_TYPE}:{user}"


@dataclass(frozen=True, slots=True)
class ScramCredential:
    """What verifies a user's password with one SCRAM mechanism (RFC 5802)."""

    mechanism: str
    """SCRAM-SHA-256 or SCRAM-SHA-512."""
    salt: bytes = field(repr=False)
    iterations: int
    stored_key: bytes = field(repr=False)
    server_key: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class User:
    name: str
    credentials: Mapping[str, ScramCredential] = field(default_factory=lambda: MappingProxyType({}))
    """By mechanism."""


@dataclass(frozen=True, slots=True)
class AccessKey:
    """A key that signs requests over HTTP on behalf of a user."""

    key_id: str
    user: str
    secret: str = field(repr=False)
    created_ms: int
