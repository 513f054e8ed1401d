"""Requests and responses of the classic group protocol."""

from typing import NamedTuple


class JoinRequest(NamedTuple):
    """A JoinGroup request: a client asks to be a member of the next generation."""

    member_id: str
    """Empty if the client has none yet."""
    instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocol_type: str
    protocols: tuple[tuple[str, bytes], ...]
    """The protocols that it supports, preferred first, each with its metadata (for consumers the subscription)."""
    new_member_id: str
    """The id that the broker assigns if the client has none."""
    needs_known_id: bool = False
    """Whether a client without a member id must rejoin with the one in the response (KIP-394)."""
    can_skip_assignment: bool = False
    """Whether the client supports SkipAssignment for a leader (KIP-814)."""


class JoinedMember(NamedTuple):
    member_id: str
    instance_id: str | None
    subscription: bytes


class Joined(NamedTuple):
    """A JoinGroup response."""

    member_id: str
    generation: int
    protocol_type: str
    protocol: str | None
    leader: str
    members: tuple[JoinedMember, ...] = ()
    """All members in the response to the leader, which assigns; empty for the others."""
    skip_assignment: bool = False


class Synced(NamedTuple):
    protocol_type: str
    protocol: str | None
    assignment: bytes
