"""Requests of the classic group protocol, and the answers to them."""

from typing import NamedTuple


class JoinRequest(NamedTuple):
    """A member that wants to be in the next generation."""

    member_id: str
    """Empty for one that has none yet."""
    instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocol_type: str
    protocols: tuple[tuple[str, bytes], ...]
    """What it can speak, best first, with what it says under each."""
    new_member_id: str
    """The id it gets if it has none."""
    needs_known_id: bool = False
    """Whether a member without an id is sent back with one, instead of being let in at once (KIP-394)."""
    can_skip_assignment: bool = False
    """Whether the client knows of leaders that need not assign (KIP-814)."""


class JoinedMember(NamedTuple):
    member_id: str
    instance_id: str | None
    subscription: bytes


class Joined(NamedTuple):
    """A member is in a generation."""

    member_id: str
    generation: int
    protocol_type: str
    protocol: str | None
    leader: str
    members: tuple[JoinedMember, ...] = ()
    """All of them, for the leader, which assigns."""
    skip_assignment: bool = False


class Synced(NamedTuple):
    protocol_type: str
    protocol: str | None
    assignment: bytes
