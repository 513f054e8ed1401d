"""The interface of one authentication on the server's side: tokens in, answers out. Pure.

A connection begins an `Exchange` (see `mechanisms.py`), passes it each token of the client, and sends the answer:

- `Challenge`: send the token and wait for the next one.
- `Authenticated`: send the token; the connection now belongs to the principal.
- `Rejected`: answer with `failure_text(mechanism)` and close. The reason is for the log and the audit log only. A
  client sees the same text for an unknown user, a wrong password and a malformed message.

An exchange that has answered `Authenticated` or `Rejected` is over: each further step is rejected.
"""

from dataclasses import dataclass
from typing import Protocol

PLAIN = "PLAIN"
SCRAM_SHA_256 = "SCRAM-SHA-256"
SCRAM_SHA_512 = "SCRAM-SHA-512"
OAUTHBEARER = "OAUTHBEARER"
MECHANISMS = (PLAIN, SCRAM_SHA_256, SCRAM_SHA_512, OAUTHBEARER)


@dataclass(frozen=True, slots=True)
class Challenge:
    """The exchange goes on after this token."""

    token: bytes


@dataclass(frozen=True, slots=True)
class Authenticated:
    """The client has proved that it is the principal."""

    token: bytes
    principal: str
    """`User:NAME`."""
    expires_at_ms: int | None = None
    """When the credential expires, in milliseconds since 1970; None for never."""


@dataclass(frozen=True, slots=True)
class Rejected:
    """The client has not proved anything."""

    reason_for_log: str
    """Never sent to the client; contains no secret."""
    token: bytes = b""
    claimed_user: str | None = None
    """The name that the client claimed, as far as it was understood; for the audit log."""


Answer = Challenge | Authenticated | Rejected


class Exchange(Protocol):
    """One authentication of one connection."""

    def is_slow(self, token: bytes) -> bool:
        """Whether `step` with this token takes milliseconds of computing: then call it in a worker thread."""
        ...

    def step(self, token: bytes) -> Answer:
        """The answer to a token of the client. Raises nothing, whatever the token contains."""
        ...


def failure_text(mechanism: str) -> str:
    """The one text that a client sees when it is rejected."""
    return f"Authentication failed due to invalid credentials with SASL mechanism {mechanism}"
