"""The durable state of a consumer group, and drafts of changes to it. Pure.

The state changes by replaying records alone. A draft begins as a copy of it, is changed step by step while a request is
worked on, and keeps the records that make the same changes to the state.
"""

from dataclasses import replace

from headrace.groups.assignors import Assignment, TopicIdPartition
from headrace.groups.consumer_records import (
    ConsumerValue,
    CurrentKey,
    CurrentValue,
    MemberKey,
    SubscriptionValue,
    TargetKey,
    TargetValue,
    restored,
    stored,
)
from headrace.groups.reconciliation import ConsumerMember
from headrace.groups.records import GroupKey, GroupRecord, Key, Value


class ConsumerState:
    def __init__(self, group_id: str) -> None:
        self.group_id = group_id
        self.about = ConsumerValue()
        self.members: dict[str, ConsumerMember] = {}
        self.targets: dict[str, Assignment] = {}
        self.static: dict[str, str] = {}
        """Instance id to member id."""
        self._owners: dict[TopicIdPartition, str] = {}

    def owner(self, place: TopicIdPartition) -> str | None:
        """The member that has a partition, be it that it has yet to give it up."""
        return self._owners.get(place)

    def replay(self, key: Key, value: Value | None) -> None:
        if isinstance(key, GroupKey):
            if isinstance(value, ConsumerValue):
                self.about = value
        elif isinstance(key, MemberKey):
            if isinstance(value, SubscriptionValue):
                self._subscribed(key.member_id, value)
            else:
                self._gone(key.member_id)
        elif isinstance(key, TargetKey):
            if isinstance(value, TargetValue):
                self.targets[key.member_id] = restored(value.places)
            else:
                self.targets.pop(key.member_id, None)
        elif isinstance(key, CurrentKey) and isinstance(value, CurrentValue):
            # Compaction may have left this record in front of the one that says who the member is.
            member = self.members.get(key.member_id) or ConsumerMember(key.member_id)
            self._hold(member, member.with_current(value))

    def _subscribed(self, member_id: str, wants: SubscriptionValue) -> None:
        member = self.members.get(member_id) or ConsumerMember(member_id)
        before = member.wants.instance_id
        if before is not None and before != wants.instance_id and self.static.get(before) == member_id:
            del self.static[before]
        if wants.instance_id is not None:
            self.static[wants.instance_id] = member_id
        self.members[member_id] = replace(member, wants=wants)

    def _hold(self, before: ConsumerMember, now: ConsumerMember) -> None:
        self._release(before)
        for place in now.holds:
            self._owners[place] = now.member_id
        self.members[now.member_id] = now

    def _release(self, member: ConsumerMember) -> None:
        for place in member.holds:
            if self._owners.get(place) == member.member_id:
                del self._owners[place]

    def _gone(self, member_id: str) -> None:
        member = self.members.pop(member_id, None)
        if member is not None:
            self._release(member)
            instance_id = member.wants.instance_id
            if instance_id is not None and self.static.get(instance_id) == member_id:
                del self.static[instance_id]


class Draft:
    def __init__(self, state: ConsumerState) -> None:
        self.group_id = state.group_id
        self.about = state.about
        self.members = dict(state.members)
        self.targets = dict(state.targets)
        self._state = state
        self._changes: dict[Key, Value | None] = {}

    def records(self) -> list[GroupRecord]:
        """The records of all changes; of several to the same thing the last one.

        Many records are more than one batch, and a crash may leave the first of them alone. So a new epoch comes first,
        with a target that is behind it: whatever else is there, the next heartbeat makes a whole target. What a member
        holds comes last, behind everything that it rests on.
        """
        before = self._state.about
        records = [(key, value) for key, value in self._changes.items()]
        if self.about.epoch == before.epoch:
            return records
        begun = ConsumerValue(self.about.epoch, before.target_epoch, before.assignor, before.topics_hash)
        return [(GroupKey(self.group_id), begun), *records]

    def is_free_for(self, member_id: str, place: TopicIdPartition) -> bool:
        """Whether no other member has a partition. Who left in this draft has nothing."""
        owner = self._state.owner(place)
        return owner is None or owner == member_id or owner not in self.members

    def describe(self, about: ConsumerValue) -> None:
        if about != self.about:
            self.about = about
            self._put(GroupKey(self.group_id), about)

    def bump(self) -> None:
        """Members, subscriptions or topics changed: there must be another target, one for all that changed together."""
        about = self.about
        if about.epoch == self._state.about.epoch:
            self.describe(ConsumerValue(about.epoch + 1, about.target_epoch, about.assignor, about.topics_hash))

    def put(self, member: ConsumerMember) -> None:
        """Set everything about a member."""
        before = self.members.get(member.member_id)
        if before is None or before.wants != member.wants:
            self._put(MemberKey(self.group_id, member.member_id), member.wants)
        if before is None or before.current() != member.current():
            self._put(CurrentKey(self.group_id, member.member_id), member.current())
        self.members[member.member_id] = member

    def aim(self, member_id: str, target: Assignment) -> None:
        if self.targets.get(member_id) != target:
            self.targets[member_id] = target
            self._put(TargetKey(self.group_id, member_id), TargetValue(stored(target)))

    def remove(self, member_id: str) -> None:
        del self.members[member_id]
        self._put(CurrentKey(self.group_id, member_id), None)
        if self.targets.pop(member_id, None) is not None:
            self._put(TargetKey(self.group_id, member_id), None)
        self._put(MemberKey(self.group_id, member_id), None)

    def remove_all(self) -> None:
        for member_id in tuple(self.members):
            self.remove(member_id)

    def _put(self, key: Key, value: Value | None) -> None:
        # Behind what was written before: a partition is taken from its old owner before its new one has it.
        self._changes.pop(key, None)
        self._changes[key] = value
