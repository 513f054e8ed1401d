"""The persisted state of a streams group. Pure."""

from collections import defaultdict
from collections.abc import Iterable

from headrace.groups.epoch_state import EpochDraft, EpochState
from headrace.groups.records import Key, Value
from headrace.groups.streams_member import StreamsMember
from headrace.groups.streams_records import (
    StreamsCurrentValue,
    StreamsTargetValue,
    StreamsValue,
    TopologyKey,
    TopologyValue,
)
from headrace.groups.streams_tasks import StreamsTask, TaskSet, restored_tasks, stored_tasks
from headrace.model.invariants import invariant


class StreamsState(EpochState[StreamsValue, StreamsMember, TaskSet]):
    def __init__(self, group_id: str) -> None:
        super().__init__(group_id, StreamsValue())
        self.topology: TopologyValue | None = None
        self._standbys: dict[StreamsTask, set[str]] = defaultdict(set)

    def new_member(self, member_id: str) -> StreamsMember:
        return StreamsMember(member_id)

    def restored(self, member: StreamsMember, value: Value | None) -> StreamsMember | None:
        return member.with_current(value) if isinstance(value, StreamsCurrentValue) else None

    def read_target(self, value: Value | None) -> TaskSet | None:
        if not isinstance(value, StreamsTargetValue):
            return None
        return TaskSet(restored_tasks(value.active), restored_tasks(value.standby))

    def exclusive(self, member: StreamsMember) -> Iterable[StreamsTask]:
        return member.holds.active

    def check_owner(self, owner: str | None, member_id: str) -> None:
        invariant(owner in (None, member_id), 59, "an active task belongs to one member of a streams group at most")

    def standbys(self, task: StreamsTask) -> frozenset[str]:
        """Return the members with a standby of a task."""
        return frozenset(self._standbys.get(task, ()))

    def replay(self, key: Key, value: Value | None) -> None:
        if isinstance(key, TopologyKey):
            self.topology = value if isinstance(value, TopologyValue) else None
        else:
            super().replay(key, value)

    def _hold(self, member: StreamsMember) -> None:
        super()._hold(member)
        for task in member.holds.standby:
            self._standbys[task].add(member.member_id)

    def _release(self, member: StreamsMember) -> None:
        super()._release(member)
        for task in member.holds.standby:
            holders = self._standbys[task]
            holders.discard(member.member_id)
            if not holders:
                del self._standbys[task]


class StreamsDraft(EpochDraft[StreamsValue, StreamsMember, TaskSet]):
    def __init__(self, state: StreamsState) -> None:
        super().__init__(state)
        self.topology = state.topology
        self._state = state

    def target_value(self, target: TaskSet) -> StreamsTargetValue:
        return StreamsTargetValue(stored_tasks(target.active), stored_tasks(target.standby))

    def initialize(self, topology: TopologyValue) -> None:
        """Set the topology of the group."""
        if topology != self.topology:
            self.topology = topology
            self.change(TopologyKey(self.group_id), topology)
            self.bump()

    def remove_all(self) -> None:
        super().remove_all()
        self.change(TopologyKey(self.group_id), None)

    def available(self, member: StreamsMember, tasks: TaskSet) -> TaskSet:
        """Return the tasks that can be assigned to a member now, given the tasks of the other members."""
        return TaskSet(
            frozenset(task for task in tasks.active if self._is_free_active(member, task)),
            frozenset(task for task in tasks.standby if self._is_free_standby(member, task)),
        )

    def _is_free_active(self, member: StreamsMember, task: StreamsTask) -> bool:
        """Whether no other member has the task as active, and no other member of the same process as a standby. Members
        removed in this draft have no tasks."""
        owner = self._state.owner(task)
        return (owner in (None, member.member_id) or owner not in self.members) and not self._is_standby_in_process(
            member, task
        )

    def _is_free_standby(self, member: StreamsMember, task: StreamsTask) -> bool:
        """Whether no other member of the same process has a task, in any role."""
        owner = self._state.owner(task)
        is_active = owner is not None and self._shares_process(member, owner)
        return not is_active and not self._is_standby_in_process(member, task)

    def _is_standby_in_process(self, member: StreamsMember, task: StreamsTask) -> bool:
        return any(self._shares_process(member, holder) for holder in self._state.standbys(task))

    def _shares_process(self, member: StreamsMember, other_id: str) -> bool:
        other = self.members.get(other_id)
        return (
            other is not None
            and other.member_id != member.member_id
            and other.about.process_id == member.about.process_id
        )
