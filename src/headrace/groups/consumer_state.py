"""The persisted state of a consumer group. Pure."""

from collections.abc import Iterable

from headrace.groups.assignors import Assignment, TopicIdPartition
from headrace.groups.consumer_member import ConsumerMember
from headrace.groups.consumer_records import ConsumerValue, CurrentValue, TargetValue, restored, stored
from headrace.groups.epoch_state import EpochDraft, EpochState
from headrace.groups.records import Value
from headrace.model.invariants import invariant


class ConsumerState(EpochState[ConsumerValue, ConsumerMember, Assignment]):
    def __init__(self, group_id: str) -> None:
        super().__init__(group_id, ConsumerValue())

    def new_member(self, member_id: str) -> ConsumerMember:
        return ConsumerMember(member_id)

    def restored(self, member: ConsumerMember, value: Value | None) -> ConsumerMember | None:
        return member.with_current(value) if isinstance(value, CurrentValue) else None

    def read_target(self, value: Value | None) -> Assignment | None:
        return restored(value.places) if isinstance(value, TargetValue) else None

    def exclusive(self, member: ConsumerMember) -> Iterable[TopicIdPartition]:
        return member.holds

    def check_owner(self, owner: str | None, member_id: str) -> None:
        invariant(owner in (None, member_id), 23, "a partition belongs to one member of a consumer group at most")


class ConsumerDraft(EpochDraft[ConsumerValue, ConsumerMember, Assignment]):
    def __init__(self, state: ConsumerState) -> None:
        super().__init__(state)
        self._state = state

    def target_value(self, target: Assignment) -> TargetValue:
        return TargetValue(stored(target))

    def available(self, member_id: str, places: Assignment) -> Assignment:
        """Return the partitions that no other member has. Members removed in this draft have none."""
        return frozenset(place for place in places if self._is_free_for(member_id, place))

    def _is_free_for(self, member_id: str, place: TopicIdPartition) -> bool:
        owner = self._state.owner(place)
        return owner is None or owner == member_id or owner not in self.members
