"""The persisted state of a consumer or streams group, and drafts of changes to it. Pure.

The state changes only by replaying records. A draft begins as a copy of the state, is changed while a request is
handled, and collects the records that apply the same changes to the state.
"""

from abc import ABC, abstractmethod
from collections.abc import Hashable, Iterable
from dataclasses import replace
from typing import Any, Generic, TypeVar

import msgspec

from headrace.groups.consumer_records import ConsumerValue, CurrentKey, MemberKey, TargetKey
from headrace.groups.epoch_members import EpochMember
from headrace.groups.records import GroupKey, GroupRecord, Key, Value
from headrace.groups.streams_records import StreamsValue

V = TypeVar("V", bound=ConsumerValue | StreamsValue)
M = TypeVar("M", bound=EpochMember[Any, Any])
T = TypeVar("T")


class EpochState(ABC, Generic[V, M, T]):
    """`V` is the value of the group's own record, `M` a member, `T` the target of a member."""

    def __init__(self, group_id: str, about: V) -> None:
        self.group_id = group_id
        self.about = about
        self.members: dict[str, M] = {}
        self.targets: dict[str, T] = {}
        self.static: dict[str, str] = {}
        """Member ids by instance id."""
        self._owners: dict[Hashable, str] = {}
        self._is_loaded = False

    # -- the kind of group

    @abstractmethod
    def new_member(self, member_id: str) -> M: ...

    @abstractmethod
    def restored(self, member: M, value: Value | None) -> M | None:
        """Return a member with the holdings of its record; None if the value is no such record."""

    @abstractmethod
    def read_target(self, value: Value | None) -> T | None:
        """Return the target in a record; None if the value is no such record."""

    @abstractmethod
    def exclusive(self, member: M) -> Iterable[Hashable]:
        """Return the holdings of a member that no other member may have."""

    @abstractmethod
    def check_owner(self, owner: str | None, member_id: str) -> None:
        """Raise `InvariantViolation` if a member gets a holding that another one owns."""

    # -- lookup and replay

    def owner(self, holding: Hashable) -> str | None:
        """Return the member that owns a partition or an active task, including one that has yet to revoke it."""
        return self._owners.get(holding)

    def loaded(self) -> None:
        """Note the end of loading: from here on this broker writes the records."""
        self._is_loaded = True

    def replay(self, key: Key, value: Value | None) -> None:
        if isinstance(key, GroupKey):
            if isinstance(value, type(self.about)):
                self.about = value
        elif isinstance(key, MemberKey):
            # After compaction the records of a member may be in any order.
            member = self.members.get(key.member_id) or self.new_member(key.member_id)
            if isinstance(value, type(member.about)):
                self._describe(member, value)
            else:
                self._remove(key.member_id)
        elif isinstance(key, TargetKey):
            target = self.read_target(value)
            if target is None:
                self.targets.pop(key.member_id, None)
            else:
                self.targets[key.member_id] = target
        elif isinstance(key, CurrentKey):
            before = self.members.get(key.member_id) or self.new_member(key.member_id)
            after = self.restored(before, value)
            if after is not None:
                self._release(before)
                self._hold(after)

    def _describe(self, member: M, about: Any) -> None:
        before = member.about.instance_id
        if before is not None and before != about.instance_id and self.static.get(before) == member.member_id:
            del self.static[before]
        if about.instance_id is not None:
            self.static[about.instance_id] = member.member_id
        self.members[member.member_id] = replace(member, about=about)

    def _hold(self, member: M) -> None:
        for holding in self.exclusive(member):
            if self._is_loaded:
                self.check_owner(self._owners.get(holding), member.member_id)
            self._owners[holding] = member.member_id
        self.members[member.member_id] = member

    def _release(self, member: M) -> None:
        for holding in self.exclusive(member):
            if self._owners.get(holding) == member.member_id:
                del self._owners[holding]

    def _remove(self, member_id: str) -> None:
        member = self.members.pop(member_id, None)
        if member is not None:
            self._release(member)
            instance_id = member.about.instance_id
            if instance_id is not None and self.static.get(instance_id) == member_id:
                del self.static[instance_id]


class EpochDraft(ABC, Generic[V, M, T]):
    def __init__(self, state: EpochState[V, M, T]) -> None:
        self.group_id = state.group_id
        self.about = state.about
        self.members = dict(state.members)
        self.targets = dict(state.targets)
        self._before = state.about
        self._changes: dict[Key, Value | None] = {}

    @abstractmethod
    def target_value(self, target: T) -> Value:
        """Return the value of a target record."""

    def records(self) -> list[GroupRecord]:
        """Return the records of all changes; for several changes of one key only the last.

        Many records may need several batches, and a crash may persist only the first ones. So a new epoch comes first,
        with an older target epoch: the next heartbeat then computes a complete target, whichever records are persisted.
        Current assignments come last, after all records that they depend on.
        """
        records: list[GroupRecord] = list(self._changes.items())
        if self.about.epoch == self._before.epoch:
            return records
        begun = msgspec.structs.replace(self._before, epoch=self.about.epoch)
        return [(GroupKey(self.group_id), begun), *records]

    def describe(self, about: V) -> None:
        if about != self.about:
            self.about = about
            self.change(GroupKey(self.group_id), about)

    def bump(self) -> None:
        """Raise the epoch after a change of the target's inputs, once for all changes of the draft."""
        if self.about.epoch == self._before.epoch:
            self.describe(msgspec.structs.replace(self.about, epoch=self.about.epoch + 1))

    def put(self, member: M) -> None:
        """Set a member's metadata and holdings."""
        before = self.members.get(member.member_id)
        if before is None or before.about != member.about:
            self.change(MemberKey(self.group_id, member.member_id), member.about)
        if before is None or before.current() != member.current():
            self.change(CurrentKey(self.group_id, member.member_id), member.current())
        self.members[member.member_id] = member

    def aim(self, member_id: str, target: T) -> None:
        """Set the target of a member."""
        if self.targets.get(member_id) != target:
            self.targets[member_id] = target
            self.change(TargetKey(self.group_id, member_id), self.target_value(target))

    def remove(self, member_id: str) -> None:
        del self.members[member_id]
        self.change(CurrentKey(self.group_id, member_id), None)
        if self.targets.pop(member_id, None) is not None:
            self.change(TargetKey(self.group_id, member_id), None)
        self.change(MemberKey(self.group_id, member_id), None)

    def remove_all(self) -> None:
        for member_id in tuple(self.members):
            self.remove(member_id)

    def change(self, key: Key, value: Value | None) -> None:
        # After all earlier changes: a holding leaves its old owner before its new one gets it.
        self._changes.pop(key, None)
        self._changes[key] = value
