"""How a member of a consumer group gets from what it reads to what it shall read (KIP-848). Pure.

A partition has one owner at most: whoever has it among `assigned` or `revoking`. It is given to a member only while
nobody else has it; it leaves a member only when the member has said that it does not read it any more, or is gone.

    STABLE ──another target, must give up something──▶ UNREVOKED ──says that it gave it up──┐
      ▲ │                                                                                   │
      │ └──another target, nothing to give up──▶ UNRELEASED ◀──others still have its share──┤
      └─────────────────────────nothing is missing any more──────────┴──────────────────────┘

A member that has to give up something stays at its epoch until it has; then it goes on to the epoch of the target.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from enum import Enum

from headrace.groups.assignors import Assignment, TopicIdPartition
from headrace.groups.consumer_records import CurrentValue, SubscriptionValue, restored, stored

LEFT_FOR_NOW = -2
"""The epoch of a static member that went away and is expected back."""


class Phase(Enum):
    STABLE = "stable"
    UNREVOKED = "unrevoked"
    UNRELEASED = "unreleased"


@dataclass(frozen=True, slots=True)
class ConsumerMember:
    member_id: str
    wants: SubscriptionValue = field(default_factory=SubscriptionValue)
    epoch: int = 0
    previous_epoch: int = 0
    """Where it was before: it is still listened to with that, since it may have missed our answer."""
    phase: Phase = Phase.STABLE
    assigned: Assignment = frozenset()
    revoking: Assignment = frozenset()

    @property
    def holds(self) -> Assignment:
        """What nobody else may have."""
        return self.assigned | self.revoking

    @property
    def is_classic(self) -> bool:
        """Whether it speaks the classic protocol."""
        return self.wants.classic is not None

    def session_timeout_ms(self, default_ms: int) -> int:
        """How long it may be silent: members of the classic protocol say so themselves."""
        return default_ms if self.wants.classic is None else self.wants.classic.session_timeout_ms

    def current(self) -> CurrentValue:
        return CurrentValue(
            self.epoch, self.previous_epoch, self.phase.value, stored(self.assigned), stored(self.revoking)
        )

    def with_current(self, value: CurrentValue) -> "ConsumerMember":
        return replace(
            self,
            epoch=value.epoch,
            previous_epoch=value.previous_epoch,
            phase=Phase(value.phase),
            assigned=restored(value.assigned),
            revoking=restored(value.revoking),
        )


def reconcile(
    member: ConsumerMember,
    target_epoch: int,
    target: Assignment,
    owned: Assignment | None,
    is_free: Callable[[TopicIdPartition], bool],
) -> ConsumerMember:
    """The member one step further. `owned` is what it says it reads, or None if it does not say.

    `is_free` tells whether no other member has a partition.
    """
    if member.phase is Phase.STABLE and member.epoch == target_epoch:
        return member
    epoch = member.epoch
    if member.phase is Phase.UNREVOKED:
        if owned is None or owned & member.revoking:
            return member
        epoch += 1
    keeps = member.assigned & target
    revoking = member.assigned - target
    if revoking and (owned is None or owned & revoking):
        return replace(
            member,
            epoch=epoch,
            previous_epoch=member.epoch,
            phase=Phase.UNREVOKED,
            assigned=keeps,
            revoking=revoking,
        )
    missing = target - keeps
    available = frozenset(place for place in missing if is_free(place))
    phase = Phase.STABLE if len(available) == len(missing) else Phase.UNRELEASED
    if phase is member.phase and not available and epoch == target_epoch and not member.revoking and not revoking:
        return member
    return replace(
        member,
        epoch=target_epoch,
        previous_epoch=member.epoch,
        phase=phase,
        assigned=keeps | available,
        revoking=frozenset(),
    )
