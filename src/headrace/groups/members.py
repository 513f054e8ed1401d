"""Members of a classic group, and the election of their protocol. Pure."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from headrace.coordinator.result import Result
from headrace.groups.classic_protocol import Joined, JoinRequest, Synced
from headrace.groups.group import GroupLimits, Now, Reply
from headrace.groups.records import MemberValue
from headrace.model.errors import InvalidSessionTimeout
from headrace.runtime.deferred import Deferred


@dataclass(slots=True)
class Member:
    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocols: tuple[tuple[str, bytes], ...]
    assignment: bytes = b""
    deadline_ms: float = 0.0
    """When its session times out; see `is_excused`."""
    is_new: bool = False
    """Its first join has not been answered yet, so it does not know its id."""
    join_waiter: Deferred[Result[Joined]] | None = None
    sync_waiter: Deferred[Result[Synced]] | None = None

    @property
    def is_excused(self) -> bool:
        """Whether its session cannot time out: it waits for a response. A new member may not wait forever."""
        return not self.is_new and (self.join_waiter is not None or self.sync_waiter is not None)

    def heard_of(self, now: Now) -> None:
        """Restart its session after a request."""
        if not self.is_new:
            self.deadline_ms = now.ms + self.session_timeout_ms

    def update(self, wants: JoinRequest, waiter: Deferred[Result[Joined]]) -> None:
        """Apply a rejoin."""
        self.protocols = wants.protocols
        self.session_timeout_ms = wants.session_timeout_ms
        self.rebalance_timeout_ms = wants.rebalance_timeout_ms
        self.join_waiter = waiter

    def answer_join(self, result: Result[Any]) -> list[Reply]:
        waiter, self.join_waiter = self.join_waiter, None
        return [] if waiter is None else [Reply(waiter, result)]

    def answer_sync(self, result: Result[Any]) -> list[Reply]:
        waiter, self.sync_waiter = self.sync_waiter, None
        return [] if waiter is None else [Reply(waiter, result)]

    def subscription(self, protocol: str | None) -> bytes:
        for name, said in self.protocols:
            if name == protocol:
                return said
        return b""

    def stored(self, protocol: str | None) -> MemberValue:
        return MemberValue(
            self.member_id,
            self.instance_id,
            self.client_id,
            self.client_host,
            self.session_timeout_ms,
            self.rebalance_timeout_ms,
            self.subscription(protocol),
            self.assignment,
        )

    @classmethod
    def joining(
        cls, member_id: str, wants: JoinRequest, waiter: Deferred[Result[Joined]], deadline_ms: float
    ) -> "Member":
        """Return a new member, whose join must be answered by the deadline."""
        return cls(
            member_id,
            wants.instance_id,
            wants.client_id,
            wants.client_host,
            wants.session_timeout_ms,
            wants.rebalance_timeout_ms,
            wants.protocols,
            deadline_ms=deadline_ms,
            is_new=True,
            join_waiter=waiter,
        )

    @classmethod
    def from_stored(cls, value: MemberValue, protocol: str | None) -> "Member":
        return cls(
            value.member_id,
            value.instance_id,
            value.client_id,
            value.client_host,
            value.session_timeout_ms,
            value.rebalance_timeout_ms,
            ((protocol or "", value.subscription),),
            value.assignment,
        )


def check_session_timeout(wants: JoinRequest, limits: GroupLimits) -> None:
    if not limits.min_session_timeout_ms <= wants.session_timeout_ms <= limits.max_session_timeout_ms:
        raise InvalidSessionTimeout(
            f"a session timeout of {wants.session_timeout_ms} ms is not allowed: it must be from "
            f"{limits.min_session_timeout_ms} to {limits.max_session_timeout_ms} ms"
        )


def common_protocols(members: Iterable[Member]) -> set[str]:
    """Return the protocols that every member supports."""
    common: set[str] | None = None
    for member in members:
        names = {name for name, _ in member.protocols}
        common = names if common is None else common & names
    return common or set()


def select_protocol(members: Sequence[Member]) -> str | None:
    """Elect a protocol: each member votes for its most preferred common one; a tie goes to the first voter's."""
    candidates = common_protocols(members)
    votes = Counter(
        next(name for name, _ in member.protocols if name in candidates) for member in members if candidates
    )
    return votes.most_common(1)[0][0] if votes else None
