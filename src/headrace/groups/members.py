"""Members of a classic group, and what they agree on. Pure."""

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
    """When it counts as gone unless it says something; see `is_excused`."""
    is_new: bool = False
    """It has not been told its id yet."""
    join_waiter: Deferred[Result[Joined]] | None = None
    sync_waiter: Deferred[Result[Synced]] | None = None

    @property
    def is_excused(self) -> bool:
        """Whether it need not heartbeat: it waits for an answer of ours. One that is new may not wait for ever."""
        return not self.is_new and (self.join_waiter is not None or self.sync_waiter is not None)

    def heard_of(self, now: Now) -> None:
        """The member sent something: its session starts anew."""
        if not self.is_new:
            self.deadline_ms = now.ms + self.session_timeout_ms

    def update(self, wants: JoinRequest, waiter: Deferred[Result[Joined]]) -> None:
        """The member joins again."""
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
        """A new member, which must have the answer to its join by the deadline."""
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
    """The protocols that every member speaks."""
    common: set[str] | None = None
    for member in members:
        names = {name for name, _ in member.protocols}
        common = names if common is None else common & names
    return common or set()


def select_protocol(members: Sequence[Member]) -> str | None:
    """Everybody votes for the first on its list that all speak; among equals the first voter's choice wins."""
    candidates = common_protocols(members)
    votes = Counter(
        next(name for name, _ in member.protocols if name in candidates) for member in members if candidates
    )
    return votes.most_common(1)[0][0] if votes else None
