"""The durable state of a streams group, and drafts of changes to it. Pure.

The state changes by replaying records alone. A draft begins as a copy of it, is changed step by step while a request is
worked on, and keeps the records that make the same changes to the state.
"""

from collections import defaultdict
from dataclasses import replace

import msgspec

from headrace.groups.consumer_records import CurrentKey, MemberKey, TargetKey
from headrace.groups.records import GroupKey, GroupRecord, Key, Value
from headrace.groups.streams_reconciliation import StreamsMember
from headrace.groups.streams_records import (
    StreamsCurrentValue,
    StreamsMemberValue,
    StreamsTargetValue,
    StreamsValue,
    TopologyKey,
    TopologyValue,
)
from headrace.groups.streams_tasks import StreamsTask, TaskSet, restored_tasks, stored_tasks


class StreamsState:
    def __init__(self, group_id: str) -> None:
        self.group_id = group_id
        self.about = StreamsValue()
        self.topology: TopologyValue | None = None
        self.members: dict[str, StreamsMember] = {}
        self.targets: dict[str, TaskSet] = {}
        self.static: dict[str, str] = {}
        """Instance id to member id."""
        self.version = 0
        """Raised by every record."""
        self._owners: dict[StreamsTask, str] = {}
        self._standbys: dict[StreamsTask, set[str]] = defaultdict(set)

    def owner(self, task: StreamsTask) -> str | None:
        """The member with an active task, be it that it has yet to give it up."""
        return self._owners.get(task)

    def standbys(self, task: StreamsTask) -> frozenset[str]:
        """The members with a standby of a task."""
        return frozenset(self._standbys.get(task, ()))

    def replay(self, key: Key, value: Value | None) -> None:
        self.version += 1
        if isinstance(key, GroupKey):
            if isinstance(value, StreamsValue):
                self.about = value
        elif isinstance(key, TopologyKey):
            self.topology = value if isinstance(value, TopologyValue) else None
        elif isinstance(key, MemberKey):
            if isinstance(value, StreamsMemberValue):
                self._came(key.member_id, value)
            else:
                self._gone(key.member_id)
        elif isinstance(key, TargetKey):
            if isinstance(value, StreamsTargetValue):
                self.targets[key.member_id] = TaskSet(restored_tasks(value.active), restored_tasks(value.standby))
            else:
                self.targets.pop(key.member_id, None)
        elif isinstance(key, CurrentKey) and isinstance(value, StreamsCurrentValue):
            # Compaction may have left this record in front of the one that says who the member is.
            member = self.members.get(key.member_id) or StreamsMember(key.member_id)
            self._release(member)
            self._hold(member.with_current(value))

    def _came(self, member_id: str, about: StreamsMemberValue) -> None:
        member = self.members.get(member_id) or StreamsMember(member_id)
        before = member.about.instance_id
        if before is not None and before != about.instance_id and self.static.get(before) == member_id:
            del self.static[before]
        if about.instance_id is not None:
            self.static[about.instance_id] = member_id
        self.members[member_id] = replace(member, about=about)

    def _hold(self, member: StreamsMember) -> None:
        for task in member.holds.active:
            self._owners[task] = member.member_id
        for task in member.holds.standby:
            self._standbys[task].add(member.member_id)
        self.members[member.member_id] = member

    def _release(self, member: StreamsMember) -> None:
        for task in member.holds.active:
            if self._owners.get(task) == member.member_id:
                del self._owners[task]
        for task in member.holds.standby:
            holders = self._standbys[task]
            holders.discard(member.member_id)
            if not holders:
                del self._standbys[task]

    def _gone(self, member_id: str) -> None:
        member = self.members.pop(member_id, None)
        if member is not None:
            self._release(member)
            instance_id = member.about.instance_id
            if instance_id is not None and self.static.get(instance_id) == member_id:
                del self.static[instance_id]


class StreamsDraft:
    def __init__(self, state: StreamsState) -> None:
        self.group_id = state.group_id
        self.about = state.about
        self.topology = state.topology
        self.members = dict(state.members)
        self.targets = dict(state.targets)
        self._state = state
        self._changes: dict[Key, Value | None] = {}

    @property
    def has_changes(self) -> bool:
        return bool(self._changes)

    def records(self) -> list[GroupRecord]:
        """The records of all changes; of several to the same thing the last one.

        Many records are more than one batch, and a crash may leave the first of them alone. So a new epoch comes first,
        with a target that is behind it: whatever else is there, the next heartbeat makes a whole target. What a member
        has comes last, behind everything that it rests on.
        """
        before = self._state.about
        records: list[GroupRecord] = list(self._changes.items())
        if self.about.epoch == before.epoch:
            return records
        begun = msgspec.structs.replace(before, epoch=self.about.epoch)
        return [(GroupKey(self.group_id), begun), *records]

    def is_free_active(self, member: StreamsMember, task: StreamsTask) -> bool:
        """Whether no other member has an active task, nor one of the same process a standby of it. Who left in this
        draft has nothing."""
        owner = self._state.owner(task)
        return (owner in (None, member.member_id) or owner not in self.members) and not self._is_standby_in_process(
            member, task
        )

    def is_free_standby(self, member: StreamsMember, task: StreamsTask) -> bool:
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

    def describe(self, about: StreamsValue) -> None:
        if about != self.about:
            self.about = about
            self._put(GroupKey(self.group_id), about)

    def bump(self) -> None:
        """Something changed that a target is made from: there must be another one, for all that changed together."""
        if self.about.epoch == self._state.about.epoch:
            self.describe(msgspec.structs.replace(self.about, epoch=self.about.epoch + 1))

    def initialize(self, topology: TopologyValue) -> None:
        if topology != self.topology:
            self.topology = topology
            self._put(TopologyKey(self.group_id), topology)
            self.bump()

    def put(self, member: StreamsMember) -> None:
        """Set everything about a member."""
        before = self.members.get(member.member_id)
        if before is None or before.about != member.about:
            self._put(MemberKey(self.group_id, member.member_id), member.about)
        if before is None or before.current() != member.current():
            self._put(CurrentKey(self.group_id, member.member_id), member.current())
        self.members[member.member_id] = member

    def aim(self, member_id: str, target: TaskSet) -> None:
        if self.targets.get(member_id) != target:
            self.targets[member_id] = target
            value = StreamsTargetValue(stored_tasks(target.active), stored_tasks(target.standby))
            self._put(TargetKey(self.group_id, member_id), value)

    def remove(self, member_id: str) -> None:
        del self.members[member_id]
        self._put(CurrentKey(self.group_id, member_id), None)
        if self.targets.pop(member_id, None) is not None:
            self._put(TargetKey(self.group_id, member_id), None)
        self._put(MemberKey(self.group_id, member_id), None)

    def remove_all(self) -> None:
        for member_id in tuple(self.members):
            self.remove(member_id)
        self._put(TopologyKey(self.group_id), None)

    def _put(self, key: Key, value: Value | None) -> None:
        # Behind what was written before: a task is taken from its old owner before its new one has it.
        self._changes.pop(key, None)
        self._changes[key] = value
