"""A classic group as it stands: its members, what it allows them, what of it is recorded. Pure.

How it moves from one generation to the next is in `classic.py`.
"""

from collections.abc import Sequence
from enum import Enum
from typing import Any, Self

import msgspec

from headrace.coordinator.result import Result
from headrace.groups.group import Answer, Effects, GroupLimits, Now, Write
from headrace.groups.members import Joined, JoinedMember, JoinRequest, Member, Synced, common_protocols
from headrace.groups.records import ClassicValue, GroupKey, GroupRecord, OffsetValue
from headrace.groups.subscription import CONSUMER, subscribed_topics
from headrace.model.errors import (
    FencedInstance,
    GroupFull,
    GroupNotEmpty,
    IllegalGeneration,
    InconsistentProtocol,
    RebalanceInProgress,
    UnknownMember,
)


class GroupState(Enum):
    """By the names that Kafka's tools show."""

    EMPTY = "Empty"
    PREPARING = "PreparingRebalance"
    COMPLETING = "CompletingRebalance"
    STABLE = "Stable"


class Roster:
    kind = "classic"

    def __init__(self, group_id: str, limits: GroupLimits, wall_ms: int = 0) -> None:
        self.group_id = group_id
        self.state = GroupState.EMPTY
        self.generation = 0
        self.protocol_type = ""
        self.protocol: str | None = None
        self.leader: str | None = None
        self.members: dict[str, Member] = {}
        self.state_since_ms = wall_ms
        self._limits = limits
        self._recorded: ClassicValue | None = None
        """What a restart would find."""
        self._static: dict[str, str] = {}
        self._pending: dict[str, float] = {}
        """Ids that were given out and not joined with yet, until when they hold."""
        self._not_synced: set[str] = set()
        self._phase_deadline_ms: float | None = None
        """The end of the join phase, or the time until which everybody must have synced."""
        self._is_initial = False
        """In the join phase: whether the group was empty before, so that it waits for more members to show up."""
        self._delay_left_ms = 0.0
        self._topics: set[str] | None = None
        """What the members of a stable group read, once somebody asked."""
        self._has_grown = False

    @classmethod
    def from_stored(cls, group_id: str, value: ClassicValue, limits: GroupLimits) -> Self:
        group = cls(group_id, limits, value.state_since_ms)
        group._recorded = value
        if value.members:
            group.state = GroupState.PREPARING if value.is_joining else GroupState.STABLE
        group.generation = value.generation
        group.protocol_type = value.protocol_type
        group.protocol = value.protocol
        group.leader = value.leader
        for stored in value.members:
            group._add(Member.from_stored(stored, value.protocol))
        return group

    @property
    def state_name(self) -> str:
        return self.state.value

    @property
    def is_empty(self) -> bool:
        return self.state is GroupState.EMPTY

    @property
    def is_idle(self) -> bool:
        return self.is_empty and not self._pending

    def check_commit(
        self, member_id: str, instance_id: str | None, generation: int, *, transactional: bool, now: Now
    ) -> None:
        if generation < 0 and self.state is GroupState.EMPTY:
            return
        if generation >= 0 or member_id or instance_id is not None:
            member = self._member(member_id, instance_id)
            self._check_generation(generation)
            if self.state in (GroupState.STABLE, GroupState.PREPARING):
                self._heard_of(member, now)
        elif not transactional:
            raise UnknownMember(f"the group {self.group_id} has members: only they may commit")
        if not transactional and self.state is GroupState.COMPLETING:
            raise RebalanceInProgress(f"the group {self.group_id} waits for its leader's assignment")

    def check_fetch(self, member_id: str | None, member_epoch: int) -> None:
        """Members of classic groups do not say who they are when they fetch."""

    def is_subscribed_to(self, topic: str) -> bool:
        if self.is_empty:
            return False
        topics = self._subscribed_topics()
        if topics is None:
            raise GroupNotEmpty(f"the group {self.group_id} has members, and does not say which topics they read")
        return topic in topics

    def offset_base_ms(self, topic: str, value: OffsetValue) -> int | None:
        if not self.protocol_type:
            return value.commit_ms
        if self.is_empty:
            return max(self.state_since_ms, value.commit_ms)
        if self.state is GroupState.STABLE:
            topics = self._subscribed_topics()
            if topics is not None and topic not in topics:
                return value.commit_ms
        return None

    def tombstones(self) -> Sequence[GroupRecord]:
        return [(GroupKey(self.group_id), None)]

    def start(self, now: Now) -> None:
        for member in self.members.values():
            self._heard_of(member, now)
        if self.state is GroupState.PREPARING:
            self._phase_deadline_ms = now.ms + self._rebalance_timeout_ms()

    def last_assignment(self, member_id: str) -> bytes:
        """What a member was assigned in the last stable generation: it reads no more than that while it joins again."""
        recorded = () if self._recorded is None else self._recorded.members
        return next((stored.assignment for stored in recorded if stored.member_id == member_id), b"")

    def fail_waiters(self, error: Result[Any]) -> Effects:
        out: Effects = []
        for member in self.members.values():
            self._answer_join(member, error, out)
            self._answer_sync(member, error, out)
        return out

    # -- members

    def _member(self, member_id: str, instance_id: str | None) -> Member:
        if instance_id is not None:
            holder = self._static.get(instance_id)
            if holder is None:
                raise UnknownMember(f"the group {self.group_id} has no static member {instance_id}")
            if holder != member_id:
                raise fenced(instance_id)
        member = self.members.get(member_id)
        if member is None:
            raise UnknownMember(f"the group {self.group_id} has no member {member_id}")
        return member

    def _check_generation(self, generation: int) -> None:
        if generation != self.generation:
            raise IllegalGeneration(f"the group {self.group_id} is at generation {self.generation}, not {generation}")

    def _check_room(self, member_id: str) -> None:
        member = self.members.get(member_id)
        if self.state is GroupState.PREPARING:
            waiting = sum(other.join_waiter is not None for other in self.members.values())
            has_room = (member is not None and member.join_waiter is not None) or waiting < self._limits.max_size
        else:
            has_room = member is not None or len(self.members) < self._limits.max_size
        if not has_room:
            raise GroupFull(f"the group {self.group_id} has group.max.size={self._limits.max_size} members already")

    def _check_protocols(self, wants: JoinRequest) -> None:
        if not wants.protocol_type or not wants.protocols:
            raise InconsistentProtocol("a member must name a protocol type and at least one protocol")
        if not self.members:
            return
        others = [member for member in self.members.values() if member.member_id != wants.member_id]
        if wants.instance_id is not None:
            others = [member for member in others if member.instance_id != wants.instance_id]
        if self.protocol_type and wants.protocol_type != self.protocol_type:
            raise InconsistentProtocol(f"the group {self.group_id} is of the protocol type {self.protocol_type}")
        if others and not common_protocols(others) & {name for name, _ in wants.protocols}:
            raise InconsistentProtocol(f"no protocol is spoken by all members of the group {self.group_id}")

    def _heard_of(self, member: Member, now: Now) -> None:
        if not member.is_new:
            member.deadline_ms = now.ms + member.session_timeout_ms

    def _add(self, member: Member) -> None:
        self.members[member.member_id] = member
        if member.instance_id is not None:
            self._static[member.instance_id] = member.member_id
        if self.leader is None:
            self.leader = member.member_id

    def _rename(self, member: Member, new_id: str) -> None:
        """A member gets another id. It stays in its place, so that who is next as a leader stays, too."""
        old_id, member.member_id = member.member_id, new_id
        self._topics = None
        self.members = {new_id if name == old_id else name: other for name, other in self.members.items()}
        if member.instance_id is not None:
            self._static[member.instance_id] = new_id
        if self.leader == old_id:
            self.leader = new_id
        if old_id in self._not_synced:
            self._not_synced.remove(old_id)
            self._not_synced.add(new_id)

    def _drop(self, member: Member) -> None:
        del self.members[member.member_id]
        self._not_synced.discard(member.member_id)
        if member.instance_id is not None:
            self._static.pop(member.instance_id, None)
        if self.leader == member.member_id:
            self.leader = next(iter(self.members), None)

    def _rebalance_timeout_ms(self) -> int:
        return max((member.rebalance_timeout_ms for member in self.members.values()), default=0)

    def _subscribed_topics(self) -> set[str] | None:
        """The topics that members read, if they are consumers whose subscriptions can be read."""
        if self.protocol_type != CONSUMER:
            return None
        if self._topics is not None:
            return self._topics
        topics: set[str] = set()
        for member in self.members.values():
            for _, said in member.protocols:
                subscribed = subscribed_topics(said)
                if subscribed is None:
                    return None
                topics |= subscribed
        if self.state is GroupState.STABLE:
            self._topics = topics
        return topics

    # -- what is recorded, and told

    def _become(self, state: GroupState, now: Now) -> None:
        self.state = state
        self._topics = None
        self.state_since_ms = now.wall_ms

    def _record(self) -> GroupRecord:
        value = ClassicValue(
            self.protocol_type,
            self.generation,
            self.protocol,
            self.leader,
            self.state_since_ms,
            tuple(member.stored(self.protocol) for member in self.members.values()),
            self.state is GroupState.PREPARING,
        )
        self._recorded = value
        return (GroupKey(self.group_id), value)

    def _record_replacement(self, old_id: str, member: Member, out: Effects) -> None:
        """The generation on record is the last stable one: there, too, the new id takes the place of the old one.

        Else a restart in the middle of a rebalance would let the old one back in, and fence its successor.
        """
        recorded = self._recorded
        if recorded is not None and any(stored.member_id == old_id for stored in recorded.members):
            members = tuple(
                msgspec.structs.replace(stored, member_id=member.member_id) if stored.member_id == old_id else stored
                for stored in recorded.members
            )
            leader = member.member_id if recorded.leader == old_id else recorded.leader
            self._recorded = msgspec.structs.replace(recorded, members=members, leader=leader)
            out.append(Write([(GroupKey(self.group_id), self._recorded)]))

    def _joined(self, member: Member) -> Joined:
        is_leader = member.member_id == self.leader
        everybody = tuple(
            JoinedMember(other.member_id, other.instance_id, other.subscription(self.protocol))
            for other in self.members.values()
            if is_leader
        )
        return Joined(
            member.member_id, self.generation, self.protocol_type, self.protocol, self.leader or "", everybody
        )

    def _assigned(self, member: Member) -> Result[Synced]:
        return Result(Synced(self.protocol_type, self.protocol, member.assignment))

    @staticmethod
    def _answer_join(member: Member, result: Result[Any], out: Effects) -> None:
        if member.join_waiter is not None:
            out.append(Answer(member.join_waiter, result))
            member.join_waiter = None

    @staticmethod
    def _answer_sync(member: Member, result: Result[Any], out: Effects) -> None:
        if member.sync_waiter is not None:
            out.append(Answer(member.sync_waiter, result))
            member.sync_waiter = None


def rebalancing(group_id: str) -> RebalanceInProgress:
    return RebalanceInProgress(f"the group {group_id} is rebalancing: join again")


def fenced(instance_id: str) -> FencedInstance:
    return FencedInstance(f"another member has taken the place of the static member {instance_id}")
