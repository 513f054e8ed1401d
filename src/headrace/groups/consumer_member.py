"""A member of a consumer group (KIP-848), of either protocol. Pure."""

from dataclasses import dataclass, field, replace

from headrace.groups.assignors import Assignment
from headrace.groups.consumer_records import CurrentValue, SubscriptionValue, restored, stored
from headrace.groups.epoch_members import LEFT_FOR_NOW, EpochMember, MemberPhase


@dataclass(frozen=True, slots=True)
class ConsumerMember(EpochMember[SubscriptionValue, Assignment]):
    about: SubscriptionValue = field(default_factory=SubscriptionValue)
    assigned: Assignment = frozenset()
    revoking: Assignment = frozenset()

    @property
    def is_classic(self) -> bool:
        """Whether it uses the classic protocol."""
        return self.about.classic is not None

    @property
    def may_be_replaced(self) -> bool:
        return self.epoch == LEFT_FOR_NOW or self.is_classic

    def session_timeout_ms(self, default_ms: int) -> int:
        """The session timeout: the default, or that of its join for a member of the classic protocol."""
        return default_ms if self.about.classic is None else self.about.classic.session_timeout_ms

    def current(self) -> CurrentValue:
        return CurrentValue(
            self.epoch, self.previous_epoch, self.phase.value, stored(self.assigned), stored(self.revoking)
        )

    def with_current(self, value: CurrentValue) -> "ConsumerMember":
        return replace(
            self,
            epoch=value.epoch,
            previous_epoch=value.previous_epoch,
            phase=MemberPhase(value.phase),
            assigned=restored(value.assigned),
            revoking=restored(value.revoking),
        )
