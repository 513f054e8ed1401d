"""A member of a consumer or streams group, and how it gets from what it has to its target (KIP-848, KIP-1071). Pure.

Members have partitions in a consumer group and tasks in a streams group: here both are *holdings*. A holding that only
one member may have belongs to the member that has it among `assigned` or `revoking`. It is given to a member only while
no other has it; it leaves a member only when the member has said that it gave it up, or is removed.

    STABLE ──another target, must give up something──▶ UNREVOKED ──says that it gave it up──┐
      ▲ │                                                                                   │
      │ └──another target, nothing to give up──▶ UNRELEASED ◀──others still have its share──┤
      └─────────────────────────nothing is missing any more──────────┴──────────────────────┘

A member that has to give up something stays at its epoch until it has; then it goes on to the epoch of the target.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any, Generic, Protocol, Self, TypeVar

from headrace.groups.records import Value

LEFT_FOR_NOW = -2
"""The epoch of a static member that went away and is expected back."""


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
    """What the member said of itself, as it is stored."""
    assigned: H
    revoking: H
    epoch: int = 0
    previous_epoch: int = 0
    """The epoch before: still accepted from the member, which may have missed the answer with the next one."""
    phase: MemberPhase = MemberPhase.STABLE

    @property
    def holds(self) -> H:
        """What it has, including what it has yet to give up."""
        return self.assigned | self.revoking

    @property
    def may_be_replaced(self) -> bool:
        """Whether another member with its instance id may take its place."""
        return self.epoch == LEFT_FOR_NOW

    def session_timeout_ms(self, default_ms: int) -> int:
        """How long it may be silent."""
        return default_ms

    def current(self) -> Value:
        """The value of the record of what it has."""
        raise NotImplementedError

    def left_for_now(self) -> Self:
        """The static member while it is away: it keeps what is assigned to it."""
        nothing = self.revoking - self.revoking
        return replace(self, epoch=LEFT_FOR_NOW, phase=MemberPhase.STABLE, revoking=nothing)

    def at(self, epoch: int, phase: MemberPhase, assigned: H, revoking: H) -> Self:
        """The member at an epoch, with these holdings."""
        return replace(self, epoch=epoch, previous_epoch=self.epoch, phase=phase, assigned=assigned, revoking=revoking)


M = TypeVar("M", bound=EpochMember[Any, Any])


def reconcile(member: M, target_epoch: int, target: H, owned: H | None, available: Callable[[H], H]) -> M:
    """The member one step further. `owned` is what it says it has, or None if it does not say.

    `available` returns those of some holdings that no other member has.
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
