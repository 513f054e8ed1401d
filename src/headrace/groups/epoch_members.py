"""A member of a consumer or streams group, and its reconciliation with its target (KIP-848, KIP-1071). Pure.

Members have partitions in a consumer group and tasks in a streams group: here both are *holdings*. An exclusive holding
is owned by the member that has it in `assigned` or `revoking`. It is assigned to a member only while no other owns it,
and a member loses it only by reporting that it revoked it, or by being removed.

    STABLE ──new target, has holdings to revoke──────▶ UNREVOKED ──reports the revocation───┐
      ▲ │                                                                                   │
      │ └──new target, nothing to revoke───────▶ UNRELEASED ◀──others own part of target────┤
      └─────────────────────────nothing is missing any more──────────┴──────────────────────┘

A member with holdings to revoke stays at its epoch until it has revoked them; then it advances to the target epoch.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any, Generic, Protocol, Self, TypeVar

from headrace.groups.records import Value

LEFT_FOR_NOW = -2
"""The epoch of a static member that has left temporarily."""


class MemberPhase(Enum):
    STABLE = "stable"
    UNREVOKED = "unrevoked"
    UNRELEASED = "unreleased"


class Holdings(Protocol):
    """A set of partitions or tasks."""

    def __and__(self, other: Self, /) -> Self: ...
    def __or__(self, other: Self, /) -> Self: ...
    def __sub__(self, other: Self, /) -> Self: ...
    def __le__(self, other: Self, /) -> bool: ...


A = TypeVar("A")
H = TypeVar("H", bound=Holdings)


@dataclass(frozen=True, slots=True)
class EpochMember(Generic[A, H]):
    member_id: str
    about: A
    """The member's metadata, as it is stored."""
    assigned: H
    revoking: H
    epoch: int = 0
    previous_epoch: int = 0
    """The epoch before: still accepted, since the member may have missed the response with the next one."""
    phase: MemberPhase = MemberPhase.STABLE

    @property
    def holds(self) -> H:
        """All of its holdings, including those to revoke."""
        return self.assigned | self.revoking

    @property
    def may_be_replaced(self) -> bool:
        """Whether another member with its instance id may replace it."""
        return self.epoch == LEFT_FOR_NOW

    def session_timeout_ms(self, default_ms: int) -> int:
        """How long it may go without a heartbeat."""
        return default_ms

    def current(self) -> Value:
        """The value of its current-assignment record."""
        raise NotImplementedError

    def left_for_now(self) -> Self:
        """Return the static member as temporarily left: it retains its assignment."""
        nothing = self.revoking - self.revoking
        return replace(self, epoch=LEFT_FOR_NOW, phase=MemberPhase.STABLE, revoking=nothing)

    def at(self, epoch: int, phase: MemberPhase, assigned: H, revoking: H) -> Self:
        """Return the member at an epoch, with these holdings."""
        return replace(self, epoch=epoch, previous_epoch=self.epoch, phase=phase, assigned=assigned, revoking=revoking)


M = TypeVar("M", bound=EpochMember[Any, Any])


def reconcile(member: M, target_epoch: int, target: H, owned: H | None, available: Callable[[H], H]) -> M:
    """Return the member one step closer to its target. `owned` are its reported holdings, or None if not reported.

    `available` returns the subset of given holdings that no other member has.
    """
    if member.phase is MemberPhase.STABLE and member.epoch == target_epoch:
        return member
    epoch = member.epoch
    if member.phase is MemberPhase.UNREVOKED:
        if owned is None or owned & member.revoking:
            return member
        epoch += 1
    keeps: H = member.assigned & target
    revoking: H = member.assigned - target
    if revoking and (owned is None or owned & revoking):
        return member.at(epoch, MemberPhase.UNREVOKED, keeps, revoking)
    missing = target - keeps
    free = available(missing)
    phase = MemberPhase.STABLE if free == missing else MemberPhase.UNRELEASED
    if phase is member.phase and not free and epoch == target_epoch and not member.revoking and not revoking:
        return member
    nothing = target - target
    return member.at(target_epoch, phase, keeps | free, nothing)
